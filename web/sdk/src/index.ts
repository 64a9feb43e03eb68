// `@antiphon/client`: voice conversations with an Antiphon hub, from any web page. What is exported here is the package's
// interface; the rest of `src` may change at any time.

export { Conversation, type AudioGraph, type ConversationOptions, type Devices, type Key, type Transport } from './session/conversation.js';
export type { Tool, ToolLimit } from './session/tool_calls.js';
export type { Direction, WireEvent } from './session/tap.js';
export type { Levels } from './session/levels.js';
export type { Codec } from './audio/codec.js';
// A page's microphone and loudspeaker alone, for a program that speaks to another server.
export { Microphone, MicrophoneError, type MicrophoneFault, type MicrophoneOptions } from './audio/microphone.js';
export { Speaker } from './audio/speaker.js';
export { followSoundStart } from './audio/sound_start.js';
export type { CapturedFrame, PlaybackReport } from './audio/messages.js';
export { floatFromPcm16, pcm16FromFloat } from './protocol/pcm.js';
export type { Hops, SessionSettings, TimelineMarks, ToolDefinition } from './protocol/events.js';
export { type Caption, type Link, type Phase, type ReplyCaption, type State, type UserCaption, type Voice, lastingId, phaseOf } from './state/model.js';
export { parts } from './state/captions.js';
export { type ModelNotice } from './protocol/events.js';
export { type Problem, obstacleOf } from './state/problem.js';
export { type HubStatus, type Readiness, baseOf, readiness, voices } from './session/hub.js';
export { authorization, isKey } from './session/key.js';
export { backoffMs } from './session/backoff.js';
