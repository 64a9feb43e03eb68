// One WebSocket to the hub: JSON events as text, audio as binary frames. It numbers the microphone
// frames, counts sent and received messages, and notifies its owner once when it is lost. It never
// reconnects; the conversation opens a new connection that resumes from the `ticket` of the old one.

import { type ServerEvent, EventError, parseEvent } from '../protocol/events';
import { type Frame, FRAME_SAMPLES, FrameError, FrameKind, decodeFrame, encodeFrame } from '../protocol/frame';

/** Sent bytes must leave within this time; otherwise the connection counts as lost. */
const STUCK_MS = 8_000;
const OPEN_TIMEOUT_MS = 6_000;
/** Number of sent events kept for retransmission; each is short, and most are playback reports. */
const MAX_SAID = 200;

/** Close codes of the hub: invalid key, session that cannot be resumed, and a client that did not respond. */
export const Closed = { badKey: 3000, noSession: 4000, dead: 1011, abnormal: 1006 } as const;

export interface ConnectionHandlers {
  event: (event: ServerEvent) => void;
  audio: (frame: Frame) => void;
  /** The session of the ticket was resumed on this connection. */
  resumed: () => void;
  /** The hub sent an invalid message; the connection stays open. */
  unreadable: (message: string) => void;
  /** Closed, but not by `close`. `opened` distinguishes a refused from a lost connection; `code` is the WebSocket's. */
  lost: (opened: boolean, code: number) => void;
}

/** What a new connection needs to resume the session of a lost one. */
export interface Ticket {
  key: string;
  withinMs: number;
  /** Number of messages of the session received. */
  nReceived: number;
  nSent: number;
  nFrames: number;
  /** The last events sent, with their numbers. */
  said: { number: number; text: string }[];
}

export class Connection {
  readonly #socket: WebSocket;
  readonly #handlers: ConnectionHandlers;
  readonly #openTimer: number;
  #ticket: Ticket;
  /** Whether the first message arrived: the greeting of a new session, or of a resumed one. */
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

  /** Null until the hub reports that the session can be resumed. */
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

  /** Sends the next 20 ms payload of the microphone. */
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

  /** Handles the first message on a resumed connection, which is not counted: `resumed`, or the socket closes. */
  #takeGreeting(data: string | ArrayBuffer): void {
    const event = typeof data === 'string' ? parseEvent(data) : null;
    if (event?.type !== 'antiphon.session.resumed') return;
    this.#greeted = true;
    // The events that the hub did not receive. Lost microphone frames are not sent again: the hub conceals them.
    const missed = this.#ticket.said.filter(({ number }) => number > event.received);
    this.#ticket.nSent = event.received;
    this.#ticket.said = [];
    for (const { text } of missed) this.send(JSON.parse(text) as object);
    this.#handlers.resumed();
  }

  /** Closing a blocked socket may take minutes, so the owner is notified now. */
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
