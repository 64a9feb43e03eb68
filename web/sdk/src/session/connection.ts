// One WebSocket to the hub: JSON events as text, audio as binary frames. What it sends and receives is counted in the
// `Outbox` of its session, and it notifies its owner once when it is lost. It never reconnects; the conversation opens a
// new connection that resumes the session with the outbox of the old one.

import { type ServerEvent, EventError, parseEvent } from '../protocol/events.js';
import { type Frame, FrameError, FrameKind, decodeFrame } from '../protocol/frame.js';
import type { Line, LineHandlers } from './line.js';
import { type Message, Outbox } from './outbox.js';

/** Sent bytes must leave within this time; otherwise the connection counts as lost. */
const STUCK_MS = 8_000;
/** The first message must have arrived within this time: the greeting of a session, or of a resumed one. */
const OPEN_TIMEOUT_MS = 6_000;

/**
 * Close codes of the hub: invalid key, session that cannot be resumed, a client that did not respond, and a session that
 * moves to another hub.
 */
export const Closed = { gaveUp: 4001, badKey: 3000, noSession: 4000, dead: 1011, moved: 1012, abnormal: 1006 } as const;

export interface ConnectionHandlers extends LineHandlers {
  audio: (frame: Frame) => void;
  /**
   * The session was resumed on this connection. `backTo` null: nothing was lost. Otherwise it continues as it was at the
   * checkpoint whose message had this number, and what was received after it is void. All that must be sent
   * again was sent.
   */
  resumed: (backTo: number | null) => void;
}

export class Connection implements Line {
  readonly #socket: WebSocket;
  readonly #handlers: ConnectionHandlers;
  readonly #openTimer: number;
  readonly outbox: Outbox;
  /** Whether the first message arrived: the greeting of a new session, or of a resumed one. */
  #greeted: boolean;
  #opened = false;
  #over = false;
  #drainedMs = 0;

  /** `resumes`: the outbox of the session to resume. */
  constructor(url: string, protocols: string[], handlers: ConnectionHandlers, resumes: Outbox | null = null) {
    this.#handlers = handlers;
    this.outbox = resumes ?? new Outbox();
    this.#greeted = resumes === null;
    this.#socket = new WebSocket(url, protocols);
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.onopen = () => this.#open();
    this.#socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => this.#take(message.data);
    this.#socket.onclose = (close: CloseEvent) => this.#end(close.code);
    this.#openTimer = window.setTimeout(() => this.giveUp(), OPEN_TIMEOUT_MS);
  }

  /** Null until the hub reports that the session can be resumed. */
  get resumable(): Outbox | null {
    return this.outbox.key === '' ? null : this.outbox;
  }

  /** Sends an event. If the session can be resumed and this connection is lost, it is kept for the next one. */
  send(event: object): void {
    if (this.#isReady()) this.#write(this.outbox.event(event));
    else if (this.#keeps()) this.outbox.event(event);
  }

  /** Sends the next 20 ms payload of the microphone, or keeps it. */
  sendAudio(payload: Uint8Array): void {
    if (!this.#isReady()) {
      if (this.#keeps()) this.outbox.audio(payload);
      return;
    }
    this.#write(this.outbox.audio(payload));
    if (performance.now() - this.#drainedMs > STUCK_MS) this.giveUp();
  }

  /** The microphone travels in frames. */
  useMicrophone(): void {}

  get nFrames(): number {
    return this.outbox.nFrames;
  }

  get nReceived(): number {
    return this.outbox.nReceived;
  }

  /** 1000 ends the session, `Closed.gaveUp` keeps it for the next connection. */
  close(code = 1000): void {
    this.#over = true;
    clearTimeout(this.#openTimer);
    this.#socket.close(code);
  }

  #write(message: Message): void {
    // Before sending: what is sent in this task leaves the buffer after it.
    if (this.#socket.bufferedAmount === 0) this.#drainedMs = performance.now();
    this.#socket.send(message);
    this.#handlers.wire('sent', message);
  }

  #isReady(): boolean {
    return this.#socket.readyState === WebSocket.OPEN && this.#greeted && !this.#over;
  }

  #keeps(): boolean {
    return this.resumable !== null;
  }

  #open(): void {
    this.#opened = true;
    this.#drainedMs = performance.now();
  }

  #take(data: string | ArrayBuffer): void {
    if (this.#over) return;
    this.#handlers.wire('received', data);
    if (!this.#greeted) return this.#takeGreeting(data);
    clearTimeout(this.#openTimer);
    this.outbox.nReceived++;
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
      this.outbox.key = event.key;
      this.outbox.withinMs = event.within_s * 1_000;
    }
    if (event.type === 'antiphon.session.checkpoint') this.outbox.checkpoint(event.received);
    this.#handlers.event(event);
  }

  /** Handles the first message on a resumed connection, which is not counted: `resumed`, or the socket closes. */
  #takeGreeting(data: string | ArrayBuffer): void {
    const event = typeof data === 'string' ? parseEvent(data) : null;
    if (event?.type !== 'antiphon.session.resumed') return;
    clearTimeout(this.#openTimer);
    const continuation = this.outbox.resume(event.after, event.received);
    if (continuation === null) return this.giveUp(Closed.noSession);
    this.#greeted = true;
    for (const message of continuation.sendAgain) this.#write(message);
    this.#drainedMs = performance.now();
    this.#handlers.resumed(continuation.backTo);
  }

  /** Closing a blocked socket may take minutes, so the owner is notified now. */
  giveUp(code: number = Closed.abnormal): void {
    // 1000, or no code, ends the session; another one keeps it for the next connection.
    this.#socket.close(code === Closed.noSession ? 1000 : Closed.gaveUp);
    this.#end(code);
  }

  #end(code: number): void {
    clearTimeout(this.#openTimer);
    if (this.#over) return;
    this.#over = true;
    this.#handlers.lost(this.#opened, code);
  }
}
