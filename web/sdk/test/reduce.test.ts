// The reducer on scripts of what happens, as a hub sends it.
import { describe, expect, it } from 'vitest';
import type { ServerEvent } from '../src/protocol/events';
import { learnRate, parts, revealedChars } from '../src/state/captions';
import { effectsOf, isWanted } from '../src/state/effects';
import { history } from '../src/state/history';
import { type ReplyCaption, type State, initialState, lastingId, phaseOf } from '../src/state/model';
import { type Action, reduce } from '../src/state/reduce';

const live: State = { ...initialState, link: 'live', microphone: 'on' };
const run = (from: State, ...steps: (Action | ServerEvent)[]) =>
  steps.reduce((state, step) => reduce(state, 'kind' in step ? step : { kind: 'server', event: step }), from);

const inTurn = { response_id: 'r', item_id: 'a' };
const started = (item_id = 'u'): ServerEvent => ({ type: 'input_audio_buffer.speech_started', item_id, audio_start_ms: 0 });
const stopped: ServerEvent = { type: 'input_audio_buffer.speech_stopped', item_id: 'u', audio_end_ms: 900 };
const committed: ServerEvent = { type: 'input_audio_buffer.committed', item_id: 'u' };
const heard = (delta: string): ServerEvent => ({ type: 'conversation.item.input_audio_transcription.delta', item_id: 'u', delta });
const draft = (transcript: string): ServerEvent => ({ type: 'antiphon.transcription.draft', item_id: 'u', transcript });
const final = (transcript: string): ServerEvent => ({ type: 'conversation.item.input_audio_transcription.completed', item_id: 'u', transcript });
const created: ServerEvent = { type: 'response.created', response: { id: 'r' } };
const added: ServerEvent = { type: 'response.output_item.added', response_id: 'r', item: { id: 'a', type: 'message', role: 'assistant' } };
const says = (delta: string): ServerEvent => ({ type: 'response.output_audio_transcript.delta', delta, ...inTurn });
const saidAll = (transcript: string): ServerEvent => ({ type: 'response.output_audio_transcript.done', transcript, ...inTurn });
const audioDone: ServerEvent = { type: 'antiphon.output_audio.sent', ...inTurn };
const done = (status: string): ServerEvent => ({ type: 'response.done', response: { id: 'r', status } });
const cleared: ServerEvent = { type: 'output_audio_buffer.cleared', response_id: 'r' };
const received = (endMs: number): Action => ({ kind: 'received', itemId: 'a', endMs });
const plays = (playedMs: number, finished: string[] = []): Action => ({ kind: 'playback', state: finished.length ? 'empty' : 'playing', itemId: 'a', playedMs, finished });

const TEXT = 'one two three four five six seven eight';
const question = [started(), heard('what'), heard(' time'), stopped, committed, final('What time is it?')];
const answering = [created, added, says(TEXT), received(1000), plays(1000)];
const reply = (state: State) => state.captions.find((caption): caption is ReplyCaption => caption.role === 'assistant');

describe('errors', () => {
  const error = (code: string): ServerEvent => ({ type: 'error', error: { message: 'no', code } });
  it('are told, save that a response ended before it could be cancelled', () => {
    expect(run(live, error('response_cancel_not_active')).problem).toBeNull();
    expect(run(live, error('invalid_value')).problem).toEqual({ kind: 'hub', message: 'no', code: 'invalid_value' });
  });
});

describe('phases', () => {
  it('follow a whole turn', () => {
    const phases: string[] = [];
    let state = live;
    for (const step of [...question, ...answering, saidAll(TEXT), audioDone, done('completed'), plays(3000, ['a'])]) {
      state = run(state, step);
      if (phases.at(-1) !== phaseOf(state)) phases.push(phaseOf(state));
    }
    expect(phases).toEqual(['hearing', 'thinking', 'speaking', 'listening']);
  });

  it('name the connection first', () => {
    expect(phaseOf(initialState)).toBe('idle');
    expect(phaseOf({ ...live, link: 'waiting' })).toBe('reconnecting');
    expect(phaseOf({ ...live, microphone: 'asking' })).toBe('connecting');
    expect(phaseOf({ ...live, microphone: 'off' })).toBe('ready');
    expect(phaseOf({ ...live, muted: true })).toBe('muted');
  });

  it('stay muted while the microphone is asked for again, and not once it is off', () => {
    const asked = run({ ...live, muted: true }, { kind: 'microphone', microphone: 'asking' });
    expect(run(asked, { kind: 'microphone', microphone: 'on' }).muted).toBe(true);
    expect(run(asked, { kind: 'microphone', microphone: 'off' }).muted).toBe(false);
  });

  it('go on speaking while the network stumbles in the middle of an item', () => {
    const state = run(live, ...question, ...answering, { kind: 'playback', state: 'empty', itemId: 'a', playedMs: 1000, finished: [] });
    expect(phaseOf(state)).toBe('speaking');
  });
});

