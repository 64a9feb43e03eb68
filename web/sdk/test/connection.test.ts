// A connection that breaks, and the one that resumes its session: what is counted, kept and sent again.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { decodeFrame } from '../src/protocol/frame';
import { Connection, type ConnectionHandlers } from '../src/session/connection';
import { Outbox, isAboutOutput } from '../src/session/outbox';
import { Resumption } from '../src/session/resumption';
import { FakeSocket } from './fake_socket';

const RESUMABLE = { type: 'antiphon.session.resumable', key: 'rk_1', within_s: 30 };
let handlers: ConnectionHandlers;

beforeEach(() => {
  vi.stubGlobal('WebSocket', FakeSocket);
  vi.stubGlobal('window', globalThis);
  FakeSocket.all = [];
  handlers = { wire: vi.fn(), event: vi.fn(), audio: vi.fn(), resumed: vi.fn(), unreadable: vi.fn(), lost: vi.fn() };
});

afterEach(() => vi.unstubAllGlobals());

/** A connection and its socket, open. */
function connect(resumes: Outbox | null = null): [Connection, FakeSocket] {
  const connection = new Connection('ws://h', ['realtime'], handlers, resumes);
  const socket = FakeSocket.all.at(-1) as FakeSocket;
  socket.open();
  return [connection, socket];
}

describe('a session that is resumed', () => {
  it('continues after what was received, and is sent what it does not include', () => {
    const [first, broken] = connect();
    broken.say({ type: 'session.created', session: {} });
    expect(first.resumable).toBeNull();
    first.send({ type: 'x', number: 1 });
    broken.say(RESUMABLE);
    for (const number of [2, 3]) first.send({ type: 'x', number });
    first.sendAudio(new Uint8Array([1]));
    broken.say({ type: 'something.new' });
    broken.onmessage({ data: '{' });
    broken.break(1012);
    expect(handlers.lost).toHaveBeenCalledWith(true, 1012);
    const outbox = first.resumable as Outbox;
    expect(outbox).toMatchObject({ key: 'rk_1', withinMs: 30_000, nReceived: 4, nSent: 4, nFrames: 1 });
    // Between the connections, and before the greeting of the new one.
    first.sendAudio(new Uint8Array([2]));

    const [second, socket] = connect(outbox);
    second.send({ type: 'x', number: 6 });
    expect(socket.sent).toEqual([]);
    socket.say({ type: 'antiphon.session.resumed', after: 4, received: 1 });
    expect(handlers.resumed).toHaveBeenCalledWith(null);
    second.sendAudio(new Uint8Array([3]));
    const sent = socket.sent.map((data) => (typeof data === 'string' ? (JSON.parse(data) as { number: number }).number : decodeFrame((data as Uint8Array).slice().buffer)));
    expect(sent).toMatchObject([2, 3, { sequence: 0, sampleOffset: 0 }, { sequence: 1, sampleOffset: 480 }, 6, { sequence: 2, sampleOffset: 960 }]);
    socket.say({ type: 'something.new' });
    expect(outbox).toMatchObject({ nReceived: 5, nSent: 7, nFrames: 3 });
  });

  it('goes back to a checkpoint, and is not sent what is about void output', () => {
    const [first, broken] = connect();
    broken.say(RESUMABLE);
    first.send({ type: 'x', number: 1 });
    broken.say({ type: 'antiphon.session.checkpoint', received: 1 });
    broken.say({ type: 'something.new' });
    first.send({ type: 'output_audio_buffer.played', item_id: 'item_1', audio_end_ms: 20 });
    first.send({ type: 'x', number: 2 });
    broken.break();
    const [second, socket] = connect(first.resumable);
    socket.say({ type: 'antiphon.session.resumed', after: 2, received: 1 });
    expect(handlers.resumed).toHaveBeenCalledWith(2);
    expect(socket.sent).toEqual(['{"type":"x","number":2}']);
    expect(second.outbox).toMatchObject({ nReceived: 2, nSent: 2 });
  });

  it('is given up where the network takes nothing for eight seconds, and kept for the next connection', () => {
    const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
    const [connection, socket] = connect();
    socket.say(RESUMABLE);
    const speakUntil = (ms: number, takes: boolean) => {
      for (let at = clock(); at <= ms; at += 20) {
        clock.mockReturnValue(at);
        connection.sendAudio(new Uint8Array([1]));
        if (takes) socket.drain();
      }
    };
    speakUntil(20_000, true);
    expect(handlers.lost).not.toHaveBeenCalled();
    speakUntil(27_900, false);
    expect(handlers.lost).not.toHaveBeenCalled();
    speakUntil(28_100, false);
    expect(handlers.lost).toHaveBeenCalledWith(true, 1006);
    // 1000 or no code would end the session.
    expect(socket.closedWith).toBe(4001);
    clock.mockRestore();
  });

  it('is not given up where the first audio after a long pause is behind an event', () => {
    const clock = vi.spyOn(performance, 'now').mockReturnValue(0);
    const [connection, socket] = connect();
    socket.say(RESUMABLE);
    clock.mockReturnValue(60_000);
    connection.send({ type: 'x' });
    clock.mockReturnValue(60_020);
    connection.sendAudio(new Uint8Array([1]));
    expect(handlers.lost).not.toHaveBeenCalled();
    clock.mockReturnValue(68_100);
    connection.sendAudio(new Uint8Array([1]));
    expect(handlers.lost).toHaveBeenCalledWith(true, 1006);
    clock.mockRestore();
  });

  it('is lost if it is opened and nothing is said, and not if it was greeted in time', () => {
    vi.useFakeTimers();
    const [, silent] = connect();
    vi.advanceTimersByTime(5_999);
    expect(handlers.lost).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(handlers.lost).toHaveBeenCalledWith(true, 1006);
    expect(silent.closedWith).toBe(4001);
    const [, greeted] = connect();
    greeted.say({ type: 'session.created', session: {} });
    vi.advanceTimersByTime(60_000);
    expect(handlers.lost).toHaveBeenCalledTimes(1);
    vi.useRealTimers();
  });

  it('whose counts cannot be is over, as is one that is gone', () => {
    for (const [after, received] of [[5, 0], [0, 0], [1, 1]]) {
      const [first, broken] = connect();
      broken.say(RESUMABLE);
      broken.break();
      const [, socket] = connect(first.resumable);
      socket.say({ type: 'antiphon.session.resumed', after, received });
      expect(handlers.lost).toHaveBeenLastCalledWith(true, 4000);
    }
    const [first, broken] = connect();
    broken.say(RESUMABLE);
    broken.break();
    const [, socket] = connect(first.resumable);
    socket.say({ type: 'error', error: { message: 'gone', code: 'session_not_found' } });
    socket.break(4000);
    expect(handlers.resumed).not.toHaveBeenCalled();
    expect(handlers.lost).toHaveBeenLastCalledWith(true, 4000);
  });
});

