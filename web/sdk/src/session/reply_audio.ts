// Response audio from the wire to the loudspeaker: decoder, playback worklet, and the playback reports
// on which the hub bases pacing and truncation.

import { type Codec, type ReplyDecoder, replyDecoder } from '../audio/codec.js';
import type { PlaybackReport } from '../audio/messages.js';
import type { Speaker } from '../audio/speaker.js';
import type { Frame } from '../protocol/frame.js';
import type { Effect } from '../state/effects.js';

/** Interval of playback reports, in seconds. */
const REPORT_EVERY_S = 0.1;
const SAMPLES_PER_MS = 24;
/** When speech starts over a response, the hub decides within about 100 ms. After this time the response is dropped. */
const DECIDE_MS = 1_000;

/** An item's playback position, with times of the audio context. */
export interface PlayedAt {
  itemId: string;
  audioEndMs: number;
  atS: number;
  /** Reported once. */
  firstSoundS: number | null;
  nUnderruns: number;
  underrunMs: number;
  stopped: boolean;
}

export interface ReplyAudioHandlers {
  /** Called with the position to report to the hub. */
  played: (report: PlayedAt) => void;
  /** Audio was decoded up to this position, in ms of the item. */
  received: (itemId: string, endMs: number) => void;
  failed: (cause: Error) => void;
  /** Speech started over the response, and the hub has not decided what happens to it. */
  undecided: () => void;
}

export class ReplyAudio {
  readonly #speaker: Speaker;
  readonly #handlers: ReplyAudioHandlers;
  readonly #decoder: ReplyDecoder;
  /** End of the audio of each unfinished item, in ms. */
  #endMs = new Map<string, number>();
  #reportedS = 0;
  #reported = '';
  #firstSounds = new Map<string, number>();
  #dropTimer = 0;

  constructor(speaker: Speaker, codec: Codec, handlers: ReplyAudioHandlers) {
    this.#speaker = speaker;
    this.#handlers = handlers;
    this.#decoder = replyDecoder(codec, (chunk) => this.#play(chunk), handlers.failed);
  }

  frame(frame: Frame): void {
    this.#decoder.decode(frame.itemId, frame.sampleOffset, frame.payload);
  }

  perform(effect: Effect): void {
    if (effect.kind !== 'pause' && effect.kind !== 'end') clearTimeout(this.#dropTimer);
    switch (effect.kind) {
      case 'end':
        return this.#decoder.afterAll(() => this.#speaker.end(effect.itemId));
      case 'pause-or-drop':
        this.#speaker.pause();
        this.#dropTimer = setTimeout(this.#handlers.undecided, DECIDE_MS) as unknown as number;
        return;
      case 'pause':
        return this.#speaker.pause();
      case 'resume':
        return this.#speaker.resume();
      case 'flush':
        return this.flush();
    }
  }

  flush(): void {
    clearTimeout(this.#dropTimer);
    this.#decoder.reset();
    this.#speaker.flush();
    this.#endMs.clear();
  }

  /** The session went back: the audio received since is void, and nothing about it is reported. */
  discard(): void {
    clearTimeout(this.#dropTimer);
    this.#decoder.reset();
    this.#speaker.discard();
    this.#endMs.clear();
    this.#firstSounds.clear();
    this.#reported = '';
  }

  close(): void {
    this.flush();
    this.#decoder.close();
  }

  /** Handles the worklet's report, every 20 ms, and reports to the hub when due. */
  report(report: PlaybackReport): void {
    for (const { itemId, atS } of report.firstSoundTimes) this.#firstSounds.set(itemId, atS);
    const { atS, underruns, underrunMs, stopped } = report;
    if (stopped) this.#tell({ ...stopped, atS, audioEndMs: stopped.playedSamples / SAMPLES_PER_MS, stopped: true });
    for (const itemId of report.finished) {
      const endMs = this.#endMs.get(itemId);
      if (endMs !== undefined) this.#tell({ itemId, atS, audioEndMs: endMs, underruns, underrunMs, stopped: false });
      this.#endMs.delete(itemId);
    }
    const { itemId } = report;
    if (itemId === null || !this.#endMs.has(itemId)) return;
    const due = report.state === 'paused' || this.#firstSounds.has(itemId) || atS - this.#reportedS >= REPORT_EVERY_S;
    if (due) this.#tell({ itemId, atS, audioEndMs: report.playedSamples / SAMPLES_PER_MS, underruns, underrunMs, stopped: false });
  }

  #play(chunk: Parameters<Speaker['play']>[0]): void {
    const endMs = chunk.offset / SAMPLES_PER_MS + (chunk.samples.length * 1000) / chunk.rateHz;
    this.#endMs.set(chunk.itemId, Math.max(this.#endMs.get(chunk.itemId) ?? 0, endMs));
    this.#handlers.received(chunk.itemId, endMs);
    this.#speaker.play(chunk);
  }

  /** Reports each position once: a paused or stalled playhead is not reported repeatedly. */
  #tell(at: { itemId: string; audioEndMs: number; atS: number; underruns: number; underrunMs: number; stopped: boolean }): void {
    const { itemId, audioEndMs, atS, underruns, underrunMs, stopped } = at;
    const position = `${itemId} ${Math.floor(audioEndMs)} ${underruns} ${stopped}`;
    if (position === this.#reported) return;
    this.#reported = position;
    this.#reportedS = atS;
    const firstSoundS = this.#firstSounds.get(itemId) ?? null;
    this.#firstSounds.delete(itemId);
    this.#handlers.played({ itemId, audioEndMs, atS, firstSoundS, nUnderruns: underruns, underrunMs, stopped });
  }
}
