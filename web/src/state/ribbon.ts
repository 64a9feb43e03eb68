// The latency of a conversation's turns, for the ribbon: finished turns from their captions, and the current one as the page
// sees it, until the hub's timeline says where its time went. Pure; `view/Ribbon.tsx` draws it.

import type { Caption, State } from '@antiphon/client';
import { type Segment, segments, shownLatency } from './latency';

export interface Turn {
  /** Of the caption. */
  id: string;
  responseId: string;
  /** What the user said. */
  words: string;
  totalMs: number;
  /** They add up to `totalMs`. */
  stages: Segment[];
}

/** Microphone peaks above this are the user's voice (-34 dBFS): it only places the live bar's start until the turn is measured. */
const LOUD = 0.02;
/** Ends of the axis, in ms. */
const AXES = [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000];

/** The latest `max` turns with a latency, oldest first. `seen`: stages that the page saw, by response. */
export function turnsOf(captions: readonly Caption[], max: number, seen: ReadonlyMap<string, Segment[]>): Turn[] {
  const turns: Turn[] = [];
  let words = '';
  for (const caption of captions) {
    if (caption.role === 'user') words = caption.text;
    else {
      const { id, responseId, marks, latencyMs, hops } = caption;
      const totalMs = shownLatency(marks, latencyMs);
      if (totalMs === null) continue;
      const found: Segment[] = marks ? segments(marks, latencyMs, hops) : (seen.get(responseId) ?? []);
      turns.push({ id, responseId, words, totalMs, stages: fitted(found, totalMs) });
    }
  }
  return turns.slice(-max);
}

/** The page and the hub count from slightly different moments: the stages share what the turn took. */
function fitted(stages: Segment[], totalMs: number): Segment[] {
  const sum = stages.reduce((all, { ms }) => all + ms, 0);
  return sum > 0 ? stages.map(({ key, ms }) => ({ key, ms: (ms / sum) * totalMs })) : [{ key: 'play', ms: totalMs }];
}

export function median(values: number[]): number | null {
  const sorted = values.toSorted((a, b) => a - b);
  const [low, high] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return low === undefined || high === undefined ? null : (low + high) / 2;
}

/** The end of an axis on which all of these fit. */
export function axisMs(totals: number[]): number {
  const longest = Math.max(0, ...totals);
  return AXES.find((ms) => ms >= longest) ?? longest;
}

/** The turn that is being answered, as the page sees it: ends of stages, in ms of the page's clock. */
export class LiveTurn {
  /** Of turns that are over, by response; until the conversation has no caption of it. Ids of captions change with the session. */
  readonly seen = new Map<string, Segment[]>();
  #loudMs: number | null = null;
  #turn: { fromMs: number; ends: Partial<Record<'wait' | 'hear' | 'think', number>> } | null = null;

  /** Takes a state, and the microphone's level, at each frame while the user speaks or waits and at each change. */
  follow(state: State, microphone: number, nowMs: number): void {
    if (state.userSpeaking) {
      if (microphone > LOUD || this.#loudMs === null) this.#loudMs = nowMs;
      this.#turn = null;
      return;
    }
    const lastUser = state.captions.findLast((caption) => caption.role === 'user');
    const last = state.captions.at(-1);
    if (state.awaiting) {
      const isTyped = lastUser?.role === 'user' && lastUser.typed;
      this.#turn ??= { fromMs: isTyped ? nowMs : (this.#loudMs ?? nowMs), ends: isTyped ? {} : { wait: nowMs } };
      if (!isTyped && lastUser?.role === 'user' && lastUser.final) this.#turn.ends.hear ??= nowMs;
      if (last?.role === 'assistant' && last.text !== '') this.#turn.ends.think ??= nowMs;
      return;
    }
    if (this.#turn && last?.role === 'assistant' && state.playback !== 'idle') this.seen.set(last.responseId, this.stages(nowMs));
    this.#turn = null;
    this.#loudMs = null;
    const known = new Set(state.captions.map((caption) => (caption.role === 'assistant' ? caption.responseId : '')));
    for (const id of this.seen.keys()) if (!known.has(id)) this.seen.delete(id);
  }

  /** Of the current turn so far; empty if there is none. */
  stages(nowMs: number): Segment[] {
    if (!this.#turn) return [];
    const { fromMs, ends } = this.#turn;
    const stages: Segment[] = [];
    let until = fromMs;
    const isSpoken = ends.wait !== undefined;
    for (const key of ['wait', 'hear', 'think', 'voice'] as const) {
      if (!isSpoken && (key === 'wait' || key === 'hear')) continue;
      const end = key === 'voice' ? nowMs : (ends[key] ?? nowMs);
      if (end > until) stages.push({ key, ms: end - until });
      until = Math.max(until, end);
    }
    return stages;
  }
}
