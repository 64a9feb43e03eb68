// One turn in full: what was said, what was heard of the response, and where each millisecond was spent.

import type { ComponentChildren } from 'preact';
import { lengthOf } from '../data/percentiles';
import { MARKS, type Turn } from '../data/turn';
import { heardOf } from '../data/waterfall';
import { MARK_WORDS, OUTCOME_WORDS, STAGE_WORDS, STATUS_WORDS, duration, fieldName, fieldValue, workerFacts } from '../data/words';
import { Recording } from './Recording';
import { Waterfall } from './Waterfall';

/** Parts and total are each rounded to a microsecond. */
const ROUNDING_MS = 0.01;

interface Props {
  turn: Turn;
  /** Recordings stay on the hub that made them. */
  isOfThisHub: boolean;
  ask: (path: string) => Promise<Response>;
  /** Shows the turns of its session only. */
  onSession: () => void;
}

export function TurnDetail({ turn, isOfThisHub, ask, onSession }: Props) {
  return (
    <div class="detail" id={`detail-${turn.id}`}>
      <Words turn={turn} />
      <div class="detail-tools">
        {turn.isRecorded && isOfThisHub && <Recording turn={turn} ask={ask} />}
        {turn.sessionId !== '' && (
          <button type="button" class="pill only-session" onClick={onSession}>
            Only this session
          </button>
        )}
      </div>
      {turn.error !== null && <p class="detail-error">{turn.error}</p>}
      <Waterfall turn={turn} />
      <div class="fact-boxes">
        <Parts turn={turn} />
        <Facts name="Timestamps" entries={MARKS.flatMap((mark) => (turn.marks[mark] === undefined ? [] : [[MARK_WORDS[mark], duration(turn.marks[mark])] as const]))} />
        <Facts name="Why the turn was over" entries={fields(turn.endpointing)}>
          {Object.keys(turn.endpointing).length === 0 && <p class="quiet">It was not decided from audio.</p>}
        </Facts>
        <SpeculativeResponses turn={turn} />
        <Facts name="Waits within stages" entries={fields(turn.waits)} />
        <Facts name="Audio of the answer" entries={fields(turn.audio)} />
        <Facts name="Engines and tokens" entries={[...Object.entries(turn.engines), ...workerFacts(turn), ...fields(turn.usage).map(([key, value]) => [`${key} tokens`, value] as const)]} />
        <Facts name="Compute" entries={fields(turn.cost)} />
        <Facts
          name="Record"
          entries={[
            ['turn', turn.id],
            ['session', turn.sessionId],
            ...(turn.transport === '' ? [] : [['transport', turn.transport] as const]),
            ...(turn.hub === null ? [] : [['hub', turn.hub] as const]),
            ...(turn.language === null ? [] : [['language', turn.language] as const]),
            ['ended', STATUS_WORDS[turn.status]],
          ]}
        />
      </div>
    </div>
  );
}

function Words({ turn }: { turn: Turn }) {
  const { heard, unheard, unknown } = heardOf(turn);
  if (turn.transcript === null && turn.reply === null && turn.filler === null) return <p class="quiet">{wordless(turn)}</p>;
  return (
    <div class="dialogue">
      {turn.transcript !== null && (
        <p class="said-you">
          <span class="who">asked</span> <span lang={turn.language ?? undefined} dir="auto">{turn.transcript}</span>
        </p>
      )}
      {turn.filler !== null && (
        <p class="said-hub said-filler">
          <span class="who">filled in</span> <span dir="auto">{turn.filler.text}</span> <span class="quiet">at {duration(turn.filler.atMs)}, since the answer was late</span>
        </p>
      )}
      {turn.reply !== null && (
        <p class="said-hub">
          <span class="who">answered</span>{' '}
          <span dir="auto">
            <span class="heard">{heard}</span>
            {unheard !== '' && (
              <>
                <span class="visually-hidden"> (not heard:) </span>
                {unheard.startsWith(' ') && ' '}
                <span class="unheard" title="not heard">
                  {unheard.trimStart()}
                </span>
              </>
            )}
          </span>
        </p>
      )}
      {unheard !== '' && <p class="quiet">The struck-through text was not heard.</p>}
      {turn.reply !== null && unknown && <p class="quiet">It is not known how much of it was heard.</p>}
    </div>
  );
}

/** Why there is no text, as far as it is known. */
function wordless(turn: Turn): string {
  if (turn.kind === 'tool') return 'The result of a tool; nobody spoke.';
  if (turn.kind === 'idle') return 'Nobody spoke, so the hub did.';
  if (turn.status === 'failed') return 'The turn failed before there were words.';
  if (turn.status === 'unanswered') return 'No words were understood.';
  if (turn.status === 'listening') return 'The words are not known yet.';
  return 'There are no words: they came to nothing, or the hub keeps none (server.keep_transcripts).';
}

/** The critical path as a sum, and whether it matches the total. */
function Parts({ turn }: { turn: Turn }) {
  if (turn.parts.length === 0) return null;
  const sum = turn.parts.reduce((all, part) => all + lengthOf(part), 0);
  const gap = turn.voiceToVoiceMs === null ? 0 : turn.voiceToVoiceMs - sum;
  return (
    <section class="fact-box">
      <h3>Where the time went</h3>
      <dl class="facts parts">
        {turn.parts.map((part, i) => (
          <div key={i}>
            <dt>
              <i class={`dot fill-${part.stage}`} />
              {STAGE_WORDS[part.stage].name}
              {part.speculation !== null && <span class="quiet"> speculative</span>}
            </dt>
            <dd>{duration(lengthOf(part))}</dd>
          </div>
        ))}
        <div class="sum">
          <dt>until the first sound {turn.heardBy === null ? 'was sent' : turn.heardBy === 'report' ? 'was heard' : 'was heard (estimated)'}</dt>
          <dd>{duration(sum)}</dd>
        </div>
        {Math.abs(gap) > ROUNDING_MS && (
          <div class="bad">
            <dt>not accounted for</dt>
            <dd>{duration(gap)}</dd>
          </div>
        )}
      </dl>
    </section>
  );
}

function SpeculativeResponses({ turn }: { turn: Turn }) {
  if (turn.speculations.length === 0) return null;
  return (
    <section class="fact-box">
      <h3>Speculative responses</h3>
      <dl class="facts">
        {turn.speculations.map(({ fromMs, toMs, outcome }, i) => (
          <div key={i}>
            <dt>{outcome === null ? 'open' : (OUTCOME_WORDS[outcome] ?? outcome)}</dt>
            <dd class="nowrap">
              {Math.round(fromMs)} to {toMs === null ? 'now' : duration(toMs)}
            </dd>
          </div>
        ))}
        {turn.wastedMs > 0 && (
          <div class="sum">
            <dt>computed in vain</dt>
            <dd>{duration(turn.wastedMs)}</dd>
          </div>
        )}
      </dl>
    </section>
  );
}

interface FactsProps {
  name: string;
  entries: (readonly [string, string])[];
  children?: ComponentChildren;
}

function Facts({ name, entries, children }: FactsProps) {
  if (entries.length === 0 && !children) return null;
  return (
    <section class="fact-box">
      <h3>{name}</h3>
      {children}
      <dl class="facts">
        {entries.map(([key, value]) => (
          <div key={key}>
            <dt>{key}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

const fields = (values: Record<string, number | string>) => Object.entries(values).map(([key, value]) => [fieldName(key), fieldValue(key, value)] as const);