describe('the outbox', () => {
  it('keeps what two checkpoints do not include, and eight megabytes at most', () => {
    const outbox = new Outbox();
    for (let number = 1; number <= 10; number++) outbox.event({ type: 'x', number });
    for (const [nReceived, received] of [[3, 2], [5, 4], [8, 9]] as const) {
      outbox.nReceived = nReceived;
      outbox.checkpoint(received);
    }
    expect(outbox.resume(3, 2)).toBeNull();
    const back = outbox.resume(5, 4);
    expect(back?.backTo).toBe(5);
    expect(back?.sendAgain).toHaveLength(6);
    const large = new Outbox();
    for (let i = 0; i < 20; i++) large.audio(new Uint8Array(1 << 20));
    expect(large.nSent).toBe(20);
    expect(large.resume(0, 0)?.sendAgain.length).toBe(7);
    expect(large.nSent, 'the dropped ones do not count').toBe(7);
  });

  it('knows what is about output', () => {
    for (const type of ['output_audio_buffer.played', 'output_audio_buffer.clear', 'antiphon.clock.ping', 'response.cancel', 'conversation.item.delete', 'conversation.item.truncate']) {
      expect(isAboutOutput({ type })).toBe(true);
    }
    for (const type of ['session.update', 'response.create', 'conversation.item.create']) expect(isAboutOutput({ type })).toBe(false);
    expect(isAboutOutput({ type: 'conversation.item.create', item: { type: 'function_call_output' } })).toBe(true);
  });

  it('gives each message that counts to the hub once and in order, whatever breaks', () => {
    for (let seed = 1; seed <= 300; seed++) storm(seed);
  });
});

