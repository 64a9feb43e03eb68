// The reducer of a conversation's state: pure, without clock or network. The conversation passes events to it; the
// effects of the same events on the loudspeaker are in `effects.ts`.

import type { QueueState } from '../audio/queue.js';
import type { Hops, Item, ResponseObject, ServerEvent, TimelineMarks } from '../protocol/events.js';
import { heardChars, learnRate, revealedChars } from './captions.js';
import type { HubStatus } from '../session/hub.js';
import { type Caption, type Link, type ReplyCaption, type State, type UserCaption, type Voice, lastingId } from './model.js';
import { type Problem, isAboutLink } from './problem.js';

export type Action =
  | { kind: 'server'; event: ServerEvent }
  | { kind: 'link'; link: Link }
  | { kind: 'microphone'; microphone: State['microphone'] }
  | { kind: 'mute'; muted: boolean }
  | { kind: 'problem'; problem: Problem | null }
  /** The user has read the problem, or else the notice. */
  | { kind: 'dismissed' }
  | { kind: 'hub'; hub: HubStatus }
  | { kind: 'voices'; voices: Voice[] }
  /** The conversation is another one; the captions are those of an earlier session. */
  | { kind: 'captions'; captions: readonly Caption[] }
  | { kind: 'typed'; id: string; text: string }
  /** A typed message, or a repeated recording, is being sent. */
  | { kind: 'sent' }
  /** Response audio arrived; `endMs` is its end within the item. */
  | { kind: 'received'; itemId: string; endMs: number }
  | { kind: 'playback'; state: QueueState; itemId: string | null; playedMs: number; finished: string[] }
  | { kind: 'latency'; itemId: string; ms: number }
  /** The user stopped the response, or the client gave up waiting for the hub's decision. */
  | { kind: 'stopped' }
  /** The session goes back to a checkpoint, at which the state was `past`. `silent`: the queue of the loudspeaker was emptied. */
  | { kind: 'back'; past: State; silent: boolean };

/** Older captions are removed, so that a page left open for a day stays small. */
const MAX_CAPTIONS = 200;

export function reduce(state: State, action: Action): State {
  switch (action.kind) {
    case 'server':
      return onServer(state, action.event);
    case 'link':
      return onLink(state, action.link);
    case 'microphone':
      // One that is opened again, on another device or for another session, stays muted.
      return { ...state, microphone: action.microphone, muted: action.microphone !== 'off' && state.muted };
    case 'mute':
      return { ...state, muted: action.muted };
    case 'problem':
      return { ...state, problem: action.problem };
    case 'dismissed':
      return state.problem === null ? { ...state, modelNotice: null } : { ...state, problem: null };
    case 'hub':
      return { ...state, hub: action.hub };
    case 'voices':
      return { ...state, voices: action.voices };
    case 'captions':
      return { ...state, captions: action.captions.slice(-MAX_CAPTIONS), playback: 'idle', awaiting: false };
    case 'typed':
      return { ...append(state, typedCaption(action.id, action.text)), awaiting: state.link === 'live' };
    case 'sent':
      return { ...state, awaiting: true };
    case 'received':
      return onReceived(state, action.itemId, action.endMs);
    case 'playback':
      return onPlayback(state, action);
    case 'latency':
      return withReply(state, action.itemId, (reply) => ({ ...reply, latencyMs: reply.latencyMs ?? action.ms }));
    case 'back':
      return onBack(state, action.past, action.silent);
    case 'stopped':
      return { ...endAll(state, 'cut', () => true), playback: 'idle', awaiting: false };
  }
}

