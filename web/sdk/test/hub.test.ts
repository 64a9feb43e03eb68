// What the client reads of a hub, where it looks for it, and when it tries again.
import { describe, expect, it, vi } from 'vitest';
import { backoffMs } from '../src/session/backoff';
import { baseOf, readinessFrom, socketUrl, voicesFrom } from '../src/session/hub';

describe('readiness', () => {
  it('tells ready, full, loading and unreachable apart', () => {
    const hub = { ready: true, sessions: 1, max_sessions: 2, webrtc: true, engines: { stt: 'openai' } };
    expect(readinessFrom(200, hub)).toEqual({ kind: 'ready', hub });
    expect(readinessFrom(200, { ...hub, sessions: 2 })).toMatchObject({ kind: 'full', sessions: 2 });
    expect(readinessFrom(503, { ...hub, ready: false, sessions: 2 })).toMatchObject({ kind: 'full' });
    expect(readinessFrom(503, { ...hub, ready: false, load: { level: 'no_sessions' } })).toMatchObject({ kind: 'full' });
    expect(readinessFrom(503, { ...hub, ready: false })).toMatchObject({ kind: 'loading' });
    expect(readinessFrom(200, 'hello')).toEqual({ kind: 'unreachable' });
    expect(readinessFrom(404, { error: { code: 'not_found' } })).toEqual({ kind: 'unreachable' });
  });
});

describe('addresses', () => {
  it('follow the page, below any path and under https', () => {
    expect(socketUrl('opus', 'http://127.0.0.1:8080/?audio=opus')).toBe('ws://127.0.0.1:8080/v1/realtime?audio=opus&resume=1');
    expect(socketUrl('pcm16', 'https://example.org/voice/#x')).toBe('wss://example.org/voice/v1/realtime?audio=pcm16&resume=1');
  });

  it('are those of a hub that is named, with or without a slash, and nothing of a page but its folder', () => {
    vi.stubGlobal('document', { baseURI: 'https://shop.example/a/page.html?x#y' });
    expect(baseOf(undefined)).toBe('https://shop.example/a/page.html');
    expect(socketUrl('opus', baseOf(undefined))).toBe('wss://shop.example/a/v1/realtime?audio=opus&resume=1');
    expect(['https://hub.example', 'https://hub.example/voice', new URL('https://hub.example/voice/?k=1#z'), '/hub'].map(baseOf)).toEqual([
      'https://hub.example/', 'https://hub.example/voice/', 'https://hub.example/voice/', 'https://shop.example/hub/',
    ]);
    vi.unstubAllGlobals();
  });
});

describe('voices', () => {
  it('takes what has an id and names the rest by it', () => {
    const body = { voices: [{ id: 'slt', name: 'Anna', language: 'en' }, { id: 'rms' }, { name: 'x' }, null], default: 'slt' };
    expect(voicesFrom(body)).toEqual([{ id: 'slt', name: 'Anna', language: 'en' }, { id: 'rms', name: 'rms', language: null }]);
    expect(voicesFrom(null)).toEqual([]);
  });
});

describe('backoff', () => {
  it('doubles to a limit and spreads', () => {
    expect([0, 1, 2, 9].map((attempt) => backoffMs(attempt, 0.5))).toEqual([500, 1000, 2000, 8000]);
    expect(backoffMs(0, 0)).toBe(400);
    expect(backoffMs(3, 0.999)).toBeLessThanOrEqual(4800);
  });
});
