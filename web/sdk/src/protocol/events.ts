// The JSON events that the client sends and receives: OpenAI Realtime GA, and the extension's own.
// All text from the server is parsed by `parseEvent`; events that the client does not use become `other`.

/** Milliseconds since the end of the user's speech; marks of stages that did not run are absent. */
export interface TimelineMarks {
  speech_end?: number;
  end_confirmed?: number;
  stt_final?: number;
  llm_first_token?: number;
  first_chunk?: number;
  tts_first_audio?: number;
  first_audio_sent?: number;
  /** By this client's report. */
  first_audio_heard?: number;
}

/** Milliseconds of a stage's time that the way to its worker and back took; absent where the engine runs in the hub. */
export interface Hops {
  stt_network_ms?: number;
  tts_network_ms?: number;
}

export interface ContentPart {
  type: string;
  text?: string | null;
  transcript?: string | null;
}

export interface Item {
  id: string;
  type: string;
  role?: 'user' | 'assistant' | 'system';
  status?: string;
  content?: ContentPart[];
  /** Of `function_call` and `function_call_output`. */
  call_id?: string;
  name?: string;
  arguments?: string;
}

export interface ResponseObject {
  id: string;
  status?: string;
  output?: Item[];
  status_details?: { type?: string; reason?: string; error?: { message?: string; code?: string } | null } | null;
}

interface InResponse {
  response_id: string;
  item_id: string;
}

/** What the hub did about a request to the language model: `model_loading` until its first words, others for a turn. */
export interface ModelNotice {
  response_id: string;
  code: string;
  /** The same in words. */
  message: string;
}

/** The server events that the client handles. */
export type ServerEvent =
  | { type: 'session.created' | 'session.updated'; session: { id?: string } }
  | { type: 'error'; error: { message: string; code?: string | null; event_id?: string | null } }
  | { type: 'input_audio_buffer.speech_started'; item_id: string; audio_start_ms: number }
  | { type: 'input_audio_buffer.speech_stopped'; item_id: string; audio_end_ms: number }
  | { type: 'input_audio_buffer.committed'; item_id: string }
  | { type: 'conversation.item.added' | 'conversation.item.done'; item: Item; previous_item_id?: string | null }
  | { type: 'conversation.item.deleted'; item_id: string }
  | { type: 'conversation.item.truncated'; item_id: string; audio_end_ms: number }
  | { type: 'conversation.item.input_audio_transcription.delta'; item_id: string; delta: string }
  | { type: 'antiphon.transcription.draft'; item_id: string; transcript: string }
  | { type: 'conversation.item.input_audio_transcription.completed'; item_id: string; transcript: string }
  | { type: 'conversation.item.input_audio_transcription.failed'; item_id: string; error: { message?: string } }
  | { type: 'response.created' | 'response.done'; response: ResponseObject }
  | ({ type: 'response.output_item.added' | 'response.output_item.done'; item: Item } & { response_id: string })
  | ({ type: 'response.output_audio_transcript.delta' | 'response.output_text.delta'; delta: string } & InResponse)
  | ({ type: 'response.output_audio_transcript.done'; transcript: string } & InResponse)
  | ({ type: 'response.output_text.done'; text: string } & InResponse)
  | ({ type: 'response.output_audio.done' | 'antiphon.output_audio.sent' } & InResponse)
  | { type: 'output_audio_buffer.held' | 'output_audio_buffer.resumed'; response_id: string; item_id?: string }
  | { type: 'output_audio_buffer.started' | 'output_audio_buffer.stopped' | 'output_audio_buffer.cleared'; response_id: string }
  | ({ type: 'antiphon.timeline'; item_id: string; response_id: string; marks: TimelineMarks } & Hops)
  | { type: 'antiphon.item.heard'; item_id: string; transcript: string }
  | ({ type: 'antiphon.notice' } & ModelNotice)
  | { type: 'antiphon.clock.pong'; client_ms: number; hub_ms: number }
  | { type: 'antiphon.session.resumable'; key: string; within_s: number }
  | { type: 'antiphon.session.checkpoint'; received: number }
  | { type: 'antiphon.session.resumed'; after: number; received: number }
  | { type: 'other'; name: string };

