// The conversation before a browser's audio is there: what it knows, and what it says of a hub that takes nobody.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Conversation } from '../src/index';
import { FakeSocket } from './fake_socket';

const json = (status: number, body: unknown) => new Response(JSON.stringify(body), { status });
let answers: Record<string, () => Response>;
let asked: { path: string; authorization: string | null }[];

beforeEach(() => {
  asked = [];
  FakeSocket.all = [];
  vi.stubGlobal('WebSocket', FakeSocket);
  answers = {
    '/readyz': () => json(200, { ready: true, sessions: 0, max_sessions: 2, webrtc: true }),
    '/v1/audio/voices': () => json(200, { voices: [{ id: 'slt' }], default: 'slt' }),
  };
  vi.stubGlobal('window', Object.assign(new EventTarget(), { setTimeout, clearTimeout, isSecureContext: false }));
  vi.stubGlobal('document', Object.assign(new EventTarget(), { baseURI: 'https://page.example/' }));
  vi.stubGlobal('fetch', async (url: URL, init?: RequestInit) => {
    asked.push({ path: url.href, authorization: new Headers(init?.headers).get('authorization') });
    return answers[url.pathname.replace(/^\/voice\//, '/')]?.() ?? json(404, {});
  });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** The nth connection, once the conversation has opened it. */
async function socketOf(n: number): Promise<FakeSocket> {
  while (FakeSocket.all.length < n) await new Promise((done) => setImmediate(done));
  return FakeSocket.all[n - 1] as FakeSocket;
}

/** The same with a session. */
async function greeted(n: number): Promise<FakeSocket> {
  const socket = await socketOf(n);
  socket.open();
  socket.say({ type: 'session.created', session: {} });
  return socket;
}

class AudioNodeStub {
  gain = { value: 1 };
  port = { onmessage: null, postMessage: () => {} };
  connect = () => this;
  disconnect = () => {};
}

interface Track {
  device: string | null;
  enabled: boolean;
  isStopped: boolean;
}

/** A browser with audio that opens a microphone once `allow` resolves. Returns the tracks that were asked for. */
function withMicrophones(allow: (device: string | null) => Promise<void> = async () => {}): Track[] {
  const tracks: Track[] = [];
  const node = () => new AudioNodeStub();
  const context = { currentTime: 0, sampleRate: 48_000, destination: {}, audioWorklet: { addModule: async () => {} }, createGain: node, createMediaStreamSource: node };
  const none = async () => {};
  vi.stubGlobal('AudioContext', function () { return { ...context, resume: none, suspend: none, close: none }; });
  vi.stubGlobal('AudioWorkletNode', AudioNodeStub);
  Object.assign(window, { isSecureContext: true });
  const getUserMedia = async ({ audio }: { audio: { deviceId?: { exact: string } } }) => {
    const device = audio.deviceId?.exact ?? null;
    const state = { device, enabled: true, isStopped: false };
    const stop = () => void (state.isStopped = true);
    const track = Object.assign(state, { stop, addEventListener: () => {} });
    tracks.push(state);
    await allow(device);
    return { getTracks: () => [track], getAudioTracks: () => [track] };
  };
  vi.stubGlobal('navigator', { mediaDevices: { getUserMedia } });
  return tracks;
}

/** From now on the time of the conversation's timers is the test's. */
function stopClock(): void {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  Object.assign(window, { setTimeout, clearTimeout });
}

it('begins with nothing, learns what the hub offers, and asks with a key of its caller', async () => {
  const conversation = new Conversation({ hub: 'https://hub.example/voice', key: async () => 'ek_1' });
  const seen = vi.fn();
  const end = conversation.subscribe(seen);
  expect(conversation.state).toMatchObject({ link: 'off', captions: [], problem: null, hub: null });
  await conversation.look();
  expect(asked).toEqual([
    { path: 'https://hub.example/voice/readyz', authorization: null },
    { path: 'https://hub.example/voice/v1/audio/voices', authorization: 'Bearer ek_1' },
  ]);
  expect(conversation.state).toMatchObject({ problem: null, hub: { webrtc: true }, voices: [{ id: 'slt' }] });
  // Without audio there is nothing that a call could carry.
  expect([conversation.codec, conversation.transport]).toEqual([null, 'websocket']);
  const { length } = seen.mock.calls;
  expect(length).toBeGreaterThan(0);
  end();
  conversation.useKey(null);
  expect(seen).toHaveBeenCalledTimes(length);
  conversation.close();
});

it('says that the hub is full, and that a key is refused, missing or one that cannot be sent', async () => {
  answers['/readyz'] = () => json(200, { ready: true, sessions: 2, max_sessions: 2 });
  const conversation = new Conversation({ hub: 'https://hub.example' });
  await conversation.type('Hello?');
  expect(conversation.state).toMatchObject({ link: 'off', problem: { kind: 'full', sessions: 2 }, captions: [{ text: 'Hello?', fault: 'unsent' }] });
  answers['/v1/audio/voices'] = () => json(401, {});
  await conversation.look();
  expect(conversation.state.problem).toEqual({ kind: 'key', wrong: false });
  conversation.dismiss();
  expect(conversation.state.problem).toBeNull();

  answers['/v1/audio/voices'] = () => json(200, { voices: [] });
  vi.stubGlobal('reportError', vi.fn());
  for (const key of [() => 'not a key', () => Promise.reject(new Error('no server'))]) {
    const other = new Conversation({ hub: 'https://hub.example', key });
    await other.look();
    expect(other.state.problem).toEqual({ kind: 'key', wrong: true });
    other.close();
  }
  conversation.close();
});

it('says of a first connection that a hub does not take that it was refused, and of others that they are lost', async () => {
  stopClock();
  const conversation = new Conversation({ hub: 'https://hub.example' });
  void conversation.type('Hello?');
  // As where a limit of the address is reached: browsers do not see the status.
  (await socketOf(1)).break();
  while (conversation.state.link !== 'off') await new Promise((done) => setImmediate(done));
  expect(conversation.state).toMatchObject({ problem: { kind: 'refused' }, captions: [{ text: 'Hello?', fault: 'unsent' }] });
  conversation.retry();
  (await greeted(2)).break();
  expect(conversation.state.problem).toMatchObject({ kind: 'reconnecting' });
  conversation.close();
});

it('stays in the conversation that was chosen while the connection was lost', async () => {
  stopClock();
  const conversation = new Conversation({ hub: 'https://hub.example' });
  void conversation.type('Hello?');
  (await greeted(1)).break();
  expect(conversation.state.link).toBe('waiting');
  conversation.renew();
  await greeted(2);
  expect(conversation.state).toMatchObject({ link: 'live', captions: [] });
  // The attempt that the lost connection had planned.
  vi.advanceTimersByTime(1_000);
  expect(conversation.state.link).toBe('live');
  conversation.close();
});

it('leaves an attempt that the hub has not answered without ending the session', async () => {
  stopClock();
  const conversation = new Conversation({ hub: 'https://hub.example' });
  void conversation.type('Hello?');
  const first = await greeted(1);
  first.say({ type: 'antiphon.session.resumable', key: 'rk_1', within_s: 30 });
  first.break();
  vi.advanceTimersByTime(1);
  const second = await socketOf(2);
  second.open();
  window.dispatchEvent(new Event('online'));
  const third = await socketOf(3);
  // 1000 or no code would end it.
  expect(second.closedWith).toBe(4001);
  third.open();
  third.say({ type: 'antiphon.session.resumed', after: 2, received: 0 });
  expect(third.sent.length).toBeGreaterThan(0);
  conversation.close();
});

it('keeps a muted microphone muted where it is opened again', async () => {
  const tracks = withMicrophones();
  const conversation = new Conversation({ hub: 'https://hub.example', codec: 'pcm16', worklets: 'worklets.js' });
  void conversation.talk();
  await greeted(1);
  conversation.mute();
  await conversation.useDevices({ microphone: 'other' });
  conversation.chooseTransport('websocket');
  await greeted(2);
  expect(tracks.map(({ enabled }) => enabled)).toEqual([false, false, false]);
  expect(conversation.state).toMatchObject({ microphone: 'on', muted: true });
  conversation.close();
});

it('has one microphone where the connection is lost while the browser asks for it', async () => {
  let allow = (): void => {};
  const allowed = new Promise<void>((done) => (allow = done));
  const tracks = withMicrophones(() => allowed);
  const conversation = new Conversation({ hub: 'https://hub.example', codec: 'pcm16', worklets: 'worklets.js' });
  void conversation.type('Hello?');
  const first = await greeted(1);
  void conversation.talk();
  first.break();
  conversation.retry();
  while (tracks.length < 2) await new Promise((done) => setImmediate(done));
  allow();
  await greeted(2);
  expect(tracks.map(({ isStopped }) => isStopped)).toEqual([false, true]);
  conversation.close();
  expect(tracks.every(({ isStopped }) => isStopped)).toBe(true);
});

it('opens the microphone that was chosen last, also while the one before is being opened', async () => {
  const tracks = withMicrophones();
  const conversation = new Conversation({ hub: 'https://hub.example', codec: 'pcm16', worklets: 'worklets.js' });
  void conversation.talk();
  await greeted(1);
  void conversation.useDevices({ microphone: 'first' });
  void conversation.useDevices({ microphone: 'second' });
  while (conversation.state.microphone !== 'on') await new Promise((done) => setImmediate(done));
  expect(tracks.map(({ device, isStopped }) => [device, isStopped])).toEqual([[null, true], ['first', true], ['second', false]]);
  conversation.close();
});

it('resumes its session where a microphone does not open meanwhile', async () => {
  stopClock();
  withMicrophones(async (device) => {
    if (device === 'used') throw new Error('by another program');
  });
  const conversation = new Conversation({ hub: 'https://hub.example', codec: 'pcm16', worklets: 'worklets.js' });
  void conversation.talk();
  const first = await greeted(1);
  first.say({ type: 'antiphon.session.resumable', key: 'rk_1', within_s: 30 });
  first.break();
  vi.advanceTimersByTime(1_000);
  expect(conversation.state.link).toBe('resuming');
  await conversation.useDevices({ microphone: 'used' });
  expect(conversation.state).toMatchObject({ link: 'resuming', microphone: 'off', problem: { kind: 'microphone', fault: 'busy' } });
  conversation.close();
});

it('asks a session that is being resumed for what is changed meanwhile', async () => {
  stopClock();
  const conversation = new Conversation({ hub: 'https://hub.example' });
  void conversation.type('Hello?');
  const first = await greeted(1);
  first.say({ type: 'antiphon.session.resumable', key: 'rk_1', within_s: 30 });
  const nSent = first.sent.length;
  first.break();
  vi.advanceTimersByTime(1_000);
  expect(conversation.state.link).toBe('resuming');
  conversation.update({ instructions: 'Answer in one sentence.' });
  const second = await socketOf(2);
  second.open();
  second.say({ type: 'antiphon.session.resumed', after: 2, received: nSent });
  expect(conversation.state.link).toBe('live');
  expect(String(second.sent[0])).toContain('Answer in one sentence.');
  // Another transport needs another session, and does not wait for the one that is lost.
  second.break();
  vi.advanceTimersByTime(1_000);
  expect(conversation.state.link).toBe('resuming');
  conversation.chooseTransport('websocket');
  expect(conversation.state.link).not.toBe('resuming');
  conversation.close();
});

it('goes on waiting for a hub that loads where it is given another key, and asks for no microphone', async () => {
  stopClock();
  const tracks = withMicrophones();
  answers['/readyz'] = () => json(503, { ready: false, sessions: 0, max_sessions: 2 });
  const conversation = new Conversation({ hub: 'https://hub.example', codec: 'pcm16', worklets: 'worklets.js' });
  void conversation.type('Hello?');
  while (conversation.state.problem?.kind !== 'loading') await new Promise((done) => setImmediate(done));
  conversation.useKey('ek_1');
  answers['/readyz'] = () => json(200, { ready: true, sessions: 0, max_sessions: 2 });
  vi.advanceTimersByTime(700);
  const socket = await greeted(1);
  expect(socket.protocols).toEqual(['realtime', 'openai-insecure-api-key.ek_1']);
  expect([tracks, conversation.state.microphone]).toEqual([[], 'off']);
  conversation.close();
});