function onServer(state: State, event: ServerEvent): State {
  switch (event.type) {
    case 'session.created':
      return beginSession(state);
    case 'error':
      // A response may end by itself while it is being cancelled, which has the intended result.
      if (event.error.code === 'response_cancel_not_active') return state;
      return { ...state, awaiting: state.responseId !== null && state.awaiting, problem: { kind: 'hub', message: event.error.message, code: event.error.code ?? null } };
    case 'input_audio_buffer.speech_started':
      return { ...ensureUser(withoutEmptyUser(state), event.item_id), userSpeaking: true, awaiting: false };
    case 'input_audio_buffer.speech_stopped':
      return { ...state, userSpeaking: false, awaiting: true };
    case 'input_audio_buffer.committed': {
      const next = withUser(ensureUser(state, event.item_id), event.item_id, (user) => ({ ...user, committed: true }));
      return { ...next, userSpeaking: false, awaiting: true };
    }
    case 'conversation.item.added':
      if (isSpoken(event.item)) return ensureUser(state, event.item.id);
      return withUser(state, event.item.id, (user) => (user.fault === 'unsent' ? { ...user, fault: null } : user));
    case 'conversation.item.deleted':
      return { ...state, captions: state.captions.filter((caption) => caption.id !== event.item_id) };
    case 'conversation.item.input_audio_transcription.delta':
      return withUser(ensureUser(state, event.item_id), event.item_id, (user) =>
        user.final ? user : { ...user, text: user.text + event.delta, draft: '' },
      );
    case 'antiphon.transcription.draft':
      return withUser(ensureUser(state, event.item_id), event.item_id, (user) =>
        user.final ? user : { ...user, draft: event.transcript },
      );
    case 'conversation.item.input_audio_transcription.completed':
      return onTranscript(state, event.item_id, event.transcript);
    case 'conversation.item.input_audio_transcription.failed':
      return onTranscriptionFailed(state, event.item_id, event.error.message);
    default:
      return onResponse(state, event);
  }
}

function onResponse(state: State, event: ServerEvent): State {
  switch (event.type) {
    case 'response.created': {
      // A notice may come before the first event of its response.
      const modelNotice = state.modelNotice?.response_id === event.response.id ? state.modelNotice : null;
      return { ...state, captions: mapReplies(state.captions, soundless), responseId: event.response.id, awaiting: true, modelNotice };
    }
    case 'response.output_item.added':
      return event.item.type === 'message' ? ensureReply(state, event.item.id, event.response_id) : state;
    case 'antiphon.notice':
      return { ...state, modelNotice: { response_id: event.response_id, code: event.code, message: event.message } };
    case 'response.output_text.delta':
      return withReply(ensureReply(loaded(state, event.response_id), event.item_id, event.response_id), event.item_id, (reply) =>
        reply.status === 'coming' ? shown({ ...reply, text: reply.text + event.delta }) : reply,
      );
    case 'response.output_audio_transcript.delta':
      return withReply(ensureReply(loaded(state, event.response_id), event.item_id, event.response_id), event.item_id, (reply) =>
        reply.status === 'coming' ? reveal(state, { ...reply, sound: true, text: reply.text + event.delta }) : reply,
      );
    case 'response.output_audio_transcript.done':
      return withReply(state, event.item_id, (reply) => finishText(state, reply, event.transcript));
    case 'response.output_text.done':
      return withReply(state, event.item_id, (reply) =>
        reply.status === 'coming' ? shown({ ...reply, text: event.text, textDone: true }) : reply,
      );
    case 'antiphon.output_audio.sent':
      return withReply(state, event.item_id, (reply) => ({ ...reply, audioDone: true }));
    case 'response.done':
      return onResponseDone(state, event.response);
    case 'output_audio_buffer.cleared':
      return { ...endAll(state, 'cut', (reply) => reply.responseId === event.response_id), playback: 'idle' };
    case 'conversation.item.truncated':
      return withReply(state, event.item_id, (reply) => ended({ ...reply, playedMs: Math.min(reply.playedMs, event.audio_end_ms) }, 'cut'));
    case 'antiphon.item.heard':
      return withReply(state, event.item_id, (reply) => heardUntil(reply, event.transcript));
    case 'antiphon.timeline':
      return onTimeline(state, event.response_id, event.marks, { stt_network_ms: event.stt_network_ms, tts_network_ms: event.tts_network_ms });
    default:
      return state;
  }
}

