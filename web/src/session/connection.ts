// One WebSocket to the hub: JSON events as text, audio as binary frames. It numbers the microphone
// frames, counts what came and went, and tells its owner once when it is over. It never reconnects;
// the conversation does, with a new connection that goes on from the `ticket` of the old one.

import { type ServerEvent, EventError, parseEvent } from '../protocol/events';
import { type Frame, FRAME_SAMPLES, FrameError, FrameKind, decodeFrame, encodeFrame } from '../protocol/frame';

/** Bytes must leave within this time; else the way to the hub is blocked and the connection is given up. */
const STUCK_MS = 8_000;
const OPEN_TIMEOUT_MS = 6_000;
/** Events remembered in case the hub did not get them; each is short, and most are reports of the playhead. */
const MAX_SAID = 200;

/** Close codes of the hub: a bad key, a session that cannot be taken up, and a peer that seemed dead to it. */
export const Closed = { badKey: 3000, noSession: 4000, dead: 1011, abnormal: 1006 } as const;

export interface ConnectionHandlers {
  event: (event: ServerEvent) => void;
  audio: (frame: Frame) => void;
  /** The session of the ticket goes on here. */
  resumed: () => void;
  /** The hub sent what cannot be read; the connection goes on. */
  unreadable: (message: string) => void;
  /** Over, not by `close`. `opened` tells a refusal from a loss; `code` is the WebSocket's. */
  lost: (opened: boolean, code: number) => void;
}

/** What a new connection needs to go on where another broke off. */
export interface Ticket {
  key: string;
  withinMs: number;
  /** Messages of the session received. */
  nReceived: number;
  nSent: number;
  nFrames: number;
  /** The last events sent, by number. */
  said: { number: number; text: string }[];
}

export class Connection {
  readonly #socket: WebSocket;
  readonly #handlers: ConnectionHandlers;
  readonly #openTimer: number;
  #ticket: Ticket;
  /** The hub has said whose session this is: the greeting of a new one, or of the one that goes on. */
  #greeted: boolean;
  #opened = false;
  #over = false;
  #drainedMs = 0;

  constructor(url: string, protocols: string[], handlers: ConnectionHandlers, ticket: Ticket | null = null) {
    this.#handlers = handlers;
    this.#ticket = ticket ?? { key: '', withinMs: 0, nReceived: 0, nSent: 0, nFrames: 0, said: [] };
    this.#greeted = ticket === null;
    this.#socket = new WebSocket(url, protocols);
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.onopen = () => this.#open();
    this.#socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => this.#take(message.data);
    this.#socket.onclose = (close: CloseEvent) => this.#end(close.code);
    this.#openTimer = window.setTimeout(() => this.#giveUp(), OPEN_TIMEOUT_MS);
  }

  /** Null until the hub has said that the session can be taken up. */
  get ticket(): Ticket | null {
    return this.#ticket.key === '' ? null : this.#ticket;
  }

  send(event: object): void {
    if (this.#socket.readyState !== WebSocket.OPEN || !this.#greeted) return;
    const text = JSON.stringify(event);
    this.#ticket.said.push({ number: ++this.#ticket.nSent, text });
    if (this.#ticket.said.length > MAX_SAID) this.#ticket.said.shift();
    this.#socket.send(text);
  }

  /** One 20 ms payload of the microphone, the next in order. */
  sendAudio(payload: Uint8Array): void {
    if (this.#socket.readyState !== WebSocket.OPEN || !this.#greeted) return;
    const now = performance.now();
    if (this.#socket.bufferedAmount === 0) this.#drainedMs = now;
    else if (now - this.#drainedMs > STUCK_MS) return this.#giveUp();
    const sequence = this.#ticket.nFrames++;
    const sampleOffset = sequence * FRAME_SAMPLES;
    this.#ticket.nSent++;
    this.#socket.send(encodeFrame({ kind: FrameKind.Microphone, sequence, sampleOffset, itemId: '', payload }));
  }

  get nFrames(): number {
    return this.#ticket.nFrames;
  }

  close(): void {
    this.#over = true;
    clearTimeout(this.#openTimer);
    this.#socket.close(1000);
  }

  #open(): void {
    this.#opened = true;
    this.#drainedMs = performance.now();
    clearTimeout(this.#openTimer);
  }

  #take(data: string | ArrayBuffer): void {
    if (this.#over) return;
    if (!this.#greeted) return this.#takeGreeting(data);
    this.#ticket.nReceived++;
    try {
      if (typeof data === 'string') return this.#takeEvent(parseEvent(data));
      const frame = decodeFrame(data);
      if (frame.kind === FrameKind.Reply) this.#handlers.audio(frame);
    } catch (cause) {
      if (!(cause instanceof EventError || cause instanceof FrameError)) throw cause;
      this.#handlers.unreadable(cause.message);
    }
  }

  #takeEvent(event: ServerEvent): void {
    if (event.type === 'antiphon.session.resumable') {
      this.#ticket.key = event.key;
      this.#ticket.withinMs = event.within_s * 1_000;
    }
    this.#handlers.event(event);
  }

  /** The first message to a ticket is not counted: the session goes on, or the close code will tell why not. */
  #takeGreeting(data: string | ArrayBuffer): void {
    const event = typeof data === 'string' ? parseEvent(data) : null;
    if (event?.type !== 'antiphon.session.resumed') return;
    this.#greeted = true;
    // What the hub did not get any more. Lost microphone frames stay lost: it conceals them.
    const missed = this.#ticket.said.filter(({ number }) => number > event.received);
    this.#ticket.nSent = event.received;
    this.#ticket.said = [];
    for (const { text } of missed) this.send(JSON.parse(text) as object);
    this.#handlers.resumed();
  }

  /** The socket's own close may take minutes when the way is blocked: tell the owner now. */
  #giveUp(): void {
    this.#socket.close();
    this.#end(Closed.abnormal);
  }

  #end(code: number): void {
    clearTimeout(this.#openTimer);
    if (this.#over) return;
    this.#over = true;
    this.#handlers.lost(this.#opened, code);
  }
}
