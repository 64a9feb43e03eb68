// The latency ribbon's turns, and the current turn as the page sees it.
import { type Caption, type ReplyCaption, type State, type UserCaption } from '@antiphon/client';
import { describe, expect, it } from 'vitest';
import { LiveTurn, axisMs, median, turnsOf } from '../src/state/ribbon';

const user = (id: string, change: Partial<UserCaption> = {}): UserCaption => ({ role: 'user', id, text: `words of ${id}`, draft: '', committed: true, final: true, typed: false, fault: null, ...change });
const reply = (id: string, change: Partial<ReplyCaption> = {}): ReplyCaption => ({
  role: 'assistant', id, responseId: `resp_${id}`, text: 'Noon.', textDone: true, sound: true, receivedMs: 500, playedMs: 500, audioDone: true, whole: true, revealed: 5,
  status: 'done', latencyMs: null, marks: null, hops: {}, ...change,
});
const marks = { speech_end: 0, end_confirmed: 200, stt_final: 240, llm_first_token: 250, tts_first_audio: 290, first_audio_sent: 300 };
const state = (change: Partial<State>): State => ({ userSpeaking: false, awaiting: false, playback: 'idle', captions: [], ...change }) as State;

describe('turns', () => {
  it('are the latest answers with a latency, with the words before them', () => {
    const captions: Caption[] = [user('u1'), reply('a1', { latencyMs: 330, marks }), user('u2'), reply('a2'), user('u3'), reply('a3', { marks }), reply('a4', { latencyMs: 80 })];
    const turns = turnsOf(captions, 10, new Map());
    expect(turns.map(({ id, words, totalMs }) => [id, words, totalMs])).toEqual([['a1', 'words of u1', 330], ['a3', 'words of u3', 300], ['a4', 'words of u3', 80]]);
    expect(turnsOf(captions, 2, new Map()).map(({ id }) => id)).toEqual(['a3', 'a4']);
    expect(turns[0]?.stages.map(({ key, ms }) => [key, ms])).toEqual([['wait', 200], ['hear', 40], ['think', 10], ['voice', 40], ['send', 10], ['play', 30]]);
    // A typed turn has no timeline: the page's own stages, or one of all.
    expect(turns[2]?.stages).toEqual([{ key: 'play', ms: 80 }]);
    expect(turnsOf(captions, 1, new Map([['resp_a4', [{ key: 'think', ms: 30 }, { key: 'voice', ms: 10 }]]]))[0]?.stages).toEqual([{ key: 'think', ms: 60 }, { key: 'voice', ms: 20 }]);
  });

  it('add up to what is shown where page and hub count from different moments', () => {
    const [turn] = turnsOf([user('u'), reply('a', { latencyMs: 270, marks })], 1, new Map());
    expect(turn?.stages.reduce((sum, { ms }) => sum + ms, 0)).toBeCloseTo(270);
  });

  it('have a median and an axis', () => {
    expect(median([])).toBeNull();
    expect(median([300, 100, 200])).toBe(200);
    expect(median([400, 100])).toBe(250);
    expect([0, 250, 251, 1_999, 70_000].map((ms) => axisMs([ms]))).toEqual([250, 250, 500, 2_000, 70_000]);
  });
});

describe('the current turn', () => {
  const spoken = [user('u', { final: false })];

  it('begins with the last loud moment and passes through the stages that the page sees', () => {
    const live = new LiveTurn();
    live.follow(state({ userSpeaking: true, captions: spoken }), 0.3, 1_000);
    live.follow(state({ userSpeaking: true, captions: spoken }), 0.001, 1_150);
    expect(live.stages(1_150)).toEqual([]);
    live.follow(state({ awaiting: true, captions: spoken }), 0, 1_200);
    expect(live.stages(1_230)).toEqual([{ key: 'wait', ms: 200 }, { key: 'hear', ms: 30 }]);
    live.follow(state({ awaiting: true, captions: [user('u')] }), 0, 1_260);
    live.follow(state({ awaiting: true, captions: [user('u'), reply('a')] }), 0, 1_300);
    live.follow(state({ awaiting: true, captions: [user('u'), reply('a')] }), 0, 1_350);
    const seen = [{ key: 'wait', ms: 200 }, { key: 'hear', ms: 60 }, { key: 'think', ms: 40 }, { key: 'voice', ms: 100 }];
    expect(live.stages(1_400)).toEqual(seen);
    live.follow(state({ playback: 'playing', captions: [user('u'), reply('a')] }), 0, 1_400);
    expect([live.stages(1_500), live.seen.get('resp_a')]).toEqual([[], seen]);
    // A new session names the captions of the one before anew.
    const renamed = [user('past/1/u'), reply('past/1/a', { responseId: 'resp_a', latencyMs: 400 })];
    live.follow(state({ captions: renamed }), 0, 2_000);
    expect(turnsOf(renamed, 1, live.seen)[0]?.stages).toEqual(seen);
  });

  it('begins with the Enter key where it was typed', () => {
    const live = new LiveTurn();
    const typed = [user('u', { typed: true })];
    live.follow(state({ awaiting: true, captions: typed }), 0, 500);
    expect(live.stages(540)).toEqual([{ key: 'think', ms: 40 }]);
  });

  it('is given up when the user goes on or the answer has no sound, and forgotten with its caption', () => {
    const live = new LiveTurn();
    live.follow(state({ awaiting: true, captions: spoken }), 0, 100);
    live.follow(state({ userSpeaking: true, captions: spoken }), 0.3, 200);
    expect(live.stages(300)).toEqual([]);
    live.follow(state({ awaiting: true, captions: [user('u'), reply('a')] }), 0, 400);
    live.follow(state({ captions: [user('u'), reply('a')] }), 0, 500);
    expect([live.stages(600), live.seen.size]).toEqual([[], 0]);
    live.follow(state({ awaiting: true, captions: [user('u'), reply('a')] }), 0, 700);
    live.follow(state({ playback: 'playing', captions: [user('u'), reply('a')] }), 0, 800);
    expect(live.seen.size).toBe(1);
    live.follow(state({}), 0, 900);
    expect(live.seen.size).toBe(0);
  });
});
