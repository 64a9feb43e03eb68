// What the hub says of its custom voices, and what is sent to it.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { type Draft, STATEMENT, formOf, libraryFrom, missing, refusal, seconds } from '../src/voices/data';
import { VoiceKeeper } from '../src/voices/keeper';

const body = {
  voices: [{ id: 'tone', name: 'Tone', language: 'en' }],
  library: { min_recording_ms: 1000, max_recording_ms: 60000, used_recording_ms: 10000, min_rate_hz: 16000, languages: ['en', 'de', 3], max_voices: 64 },
  data: [
    { id: 'voice_1', name: 'Anna', language: 'de', recording_ms: 12500, note: 'Only the first 10 s.', removable: true },
    { id: 'operator', name: '' },
    'x',
  ],
};

describe('the library of voices', () => {
  it('is read as the hub sends it', () => {
    const library = libraryFrom(body)!;
    expect(library.limits).toEqual({ minMs: 1000, maxMs: 60000, languages: ['en', 'de'], needsWords: false });
    expect(library.voices).toEqual([
      { id: 'voice_1', name: 'Anna', language: 'de', recordingMs: 12500, note: 'Only the first 10 s.', removable: true },
      { id: 'operator', name: 'operator', language: '', recordingMs: 0, note: null, removable: false },
    ]);
  });

  it('is none where the voices are fixed or the answer is something else', () => {
    for (const other of [null, 'x', [], {}, { ...body, library: null }, { error: {} }]) expect(libraryFrom(other)).toBeNull();
  });
});

describe('a draft', () => {
  const draft: Draft = { name: ' Anna ', recording: new Blob(['sound']), transcript: ' La la. ', language: 'de', consent: true };

  it('lacks one thing after the other', () => {
    const optional = { needsWords: false };
    expect(missing({ ...draft, recording: null, name: '', consent: false }, optional)).toMatch(/Record/);
    expect(missing({ ...draft, name: ' ', consent: false }, optional)).toMatch(/name/);
    expect(missing({ ...draft, consent: false }, optional)).toMatch(/agree/);
    expect(missing({ ...draft, transcript: ' ' }, optional)).toBeNull();
    expect(missing({ ...draft, transcript: ' ' }, { needsWords: true })).toMatch(/words/);
    expect(missing(draft, { needsWords: true })).toBeNull();
  });

  it('is sent with its statement, and without what is empty', () => {
    const text = (form: FormData) => Object.fromEntries([...form].filter(([name]) => name !== 'audio_sample'));
    expect(text(formOf(draft))).toEqual({ name: 'Anna', consent: STATEMENT, language: 'de', ref_text: 'La la.' });
    expect(text(formOf({ ...draft, language: '', transcript: ' ' }))).toEqual({ name: 'Anna', consent: STATEMENT });
    expect(formOf(draft).get('audio_sample')).toBeInstanceOf(Blob);
  });
});

describe('words', () => {
  it('are short', () => {
    expect([1000, 12500, 999].map(seconds)).toEqual(['1 s', '12.5 s', '1 s']);
    expect(refusal(400, { error: { message: 'It is silent.' } })).toBe('It is silent.');
    expect(refusal(502, '<html>')).toBe('The hub answered 502.');
  });
});

describe('an error', () => {
  afterEach(() => vi.unstubAllGlobals());

  it('is forgotten when a view opens again', async () => {
    vi.stubGlobal('document', { baseURI: 'http://hub.example/' });
    vi.stubGlobal('location', { hash: '' });
    vi.stubGlobal('sessionStorage', { getItem: () => null });
    vi.stubGlobal('fetch', async () => {
      throw new TypeError('no hub');
    });
    const keeper = new VoiceKeeper(() => {});
    await keeper.look();
    expect(keeper.fault).toBe('The hub does not answer.');
    vi.stubGlobal('fetch', async () => new Response(JSON.stringify(body)));
    await keeper.look();
    expect([keeper.fault, keeper.library?.voices.length]).toEqual([null, 2]);
  });
});
