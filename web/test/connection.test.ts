// A connection that breaks, and the one that goes on for it: what is counted, and what is said again.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { decodeFrame } from '../src/protocol/frame';
import { Connection, type ConnectionHandlers, type Ticket } from '../src/session/connection';
import { Resumption } from '../src/session/resumption';

class FakeSocket {
  static readonly OPEN = 1;
  static all: FakeSocket[] = [];
  readyState = 0;
  bufferedAmount = 0;
  binaryType = '';
  sent: (string | ArrayBuffer | Uint8Array)[] = [];
  onopen: () => void = () => {};
  onmessage: (message: { data: unknown }) => void = () => {};
  onclose: (close: { code: number }) => void = () => {};

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {
    FakeSocket.all.push(this);
  }

  open(): void {
    this.readyState = FakeSocket.OPEN;
    this.onopen();
  }

  say(event: object): void {
    this.onmessage({ data: JSON.stringify(event) });
  }

  break(code = 1006): void {
    this.readyState = 3;
    this.onclose({ code });
  }

  send(data: string | Uint8Array): void {
    this.sent.push(data);
  }

  close(): void {
    this.readyState = 2;
  }
}

const RESUMABLE = { type: 'antiphon.session.resumable', key: 'rk_1', within_s: 30 };
let handlers: ConnectionHandlers;

beforeEach(() => {
  vi.stubGlobal('WebSocket', FakeSocket);
  vi.stubGlobal('window', globalThis);
  FakeSocket.all = [];
  handlers = { event: vi.fn(), audio: vi.fn(), resumed: vi.fn(), unreadable: vi.fn(), lost: vi.fn() };
});

afterEach(() => vi.unstubAllGlobals());

/** A connection and its socket, open. */
function connect(ticket: Connection['ticket'] = null): [Connection, FakeSocket] {
  const connection = new Connection('ws://h', ['realtime'], handlers, ticket);
  const socket = FakeSocket.all.at(-1) as FakeSocket;
  socket.open();
  return [connection, socket];
}

describe('a session taken up', () => {
  it('goes on from what was received, and says again what was not', () => {
    const [first, broken] = connect();
    broken.say({ type: 'session.created', session: {} });
    expect(first.ticket).toBeNull();
    broken.say(RESUMABLE);
    for (const number of [1, 2, 3]) first.send({ type: 'x', number });
    first.sendAudio(new Uint8Array([1]));
    broken.say({ type: 'something.new' });
    broken.onmessage({ data: '{' });
    broken.break();
    expect(handlers.lost).toHaveBeenCalledWith(true, 1006);
    expect(first.ticket).toMatchObject({ key: 'rk_1', withinMs: 30_000, nReceived: 4, nSent: 4, nFrames: 1 });

    const [second, socket] = connect(first.ticket);
    second.send({ type: 'too soon' });
    second.sendAudio(new Uint8Array([2]));
    expect(socket.sent).toEqual([]);
    socket.say({ type: 'antiphon.session.resumed', after: 4, received: 1 });
    expect(handlers.resumed).toHaveBeenCalledOnce();
    expect(socket.sent).toEqual(['{"type":"x","number":2}', '{"type":"x","number":3}']);
    second.sendAudio(new Uint8Array([3]));
    const frame = decodeFrame((socket.sent[2] as Uint8Array).slice().buffer);
    expect([frame.sequence, frame.sampleOffset]).toEqual([1, 480]);
    socket.say({ type: 'something.new' });
    expect(second.ticket).toMatchObject({ nReceived: 5, nSent: 4, nFrames: 2 });
  });

  it('that is gone is told by the close alone', () => {
    const [first, broken] = connect();
    broken.say(RESUMABLE);
    broken.break();
    const [, socket] = connect(first.ticket);
    socket.say({ type: 'error', error: { message: 'gone', code: 'session_not_found' } });
    socket.break(4000);
    expect(handlers.event).toHaveBeenCalledOnce();
    expect(handlers.lost).toHaveBeenLastCalledWith(true, 4000);
  });
});

describe('taking up', () => {
  const ticket: Ticket = { key: 'rk_1', withinMs: 30_000, nReceived: 2, nSent: 0, nFrames: 0, said: [] };
  const broken = { opened: true, code: 1006 };

  it('is tried while the session waits, and for what broke only', () => {
    expect(new Resumption().lost(null, broken, 0)).toBe(false);
    for (const code of [1000, 1001, 1013, 3000, 4000]) expect(new Resumption().lost(ticket, { opened: true, code }, 0)).toBe(false);
    const resumption = new Resumption();
    expect(resumption.lost(ticket, broken, 1_000)).toBe(true);
    expect(resumption.lost(ticket, { opened: false, code: 1006 }, 30_999)).toBe(true);
    expect(resumption.lost(ticket, broken, 31_000)).toBe(false);
  });

  it('begins at once and goes on every few seconds', () => {
    const resumption = new Resumption();
    const delays = [0, 1, 2, 3, 4].map(() => resumption.delayMs(0.5));
    expect(delays).toEqual([0, 500, 1_000, 2_000, 2_000]);
  });
});
