// What the client sent in a session, kept to be sent again, and the checkpoints to which the session may go back. It
// outlives the connections of its session: while none is open, messages are kept for the next one. It counts and
// stores; it reads no clock and sends nothing.

import { FRAME_SAMPLES, FrameKind, encodeFrame } from '../protocol/frame.js';

/** Bytes of messages that are kept; beyond, the oldest are dropped. Three minutes of PCM16, half an hour of Opus. */
const MAX_KEPT_BYTES = 8 << 20;
/** Checkpoints that a hub may go back to: one is announced once the one before is stored. */
const MAX_CHECKPOINTS = 2;

export type Message = string | Uint8Array<ArrayBuffer>;

interface Kept {
  message: Message;
  aboutOutput: boolean;
}

/** The state of both sides at a checkpoint, in counts. */
interface Checkpoint {
  /** Number of the message that announced it. */
  number: number;
  /** Number of the page's messages that it includes. */
  nIncluded: number;
}

/** How a session continues; null if the hub's counts contradict the page's. */
export type Continuation = { backTo: number | null; sendAgain: Message[] } | null;

export class Outbox {
  /** Resume key; empty until the hub sent it. */
  key = '';
  /** How long the hub keeps the session without a connection. */
  withinMs = 0;
  /** Number of messages of the session received. */
  nReceived = 0;
  /** Number of microphone frames numbered so far. */
  nFrames = 0;
  #kept: Kept[] = [];
  #nKeptBytes = 0;
  /** Number of messages before the first kept one. */
  #nBefore = 0;
  #checkpoints: Checkpoint[] = [];

  get nSent(): number {
    return this.#nBefore + this.#kept.length;
  }

  /** Adds an event; returns what to send. */
  event(event: object): Message {
    return this.#push(JSON.stringify(event), isAboutOutput(event as Record<string, unknown>));
  }

  /** Adds the next 20 ms of the microphone; returns what to send. */
  audio(payload: Uint8Array): Message {
    const sequence = this.nFrames++;
    const frame = { kind: FrameKind.Microphone, sequence, sampleOffset: sequence * FRAME_SAMPLES, itemId: '', payload };
    return this.#push(encodeFrame(frame), false);
  }

  /** The hub announced a checkpoint with the message just received; it includes `received` messages of this page. */
  checkpoint(received: number): void {
    this.#checkpoints.push({ number: this.nReceived, nIncluded: received });
    if (this.#checkpoints.length > MAX_CHECKPOINTS) this.#checkpoints.shift();
    this.#dropUntil(this.#checkpoints[0]?.nIncluded ?? 0);
  }

  /**
   * The session continues on a new connection after message `after` and includes `received` messages of this page. If it
   * goes back to a checkpoint, what was received after that is void, and messages about it are not sent again.
   */
  resume(after: number, received: number): Continuation {
    const goesBack = after !== this.nReceived;
    const known = !goesBack || (after < this.nReceived && this.#checkpoints.some(({ number }) => number === after));
    if (!known || received > this.nSent) return null;
    this.#nBefore = Math.min(this.#nBefore, received);
    if (goesBack) {
      // This checkpoint is stored, so that the session will never go back further.
      this.#checkpoints = this.#checkpoints.filter(({ number }) => number === after);
      this.#dropUntil(received);
      this.#kept = this.#kept.filter(({ aboutOutput }) => !aboutOutput);
      this.#nKeptBytes = this.#kept.reduce((sum, { message }) => sum + message.length, 0);
      this.nReceived = after;
    }
    const sendAgain = this.#kept.slice(received - this.#nBefore).map(({ message }) => message);
    return { backTo: goesBack ? after : null, sendAgain };
  }

  #push(message: Message, aboutOutput: boolean): Message {
    this.#kept.push({ message, aboutOutput });
    this.#nKeptBytes += message.length;
    while (this.#nKeptBytes > MAX_KEPT_BYTES && this.#kept.length > 1) this.#drop(1);
    return message;
  }

  #dropUntil(number: number): void {
    this.#drop(Math.min(Math.max(0, number - this.#nBefore), this.#kept.length));
  }

  #drop(count: number): void {
    if (count === 0) return;
    for (const { message } of this.#kept.splice(0, count)) this.#nKeptBytes -= message.length;
    this.#nBefore += count;
  }
}

const ABOUT_OUTPUT = new Set([
  'output_audio_buffer.played', 'output_audio_buffer.clear', 'antiphon.clock.ping', 'conversation.item.truncate',
  'conversation.item.delete', 'response.cancel',
]);

/**
 * Whether an event speaks about output of the hub. If that output is void after going back to a checkpoint, the event is
 * not sent again: an identifier in it may name other output by then.
 */
export function isAboutOutput({ type, item }: Record<string, unknown>): boolean {
  if (type === 'conversation.item.create') return (item as { type?: unknown } | undefined)?.type === 'function_call_output';
  return typeof type === 'string' && ABOUT_OUTPUT.has(type);
}
