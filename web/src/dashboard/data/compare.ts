// Compares the turns of two windows: percentiles of each stage, their change, and whether chance explains it.
// Pure functions.

import { MEASURES, type Measure, type Percentiles, percentiles, valueOf } from './percentiles';
import { type Filter, everything, isFiltered, matching } from './query';
import type { Turn } from './turn';

/** Turns to compare with: those of a window that match a filter. */
export interface Baseline {
  /** Milliseconds since 1970; a turn at `from` is not in it, one at `to` is. */
  from: number;
  to: number;
  filter: Filter;
}

export interface Comparison {
  measure: Measure;
  before: Percentiles;
  now: Percentiles;
  /** Whether the difference is more than chance; null with too few turns to judge. */
  differs: boolean | null;
  /** Whether the values now are lower on the whole, as the test of `differs` ranks them: single percentiles may be equal. */
  isFaster: boolean;
}

/** The window of the same length before the current one, of the same filter. */
export const windowBefore = (now: number, windowMs: number, filter: Filter): Baseline => ({ from: now - 2 * windowMs, to: now - windowMs, filter });

export function turnsOf(turns: readonly Turn[], { from, to, filter }: Baseline): readonly Turn[] {
  return matching(turns, filter).filter(({ startedAt }) => startedAt > from && startedAt <= to);
}

/** One row for each measure that took time in either window. */
export function compared(before: readonly Turn[], now: readonly Turn[]): Comparison[] {
  return MEASURES.flatMap((measure) => {
    const [old, current] = [valuesOf(before, measure), valuesOf(now, measure)];
    if (measure !== 'voice_to_voice' && ![...old, ...current].some((ms) => ms > 0)) return [];
    const isFaster = deviation(old, current) > 0;
    return [{ measure, before: percentiles(old), now: percentiles(current), differs: differs(old, current), isFaster }];
  });
}

const valuesOf = (turns: readonly Turn[], measure: Measure) => turns.flatMap((turn) => valueOf(turn, measure) ?? []);

/** Values of each side below which the normal approximation of the test is poor. */
const LEAST_VALUES = 8;
/** Two-sided 5 % of the normal distribution. */
const Z_5_PERCENT = 1.96;

/**
 * Mann-Whitney U test, with the correction for ties: whether two samples come from distributions that differ, at 5 %.
 * Null if either has fewer than `LEAST_VALUES`.
 */
export function differs(a: readonly number[], b: readonly number[]): boolean | null {
  return a.length < LEAST_VALUES || b.length < LEAST_VALUES ? null : Math.abs(deviation(a, b)) > Z_5_PERCENT;
}

/** The statistic of that test in standard deviations from its mean; positive where the values of `a` are higher. */
function deviation(a: readonly number[], b: readonly number[]): number {
  const all = [...a.map((value) => ({ value, isA: true })), ...b.map((value) => ({ value, isA: false }))].sort((x, y) => x.value - y.value);
  const n = all.length;
  let [ranksOfA, ties] = [0, 0];
  for (let from = 0; from < n; ) {
    let to = from;
    while (to < n && all[to]?.value === all[from]?.value) to += 1;
    // Equal values share the mean of their ranks, which count from 1.
    const rank = (from + to + 1) / 2;
    ranksOfA += rank * all.slice(from, to).filter(({ isA }) => isA).length;
    ties += (to - from) ** 3 - (to - from);
    from = to;
  }
  const u = ranksOfA - (a.length * (a.length + 1)) / 2;
  const variance = ((a.length * b.length) / 12) * (n + 1 - ties / (n * (n - 1)));
  return variance > 0 ? (u - (a.length * b.length) / 2) / Math.sqrt(variance) : 0;
}

/** "stt openai, failed": what a filter admits, in words; empty if everything. */
export function filterWords(filter: Filter): string {
  if (!isFiltered(filter)) return '';
  const words = filter.words === '' ? '' : `“${filter.words}”`;
  return [filter.engine, filter.session, filter.kind, filter.show === everything.show ? '' : filter.show, words].filter((part) => part !== '').join(', ');
}
