// What the page says of problems, and what it keeps of settings.
import type { Problem } from '@antiphon/client';
import { describe, expect, it } from 'vitest';
import { codecAsked, defaultSettings, settingsFrom, transportAsked } from '../src/session/settings';
import { enginesFrom } from '../src/state/engines';
import { noticeOf } from '../src/state/plain';

describe('problems', () => {
  const PROBLEMS: Problem[] = [
    { kind: 'loudspeaker' }, { kind: 'no-sound' }, { kind: 'audio-blocked' }, { kind: 'full', sessions: 3 }, { kind: 'loading' }, { kind: 'unreachable' }, { kind: 'gave-up' },
    { kind: 'reconnecting', why: null, untilMs: 400 }, { kind: 'resuming', untilMs: 1 }, { kind: 'key', wrong: true },
    { kind: 'key', wrong: false }, { kind: 'session-replaced' }, { kind: 'opus-failed' }, { kind: 'hub', message: 'no', code: null },
    { kind: 'unreadable', message: 'no' }, { kind: 'transcription', message: null }, { kind: 'response', message: null },
    ...(['insecure', 'missing', 'refused', 'busy', 'unsupported', 'lost'] as const).map((fault): Problem => ({ kind: 'microphone', fault })),
  ];

  it('have a plain message each', () => {
    expect(noticeOf(null)).toBeNull();
    const notices = PROBLEMS.map(noticeOf);
    for (const notice of notices) expect(notice?.title && notice.text).toBeTruthy();
    expect(new Set(notices.map((notice) => notice?.text)).size).toBeGreaterThan(PROBLEMS.length - 2);
  });

  it('are counted down where they end, and promise nothing that the page cannot know', () => {
    expect(noticeOf({ kind: 'reconnecting', why: null, untilMs: 400 })).toMatchObject({ untilMs: 400, action: 'reconnect' });
    expect(noticeOf({ kind: 'reconnecting', why: { kind: 'full', sessions: 3 }, untilMs: 1 })?.title).toBe('All seats are taken');
    for (const kind of ['reconnecting', 'resuming'] as const) {
      const notice = noticeOf({ kind, why: null, untilMs: 1 });
      expect(notice?.text).toContain('{s} s');
      expect(notice?.text).not.toContain('nothing');
    }
  });

  it('offer what helps', () => {
    expect(noticeOf({ kind: 'microphone', fault: 'insecure' })?.action).toBeNull();
    expect(noticeOf({ kind: 'microphone', fault: 'refused' })?.action).toBe('retry');
    expect(noticeOf({ kind: 'transcription', message: 'The recognizer is gone.' })).toMatchObject({ action: 'repeat', text: expect.stringContaining('The recognizer is gone.') as string });
  });
});

describe('engines', () => {
  it('say which model a server was asked for, and where it is', () => {
    const hub = { engines: { llm: 'openai', stt: 'sphinx', odd: 7 }, remote: { llm: { model: 'llama3.2', address: '127.0.0.1:11434' }, stt: 'x' } };
    expect(enginesFrom(hub)).toEqual({ llm: 'openai', stt: 'sphinx', remote: { llm: { model: 'llama3.2', address: '127.0.0.1:11434' } } });
    expect([enginesFrom(null), enginesFrom({})]).toEqual([null, {}]);
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
