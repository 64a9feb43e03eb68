// What a conversation needs of its connection, whichever transport it is: `Connection` (WebSocket) or `Call` (WebRTC).

import type { ServerEvent } from '../protocol/events.js';
import type { Outbox } from './outbox.js';
import type { Direction } from './tap.js';

export interface LineHandlers {
  /** A message was sent or received, as it is on the wire. */
  wire: (direction: Direction, message: string | ArrayBuffer | Uint8Array) => void;
  event: (event: ServerEvent) => void;
  /** The hub sent an invalid message; the connection stays open. */
  unreadable: (message: string) => void;
  /** Closed, but not by `close`. `opened` distinguishes a refused from a lost connection; `code` is a WebSocket's. */
  lost: (opened: boolean, code: number) => void;
}

export interface Line {
  /** Sends an event. */
  send(event: object): void;
  /** Sends the next 20 ms payload of the microphone, where it travels in frames. */
  sendAudio(payload: Uint8Array): void;
  /** Sends this track from now on, where the microphone travels as a track. */
  useMicrophone(track: MediaStreamTrack | null): void;
  /** Frames of the microphone so far: the position of the hub's times. */
  readonly nFrames: number;
  /** Null if the session ends with its connection. */
  readonly resumable: Outbox | null;
  /** Messages of the hub so far. */
  readonly nReceived: number;
  /** Takes the connection for lost, as after the machine slept. */
  giveUp(): void;
  /** Ends the session, too, unless it can be resumed and `code` of its WebSocket says that it will be. */
  close(code?: number): void;
}
