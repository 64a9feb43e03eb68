// The dashboard: latency, its history, its breakdown by stage, and each turn.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { Mark } from '../../view/icons';
import type { Book } from '../data/book';
import { type Measure, percentiles, recent, samples, summary } from '../data/percentiles';
import type { Feed } from '../feed';
import { Cluster } from './Cluster';
import { Headline } from './Headline';
import { LineNotice, LineState } from './LineNotice';
import { Machine } from './Machine';
import { OverTime } from './OverTime';
import { Stages } from './Stages';
import { Tally } from './Tally';
import { Turns } from './Turns';
import { DEFAULT_WINDOW_MS, WindowChoice } from './WindowChoice';

export function Dashboard({ feed }: { feed: Feed }) {
  const book = useBook(feed);
  const [windowMs, setWindowMs] = useState(DEFAULT_WINDOW_MS);
  const [measure, setMeasure] = useState<Measure>('voice_to_voice');
  const now = nowOf(book);
  const chosen = useMemo(() => samples(book.turns, measure), [book.turns, measure]);
  const waits = useMemo(() => samples(book.turns, 'voice_to_voice'), [book.turns]);
  const inWindow = summary(book.turns, now, windowMs);
  const state = book.states.at(-1) ?? null;
  const isEmpty = book.turns.length === 0;
  return (
    <div class="dash" data-line={book.line.kind}>
      <header class="header">
        <h1 class="name">
          <Mark /> Antiphon <span class="name-what">latency</span>
        </h1>
        <div class="choices">
          <LineState line={book.line} />
          <WindowChoice windowMs={windowMs} onWindow={setWindowMs} />
          <a class="pill" href="./">
            Voice chat
          </a>
        </div>
      </header>
      <LineNotice line={book.line} onRetry={feed.retry} onKey={(key) => feed.useKey(key)} />
      <main class={`board ${isEmpty ? 'is-empty' : ''} ${book.cluster === null ? '' : 'has-cluster'}`}>
        {isEmpty ? (
          <NoTurns book={book} />
        ) : (
          <>
            <Headline percentiles={percentiles(recent(waits, now, windowMs))} within={inWindow.within} windowMs={windowMs} />
            <OverTime samples={chosen} measure={measure} now={now} windowMs={windowMs} onMeasure={setMeasure} />
            <Stages turns={book.turns} now={now} windowMs={windowMs} measure={measure} onMeasure={setMeasure} />
          </>
        )}
        {(state !== null || !isEmpty) && <Tally summary={inWindow} state={state} windowMs={windowMs} />}
        {book.cluster !== null && <Cluster cluster={book.cluster} />}
        {!isEmpty && <Turns turns={book.turns} missingHubs={book.missingHubs} />}
        {state !== null && <Machine states={book.states} isOneOfSeveral={(book.cluster?.hubs.length ?? 0) > 1} />}
      </main>
    </div>
  );
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