describe('user captions', () => {
  it('show a draft behind the words, which the next words and the final replace', () => {
    const drafted = run(live, started(), heard('what'), draft(' thyme'));
    expect(drafted.captions).toMatchObject([{ text: 'what', draft: ' thyme', final: false }]);
    expect(run(drafted, draft(' time is')).captions).toMatchObject([{ text: 'what', draft: ' time is' }]);
    expect(run(drafted, heard(' time')).captions).toMatchObject([{ text: 'what time', draft: '' }]);
    const ended = run(drafted, final('What time?'));
    expect(ended.captions).toMatchObject([{ text: 'What time?', draft: '' }]);
    expect(run(ended, draft(' late')).captions).toMatchObject([{ text: 'What time?', draft: '' }]);
  });

  it('append deltas, and the final replaces them', () => {
    const partial = run(live, ...question.slice(0, 3));
    expect(partial.captions).toMatchObject([{ role: 'user', text: 'what time', final: false }]);
    expect(run(live, ...question).captions).toMatchObject([{ text: 'What time is it?', final: true }]);
    expect(run(live, ...question, heard(' late')).captions).toMatchObject([{ text: 'What time is it?' }]);
  });

  it('leave no line for a cough, and keep a turn whose transcript is late', () => {
    expect(run(live, started('cough'), started('u')).captions.map(({ id }) => id)).toEqual(['u']);
    expect(run(live, started('u'), stopped, committed, started('v')).captions.map(({ id }) => id)).toEqual(['u', 'v']);
  });

  it('say when nothing was understood', () => {
    expect(run(live, started(), committed, final('  ')).captions).toMatchObject([{ final: true, fault: 'unclear' }]);
  });

  it('go back to listening when the recognizer fails, name it, and offer another try', () => {
    const failed: ServerEvent = { type: 'conversation.item.input_audio_transcription.failed', item_id: 'u', error: { message: 'The recognizer is gone.' } };
    const state = run(live, started(), stopped, committed, failed);
    expect(phaseOf(state)).toBe('listening');
    expect(state.captions).toMatchObject([{ final: true, fault: 'failed' }]);
    const problem = { kind: 'transcription', message: 'The recognizer is gone.' };
    expect(state.problem).toEqual(problem);
    // The response that the hub had begun for those words fails with the same reason: said once.
    const answer: ServerEvent = { type: 'response.done', response: { id: 'r', status: 'failed', status_details: { error: { message: 'again' } } } };
    expect(run(state, created, answer).problem).toEqual(problem);
  });

  it('show typed text once, though the hub repeats it', () => {
    const state = run(live, { kind: 'typed', id: 't', text: 'hi' }, { type: 'conversation.item.added', item: { id: 't', type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hi' }] } });
    expect(state.captions).toMatchObject([{ id: 't', text: 'hi', typed: true, final: true, fault: null }]);
    expect(phaseOf({ ...state, microphone: 'off' })).toBe('thinking');
  });

  it('say that typed text was not sent until the hub has it', () => {
    const away = run(live, { kind: 'link', link: 'waiting' }, { kind: 'typed', id: 't', text: 'hi' });
    expect(away.captions).toMatchObject([{ id: 't', fault: 'unsent' }]);
    expect(away.awaiting).toBe(false);
    expect(history(away.captions, new Set(), 1)).toEqual([]);
    expect(run(away, { kind: 'link', link: 'live' }, { kind: 'sent' }).awaiting).toBe(true);
  });
});

describe('reply captions', () => {
  it('show nothing before the sound and whole words with it', () => {
    const silent = run(live, ...question, created, added, says(TEXT));
    expect(reply(silent)?.revealed).toBe(0);
    const spoken = parts(reply(run(silent, received(1000), plays(1000)))!).spoken;
    expect(spoken).toBe('one two three four ');
  });

  it('counts what is played of a reply whose first sound arrives after its end', () => {
    // Its sound is still being decoded: it is neither over nor silent, and its turn is still waited for.
    const made = run(live, created, added, says(TEXT), saidAll(TEXT), done('completed'));
    expect(reply(made)!.status).toBe('coming');
    expect(phaseOf(made)).toBe('thinking');
    const playing = run(made, received(1000), plays(600));
    expect(reply(playing)).toMatchObject({ status: 'coming', playedMs: 600 });
    expect(reply(run(playing, audioDone, plays(1000, ['a'])))).toMatchObject({ status: 'done', playedMs: 1000 });
  });

  it('end without sound where the voice makes none', () => {
    const made = run(live, created, added, says('🙂'), saidAll('🙂'), done('completed'), audioDone);
    const over = run(made, { kind: 'playback', state: 'empty', itemId: null, playedMs: 0, finished: ['a'] });
    expect(reply(over)).toMatchObject({ status: 'done', revealed: 2 });
    expect(phaseOf(over)).toBe('listening');
    // In a call nothing says so; the next response does.
    expect(reply(run(made, { type: 'response.created', response: { id: 'r2' } }))?.status).toBe('done');
  });

  it('end where the hub says that they were heard', () => {
    const heardTo = (transcript: string): ServerEvent => ({ type: 'antiphon.item.heard', item_id: 'a', transcript });
    // A response that is stopped has all of its text, and its audio is as good as complete.
    const stopping = [received(1200), saidAll(TEXT), audioDone, plays(1100)];
    const cut = run(live, ...question, ...answering, ...stopping, heardTo('one two three'), cleared, done('cancelled'));
    expect(parts(reply(cut)!)).toEqual({ spoken: 'one two three', unspoken: ' four five six seven eight' });
    expect(history(cut.captions, new Set(), 1).at(-1)).toMatchObject({ role: 'assistant', text: 'one two three' });
    // The client's own report may move it, either way.
    expect(parts(reply(run(cut, heardTo('one two')))!).spoken).toBe('one two');
    expect(parts(reply(run(cut, heardTo('one two three four')))!).spoken).toBe('one two three four');
    expect(parts(reply(run(cut, heardTo('')))!).spoken).toBe('');
    // What a page took for played to its end may not have been heard there.
    const over = run(live, ...question, ...answering, saidAll(TEXT), audioDone, done('completed'), plays(3000, ['a']));
    expect(reply(run(over, heardTo(TEXT)))?.status).toBe('done');
    expect(reply(run(over, heardTo('one')))).toMatchObject({ status: 'cut', revealed: 3 });
  });

  it('do not take the audio of a stopped response for all of it', () => {
    const cut = run(live, ...question, ...answering, received(1200), audioDone, saidAll(TEXT), plays(1100), done('cancelled'), cleared);
    expect(parts(reply(cut)!).spoken).toBe('one two three four ');
  });

  it('never take a word back, and end with all of them', () => {
    let state = run(live, ...question, ...answering);
    let before = 0;
    for (const step of [received(9000), saidAll(TEXT), audioDone, plays(1100), plays(5000), plays(9000, ['a'])]) {
      state = run(state, step);
      expect(reply(state)!.revealed).toBeGreaterThanOrEqual(before);
      before = reply(state)!.revealed;
    }
    expect(reply(state)).toMatchObject({ status: 'done', revealed: TEXT.length });
  });

  it('use the reply’s own rate once all of it is in, and learn from it', () => {
    const whole = { ...reply(run(live, ...question, ...answering))!, textDone: true, audioDone: true, whole: true, receivedMs: 4000, playedMs: 2000, revealed: 0 };
    expect(revealedChars(whole, 999)).toBe('one two three four five '.length);
    expect(learnRate(15, { ...whole, playedMs: 4000 })).toBeCloseTo((15 + TEXT.length / 4) / 2);
    expect(learnRate(15, { ...whole, playedMs: 100 })).toBe(15);
  });

  it('keep what was cut, divided where it was heard', () => {
    for (const end of [[cleared], [done('cancelled')], [cleared, done('cancelled')]]) {
      const state = run(live, ...question, ...answering, ...end, saidAll('x'), says(' more'), plays(5000, ['a']));
      expect(reply(state)?.status).toBe('cut');
      expect(parts(reply(state)!)).toEqual({ spoken: 'one two three four ', unspoken: 'five six seven eight' });
    }
  });

  it('show a reply in text alone as it comes', () => {
    const text: ServerEvent = { type: 'response.output_text.delta', delta: 'hello', ...inTurn };
    const state = run(live, created, added, text);
    expect(reply(state)?.revealed).toBe(5);
    expect(reply(run(state, done('completed')))?.status).toBe('done');
  });

  it('tell when the answer failed', () => {
    const failed: ServerEvent = { type: 'response.done', response: { id: 'r', status: 'failed', status_details: { error: { message: 'no voice' } } } };
    const state = run(live, ...question, ...answering, failed);
    expect(reply(state)?.status).toBe('failed');
    expect(state.problem).toEqual({ kind: 'response', message: 'no voice' });
  });

  it('play on what came of an answer that broke off', () => {
    const failed: ServerEvent = { type: 'response.done', response: { id: 'r', status: 'failed', status_details: { error: { message: 'gone' } } } };
    const broke = run(live, ...question, ...answering, received(2000), failed);
    expect(isWanted(broke, 'a')).toBe(true);
    const heard = run(broke, plays(2000, ['a']));
    expect(parts(reply(heard)!)).toEqual({ spoken: TEXT, unspoken: '' });
    expect([reply(heard)?.status, phaseOf(heard)]).toEqual(['failed', 'listening']);
    expect(history(heard.captions, new Set(), 1).at(-1)?.text).toBe(TEXT);
  });

  it('say that there was no answer, which a call of a function is not', () => {
    const over = (...output: object[]) => run(live, ...question, created, { type: 'response.done', response: { id: 'r', status: 'completed', output } } as ServerEvent);
    const message = (transcript: string) => ({ id: 'a', type: 'message', content: [{ type: 'output_audio', transcript }] });
    expect(over().problem).toEqual({ kind: 'empty' });
    expect(over(message('')).problem).toEqual({ kind: 'empty' });
    expect([over(message('Noon.')).problem, over({ id: 'c', type: 'function_call' }).problem, over(message(''), { id: 'c', type: 'function_call' }).problem]).toEqual([null, null, null]);
    expect(run(live, created, done('completed')).problem).toBeNull();
  });

  it('carry the timeline of their response and one latency', () => {
    const state = run(live, ...question, ...answering, { type: 'antiphon.timeline', item_id: 'x', response_id: 'r', marks: { first_audio_sent: 9 }, tts_network_ms: 2 }, { kind: 'latency', itemId: 'a', ms: 20 }, { kind: 'latency', itemId: 'a', ms: 99 });
    expect(reply(state)).toMatchObject({ marks: { first_audio_sent: 9 }, hops: { tts_network_ms: 2 }, latencyMs: 20 });
    // The hub's record of the turn has one figure, and so has the page.
    const known = run(state, { type: 'antiphon.timeline', item_id: 'x', response_id: 'r', marks: { first_audio_sent: 9, first_audio_heard: 31 } }, { kind: 'latency', itemId: 'a', ms: 99 });
    expect(reply(known)?.latencyMs).toBe(31);
  });
});

describe('effects', () => {
  const speaking = run(live, ...question, ...answering);

  it('hold, go on and stop as the hub says', () => {
    expect(effectsOf(speaking, { type: 'output_audio_buffer.held', response_id: 'r' })).toEqual([{ kind: 'pause' }]);
    expect(effectsOf(speaking, { type: 'output_audio_buffer.resumed', response_id: 'r' })).toEqual([{ kind: 'resume' }]);
    // The voice has made all of it; its frames still come.
    expect(effectsOf(speaking, { ...audioDone, type: 'response.output_audio.done' } as ServerEvent)).toEqual([]);
    expect(effectsOf(speaking, audioDone)).toEqual([{ kind: 'end', itemId: 'a' }]);
    expect(effectsOf(speaking, cleared)).toEqual([{ kind: 'flush' }]);
    expect(effectsOf(speaking, done('cancelled'))).toEqual([{ kind: 'flush' }]);
    expect(effectsOf(speaking, done('completed'))).toEqual([]);
  });

  it('stop for speech only while something plays', () => {
    expect(effectsOf(speaking, started('v'))).toEqual([{ kind: 'pause-or-drop' }]);
    expect(effectsOf(live, started())).toEqual([]);
  });

  it('play no audio of a reply that was cut', () => {
    expect(isWanted(speaking, 'a')).toBe(true);
    expect(isWanted(run(speaking, cleared), 'a')).toBe(false);
    expect(isWanted(speaking, 'unknown')).toBe(true);
  });
});

describe('notices on the language model', () => {
  const notice = (code: string): ServerEvent => ({ type: 'antiphon.notice', response_id: 'r', code, message: 'Words.' });
  const loading = notice('model_loading');

  it('say that the model is loading until its first words, or its end', () => {
    const waiting = run(live, ...question, loading, created);
    expect(waiting.modelNotice).toMatchObject({ code: 'model_loading', message: 'Words.' });
    expect(run(waiting, added).modelNotice).not.toBeNull();
    const written: ServerEvent = { type: 'response.output_text.delta', delta: 'one', ...inTurn };
    for (const first of [says('one'), written, done('failed'), done('cancelled')]) expect(run(waiting, first).modelNotice).toBeNull();
    const others: ServerEvent = { type: 'response.output_text.delta', delta: 'one', response_id: 'q', item_id: 'b' };
    expect(run(waiting, others).modelNotice).not.toBeNull();
  });

  it('say the rest until the next response, a lost connection, or until they are read', () => {
    const spent = run(live, ...question, notice('tool_rounds_spent'), ...answering, done('completed'));
    expect(spent.modelNotice?.code).toBe('tool_rounds_spent');
    expect(run(spent, { type: 'response.created', response: { id: 'next' } }).modelNotice).toBeNull();
    expect(run(spent, { kind: 'link', link: 'waiting' }).modelNotice).toBeNull();
    expect(run(spent, { kind: 'dismissed' }).modelNotice).toBeNull();
    const problem = { kind: 'hub', message: 'x', code: null } as const;
    const both = run(spent, { kind: 'problem', problem }, { kind: 'dismissed' });
    expect(both).toMatchObject({ problem: null, modelNotice: { code: 'tool_rounds_spent' } });
  });
});

describe('connection', () => {
  it('leaves each caption a name that stays, and gives none of them to one of a later session', () => {
    const begun: ServerEvent = { type: 'session.created', session: {} };
    const names = (state: State) => state.captions.map((caption) => lastingId(caption, state.nSessions));
    const first = run(live, { kind: 'typed', id: 't', text: 'hi' }, begun, ...question, ...answering);
    const second = run(first, { kind: 'link', link: 'off' }, begun);
    expect(names(second)).toEqual(names(first));
    const again = names(run(second, ...question, ...answering));
    expect(again.slice(0, 3)).toEqual(names(first));
    expect(new Set(again).size).toBe(5);
  });

  it('keeps the captions of the old session apart from the new one’s ids', () => {
    const again = run(run(live, { type: 'session.created', session: {} }, ...question, ...answering), { kind: 'link', link: 'waiting' }, { type: 'session.created', session: {} }, started('u'));
    expect(again.captions.map(({ id }) => id)).toEqual(['past/1/u', 'past/1/a', 'u']);
    expect(again.captions[1]).toMatchObject({ status: 'lost' });
    expect(again.audioMade).toBe(false);
  });

  it('ends the words that were heard to their end in no other session', () => {
    const lines = (state: State) => state.captions.map((caption) => (caption.role === 'user' ? [caption.text, caption.draft, caption.final, caption.fault] : []));
    const cut = [['what', '', true, null]];
    expect(lines(run(live, started(), heard('what'), draft(' time'), { kind: 'link', link: 'off' }))).toEqual(cut);
    expect(lines(run(live, started(), heard('what'), { kind: 'stopped' }, { type: 'session.created', session: {} }))).toEqual(cut);
    expect(lines(run(live, started(), stopped, committed, { kind: 'link', link: 'waiting' }))).toEqual([['', '', true, 'failed']]);
  });

  it('has nothing of the session before under way', () => {
    // Its voice was changed while the user spoke over the beginning of an answer.
    const loading: ServerEvent = { type: 'antiphon.notice', response_id: 'r', code: 'model_loading', message: 'It is being loaded.' };
    const begun = run(live, ...question, created, loading, started('v'), { kind: 'stopped' }, { type: 'session.created', session: {} });
    expect(begun).toMatchObject({ userSpeaking: false, responseId: null, modelNotice: null });
    expect(phaseOf(begun)).toBe('listening');
  });

  it('is quiet when lost, and takes its own message away when back', () => {
    const lost = run(live, ...question, ...answering, { kind: 'link', link: 'waiting' });
    expect(lost).toMatchObject({ playback: 'idle', userSpeaking: false, awaiting: false, responseId: null });
    // Nobody interrupted; and what was shown to its end is done.
    expect(reply(lost)?.status).toBe('lost');
    const written: ServerEvent[] = [created, added, { type: 'response.output_text.delta', delta: 'hello', ...inTurn }, { type: 'response.output_text.done', text: 'hello', ...inTurn }];
    expect(reply(run(live, ...written, { kind: 'link', link: 'waiting' }))?.status).toBe('done');
    const problem = { kind: 'reconnecting', why: null, untilMs: 1 } as const;
    expect(run(lost, { kind: 'problem', problem }, { kind: 'link', link: 'live' }).problem).toBeNull();
    const other = { kind: 'hub', message: 'x', code: null } as const;
    expect(run(lost, { kind: 'problem', problem: other }, { kind: 'link', link: 'live' }).problem).toEqual(other);
  });

  it('brings back what was said and heard, newest last, without what waits', () => {
    const cut = run(live, ...question, ...answering, cleared, { kind: 'typed', id: 't', text: 'next' });
    expect(history(cut.captions, new Set(['t']), 2)).toEqual([
      { id: 'past_2_0', role: 'user', text: 'What time is it?' },
      { id: 'past_2_1', role: 'assistant', text: 'one two three four' },
    ]);
  });
});

describe('another conversation', () => {
  it('takes the place of the captions, at most 200 of them, and is known to the next session', () => {
    const past = run(live, ...question, ...answering, saidAll(TEXT), audioDone, done('completed'), plays(1000, ['a'])).captions;
    const many = Array.from({ length: 300 }, (_, i) => ({ ...past[0]!, id: `past/x/${i}` }));
    const state = run({ ...live, playback: 'playing' }, { kind: 'captions', captions: [...many, past[1]!] });
    expect(state).toMatchObject({ playback: 'idle', awaiting: false });
    expect(state.captions).toHaveLength(200);
    expect(history(state.captions, new Set(), 1).at(-1)).toMatchObject({ role: 'assistant', text: TEXT });
    expect(run(state, { kind: 'captions', captions: [] }).captions).toEqual([]);
  });
});

describe('going back to a checkpoint', () => {
  const before = run(live, ...question, ...answering, saidAll(TEXT), audioDone, done('completed'), plays(3000, ['a']));
  const other = { response_id: 'r2', item_id: 'b' };
  const since: (Action | ServerEvent)[] = [
    started('u2'),
    { type: 'response.created', response: { id: 'r2' } },
    { type: 'response.output_audio_transcript.delta', delta: 'void words', ...other },
    { kind: 'received', itemId: 'b', endMs: 500 },
    { kind: 'playback', state: 'playing', itemId: 'b', playedMs: 300, finished: [] },
  ];

  it('leaves nothing of what is void', () => {
    const state = run(before, ...since, { kind: 'back', past: before, silent: true });
    expect(state).toEqual(before);
    // The same again, and it is there once.
    const again = run(state, ...since);
    expect(again.captions.map(({ id }) => id)).toEqual(['u', 'a', 'u2', 'b']);
    expect(again.captions.at(-1)).toMatchObject({ text: 'void words', playedMs: 300 });
  });

  it('keeps what the user did', () => {
    const confirmed: ServerEvent = { type: 'conversation.item.added', item: { id: 't', type: 'message', role: 'user' } };
    const state = run(before, ...since, { kind: 'mute', muted: true }, { kind: 'typed', id: 't', text: 'hello' }, confirmed, { kind: 'back', past: before, silent: true });
    expect(state.captions.map(({ id }) => id)).toEqual(['u', 'a', 't']);
    expect(state).toMatchObject({ muted: true, awaiting: true });
    expect(state.captions.at(-1)).toMatchObject({ fault: 'unsent' });
    expect(run(state, confirmed).captions.at(-1)).toMatchObject({ fault: null });
  });

  it('keeps what was played of a reply that was complete', () => {
    const half = run(live, ...question, ...answering, saidAll(TEXT), audioDone, done('completed'), plays(500));
    const state = run(half, plays(1000, ['a']), { kind: 'link', link: 'resuming' }, { kind: 'back', past: half, silent: false });
    expect(reply(state)).toMatchObject({ playedMs: 1000, revealed: TEXT.length, status: 'done' });
    expect([state.link, state.playback]).toEqual(['resuming', 'idle']);
  });
});
