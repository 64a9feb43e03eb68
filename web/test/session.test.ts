// What the page says of problems, and what it keeps of settings.
import type { Conversation, Problem } from '@antiphon/client';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { PressToTalk } from '../src/session/press';
import { type Settings, codecAsked, defaultSettings, devicesOf, fragmentOf, sessionOf, settingsFrom, sharedFrom, transportAsked } from '../src/session/settings';
import { enginesFrom } from '../src/state/engines';
import { noticeOf, sharedNotice } from '../src/state/plain';

describe('problems', () => {
  const PROBLEMS: Problem[] = [
    { kind: 'loudspeaker' }, { kind: 'no-sound' }, { kind: 'audio-blocked' }, { kind: 'full', sessions: 3 }, { kind: 'loading' }, { kind: 'unreachable' }, { kind: 'gave-up' }, { kind: 'refused' },
    { kind: 'reconnecting', why: null, untilMs: 400 }, { kind: 'resuming', untilMs: 1 }, { kind: 'key', wrong: true },
    { kind: 'key', wrong: false }, { kind: 'session-replaced' }, { kind: 'opus-failed' }, { kind: 'hub', message: 'no', code: null },
    { kind: 'unreadable', message: 'no' }, { kind: 'transcription', message: null }, { kind: 'response', message: null },
    ...(['insecure', 'missing', 'absent', 'refused', 'busy', 'unsupported', 'lost'] as const).map((fault): Problem => ({ kind: 'microphone', fault })),
  ];

  it('have a plain message each', () => {
    expect(noticeOf(null)).toBeNull();
    const notices = PROBLEMS.map(noticeOf);
    for (const notice of notices) expect(notice?.title && notice.text).toBeTruthy();
    expect(new Set(notices.map((notice) => notice?.text)).size).toBeGreaterThan(PROBLEMS.length - 2);
  });

  it('are counted down where they end, and promise nothing that the page cannot know', () => {
    expect(noticeOf({ kind: 'reconnecting', why: null, untilMs: 400 })).toMatchObject({ untilMs: 400, action: 'reconnect' });
    expect(noticeOf({ kind: 'reconnecting', why: { kind: 'full', sessions: 3 }, untilMs: 1 })?.title).toBe('The hub has no room');
    for (const kind of ['reconnecting', 'resuming'] as const) {
      const notice = noticeOf({ kind, why: null, untilMs: 1 });
      expect(notice?.text).toContain('{s} s');
      expect(notice?.text).not.toContain('nothing');
    }
  });

  it('say of a hub that takes no conversations what is known, not why', () => {
    // It may be overloaded long before it is full, and not ready long after its engines are loaded.
    const full = noticeOf({ kind: 'full', sessions: 3 });
    expect(`${full?.title} ${full?.text}`).not.toMatch(/maximum|taken/);
    expect(noticeOf({ kind: 'loading' })?.text).toContain('workers');
  });

  it('offer what helps', () => {
    expect(noticeOf({ kind: 'microphone', fault: 'insecure' })?.action).toBeNull();
    expect(noticeOf({ kind: 'microphone', fault: 'refused' })?.action).toBe('retry');
    expect(noticeOf({ kind: 'transcription', message: 'The recognizer is gone.' })).toMatchObject({ action: 'repeat', text: expect.stringContaining('The recognizer is gone.') as string });
  });
});

describe('engines', () => {
  it('say which model a server was asked for, and where it is', () => {
    const hub = { engines: { llm: 'openai', stt: 'openai', odd: 7 }, remote: { llm: { model: 'llama3.2', address: '127.0.0.1:11434' }, stt: 'x' } };
    expect(enginesFrom(hub)).toEqual({ llm: 'openai', stt: 'openai', remote: { llm: { model: 'llama3.2', address: '127.0.0.1:11434' } } });
    expect([enginesFrom(null), enginesFrom({})]).toEqual([null, {}]);
  });
});

