// The line to the hub: reads the list of turns, then follows the live ones; when the hub is gone it
// tries again, for as long as the page is open. Draws nothing and decides nothing about turns.

import { backoffMs } from '../session/backoff';
import { authorization, isKey, loadKey, saveKey } from '../session/key';
import { type Book, type Entry, emptyBook, enter } from './data/book';
import { type Message, SseReader } from './data/sse';
import { pageFrom, stateFrom, type Turn, turnFrom } from './data/turn';

const ANSWER_MS = 5_000;
/** The hub sends its state once a second; a line that is quiet for so long is dead. */
const QUIET_MS = 8_000;
/** Turns that are read when the line comes up; what a hub keeps beyond them is shown as it changes. */
const MAX_TURNS = 1_000;
/** The hub has as many listeners as it takes. */
export const BUSY = 503;

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

  get book(): Book {
    return this.#book;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Follows the hub until `stop`. */
  start(): void {
    // The browser knows when a network comes back; there is no need to wait the rest of the pause.
    window.addEventListener('online', this.retry);
    void this.#follow();
  }

  stop(): void {
    window.removeEventListener('online', this.retry);
    clearTimeout(this.#timer);
    this.#current?.abort();
    this.#current = null;
  }

  /** Tries at once instead of after the pause; while the line is up nothing happens. */
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

  /** One attempt, until the line breaks. */
  async #attend(abort: AbortController): Promise<End> {
    try {
      // The stream is opened before the list is read: a turn that ends between the two is in the stream.
      const stream = await this.#get('api/turns/live', abort, abort.signal);
      if (!stream.ok || stream.body === null) return this.#refused(stream.status);
      const refused = await this.#list(abort);
      if (refused !== null) return this.#refused(refused);
      this.#enter({ kind: 'line', line: { kind: 'live' } });
      this.#goneSince = null;
      this.#attempt = 0;
      await this.#read(stream.body, abort);
    } catch {
      // Unreachable, aborted or cut: for the viewer it is all the same.
    }
    return { kind: 'lost' };
  }

  /** Reads all turns the hub has, up to a bound, page by page. Its status where it refuses. */
  async #list(abort: AbortController): Promise<number | null> {
    const known: Turn[] = [];
    let path = 'api/turns?limit=100';
    for (;;) {
      const signal = AbortSignal.any([abort.signal, AbortSignal.timeout(ANSWER_MS)]);
      const answer = await this.#get(path, abort, signal);
      if (!answer.ok) return answer.status;
      const page = pageFrom(await answer.json());
      known.push(...page.turns);
      if (page.before === null || known.length >= MAX_TURNS) {
        this.#enter({ kind: 'list', turns: known, capacity: page.capacity });
        return null;
      }
      path = `api/turns?limit=100&before=${encodeURIComponent(page.before)}`;
    }
  }

  /** The answer's head must come in time; its body may go on for as long as `signal` lets it. */
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
      // We were too slow, and the hub kept no more for us: all is read again.
      if (heard.some(({ event }) => event === 'missed')) await this.#list(abort);
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
    if (state) this.#enter({ kind: 'state', state });
  }
}
