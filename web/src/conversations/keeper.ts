// Keeps the conversation of this tab in the browser's storage, and the recent ones: each in a record of its own, so that
// two tabs never write the same one. Draws nothing.

import type { Caption, Conversation } from '@antiphon/client';
import { type Kept, type Line, MAX_KEPT, type Span, captionsOf, keptFrom, linesOf, textOf } from './data';
import { KeptSound } from './sound';

const PREFIX = 'antiphon.conversation.';
/** In sessionStorage: the conversation of this tab, so that a reload finds it. */
const CURRENT = 'antiphon.current';
/** Lines in memory besides the page's captions; the oldest go. */
const MAX_OLDER = 5_000;
/** Longest time for which a change is not stored; the page's end stores at once. */
const STORE_EVERY_MS = 1_000;
/** The page before a reload has let go of its conversation by then. */
const RELOAD_MS = 500;

export class ConversationKeeper {
  readonly sound = new KeptSound();
  #conversation: Conversation | null = null;
  #id = newId();
  #startedAt = Date.now();
  #spans = new Map<string, Span>();
  #keeps: boolean;
  /** Lines of captions that the page does not show any more: it shows the last 200. */
  #older: Line[] = [];
  #captions: readonly Caption[] = [];
  #wasSpeaking = false;
  #timer = 0;
  #fault = false;
  #release = () => {};
  #listeners = new Set<() => void>();

  constructor(keeps: boolean) {
    this.#keeps = keeps;
    this.sound.keeps = keeps;
  }

  /** The conversation that this tab had before a reload; null if there is none, or another tab has it by now. */
  async restore(): Promise<Kept | null> {
    const id = this.#keeps ? read('sessionStorage', CURRENT) : null;
    const kept = id === null ? null : keptFrom(read('localStorage', PREFIX + id));
    const isOurs = await this.#lock(kept?.id ?? this.#id, RELOAD_MS);
    return isOurs ? kept : null;
  }