function onLink(state: State, link: Link): State {
  const live = link === 'live';
  const gone = link === 'off' || link === 'waiting';
  const problem = live && isAboutLink(state.problem) ? null : state.problem;
  if (!gone) return { ...state, link, problem };
  return {
    ...state,
    link,
    problem,
    userSpeaking: false,
    awaiting: false,
    playback: 'idle',
    responseId: null,
    modelNotice: null,
    captions: endAll(withoutEmptyUser(state), 'lost', () => true).captions.map(closed),
  };
}

/**
 * What the hub sent since is void and comes again. What the user did stays: the microphone, the settings, and typed
 * messages, which are sent and confirmed again.
 */
function onBack(state: State, past: State, silent: boolean): State {
  const known = new Set(past.captions.map(({ id }) => id));
  const typed = state.captions.filter((caption) => isFresh(caption) && !known.has(caption.id));
  const unsent = typed.map((caption): Caption => (caption.role === 'user' ? { ...caption, fault: 'unsent' } : caption));
  const captions = past.captions.map((caption) => playedOn(caption, state));
  return {
    ...state,
    captions: [...captions, ...unsent].slice(-MAX_CAPTIONS),
    userSpeaking: past.userSpeaking,
    awaiting: past.awaiting || unsent.length > 0,
    playback: silent ? 'idle' : past.playback === 'held' ? 'held' : state.playback === 'held' ? 'playing' : state.playback,
    responseId: past.responseId,
    audioMade: past.audioMade,
    charsPerSecond: past.charsPerSecond,
  };
}

/** A reply that was complete at the checkpoint has been played further since. */
function playedOn(past: Caption, state: State): Caption {
  const now = state.captions.find(({ id }) => id === past.id);
  if (past.role !== 'assistant' || now?.role !== 'assistant' || !past.audioDone) return past;
  const { playedMs, receivedMs, revealed, latencyMs } = now;
  return { ...past, playedMs, receivedMs, revealed, latencyMs, status: now.status === 'done' ? 'done' : past.status };
}

/** Items of the previous session get unique ids; what was under way in it is over. */
function beginSession(state: State): State {
  const past = (open: Caption): Caption => {
    const caption = closed(open);
    const id = lastingId(caption, state.nSessions);
    return id === caption.id ? caption : { ...caption, id };
  };
  return { ...state, captions: state.captions.map(past), userSpeaking: false, responseId: null, modelNotice: null, audioMade: false, nSessions: state.nSessions + 1 };
}

/** The session of these words is over, and none follow. */
function closed(caption: Caption): Caption {
  if (caption.role !== 'user' || caption.final) return caption;
  return { ...caption, draft: '', final: true, fault: caption.text === '' ? 'failed' : null };
}

/** It is typed, and known by the id that this client gave it. */
function isFresh(caption: Caption): boolean {
  return caption.role === 'user' && caption.typed;
}

function onTranscript(state: State, id: string, transcript: string): State {
  const text = transcript.trim();
  return withUser(ensureUser(state, id), id, (user) => ({ ...user, text, draft: '', final: true, fault: text === '' ? 'unclear' : null }));
}

/** A failed transcription only ends the wait for a response to that utterance; the hub keeps listening. */
function onTranscriptionFailed(state: State, id: string, message?: string): State {
  const next = withUser(ensureUser(state, id), id, (user) => ({ ...user, draft: '', final: true, fault: 'failed' }));
  return { ...next, awaiting: state.responseId !== null && state.awaiting, problem: { kind: 'transcription', message: message ?? null } };
}

function onReceived(state: State, itemId: string, endMs: number): State {
  const next = withReply(state, itemId, (reply) => ({ ...reply, sound: true, receivedMs: Math.max(reply.receivedMs, endMs) }));
  return next.audioMade ? next : { ...next, audioMade: true };
}

