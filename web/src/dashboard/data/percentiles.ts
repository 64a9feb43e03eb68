// Latency percentiles, current and over time. Pure functions.

import { STAGES, type Span, type Stage, type Turn } from './turn';

export interface Percentiles {
  n: number;
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

/** What a chart shows: the voice-to-voice latency, or one stage's share of it. */
export type Measure = 'voice_to_voice' | Stage;
export const MEASURES: readonly Measure[] = ['voice_to_voice', ...STAGES];

/** A value and its time (ms since 1970). */
export interface Sample {
  at: number;
  ms: number;
}

/** Nearest rank: the smallest value that at least `share` of all values do not exceed. Null without values. */
export function percentile(sorted: readonly number[], share: number): number | null {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? null;
}

export function percentiles(values: readonly number[]): Percentiles {
  const sorted = [...values].sort((a, b) => a - b);
  return { n: sorted.length, p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95), p99: percentile(sorted, 0.99) };
}

/** Stages that a turn without speech does not have. */
const OF_SPEECH: readonly Measure[] = ['voice_to_voice', 'endpointing', 'stt'];

/**
 * The value of a measure for a turn; null if the turn was not answered, or was not spoken and the measure is one of speech. A
 * stage that did not contribute to the latency counts as zero, so that its percentiles cover all answered turns.
 */
export function valueOf(turn: Turn, measure: Measure): number | null {
  if (turn.voiceToVoiceMs === null || (turn.kind !== 'speech' && OF_SPEECH.includes(measure))) return null;
  if (measure === 'voice_to_voice') return turn.voiceToVoiceMs;
  return turn.parts.filter(({ stage }) => stage === measure).reduce((sum, part) => sum + lengthOf(part), 0);
}

/** Each stage's part of all that the answers of `turns` were waited for, 0 to 1; they add up to 1. Empty without answers. */
export function shares(turns: readonly Turn[]): Partial<Record<Stage, number>> {
  const answered = turns.filter((turn) => turn.voiceToVoiceMs !== null);
  const sums = STAGES.map((stage) => [stage, answered.reduce((sum, turn) => sum + (valueOf(turn, stage) ?? 0), 0)] as const);
  const total = sums.reduce((sum, [, ms]) => sum + ms, 0);
  return total === 0 ? {} : Object.fromEntries(sums.filter(([, ms]) => ms > 0).map(([stage, ms]) => [stage, ms / total]));
}

/** The turns that began in the `windowMs` until `now`. */
export function within(turns: readonly Turn[], now: number, windowMs: number): Turn[] {
  return turns.filter(({ startedAt }) => startedAt > now - windowMs && startedAt <= now);
}

export function lengthOf({ fromMs, toMs }: Span): number {
  return Math.max(0, (toMs ?? fromMs) - fromMs);
}

/** The measure of all answered turns that have it, oldest first. */
export function samples(turns: readonly Turn[], measure: Measure): Sample[] {
  const found = turns.flatMap((turn) => {
    const ms = valueOf(turn, measure);
    return ms === null ? [] : [{ at: turn.startedAt, ms }];
  });
  return found.sort((a, b) => a.at - b.at);
}

/** The values of the last `windowMs` until `now`. */
export function recent(all: readonly Sample[], now: number, windowMs: number): number[] {
  return all.filter(({ at }) => at > now - windowMs && at <= now).map(({ ms }) => ms);
}

export interface Series {
  /** Milliseconds since 1970. */
  at: number[];
  p50: (number | null)[];
  p95: (number | null)[];
  p99: (number | null)[];
}

/**
 * Percentiles of a window that slides from `from` to `to` in `nPoints` steps. `all` is sorted by time.
 * A window without turns is a gap, not a zero.
 */
export function sliding(all: readonly Sample[], from: number, to: number, windowMs: number, nPoints: number): Series {
  const series: Series = { at: [], p50: [], p95: [], p99: [] };
  // The window's values in order: each is inserted and removed once, so that a long list is not sorted at every point.
  const inside: number[] = [];
  let first = 0;
  let after = 0;
  for (let i = 0; i < nPoints; i += 1) {
    const at = from + ((to - from) * i) / Math.max(1, nPoints - 1);
    for (let next = all[after]; next !== undefined && next.at <= at; next = all[after]) {
      inside.splice(placeOf(inside, next.ms), 0, next.ms);
      after += 1;
    }
    for (let old = all[first]; first < after && old !== undefined && old.at <= at - windowMs; old = all[first]) {
      inside.splice(placeOf(inside, old.ms), 1);
      first += 1;
    }
    series.at.push(at);
    series.p50.push(percentile(inside, 0.5));
    series.p95.push(percentile(inside, 0.95));
    series.p99.push(percentile(inside, 0.99));
  }
  return series;
}

/** The index of the first value that is not smaller. */
function placeOf(sorted: readonly number[], value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? Infinity) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface Summary {
  turns: number;
  bargeIns: number;
  failed: number;
  speculations: number;
  confirmed: number;
  wastedMs: number;
  /** Fraction of the spoken turns answered within `OBJECTIVE_MS`; null without turns. */
  within: number | null;
}

/** Latency objective of a turn. */
export const OBJECTIVE_MS = 2_000;
/** Typical gap between turns in human conversation. */
export const HUMAN_MS = 200;

export function summary(turns: readonly Turn[], now: number, windowMs: number): Summary {
  const inside = within(turns, now, windowMs);
  const waits = inside.flatMap((turn) => valueOf(turn, 'voice_to_voice') ?? []);
  const speculations = inside.flatMap((turn) => turn.speculations);
  return {
    turns: inside.length,
    bargeIns: inside.filter(({ bargedIn }) => bargedIn).length,
    failed: inside.filter(({ status }) => status === 'failed').length,
    speculations: speculations.length,
    confirmed: speculations.filter(({ outcome }) => outcome === 'confirmed').length,
    wastedMs: inside.reduce((sum, { wastedMs }) => sum + wastedMs, 0),
    within: waits.length === 0 ? null : waits.filter((ms) => ms <= OBJECTIVE_MS).length / waits.length,
  };
}