  /** Follows this conversation, which shows `kept` from its beginning. */
  follow(conversation: Conversation, kept: Kept | null): void {
    this.#conversation = conversation;
    this.#begin(kept);
    this.#captions = conversation.state.captions;
    this.#older = kept?.lines.slice(0, Math.max(0, kept.lines.length - this.#captions.length)) ?? [];
    conversation.subscribe(() => this.#observe());
    window.addEventListener('pagehide', () => this.#store());
  }

  /** The conversation so far. */
  get current(): Kept {
    const captions = this.#conversation?.state.captions ?? [];
    return { id: this.#id, startedAt: this.#startedAt, changedAt: Date.now(), lines: [...this.#older, ...linesOf(captions, this.#spans)] };
  }

  /** Lines of it that the page does not show any more. */
  get nOlder(): number {
    return this.#older.length;
  }

  get keeps(): boolean {
    return this.#keeps;
  }

  /** Whether the browser refused to store the conversation. */
  get fault(): boolean {
    return this.#fault;
  }

  /** The recent ones besides the current one, newest first. */
  get recent(): Kept[] {
    return stored()
      .filter(({ id }) => id !== this.#id)
      .sort((a, b) => b.changedAt - a.changedAt);
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Begins a new conversation; the current one stays among the recent ones. */
  async renew(): Promise<void> {
    await this.#goOn(null);
  }

  /** Goes on with a recent one. Another tab may have it: then with a copy. */
  async open(kept: Kept): Promise<void> {
    await this.#goOn(kept);
  }

  remove(id: string): void {
    drop(PREFIX + id);
    this.#changed();
  }

  /** Keeps conversations from now on, or nothing: then all that was kept is deleted, the sound in memory too. */
  set keeps(keeps: boolean) {
    this.#keeps = keeps;
    this.sound.keeps = keeps;
    if (keeps) this.#store();
    else {
      for (const { id } of stored()) drop(PREFIX + id);
      this.#fault = false;
    }
    this.#changed();
  }

  async #goOn(kept: Kept | null): Promise<void> {
    // An answer that is left is one that the user ended.
    this.#conversation?.hush();
    this.#store();
    const id = kept?.id ?? newId();
    const isOurs = await this.#lock(id);
    const next = kept === null || isOurs ? kept : { ...kept, id: newId() };
    if (!isOurs && next) await this.#lock(next.id);
    if (next === null) this.#id = id;
    this.#begin(next);
    this.#captions = [];
    this.#conversation?.renew(next === null ? [] : captionsOf(next).captions);
    this.#older = next?.lines.slice(0, Math.max(0, next.lines.length - this.#captions.length)) ?? [];
    this.#changed();
  }

  #begin(kept: Kept | null): void {
    if (kept) this.#id = kept.id;
    this.#startedAt = kept?.startedAt ?? Date.now();
    this.#spans = kept ? captionsOf(kept).spans : new Map<string, Span>();
    this.sound.begin(Math.max(0, ...[...this.#spans.values()].map(({ endMs }) => endMs)));
    this.sound.keeps = this.#keeps;
    try {
      sessionStorage.setItem(CURRENT, this.#id);
    } catch {
      // Storage is disabled: a reload starts again from nothing.
    }
  }

  /** Whether no other tab has this conversation, or lets go of it within the wait; holds it until the next one. */
  async #lock(id: string, waitMs = 0): Promise<boolean> {
    this.#release();
    // Without locks (an insecure context) each tab takes what it finds.
    if (!navigator.locks) return true;
    return (await this.#request(id, { ifAvailable: true })) || (waitMs > 0 && (await this.#request(id, { signal: AbortSignal.timeout(waitMs) })));
  }

  #request(id: string, options: LockOptions): Promise<boolean> {
    return new Promise((answer) => {
      navigator.locks
        .request(PREFIX + id, options, (lock) => {
          answer(lock !== null);
          return lock && new Promise<void>((done) => (this.#release = done));
        })
        .catch(() => answer(false));
    });
  }

  #observe(): void {
    const conversation = this.#conversation;
    if (conversation === null) return;
    this.sound.follow(conversation.audio);
    const { captions, userSpeaking } = conversation.state;
    if (captions === this.#captions && userSpeaking === this.#wasSpeaking) return;
    this.#keepOlder(captions);
    this.#captions = captions;
    // The end of speech still belongs to it.
    const spoke = userSpeaking || this.#wasSpeaking;
    this.#wasSpeaking = userSpeaking;
    const speaker = captions.findLast(({ role }) => role === 'user');
    const nowMs = this.sound.endMs;
    const spans = new Map<string, Span>();
    for (const caption of captions) {
      const { id } = caption;
      // Items of a session that is over have longer names.
      const known = this.#spans.get(id) ?? this.#spans.get(id.replace(/^past\/\d+\//, ''));
      const isOpen = caption.role === 'user' ? caption === speaker && !caption.final && spoke : caption.status === 'coming' && caption.playedMs > 0;
      if (known) spans.set(id, isOpen ? { startMs: known.startMs, endMs: nowMs } : known);
      else if (caption.role === 'user' || caption.playedMs > 0 || caption.status !== 'coming') spans.set(id, { startMs: nowMs, endMs: nowMs });
    }
    this.#spans = spans;
    if (this.#keeps) this.#timer ||= window.setTimeout(() => this.#store(), STORE_EVERY_MS);
  }

  /** The captions before the first one that is still there have gone, because there are too many. */
  #keepOlder(captions: readonly Caption[]): void {
    const first = captions[0];
    if (first === undefined) return;
    const gone = this.#captions.findIndex(({ id }) => id === first.id || `past/${id}` === first.id.replace(/^past\/\d+\//, 'past/'));
    if (gone <= 0) return;
    this.#older.push(...linesOf(this.#captions.slice(0, gone), this.#spans));
    this.#older.splice(0, this.#older.length - MAX_OLDER);
  }

  #store(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    const { current } = this;
    if (!this.#keeps || current.lines.length === 0) return;
    const others = this.recent;
    for (const { id } of others.slice(MAX_KEPT - 1)) drop(PREFIX + id);
    const before = this.#fault;
    this.#fault = !write(PREFIX + current.id, textOf(current));
    if (this.#fault !== before) this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}

const newId = () => `${Date.now().toString(36)}${crypto.getRandomValues(new Uint32Array(1)).join('')}`;

function stored(): Kept[] {
  try {
    const keys = Object.keys(localStorage).filter((key) => key.startsWith(PREFIX));
    return keys.flatMap((key) => keptFrom(localStorage.getItem(key)) ?? []);
  } catch {
    return [];
  }
}

function read(storage: 'localStorage' | 'sessionStorage', key: string): string | null {
  try {
    return window[storage].getItem(key);
  } catch {
    return null;
  }
}

function write(key: string, text: string): boolean {
  try {
    localStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

function drop(key: string): void {
  try {
    localStorage.removeItem(key);
  } catch {
    // There is no storage, and nothing in it.
  }
}