describe('settings', () => {
  const all: Settings = {
    microphone: 'a', loudspeaker: 'b', volume: 0.5, voice: 'slt', speed: 1.2, language: 'de', instructions: 'Be brief & kind.', pushToTalk: true,
    eagerness: 'low', ignoreBackchannels: false,
    answersTypingInText: true, noiseReduction: 'off', transport: 'webrtc', captionSize: 'large', theme: 'dark', announces: false,
    showTimings: false, keepsConversations: false,
  };
  const stored = (record: object) => settingsFrom(JSON.stringify({ version: 1, ...record }));

  it('come back from storage, one by one where some are invalid', () => {
    expect(stored(all)).toEqual(all);
    for (const text of [null, '{', '7', 'null', '{"voice":"rms"}', '{"version":2,"voice":"rms"}']) expect(settingsFrom(text)).toEqual(defaultSettings);
    const invalid = { ...Object.fromEntries(Object.keys(all).map((key) => [key, { odd: 1 }])), theme: 'dark', other: 1 };
    expect(stored(invalid)).toEqual({ ...defaultSettings, theme: 'dark' });
    expect(stored({ language: 'auto' }).language).toBe('auto');
    expect(stored({ speed: 9, volume: -1, language: 'Deutsch', instructions: 'ü'.repeat(128 * 1024 + 1), eagerness: 'mad' })).toEqual(defaultSettings);
  });

  it('travel in an address, but for the devices and what is too long', () => {
    const { fragment, left } = fragmentOf(all);
    const { microphone, loudspeaker, volume, keepsConversations, ...shared } = all;
    expect(sharedFrom(`#${fragment}`)).toEqual(shared);
    expect([fragment.includes('microphone'), keepsConversations, left]).toEqual([false, false, []]);
    expect(sharedFrom(`#microphone=${microphone}&loudspeaker=${loudspeaker}&volume=${volume}&key=k&speed=x&__proto__=1&toString=1&theme=pink`)).toEqual({});
    expect(fragmentOf({ ...defaultSettings, instructions: 'x'.repeat(2_001), theme: 'light' })).toEqual({ fragment: 'theme=light', left: ['instructions'] });
    expect(fragmentOf(defaultSettings).fragment).toBe('');
  });

  it('say so where the address brought them', () => {
    expect(sharedNotice({})).toBeNull();
    expect(sharedNotice({ voice: 'slt', pushToTalk: true })?.text).toContain('voice, push to talk');
  });

  it('go to the session and to the devices, as far as they changed', () => {
    expect(sessionOf({ voice: null, theme: 'dark', pushToTalk: true })).toEqual({ voice: null, manual: true });
    expect(devicesOf({ volume: 0, voice: 'slt' })).toEqual({ volume: 0 });
  });

  it('take codec and transport from the address', () => {
    expect([codecAsked('?audio=pcm16'), codecAsked('?audio=mp3')]).toEqual(['pcm16', null]);
    expect([transportAsked('?transport=webrtc'), transportAsked('?transport=x'), transportAsked('')]).toEqual(['webrtc', null, null]);
  });
});

describe('push to talk', () => {
  const conversation = () => {
    const made = { state: { microphone: 'on', muted: false }, did: [] as string[], hush: () => made.did.push('hush'), send: ({ type }: { type: string }) => made.did.push(type), mute: () => made.did.push((made.state.muted = !made.state.muted) ? 'closed' : 'open') };
    return made;
  };
  const pressOf = (made: ReturnType<typeof conversation>) => new PressToTalk(made as unknown as Conversation);
  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal('window', { setTimeout });
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  it('opens the microphone while it is held, and asks after the release', () => {
    const made = conversation();
    const press = pressOf(made);
    press.rest();
    press.press();
    press.press();
    press.release();
    expect(made.did).toEqual(['closed', 'hush', 'input_audio_buffer.clear', 'open']);
    vi.advanceTimersByTime(300);
    expect(made.did.slice(4)).toEqual(['closed', 'input_audio_buffer.commit', 'response.create']);
    press.release();
    vi.advanceTimersByTime(300);
    expect(made.did).toHaveLength(7);
  });

  it('goes on with the same turn if it is held again at once, and ends with its mode', () => {
    const made = conversation();
    const press = pressOf(made);
    press.rest();
    press.press();
    press.release();
    press.press();
    vi.advanceTimersByTime(300);
    expect(made.did).not.toContain('input_audio_buffer.commit');
    press.end();
    vi.advanceTimersByTime(300);
    expect([made.state.muted, made.did.includes('response.create')]).toEqual([false, false]);
    made.state.microphone = 'off';
    press.press();
    expect(press.held).toBe(false);
  });

  it('leaves open a microphone that is being opened while its mode ends, as where all settings are reset', () => {
    const made = conversation();
    const press = pressOf(made);
    press.rest();
    made.state.microphone = 'asking';
    press.letGo();
    press.end();
    expect([made.state.muted, made.did]).toEqual([false, ['closed', 'open']]);
  });
});