/** Event types with their required fields; types not listed here become `other`. */
const NEEDED = new Map(
  (
    [
      ['session.created session.updated', 'session'],
      ['error', 'error'],
      ['input_audio_buffer.speech_started', 'item_id audio_start_ms'],
      ['input_audio_buffer.speech_stopped conversation.item.truncated', 'item_id audio_end_ms'],
      ['input_audio_buffer.committed conversation.item.deleted', 'item_id'],
      ['conversation.item.added conversation.item.done', 'item'],
      ['conversation.item.input_audio_transcription.delta', 'item_id delta'],
      ['conversation.item.input_audio_transcription.completed antiphon.transcription.draft', 'item_id transcript'],
      ['conversation.item.input_audio_transcription.failed', 'item_id error'],
      ['response.created response.done', 'response'],
      ['response.output_item.added response.output_item.done', 'item response_id'],
      ['response.output_audio_transcript.delta response.output_text.delta', 'delta response_id item_id'],
      ['response.output_audio_transcript.done', 'transcript response_id item_id'],
      ['response.output_text.done', 'text response_id item_id'],
      ['response.output_audio.done antiphon.output_audio.sent', 'response_id item_id'],
      ['output_audio_buffer.started output_audio_buffer.stopped output_audio_buffer.cleared', 'response_id'],
      ['output_audio_buffer.held output_audio_buffer.resumed', 'response_id'],
      ['antiphon.timeline', 'response_id marks'],
      ['antiphon.item.heard', 'item_id transcript'],
      ['antiphon.notice', 'response_id code message'],
      ['antiphon.clock.pong', 'client_ms hub_ms'],
      ['antiphon.session.resumable', 'key within_s'],
      ['antiphon.session.checkpoint', 'received'],
      ['antiphon.session.resumed', 'after received'],
    ] as const
  ).flatMap(([types, fields]) => types.split(' ').map((type): [string, string[]] => [type, fields.split(' ')])),
);

/** An event that cannot be parsed; the message states why. */
export class EventError extends Error {}

export function parseEvent(text: string): ServerEvent {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new EventError('not JSON', { cause });
  }
  if (typeof value !== 'object' || value === null) throw new EventError('not an object');
  const event = value as Record<string, unknown>;
  const { type } = event;
  if (typeof type !== 'string') throw new EventError('no type');
  const needed = NEEDED.get(type);
  if (!needed) return { type: 'other', name: type };
  for (const field of needed) {
    if (event[field] === undefined || event[field] === null) throw new EventError(`${type} without ${field}`);
  }
  return value as ServerEvent;
}

/** What a session may be asked for. Null, or absent: the operator's value. */
export interface SessionSettings {
  /** Id of a voice of `State.voices`. */
  voice?: string | null;
  /** What the assistant is, and how it is to answer. */
  instructions?: string | null;
  /** Speed of the voice, 0.25 to 1.5; 1 is its own. */
  speed?: number | null;
  /** Language that the user speaks, as ISO 639-1 (`en`), or `auto`: replies are in the language heard, where the hub can. */
  language?: string | null;
  /** How soon a pause counts as the end of the user's turn: `high` answers soonest. */
  eagerness?: 'low' | 'medium' | 'high' | 'auto' | null;
  /** Whether a reply goes on after "uh-huh" and the like. */
  ignoreBackchannels?: boolean | null;
  /** The end of a turn is what the client commits (`input_audio_buffer.commit`); the hub detects none. */
  manual?: boolean;
  /** The hub's noise reduction: for a microphone at the mouth, for one in the room, or none. */
  noiseReduction?: 'near_field' | 'far_field' | 'off' | null;
}

/** A function that the model may call, as the protocol has it. */
export interface ToolDefinition {
  name: string;
  description: string;
  /** JSON Schema of the arguments, an object. */
  parameters: object;
}

