// Parses the hub's list of voices and what its library takes, and formats both for display. Pure functions.

/** What the engine's library takes. */
export interface Limits {
  minMs: number;
  maxMs: number;
  languages: string[];
  /** Whether a voice needs the words of its recording. */
  needsWords: boolean;
}

export interface CustomVoice {
  id: string;
  name: string;
  language: string;
  recordingMs: number;
  note: string | null;
  /** Whether a client added it and this one may remove it. */
  removable: boolean;
}

export interface Library {
  limits: Limits;
  voices: CustomVoice[];
}

/** What the user is about to add. */
export interface Draft {
  name: string;
  recording: Blob | null;
  transcript: string;
  language: string;
  consent: boolean;
}

/** What the user who adds a voice agrees to; the hub keeps it with the voice. */
export const STATEMENT = 'The person who speaks in this recording agrees that this hub speaks with a clone of their voice.';

type Fields = Record<string, unknown>;

const fields = (value: unknown): Fields => (typeof value === 'object' && value !== null ? (value as Fields) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const count = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0);

/** Null if the engine's voices are fixed, or the body is something else. */
export function libraryFrom(body: unknown): Library | null {
  const { library, data } = fields(body);
  if (typeof library !== 'object' || library === null) return null;
  const { min_recording_ms, max_recording_ms, languages, needs_transcript } = fields(library);
  return {
    limits: {
      minMs: count(min_recording_ms),
      maxMs: count(max_recording_ms),
      languages: list(languages).map(text).filter(Boolean),
      needsWords: needs_transcript === true,
    },
    voices: list(data).map(voiceFrom).filter(({ id }) => id !== ''),
  };
}

function voiceFrom(body: unknown): CustomVoice {
  const { id, name, language, recording_ms, note, removable } = fields(body);
  return {
    id: text(id),
    name: text(name) || text(id),
    language: text(language),
    recordingMs: count(recording_ms),
    note: text(note) || null,
    removable: removable === true,
  };
}

/** What is missing before a draft can be sent; null if nothing is. */
export function missing(draft: Draft, limits: Pick<Limits, 'needsWords'>): string | null {
  if (draft.recording === null) return 'Record the voice, or choose a file.';
  if (draft.name.trim() === '') return 'Give the voice a name.';
  if (limits.needsWords && draft.transcript.trim() === '') return 'This model needs the words of the recording.';
  if (!draft.consent) return 'The speaker has to agree.';
  return null;
}

/** The form that the hub takes. */
export function formOf(draft: Draft): FormData {
  const form = new FormData();
  form.set('name', draft.name.trim());
  form.set('consent', STATEMENT);
  if (draft.language !== '') form.set('language', draft.language);
  if (draft.transcript.trim() !== '') form.set('ref_text', draft.transcript.trim());
  form.set('audio_sample', draft.recording ?? new Blob());
  return form;
}

/** "12.5 s", as a duration is shown. */
export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1).replace(/\.0$/, '')} s`;
}

/** The hub's words about a request that it refused. */
export function refusal(status: number, body: unknown): string {
  return text(fields(fields(body).error).message) || `The hub answered ${status}.`;
}
