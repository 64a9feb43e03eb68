// The inspector's own connection to a Realtime server. Every message goes through the log; none is interpreted here. The
// key is in the page's memory only.

import type { EventLog } from './data/log';

export type WireState = 'off' | 'connecting' | 'open';

/** A server that does not answer the upgrade by then is given up. */
const OPEN_MS = 15_000;
/** Unsent bytes at which nothing more is sent. */
const MAX_UNSENT = 8 * 1024 * 1024;

export class Wire {
  #socket: WebSocket | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #log: EventLog;
  readonly #changed: (state: WireState) => void;
  readonly #received: (event: unknown) => void;

  /** `received`: called with each event, null where a message is none. */
  constructor(log: EventLog, changed: (state: WireState) => void, received: (event: unknown) => void) {
    this.#log = log;
    this.#changed = changed;
    this.#received = received;
  }

  open(url: string, protocols: string[]): void {
    this.close();
    const shown = new URL(url);
    this.#note(`connecting to ${shown.host}${shown.pathname}`);
    this.#changed('connecting');
    let socket: WebSocket;
    try {
      socket = new WebSocket(url, protocols);
    } catch {
      // An address that the browser does not allow, such as ws: from a page by https.
      this.#note('the browser does not allow this address');
      this.#changed('off');
      return;
    }
    this.#socket = socket;
    socket.binaryType = 'arraybuffer';
    let isOpen = false;
    this.#timer = setTimeout(() => socket.close(), OPEN_MS);
    socket.onopen = () => {
      isOpen = true;
      clearTimeout(this.#timer);
      this.#note('connected');
      this.#changed('open');
    };
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      this.#log.message('received', data, Date.now());
      if (typeof data === 'string') this.#received(parsed(data));
    };
    socket.onclose = ({ code, reason }) => {
      if (this.#socket !== socket) return;
      clearTimeout(this.#timer);
      this.#socket = null;
      this.#note(isOpen ? `closed with ${code}${reason === '' ? '' : `: ${reason}`}` : 'not connected: the server refused, or there is none (browsers do not say)');
      this.#changed('off');
    };
  }

  /** False: nothing was sent, as there is no connection or it is stuck. */
  send(event: object): boolean {
    if (this.#socket?.readyState !== WebSocket.OPEN || this.#socket.bufferedAmount > MAX_UNSENT) return false;
    const text = JSON.stringify(event);
    this.#socket.send(text);
    this.#log.message('sent', text, Date.now());
    return true;
  }

  close(): void {
    const socket = this.#socket;
    if (socket === null) return;
    this.#socket = null;
    clearTimeout(this.#timer);
    socket.close(1000);
    this.#note('closed');
    this.#changed('off');
  }

  #note(words: string): void {
    this.#log.note(words, Date.now());
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