/**
 * Endpointing depends on what was said (`semantic_vad`); what is not set keeps the operator's value. `sound`: false if the
 * client cannot play sound; the hub then responds with text only.
 */
export function sessionUpdate(settings: SessionSettings, sound: boolean, tools: readonly ToolDefinition[] = []): object {
  const { voice, instructions, speed, language, eagerness, ignoreBackchannels, manual, noiseReduction } = settings;
  const output = { ...(voice && { voice }), ...(speed && { speed }) };
  const input = {
    turn_detection: manual
      ? null
      : {
          type: 'semantic_vad', ...(eagerness && { eagerness }), create_response: true, interrupt_response: true,
          ...(typeof ignoreBackchannels === 'boolean' && { ignore_backchannels: ignoreBackchannels }),
        },
    transcription: { model: 'whisper-1', ...(language && { language }) },
    ...(noiseReduction && { noise_reduction: noiseReduction === 'off' ? null : { type: noiseReduction } }),
  };
  return {
    type: 'session.update',
    session: {
      type: 'realtime',
      output_modalities: [sound ? 'audio' : 'text'],
      ...(typeof instructions === 'string' && { instructions }),
      ...(tools.length > 0 && { tools: tools.map(({ name, description, parameters }) => ({ type: 'function', name, description, parameters })) }),
      audio: { input, ...(sound && Object.keys(output).length > 0 && { output }) },
    },
  };
}

/** A message to add to the conversation; assistant messages restore what was said before a reconnection. */
export function messageItem(id: string, role: 'user' | 'assistant', text: string): object {
  const part = { type: role === 'user' ? 'input_text' : 'output_text', text };
  return { type: 'conversation.item.create', item: { id, type: 'message', role, content: [part] } };
}

/** A user message with recorded speech: mono PCM16 at 24 kHz, in base64. */
export const audioItem = (audio: string): object => ({
  type: 'conversation.item.create',
  item: { type: 'message', role: 'user', content: [{ type: 'input_audio', audio }] },
});

export const deleteItem = (id: string): object => ({ type: 'conversation.item.delete', item_id: id });

/** The result of a call of a function. */
export const callOutput = (callId: string, output: string): object => ({
  type: 'conversation.item.create',
  item: { type: 'function_call_output', call_id: callId, output },
});

/** `eventId` is named by an error that this event causes. A silent response is text; one without tools calls no function. */
export const responseCreate = (isSilent: boolean, eventId?: string, withoutTools = false): object => ({
  type: 'response.create',
  ...(eventId && { event_id: eventId }),
  ...((isSilent || withoutTools) && {
    response: { ...(isSilent && { output_modalities: ['text'] }), ...(withoutTools && { tool_choice: 'none' }) },
  }),
});
export const responseCancel = (): object => ({ type: 'response.cancel' });
export const outputClear = (): object => ({ type: 'output_audio_buffer.clear' });

/** A playback report; times are the client's clock, `performance.now()`. */
export interface Played {
  itemId: string;
  audioEndMs: number;
  /** When that position is heard. */
  atMs: number;
  /** When the item's first audible sample is heard; reported once. */
  firstSoundMs: number | null;
  nUnderruns: number;
  underrunMs: number;
  /** Whether playback of the item was stopped for good. */
  stopped: boolean;
}

export const played = (report: Played): object => ({
  type: 'output_audio_buffer.played',
  item_id: report.itemId,
  audio_end_ms: Math.floor(report.audioEndMs),
  at_ms: report.atMs,
  ...(report.firstSoundMs === null ? {} : { first_sound_ms: report.firstSoundMs }),
  n_underruns: report.nUnderruns,
  underrun_ms: Math.round(report.underrunMs),
  ...(report.stopped ? { stopped: true } : {}),
});

export const clockPing = (clientMs: number, pongMs: number | null, microphoneMs: number | null): object => ({
  type: 'antiphon.clock.ping',
  client_ms: clientMs,
  ...(pongMs === null ? {} : { pong_ms: pongMs }),
  ...(microphoneMs === null ? {} : { microphone_ms: microphoneMs }),
});
