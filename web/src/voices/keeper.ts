// Reads the hub's custom voices, adds and removes them, and plays a sample of one. Draws nothing.

import { type Conversation, authorization } from '@antiphon/client';
import { loadKey } from '../session/key';
import { type CustomVoice, type Draft, type Library, formOf, libraryFrom, refusal } from './data';

const ANSWER_MS = 8_000;
/** The hub waits a minute for the engine. */
const ADD_MS = 180_000;
const SAMPLE = 'Hello! This is how I sound when I answer you.';

/** How a sample is played: speed of the voice, id of the device, volume from 0 to 1. */
interface Playback {
  speed?: number | null;
  loudspeaker?: string | null;
  volume?: number;
}

const keepers = new WeakMap<Conversation, VoiceKeeper>();

/** That of a page's conversation, made for the first view that asks. A change of the voices shows in the conversation's state. */
export function voiceKeeperOf(conversation: Conversation): VoiceKeeper {
  const keeper = keepers.get(conversation) ?? new VoiceKeeper(() => void conversation.look());
  keepers.set(conversation, keeper);
  return keeper;
}

export class VoiceKeeper {
  #library: Library | null = null;
  #fault: string | null = null;
  /** Share of an upload from 0 to 1; 1: the engine is making the voice of it; null: there is none. */
  #sent: number | null = null;
  #notice: string | null = null;
  #playing: { id: string; stop: () => void } | null = null;
  #listeners = new Set<() => void>();

  /** `changed`: called when there are other voices than before. */
  constructor(private readonly changed: () => void) {}

  get library(): Library | null {
    return this.#library;
  }

  /** The error of the last request. */
  get fault(): string | null {
    return this.#fault;
  }

  get sent(): number | null {
    return this.#sent;
  }

  /** What the last request did. */
  get notice(): string | null {
    return this.#notice;
  }

  /** The voice whose sample is being fetched or played; empty: the hub's own. */
  get playing(): string | null {
    return this.#playing?.id ?? null;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads the voices for a view that opens. */
  async look(): Promise<void> {
    this.#fault = null;
    await this.#readVoices();
  }

  async #readVoices(): Promise<void> {
    const answer = await this.#ask('v1/audio/voices', 'GET');
    if (answer === null) return;
    this.#library = libraryFrom(await answer.json());
    this.#draw();
  }

  /** Whether the voice was added. */
  async add(draft: Draft): Promise<boolean> {
    this.#begin();
    this.#sent = 0;
    this.#draw();
    const { status, body } = await this.#upload(formOf(draft));
    if (status === 200) {
      await this.#readVoices();
      this.changed();
      this.#notice = `${draft.name.trim()} can speak now: choose it as the voice.`;
    } else this.#fault = status === 0 ? 'The hub does not answer.' : refusal(status, body);
    this.#sent = null;
    this.#draw();
    return status === 200;
  }

  async remove(voice: CustomVoice): Promise<void> {
    this.#begin();
    const removed = await this.#ask(`v1/audio/voices/${encodeURIComponent(voice.id)}`, 'DELETE');
    if (removed === null) return;
    await this.#readVoices();
    this.changed();
    this.#notice = `${voice.name} was removed.`;
    this.#draw();
  }

  /** Plays a sentence by the voice, the hub's own if it is null, or stops it. */
  async play(voice: string | null, { speed, loudspeaker, volume = 1 }: Playback = {}): Promise<void> {
    const id = voice ?? '';
    const isPlaying = this.#playing?.id === id;
    this.stop();
    if (isPlaying) return;
    this.#begin();
    const abort = new AbortController();
    // Made at once, while the browser still counts the click.
    const context: AudioContext & { setSinkId?: (id: string) => Promise<void> } = new AudioContext();
    const playing = {
      id,
      stop: () => {
        abort.abort();
        void context.close();
      },
    };
    this.#playing = playing;
    this.#draw();
    const body = JSON.stringify({ input: SAMPLE, ...(voice !== null && { voice: { id: voice } }), ...(speed && { speed }), response_format: 'wav' });
    const answer = await this.#ask('v1/audio/speech', 'POST', { body, signal: abort.signal });
    try {
      if (answer === null || this.#playing !== playing) return;
      const source = context.createBufferSource();
      source.buffer = await context.decodeAudioData(await answer.arrayBuffer());
      const gain = context.createGain();
      gain.gain.value = volume;
      source.connect(gain).connect(context.destination);
      if (loudspeaker) await context.setSinkId?.(loudspeaker);
      const ended = new Promise((done) => source.addEventListener('ended', done));
      source.start();
      await ended;
    } catch {
      // It was stopped, the line broke, or the loudspeaker is gone: there is nothing to hear.
    } finally {
      if (this.#playing === playing) this.stop();
    }
  }

  stop(): void {
    this.#playing?.stop();
    this.#playing = null;
    this.#draw();
  }

  #begin(): void {
    this.#fault = null;
    this.#notice = null;
    this.#draw();
  }

  /** The response; null if there is none or the request was refused, in which case `fault` states why. */
  async #ask(path: string, method: string, init: { body?: string; signal?: AbortSignal } = {}): Promise<Response | null> {
    const signal = init.signal ?? AbortSignal.timeout(ANSWER_MS);
    try {
      const answer = await fetch(new URL(path, document.baseURI), { ...init, method, headers: authorization(loadKey()), cache: 'no-store', signal });
      if (answer.ok) return answer;
      this.#fault = refusal(answer.status, await answer.json().catch(() => null));
    } catch {
      if (!init.signal?.aborted) this.#fault = 'The hub does not answer.';
    }
    this.#draw();
    return null;
  }

  /** `fetch` does not report how much has been sent. Status 0: there was no answer. */
  #upload(form: FormData): Promise<{ status: number; body: unknown }> {
    const request = new XMLHttpRequest();
    request.open('POST', new URL('v1/audio/voices', document.baseURI));
    for (const [name, value] of Object.entries(authorization(loadKey()))) request.setRequestHeader(name, value);
    request.timeout = ADD_MS;
    request.upload.addEventListener('progress', ({ loaded, total }) => {
      this.#sent = total > 0 ? loaded / total : 0;
      this.#draw();
    });
    return new Promise((done) => {
      request.addEventListener('loadend', () => {
        let body: unknown = null;
        try {
          body = JSON.parse(request.responseText);
        } catch {
          // No hub speaks like this; the status says enough.
        }
        done({ status: request.status, body });
      });
      request.send(form);
    });
  }

  #draw(): void {
    for (const listener of this.#listeners) listener();
  }
}
