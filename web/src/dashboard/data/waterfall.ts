// Computes the bars of a turn's waterfall, which the view draws. Pure functions.

import { MARKS, STAGES, type Mark, type Span, type Stage, type Turn } from './turn';

export interface Bar {
  stage: Stage;
  fromMs: number;
  toMs: number;
  speculation: number | null;
  /** It is still running; its end is unknown. */
  open: boolean;
}

export interface Lane {
  stage: Stage;
  bars: Bar[];
  /** The parts of this stage on the critical path. */
  critical: Bar[];
}

export interface Waterfall {
  fromMs: number;
  toMs: number;
  /** There is more on either side. */
  isCut: boolean;
  lanes: Lane[];
  marks: { mark: Mark; ms: number }[];
}

/** Time shown before the end of speech and after the first sound of the response, relative to the latency. */
const BEFORE = 0.35;
const AFTER = 1.4;
/** A dropped speculative response before that is shown up to this far away, relative to the latency. */
const SPECULATION_BEFORE = 1.2;

/**
 * The rows of the stages that ran or were on the critical path, in the order of a turn, and the time range
 * to show: the latency with a margin, or everything.
 */
export function waterfall(turn: Turn, whole: boolean): Waterfall {
  const latest = lastKnown(turn);
  const bars = turn.stages.map((span) => barOf(span, latest));
  const critical = turn.parts.map((span) => barOf(span, latest));
  const lanes = STAGES.map((stage) => ({
    stage,
    bars: bars.filter((bar) => bar.stage === stage),
    critical: critical.filter((bar) => bar.stage === stage),
  })).filter((lane) => lane.bars.length > 0 || lane.critical.length > 0);
  const marks = MARKS.flatMap((mark) => {
    const ms = turn.marks[mark];
    return ms === undefined ? [] : [{ mark, ms }];
  });
  const all = [...bars, ...critical];
  const earliest = Math.min(0, ...all.map(({ fromMs }) => fromMs), ...marks.map(({ ms }) => ms));
  const waitMs = Math.max(1, turn.voiceToVoiceMs ?? latest);
  const speculative = turn.speculations.map(({ fromMs }) => fromMs).filter((ms) => ms > -SPECULATION_BEFORE * waitMs);
  const fromMs = Math.max(earliest, Math.min(-BEFORE * waitMs, ...speculative));
  const toMs = Math.max(1, Math.min(latest, AFTER * waitMs));
  const isCut = fromMs > earliest || toMs < latest;
  return whole ? { fromMs: earliest, toMs: Math.max(1, latest), isCut, lanes, marks } : { fromMs, toMs, isCut, lanes, marks };
}

/** The latest known time. */
export function lastKnown(turn: Turn): number {
  const spans = [...turn.stages, ...turn.parts, ...turn.speculations];
  return Math.max(0, turn.voiceToVoiceMs ?? 0, ...spans.map(({ fromMs, toMs }) => toMs ?? fromMs), ...Object.values(turn.marks));
}

function barOf({ stage, fromMs, toMs, speculation }: Span, latest: number): Bar {
  return { stage, fromMs, toMs: Math.max(fromMs, toMs ?? latest), speculation, open: toMs === null };
}

/** Round ticks for an axis from `from` to `to`, at most about `most` of them. */
export function ticks(from: number, to: number, most: number): number[] {
  const rough = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10) * power;
  const found: number[] = [];
  for (let i = Math.ceil(from / step); i * step <= to + step * 1e-9; i += 1) found.push(i * step + 0);
  return found;
}

/** The response, split where it was interrupted. `unknown`: the hub does not report what was heard. */
export function heardOf(turn: Turn): { heard: string; unheard: string; unknown: boolean } {
  const reply = turn.reply ?? '';
  if (turn.heard === null) return { heard: reply, unheard: '', unknown: true };
  // Spaces at the split belong to neither part; a heard text that is not a prefix of the response is shown as it is.
  const heard = turn.heard.trimEnd();
  if (!reply.startsWith(heard)) return { heard: turn.heard, unheard: '', unknown: false };
  return { heard, unheard: reply.slice(heard.length), unknown: false };
}
