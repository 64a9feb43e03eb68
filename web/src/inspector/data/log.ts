// The events of a connection in order, bounded by number and bytes: the oldest go. Events are kept as they are shown,
// without secrets and audio.

import { type AudioFormat, PCM_24K, fields, formatsOf, shown } from './redact';

export type Direction = 'sent' | 'received' | 'note';

export interface Entry {
  /** Counted from 1. */
  n: number;
  /** Milliseconds since 1970. */
  at: number;
  direction: Direction;
  type: string;
  /** On the wire. */
  bytes: number;
  /** Of the audio in it, by the session's format; null: there is none. */
  audioMs: number | null;
  /** The event as JSON text without secrets and audio; of a note, its words. */
  json: string;
}

export const MAX_ENTRIES = 5_000;
/** Of the texts kept. */
export const MAX_CHARS = 16 * 1024 * 1024;
/** A message that is no event is shown to this length. */
const MAX_UNREADABLE = 4_096;

export class EventLog {
  #entries: Entry[] = [];
  #chars = 0;
  #n = 0;
  #dropped = 0;
  #input: AudioFormat = PCM_24K;
  #output: AudioFormat = PCM_24K;
  #listeners = new Set<() => void>();

  /** Oldest first; another array after each change. */
  get entries(): readonly Entry[] {
    return this.#entries;
  }

  /** Entries that had to go. */
  get dropped(): number {
    return this.#dropped;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** A message as it travels; of a binary one only its length is read. */
  message(direction: 'sent' | 'received', data: string | { byteLength: number }, at: number): void {
    if (typeof data !== 'string') return this.#add({ direction, type: 'binary frame', bytes: data.byteLength, audioMs: null, json: `"<${data.byteLength} bytes>"`, at });
    const bytes = new TextEncoder().encode(data).length;
    let event: unknown;
    try {
      event = JSON.parse(data);
    } catch {
      event = undefined;
    }
    const type = fields(event)['type'];
    if (typeof type !== 'string') {
      const { event: text } = shown(data.slice(0, MAX_UNREADABLE));
      return this.#add({ direction, type: 'not an event', bytes, audioMs: null, json: JSON.stringify(text), at });
    }
    const { input, output } = formatsOf(event);
    this.#input = input ?? this.#input;
    this.#output = output ?? this.#output;
    const copy = shown(event);
    const format = direction === 'sent' ? this.#input : this.#output;
    const audioMs = copy.audioBytes === 0 ? null : (copy.audioBytes / format.bytesPerSecond) * 1_000;
    this.#add({ direction, type, bytes, audioMs, json: JSON.stringify(copy.event), at });
  }

  /** What happened to the connection. */
  note(words: string, at: number): void {
    this.#add({ direction: 'note', type: words, bytes: 0, audioMs: null, json: JSON.stringify(words), at });
  }

  clear(): void {
    [this.#entries, this.#chars, this.#dropped] = [[], 0, 0];
    this.#changed();
  }

  #add(entry: Omit<Entry, 'n'>): void {
    this.#n += 1;
    this.#chars += entry.json.length;
    const entries = [...this.#entries, { ...entry, n: this.#n }];
    let gone = Math.max(0, entries.length - MAX_ENTRIES);
    for (let i = 0; i < gone; i += 1) this.#chars -= entries[i]?.json.length ?? 0;
    for (; this.#chars > MAX_CHARS && gone < entries.length - 1; gone += 1) this.#chars -= entries[gone]?.json.length ?? 0;
    this.#dropped += gone;
    this.#entries = gone === 0 ? entries : entries.slice(gone);
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