function onPlayback(state: State, action: Extract<Action, { kind: 'playback' }>): State {
  let next: State = { ...state, playback: playbackOf(state, action.state, action.itemId) };
  if (action.state === 'playing') next.awaiting = false;
  if (action.itemId !== null) {
    next = withReply(next, action.itemId, (reply) =>
      plays(reply) ? reveal(state, { ...reply, playedMs: Math.max(reply.playedMs, action.playedMs) }) : reply,
    );
  }
  for (const id of action.finished) {
    const reply = next.captions.find((caption): caption is ReplyCaption => caption.role === 'assistant' && caption.id === id);
    if (!reply || !plays(reply)) continue;
    // All that was said of an answer that broke off was heard.
    if (reply.status === 'failed') {
      next = withReply({ ...next, awaiting: false }, id, shown);
      continue;
    }
    next = { ...next, awaiting: false, charsPerSecond: learnRate(next.charsPerSecond, reply) };
    next = withReply(next, id, (r) => ({ ...shown(r), status: 'done' }));
  }
  return next;
}

/** What came of an answer that broke off is played. */
function plays({ status }: ReplyCaption): boolean {
  return status === 'coming' || status === 'failed';
}

/** A queue that underruns in the middle of an item still counts as speaking. */
function playbackOf(state: State, queue: QueueState, itemId: string | null): State['playback'] {
  if (queue === 'paused') return 'held';
  if (queue !== 'empty') return 'playing';
  const stumbled = state.captions.some((c) => c.role === 'assistant' && c.id === itemId && c.status === 'coming' && !c.audioDone);
  return stumbled ? state.playback : 'idle';
}

function onResponseDone(state: State, { id, status, status_details, output }: ResponseObject): State {
  const message = status_details?.error?.message;
  const next: State = { ...loaded(state, id), responseId: state.responseId === id ? null : state.responseId };
  const mine = (reply: ReplyCaption) => reply.responseId === id;
  if (status === 'cancelled') return { ...endAll(next, 'cut', mine), awaiting: false };
  if (status === 'failed') {
    const captions = mapReplies(next.captions, (reply) =>
      mine(reply) && reply.status === 'coming' ? { ...reply, status: 'failed' } : reply,
    );
    // A failed transcription is the cause, and can be tried again.
    const problem: Problem = next.problem?.kind === 'transcription' ? next.problem : { kind: 'response', message: message ?? null };
    return { ...next, captions, awaiting: false, problem };
  }
  const silent = (reply: ReplyCaption) => !reply.sound && reply.status === 'coming';
  const captions = mapReplies(next.captions, (reply) =>
    mine(reply) ? (silent(reply) ? { ...shown(reply), status: 'done', whole: true } : { ...reply, whole: true }) : reply,
  );
  // Audio of a paced response is still arriving when the response is done; without audio the wait is over.
  const sounding = captions.some((caption) => caption.role === 'assistant' && mine(caption) && caption.status === 'coming');
  const isEmpty = status === 'completed' && output?.every(({ type, content }) => type === 'message' && !content?.some(({ text, transcript }) => text || transcript));
  return { ...next, captions, awaiting: sounding && next.awaiting, ...(isEmpty && { problem: { kind: 'empty' } }) };
}

/** The model of this response answers, or will not: it is not being loaded any more. */
function loaded(state: State, responseId: string): State {
  const { modelNotice } = state;
  return modelNotice?.code === 'model_loading' && modelNotice.response_id === responseId ? { ...state, modelNotice: null } : state;
}

function onTimeline(state: State, responseId: string, marks: TimelineMarks, hops: Hops): State {
  return { ...state, captions: mapReplies(state.captions, (reply) => (reply.responseId === responseId ? { ...reply, marks, hops, latencyMs: marks.first_audio_heard ?? reply.latencyMs } : reply)) };
}