/** A model of a hub that stores checkpoints, moves sessions, fails and loses connections at random. */
function storm(seed: number): void {
  let state = seed;
  const below = (n: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * n);
  };
  const outbox = new Outbox();
  let hub = { taken: [] as object[], sent: [] as { received: number | null }[] };
  let stored: typeof hub | null = null;
  let storing: typeof hub | null = null;
  const copy = () => ({ taken: [...hub.taken], sent: [...hub.sent] });
  let toHub: object[] = [];
  let toPage: { received: number | null }[] = [];
  const said: number[] = [];
  let number = 0;
  const tell = (received: number | null) => {
    hub.sent.push({ received });
    toPage.push({ received });
  };
  const connect = () => {
    const after = Math.min(outbox.nReceived, hub.sent.length);
    const continuation = outbox.resume(after, hub.taken.length);
    if (continuation === null) throw new Error(`seed ${seed}: refused`);
    toHub = continuation.sendAgain.map((text) => JSON.parse(text as string) as object);
    toPage = hub.sent.slice(after);
    expect(outbox.nSent).toBe(hub.taken.length + toHub.length);
  };
  const takeAll = (n: number) => {
    hub.taken.push(...toHub.splice(0, n));
    for (const { received } of toPage.splice(0, n)) {
      outbox.nReceived++;
      if (received !== null) outbox.checkpoint(received);
    }
  };
  for (let step = 0; step < 150; step++) {
    const kind = below(20);
    if (kind < 8) {
      const event = kind < 6 ? { type: 'x', number: ++number } : { type: 'response.cancel' };
      if (kind < 6) said.push(number);
      toHub.push(JSON.parse(outbox.event(event) as string) as object);
    } else if (kind < 12) takeAll(below(5));
    else if (kind < 14) tell(null);
    else if (kind < 16 && storing === null) {
      tell(hub.taken.length);
      storing = copy();
    } else if (kind < 17) {
      stored = storing ?? stored;
      storing = null;
    } else if (kind === 17) connect();
    else if (kind === 18) {
      // The last message of a hub that hands over is a checkpoint.
      tell(hub.taken.length);
      stored = copy();
      storing = null;
      connect();
    } else {
      storing = null;
      hub = stored ?? hub;
      stored = stored && copy();
      connect();
    }
  }
  takeAll(1_000);
  expect(hub.taken.flatMap((event) => ('number' in event ? [event.number] : [])), `seed ${seed}`).toEqual(said);
  expect(outbox.nReceived).toBe(hub.sent.length);
}

describe('resuming', () => {
  const outbox = Object.assign(new Outbox(), { key: 'rk_1', withinMs: 30_000 });
  const broken = { opened: true, code: 1006 };

  it('is tried while the hub keeps the session, and for what broke or moves only', () => {
    expect(new Resumption().lost(null, broken, 0)).toBe(false);
    for (const code of [1000, 1001, 1008, 1013, 3000, 4000]) expect(new Resumption().lost(outbox, { opened: true, code }, 0)).toBe(false);
    for (const code of [1006, 1011, 1012]) expect(new Resumption().lost(outbox, { opened: true, code }, 0)).toBe(true);
    const resumption = new Resumption();
    expect(resumption.lost(outbox, broken, 1_000)).toBe(true);
    expect(resumption.lost(outbox, { opened: false, code: 1006 }, 30_999)).toBe(true);
    expect(resumption.lost(outbox, broken, 31_000)).toBe(false);
  });

  it('begins at once; then the pauses double up to two seconds and vary', () => {
    const delays = (random: number) => {
      const resumption = new Resumption();
      return Array.from({ length: 8 }, () => resumption.delayMs(random));
    };
    expect(delays(1)).toEqual([0, 100, 200, 400, 800, 1_600, 2_000, 2_000]);
    expect(delays(0)).toEqual([0, 50, 100, 200, 400, 800, 1_000, 1_000]);
  });
});
