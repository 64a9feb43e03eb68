// One call to the hub by WebRTC: the microphone's track one way, the reply's the other, JSON events on the data channel
// `oai-events`. The hub paces, truncates and knows what was heard. A lost call is not resumed: its owner opens another one.

import { EventError, parseEvent } from '../protocol/events.js';
import { Closed } from './connection.js';
import type { Line, LineHandlers } from './line.js';

/** The data channel must be open within this time. */
const OPEN_TIMEOUT_MS = 8_000;
/** Browsers report a path without answers after 5 s; it may come back. */
const DISCONNECTED_MS = 5_000;

export interface CallHandlers extends LineHandlers {
  /** The track of the replies. */
  reply: (stream: MediaStream) => void;
}

export interface CallOptions {
  /** Address that takes the offer. */
  url: string;
  headers: Record<string, string>;
  microphone: MediaStreamTrack | null;
}

export class Call implements Line {
  readonly resumable = null;
  readonly #peer = new RTCPeerConnection();
  readonly #channel: RTCDataChannel;
  readonly #sender: RTCRtpSender;
  readonly #handlers: CallHandlers;
  readonly #request = new AbortController();
  #timer: number;
  /** Ends the call at the hub; a page that is left sends nothing else. */
  #hangUp: (() => void) | null = null;
  #opened = false;
  #over = false;
  #nFrames = 0;
  #nReceived = 0;

  constructor(options: CallOptions, handlers: CallHandlers) {
    this.#handlers = handlers;
    this.#sender = this.#peer.addTransceiver(options.microphone ?? 'audio', { direction: 'sendrecv' }).sender;
    this.#peer.ontrack = ({ streams, track }) => this.#handlers.reply(streams[0] ?? new MediaStream([track]));
    this.#peer.onconnectionstatechange = () => this.#connectionChanged();
    this.#channel = this.#peer.createDataChannel('oai-events');
    this.#channel.onopen = () => this.#open();
    this.#channel.onmessage = (message: MessageEvent<unknown>) => this.#take(message.data);
    this.#channel.onclose = () => this.#end(Closed.abnormal);
    this.#timer = window.setTimeout(() => this.#end(Closed.abnormal), OPEN_TIMEOUT_MS);
    void this.#offer(options);
  }

  get nFrames(): number {
    return this.#nFrames;
  }

  get nReceived(): number {
    return this.#nReceived;
  }

  send(event: object): void {
    if (this.#channel.readyState !== 'open') return;
    const message = JSON.stringify(event);
    this.#channel.send(message);
    this.#handlers.wire('sent', message);
  }

  /** The track carries the audio; a frame of the capture only advances the position. */
  sendAudio(_: Uint8Array): void {
    if (this.#peer.connectionState === 'connected') this.#nFrames++;
  }

  useMicrophone(track: MediaStreamTrack | null): void {
    void this.#sender.replaceTrack(track);
  }

  giveUp(): void {
    this.#end(Closed.abnormal);
  }

  close(): void {
    if (!this.#over) this.#hangUp?.();
    this.#over = true;
    this.#request.abort();
    clearTimeout(this.#timer);
    this.#channel.close();
    this.#peer.close();
  }

  async #offer({ url, headers }: CallOptions): Promise<void> {
    try {
      await this.#peer.setLocalDescription();
      const body = this.#peer.localDescription?.sdp ?? '';
      const answer = await fetch(url, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/sdp' },
        body,
        signal: this.#request.signal,
      });
      if (!answer.ok) return this.#end(answer.status === 401 ? Closed.badKey : Closed.abnormal);
      // The hub may be served below any path, which it does not know.
      const id = answer.headers.get('location')?.split('/').pop();
      if (id !== undefined) {
        const address = new URL(`calls/${id}/hangup`, url).href;
        this.#hangUp = () => void fetch(address, { method: 'POST', headers, keepalive: true }).catch(() => undefined);
      }
      await this.#peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
    } catch {
      // No network, a refused answer, or `close`.
      this.#end(Closed.abnormal);
    }
  }

  #open(): void {
    this.#opened = true;
    clearTimeout(this.#timer);
  }

  #connectionChanged(): void {
    const { connectionState } = this.#peer;
    if (!this.#opened) return;
    clearTimeout(this.#timer);
    if (connectionState === 'failed' || connectionState === 'closed') this.#end(Closed.abnormal);
    if (connectionState === 'disconnected') this.#timer = window.setTimeout(() => this.#end(Closed.abnormal), DISCONNECTED_MS);
  }

  #take(data: unknown): void {
    if (this.#over || typeof data !== 'string') return;
    this.#nReceived++;
    this.#handlers.wire('received', data);
    try {
      this.#handlers.event(parseEvent(data));
    } catch (cause) {
      if (!(cause instanceof EventError)) throw cause;
      this.#handlers.unreadable(cause.message);
    }
  }

  #end(code: number): void {
    if (this.#over) return;
    this.close();
    this.#handlers.lost(this.#opened, code);
  }
}
