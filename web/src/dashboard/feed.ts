// The feed from the hub: reads the list of turns, then follows live updates, and reconnects for as
// long as the page is open. Draws nothing and makes no decisions about turns.

import { authorization, backoffMs, isKey } from '@antiphon/client';
import { loadKey, saveKey } from '../session/key';
import { type Book, type Entry, emptyBook, enter } from './data/book';
import { clusterFrom } from './data/cluster';
import { type Message, SseReader } from './data/sse';
import { pageFrom, stateFrom, type Turn, turnFrom } from './data/turn';

const ANSWER_MS = 5_000;
/** The hub sends its state once a second; after this time without data the connection counts as lost. */
const QUIET_MS = 8_000;
/** Number of turns read on connecting; older turns are shown only when they change. */
const MAX_TURNS = 1_000;
/** The list is read again after this time while a hub of the cluster has not replied. */
const MISSING_RETRY_MS = 30_000;
/** Status of a hub that accepts no more dashboards. */
export const BUSY = 503;
/** Status of a hub whose limit of requests, or of wrong keys, is reached. */
export const LIMITED = 429;

/** Why an attempt ended. */
type End = { kind: 'lost' } | { kind: 'key'; refused: boolean } | { kind: 'unfit'; status: number };

export class Feed {
  #book: Book = emptyBook;
  #key = loadKey();
  #listeners = new Set<() => void>();
  #goneSince: number | null = null;
  #attempt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #current: AbortController | null = null;
  #listedAt = 0;
  /** Hubs of the cluster whose turns were listed, by id; null until the first state. */
  #hubs: Set<string> | null = null;

  get book(): Book {
    return this.#book;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Follows the hub until `stop`. */
  start(): void {
    // The browser reports when the network is back, so the rest of the delay is skipped.
    window.addEventListener('online', this.retry);
    void this.#follow();
  }

  stop(): void {
    window.removeEventListener('online', this.retry);
    clearTimeout(this.#timer);
    this.#current?.abort();
    this.#current = null;
  }

  /** Retries immediately instead of after the delay; has no effect while connected. */
  readonly retry = (): void => {
    if (this.#current !== null) return;
    clearTimeout(this.#timer);
    void this.#follow();
  };

  useKey(key: string): void {
    if (!isKey(key)) return;
    this.#key = key;
    saveKey(key);
    this.retry();
  }

  /** Requests what belongs to a turn, with the key in use; the answer must begin in time. Rejects as `fetch` does. */
  readonly ask = (path: string): Promise<Response> => {
    const abort = new AbortController();
    return this.#get(path, abort, abort.signal);
  };

  #enter(entry: Entry): void {
    this.#book = enter(this.#book, entry);
    for (const listener of this.#listeners) listener();
  }

  async #follow(): Promise<void> {
    const abort = new AbortController();
    this.#current = abort;
    const end = await this.#attend(abort);
    if (this.#current !== abort) return;
    abort.abort();
    this.#current = null;
    if (end.kind === 'key') {
      this.#enter({ kind: 'line', line: end });
      return;
    }
    const pause = backoffMs(this.#attempt, Math.random());
    this.#attempt += 1;
    this.#goneSince ??= Date.now();
    const gone = { kind: 'gone', since: this.#goneSince, retryAt: Date.now() + pause, attempt: this.#attempt } as const;
    this.#enter({ kind: 'line', line: end.kind === 'unfit' ? end : gone });
    this.#timer = setTimeout(this.retry, pause);
  }

  /** One attempt, until the connection is lost. */
  async #attend(abort: AbortController): Promise<End> {
    try {
      // The stream is opened before the list is read, so that a turn that ends in between is in the stream.
      const stream = await this.#get('api/turns/live', abort, abort.signal);
      if (!stream.ok || stream.body === null) return this.#refused(stream.status);
      const refused = await this.#list(abort);
      if (refused !== null) return this.#refused(refused);
      this.#enter({ kind: 'line', line: { kind: 'live' } });
      this.#goneSince = null;
      this.#attempt = 0;
      this.#hubs = null;
      await this.#read(stream.body, abort);
    } catch {
      // Unreachable, aborted and interrupted connections are treated alike.
    }
    return { kind: 'lost' };
  }

  /** Reads the hub's turns page by page, up to a limit. Returns the HTTP status if the hub refuses. */
  async #list(abort: AbortController): Promise<number | null> {
    const known: Turn[] = [];
    const missing = new Set<string>();
    this.#listedAt = Date.now();
    let path = 'api/turns?limit=100';
    for (;;) {
      const signal = AbortSignal.any([abort.signal, AbortSignal.timeout(ANSWER_MS)]);
      const answer = await this.#get(path, abort, signal);
      if (!answer.ok) return answer.status;
      const page = pageFrom(await answer.json());
      known.push(...page.turns);
      for (const hub of page.missingHubs) missing.add(hub);
      if (page.before === null || known.length >= MAX_TURNS) {
        this.#enter({ kind: 'list', turns: known, capacity: page.capacity, missingHubs: [...missing] });
        return null;
      }
      path = `api/turns?limit=100&before=${encodeURIComponent(page.before)}`;
    }
  }

  /** The response headers must arrive in time; the body may continue until `signal` aborts it. */
  async #get(path: string, abort: AbortController, signal: AbortSignal): Promise<Response> {
    const late = setTimeout(() => abort.abort(), ANSWER_MS);
    try {
      return await fetch(new URL(path, document.baseURI), { headers: authorization(this.#key), cache: 'no-store', signal });
    } finally {
      clearTimeout(late);
    }
  }

  #refused(status: number): End {
    if (status === 401 || status === 403) return { kind: 'key', refused: this.#key !== null };
    return status >= 500 && status !== BUSY ? { kind: 'lost' } : { kind: 'unfit', status };
  }

  async #read(body: ReadableStream<Uint8Array>, abort: AbortController): Promise<void> {
    const reader = body.getReader();
    const words = new TextDecoder();
    const events = new SseReader();
    for (;;) {
      const quiet = setTimeout(() => abort.abort(), QUIET_MS);
      const { done, value } = await reader.read().finally(() => clearTimeout(quiet));
      if (done) return;
      const heard = events.push(words.decode(value, { stream: true }));
      for (const message of heard) this.#heard(message);
      // The page was too slow and the hub dropped updates, or a hub has joined: everything is read again, now or, where the
      // hub refuses, with the next connection.
      const isIncomplete = heard.some(({ event }) => event === 'missed') || this.#isIncomplete();
      if (isIncomplete && (await this.#list(abort)) !== null) return;
    }
  }

  #heard({ event, data }: Message): void {
    let body: unknown;
    try {
      body = JSON.parse(data);
    } catch {
      return;
    }
    const turn = event === 'turn' ? turnFrom(body) : null;
    if (turn) this.#enter({ kind: 'turn', turn });
    const state = event === 'state' ? stateFrom(body) : null;
    if (state) this.#enter({ kind: 'state', state, cluster: clusterFrom(body) });
  }

  /** Whether a hub of the cluster has turns that were not listed. */
  #isIncomplete(): boolean {
    const { cluster, missingHubs } = this.#book;
    const hubs = new Set(cluster?.hubs.map(({ id }) => id));
    const before = this.#hubs ?? hubs;
    this.#hubs = hubs;
    const isMissing = cluster?.hubs.some(({ name }) => missingHubs.includes(name)) ?? false;
    return [...hubs].some((id) => !before.has(id)) || (isMissing && Date.now() - this.#listedAt > MISSING_RETRY_MS);
  }
}
