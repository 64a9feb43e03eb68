// The dashboard: latency, its history, its breakdown by stage, and each turn.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { Mark } from '../../view/icons';
import type { Book } from '../data/book';
import { type Baseline, windowBefore } from '../data/compare';
import { type Measure, percentiles, recent, samples, summary, within } from '../data/percentiles';
import { type Query, choices, isFiltered, matching, ordered, queryFrom, searchOf } from '../data/query';
import type { Feed } from '../feed';
import { Cluster } from './Cluster';
import { Compare, CompareChoice, type Compared } from './Compare';
import { Filters } from './Filters';
import { Headline } from './Headline';
import { LineNotice, LineState } from './LineNotice';
import { Machine } from './Machine';
import { OverTime } from './OverTime';
import { Stages } from './Stages';
import { Tally } from './Tally';
import { Turns } from './Turns';
import { DEFAULT_WINDOW_MS, WindowChoice, windowName } from './WindowChoice';

export function Dashboard({ feed }: { feed: Feed }) {
  const book = useBook(feed);
  const [windowMs, setWindowMs] = useState(DEFAULT_WINDOW_MS);
  const [measure, setMeasure] = useState<Measure>('voice_to_voice');
  const [query, setQuery] = useQuery();
  const [against, setAgainst] = useState<Compared>('nothing');
  const [kept, setKept] = useState<Baseline | null>(null);
  const { filter } = query;
  const now = nowOf(book);
  const turns = useMemo(() => matching(book.turns, filter), [book.turns, filter]);
  const listed = useMemo(() => ordered(turns, query.order), [turns, query.order]);
  const chosen = useMemo(() => samples(turns, measure), [turns, measure]);
  const waits = useMemo(() => samples(turns, 'voice_to_voice'), [turns]);
  const offered = useMemo(() => choices(book.turns), [book.turns]);
  const inWindow = summary(turns, now, windowMs);
  const state = book.states.at(-1) ?? null;
  const isEmpty = book.turns.length === 0;
  const baseline = against === 'kept' ? kept : against === 'before' ? windowBefore(now, windowMs, filter) : null;
  const keep = () => {
    setKept({ from: now - windowMs, to: now, filter });
    setAgainst('kept');
  };
  return (
    <div class="dash" data-line={book.line.kind}>
      <header class="header">
        <h1 class="name">
          <Mark /> Antiphon <span class="name-what">latency</span>
        </h1>
        <div class="choices">
          <LineState line={book.line} />
          <WindowChoice windowMs={windowMs} onWindow={setWindowMs} />
          {!isEmpty && <CompareChoice compared={against} kept={kept} windowWords={windowName(windowMs)} onCompared={setAgainst} onKeep={keep} />}
          <a class="pill" href="./">
            Voice chat
          </a>
        </div>
      </header>
      <LineNotice line={book.line} onRetry={feed.retry} onKey={(key) => feed.useKey(key)} />
      <main class={`board ${isEmpty ? 'is-empty' : ''}`}>
        {isEmpty ? (
          <NoTurns book={book} />
        ) : (
          <>
            <Filters filter={filter} choices={offered} shown={turns.length} all={book.turns.length} onFilter={(next) => setQuery({ ...query, filter: next })} />
            <Headline percentiles={percentiles(recent(waits, now, windowMs))} within={inWindow.within} windowMs={windowMs} />
            <OverTime samples={chosen} measure={measure} now={now} windowMs={windowMs} onMeasure={setMeasure} />
            <Stages turns={turns} now={now} windowMs={windowMs} measure={measure} onMeasure={setMeasure} />
            {baseline !== null && <Compare turns={book.turns} baseline={baseline} current={within(turns, now, windowMs)} measure={measure} onMeasure={setMeasure} />}
          </>
        )}
        {(state !== null || !isEmpty) && <Tally summary={inWindow} state={state} windowMs={windowMs} isFiltered={isFiltered(filter)} />}
        {book.cluster !== null && <Cluster cluster={book.cluster} />}
        {!isEmpty && <Turns book={book} turns={listed} query={query} onQuery={setQuery} ask={feed.ask} />}
        {state !== null && <Machine states={book.states} isOneOfSeveral={(book.cluster?.hubs.length ?? 0) > 1} />}
      </main>
    </div>
  );
}

/** What the page shows of the turns, as its address says. */
function useQuery(): [Query, (query: Query) => void] {
  const [query, setQuery] = useState(() => queryFrom(location.search));
  const choose = (next: Query) => {
    setQuery(next);
    history.replaceState(null, '', location.pathname + searchOf(next) + location.hash);
  };
  return [query, choose];
}

function NoTurns({ book }: { book: Book }) {
  const isLive = book.line.kind === 'live';
  return (
    <section class="card area-empty" id="no-turns">
      <h2>{isLive ? 'No turns yet' : book.line.kind === 'connecting' ? 'Connecting to the hub' : 'Nothing to show yet'}</h2>
      {isLive ? (
        <p>
          <a href="./">Open the voice chat</a> and ask something, or speak a recording to the hub from a shell: <code>antiphon ask question.wav --url {location.origin}</code>. Each turn appears here as it
          happens.
        </p>
      ) : (
        <p>Turns appear here as soon as the hub answers.</p>
      )}
    </section>
  );
}

/** The hub's clock, so that a wrong clock of the viewer has no effect; frozen while disconnected. */
function nowOf(book: Book): number {
  const known = Math.max(book.states.at(-1)?.at ?? 0, book.turns[0]?.startedAt ?? 0);
  return known > 0 ? known : Date.now();
}

/** Draws at most once per animation frame, however many events arrive. */
function useBook(feed: Feed): Book {
  const [book, setBook] = useState(feed.book);
  useEffect(() => {
    let frame = 0;
    const draw = () => {
      frame = 0;
      setBook(feed.book);
    };
    const stop = feed.subscribe(() => {
      // A hidden page has no animation frames; it is drawn when it becomes visible.
      frame ||= requestAnimationFrame(draw);
    });
    draw();
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [feed]);
  return book;
}
