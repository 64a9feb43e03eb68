// What the page decides about hub, waiting times and settings.
import { describe, expect, it } from 'vitest';
import { backoffMs } from '../src/session/backoff';
import { readinessFrom, socketUrl, voicesFrom } from '../src/session/hub';
import { codecAsked, defaultSettings, settingsFrom, transportAsked } from '../src/session/settings';
import { microphoneFault, notReady, reconnecting, resuming } from '../src/state/plain';

describe('readiness', () => {
  const engines = { stt: 'sphinx' };
  it('tells ready, full, loading and unreachable apart', () => {
    expect(readinessFrom(200, { ready: true, sessions: 1, max_sessions: 2, engines })).toEqual({ kind: 'ready', engines, webrtc: false });
    expect(readinessFrom(200, { ready: true, sessions: 2, max_sessions: 2, engines })).toMatchObject({ kind: 'full', sessions: 2 });
    expect(readinessFrom(503, { ready: false, sessions: 2, max_sessions: 2, engines })).toMatchObject({ kind: 'full' });
    expect(readinessFrom(503, { ready: false, sessions: 1, max_sessions: 2, load: { level: 'no_sessions' }, engines })).toMatchObject({ kind: 'full' });
    expect(readinessFrom(503, { ready: false, sessions: 0, max_sessions: 2, engines })).toMatchObject({ kind: 'loading' });
    expect(readinessFrom(200, { ready: true, webrtc: true, engines })).toMatchObject({ kind: 'ready', webrtc: true });
    expect(readinessFrom(200, 'hello')).toEqual({ kind: 'unreachable' });
  });

  it('says which model a server was asked for, and where it is', () => {
    const body = { ready: true, sessions: 0, max_sessions: 2, engines: { llm: 'openai', stt: 'sphinx', odd: 7 }, remote: { llm: { model: 'llama3.2', address: '127.0.0.1:11434' }, stt: 'x' } };
    expect(readinessFrom(200, body)).toEqual({
      kind: 'ready',
      webrtc: false,
      engines: { llm: 'openai', stt: 'sphinx', remote: { llm: { model: 'llama3.2', address: '127.0.0.1:11434' } } },
    });
  });

  it('has a plain message for each', () => {
    expect(notReady({ kind: 'ready', engines, webrtc: true })).toBeNull();
    for (const state of [{ kind: 'full', sessions: 3, engines, webrtc: false }, { kind: 'loading', engines, webrtc: false }, { kind: 'unreachable' }] as const) {
      expect(notReady(state)?.title).toBeTruthy();
    }
    // What is waited for is counted down, and nothing is promised that the page cannot know.
    expect(reconnecting(null, 400)).toMatchObject({ untilMs: 400, action: 'reconnect' });
    for (const notice of [reconnecting(null, 1), resuming(1)]) {
      expect(notice.text).toContain('{s} s');
      expect(notice.text).not.toContain('nothing');
    }
    expect(microphoneFault('insecure').action).toBeNull();
    expect(microphoneFault('refused').action).toBe('retry');
  });
});

describe('addresses', () => {
  it('follow the page, below any path and under https', () => {
    expect(socketUrl('opus', 'http://127.0.0.1:8080/?audio=opus')).toBe('ws://127.0.0.1:8080/v1/realtime?audio=opus&resume=1');
    expect(socketUrl('pcm16', 'https://example.org/voice/#x')).toBe('wss://example.org/voice/v1/realtime?audio=pcm16&resume=1');
  });
});

describe('voices', () => {
  it('takes what has an id and names the rest by it', () => {
    const body = { voices: [{ id: 'slt', name: 'Anna', language: 'en' }, { id: 'rms' }, { name: 'x' }, null], default: 'slt' };
    expect(voicesFrom(body)).toEqual({ voices: [{ id: 'slt', name: 'Anna', language: 'en' }, { id: 'rms', name: 'rms', language: null }], default: 'slt' });
    expect(voicesFrom(null)).toEqual({ voices: [], default: null });
  });
});

describe('settings', () => {
  it('survive what is broken in storage', () => {
    for (const text of [null, '{', '7', 'null', '{"voice":5,"showTimings":"yes"}']) expect(settingsFrom(text)).toEqual(defaultSettings);
    expect(settingsFrom('{"voice":"rms","showTimings":false}')).toEqual({ voice: 'rms', showTimings: false, transport: 'websocket' });
    expect(settingsFrom('{"transport":"webrtc"}').transport).toBe('webrtc');
    expect(settingsFrom('{"transport":"pigeon"}').transport).toBe('websocket');
    expect([transportAsked('?transport=webrtc'), transportAsked('?transport=x'), transportAsked('')]).toEqual(['webrtc', null, null]);
  });

  it('take the codec from the address', () => {
    expect(codecAsked('?audio=pcm16')).toBe('pcm16');
    expect(codecAsked('?audio=mp3')).toBeNull();
  });
});

describe('backoff', () => {
  it('doubles to a limit and spreads', () => {
    expect([0, 1, 2, 9].map((attempt) => backoffMs(attempt, 0.5))).toEqual([500, 1000, 2000, 8000]);
    expect(backoffMs(0, 0)).toBe(400);
    expect(backoffMs(3, 0.999)).toBeLessThanOrEqual(4800);
  });
});
