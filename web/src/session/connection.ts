// One WebSocket to the hub: JSON events as text, audio as binary frames. It numbers the microphone
// frames, and tells its owner once when it is over. It never reconnects; the conversation does.

import { type ServerEvent, EventError, parseEvent } from '../protocol/events';
import { type Frame, FRAME_SAMPLES, FrameError, FrameKind, decodeFrame, encodeFrame } from '../protocol/frame';

/** Bytes must leave within this time; else the way to the hub is blocked and the connection is given up. */
const STUCK_MS = 8_000;
const OPEN_TIMEOUT_MS = 6_000;

export interface ConnectionHandlers {
  event: (event: ServerEvent) => void;
  audio: (frame: Frame) => void;
  /** The hub sent what cannot be read; the connection goes on. */
  unreadable: (message: string) => void;
  /** Over, not by `close`. `opened` tells a refusal from a loss. */
  lost: (opened: boolean) => void;
}

export class Connection {
  readonly #socket: WebSocket;
  readonly #handlers: ConnectionHandlers;
  readonly #openTimer: number;
  #opened = false;
  #over = false;
  #nFrames = 0;
  #drainedMs = 0;

  constructor(url: string, handlers: ConnectionHandlers) {
    this.#handlers = handlers;
    this.#socket = new WebSocket(url);
    this.#socket.binaryType = 'arraybuffer';
    this.#socket.onopen = () => this.#open();
    this.#socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => this.#take(message.data);
    this.#socket.onclose = () => this.#end();
    this.#openTimer = window.setTimeout(() => this.#giveUp(), OPEN_TIMEOUT_MS);
  }

  send(event: object): void {
    if (this.#socket.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(event));
  }

  /** One 20 ms payload of the microphone, the next in order. */
  sendAudio(payload: Uint8Array): void {
    if (this.#socket.readyState !== WebSocket.OPEN) return;
    const now = performance.now();
    if (this.#socket.bufferedAmount === 0) this.#drainedMs = now;
    else if (now - this.#drainedMs > STUCK_MS) return this.#giveUp();
    const sequence = this.#nFrames++;
    const sampleOffset = sequence * FRAME_SAMPLES;
    this.#socket.send(encodeFrame({ kind: FrameKind.Microphone, sequence, sampleOffset, itemId: '', payload }));
  }

  get nFrames(): number {
    return this.#nFrames;
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
    try {
      if (typeof data === 'string') return this.#handlers.event(parseEvent(data));
      const frame = decodeFrame(data);
      if (frame.kind === FrameKind.Reply) this.#handlers.audio(frame);
    } catch (cause) {
      if (!(cause instanceof EventError || cause instanceof FrameError)) throw cause;
      this.#handlers.unreadable(cause.message);
    }
  }

  /** The socket's own close may take minutes when the way is blocked: tell the owner now. */
  #giveUp(): void {
    this.#socket.close();
    this.#end();
  }

  #end(): void {
    clearTimeout(this.#openTimer);
    if (this.#over) return;
    this.#over = true;
    this.#handlers.lost(this.#opened);
  }
}