function finishText(state: State, reply: ReplyCaption, text: string): ReplyCaption {
  return reply.status === 'coming' ? reveal(state, { ...reply, text, textDone: true }) : reply;
}

function reveal(state: State, reply: ReplyCaption): ReplyCaption {
  return { ...reply, revealed: Math.min(reply.text.length, revealedChars(reply, state.charsPerSecond)) };
}

/** A response that ended early. If it was already shown to its end, it counts as done. */
function ended(reply: ReplyCaption, how: 'cut' | 'lost'): ReplyCaption {
  if (reply.status !== 'coming') return reply;
  const complete = reply.textDone && reply.revealed === reply.text.length;
  return { ...reply, status: complete && how === 'lost' ? 'done' : how };
}

/** The hub stopped a reply, and keeps these words of it. */
function heardUntil(reply: ReplyCaption, words: string): ReplyCaption {
  const revealed = heardChars(reply, words);
  if (reply.status === 'done' && revealed < reply.text.trimEnd().length) return { ...reply, revealed, status: 'cut' };
  return reply.status === 'done' ? reply : { ...ended(reply, 'cut'), revealed };
}

/** A text-only response, or one whose audio has ended: all of its text is shown. */
function shown(reply: ReplyCaption): ReplyCaption {
  return { ...reply, revealed: reply.text.length };
}

/** A reply that was to be spoken, and of which a voice makes nothing (an emoji), has no end of playback in a call. */
function soundless(reply: ReplyCaption): ReplyCaption {
  const isOver = reply.status === 'coming' && reply.whole && reply.receivedMs === 0 && reply.playedMs === 0;
  return isOver ? { ...shown(reply), status: 'done' } : reply;
}

function endAll(state: State, how: 'cut' | 'lost', which: (reply: ReplyCaption) => boolean): State {
  return { ...state, captions: mapReplies(state.captions, (reply) => (which(reply) ? ended(reply, how) : reply)) };
}

function mapReplies(captions: Caption[], change: (reply: ReplyCaption) => ReplyCaption): Caption[] {
  return captions.map((caption) => (caption.role === 'assistant' ? change(caption) : caption));
}

function withReply(state: State, id: string, change: (reply: ReplyCaption) => ReplyCaption): State {
  return { ...state, captions: mapReplies(state.captions, (reply) => (reply.id === id ? change(reply) : reply)) };
}

function withUser(state: State, id: string, change: (user: UserCaption) => UserCaption): State {
  const captions = state.captions.map((caption) => (caption.role === 'user' && caption.id === id ? change(caption) : caption));
  return { ...state, captions };
}

function ensureUser(state: State, id: string): State {
  if (state.captions.some((caption) => caption.id === id)) return state;
  return append(state, { role: 'user', id, text: '', draft: '', final: false, committed: false, typed: false, fault: null });
}

function ensureReply(state: State, id: string, responseId: string): State {
  if (state.captions.some((caption) => caption.id === id)) return state;
  return append(state, {
    role: 'assistant', id, responseId, text: '', textDone: false, sound: false, receivedMs: 0, playedMs: 0,
    audioDone: false, whole: false, revealed: 0, status: 'coming', latencyMs: null, marks: null, hops: {},
  });
}

/** A false start (a cough) leaves no caption. */
function withoutEmptyUser(state: State): State {
  const empty = (caption: Caption) => caption.role === 'user' && !caption.committed && caption.text === '';
  return { ...state, captions: state.captions.filter((caption) => !empty(caption)) };
}

function append(state: State, caption: Caption): State {
  return { ...state, captions: [...state.captions, caption].slice(-MAX_CAPTIONS) };
}

function typedCaption(id: string, text: string): UserCaption {
  return { role: 'user', id, text, draft: '', final: true, committed: true, typed: true, fault: 'unsent' };
}

function isSpoken(item: Item): boolean {
  return item.role === 'user' && (item.content ?? []).some((part) => part.type === 'input_audio');
}
