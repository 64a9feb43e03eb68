// Shows each message that crosses a connection to those who listen: for an inspector, a log, a test. Without listeners it
// does nothing, and what a listener does changes nothing in the conversation.

import { decodeFrame } from '../protocol/frame.js';

export type Direction = 'sent' | 'received';

/** A message as it was on the wire. Audio of a call by WebRTC is no message. */
export interface WireEvent {
  direction: Direction;
  /** Moment on the clock of `performance.now()`. */
  atMs: number;
  /** Length of the message, without the framing of the transport. */
  bytes: number;
  /** The JSON event; null for audio, and for text that is no JSON object. */
  event: Record<string, unknown> | null;
  /** The text that was sent or received; null for audio. */
  text: string | null;
  /** A frame of audio: the response item that it belongs to (empty: the microphone), and its position in 24 kHz samples. */
  audio: { itemId: string; sampleOffset: number } | null;
}

export class Tap {
  readonly #listeners = new Set<(event: WireEvent) => void>();

  /** Returns what ends it. */
  listen(listener: (event: WireEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  readonly message = (direction: Direction, message: string | ArrayBuffer | Uint8Array): void => {
    if (this.#listeners.size === 0) return;
    const event = wireEvent(direction, message, performance.now());
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (cause) {
        // A listener's fault is its own: the conversation goes on.
        reportError(cause);
      }
    }
  };
}

function wireEvent(direction: Direction, message: string | ArrayBuffer | Uint8Array, atMs: number): WireEvent {
  if (typeof message === 'string') {
    const bytes = new TextEncoder().encode(message).length;
    return { direction, atMs, bytes, event: objectOf(message), text: message, audio: null };
  }
  return { direction, atMs, bytes: message.byteLength, event: null, text: null, audio: frameOf(message) };
}

function objectOf(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

function frameOf(message: ArrayBuffer | Uint8Array): WireEvent['audio'] {
  try {
    const { itemId, sampleOffset } = decodeFrame(message instanceof Uint8Array ? message.slice().buffer : message);
    return { itemId, sampleOffset };
  } catch {
    return null;
  }
}
