// Which turns the dashboard shows, in which order; comparison of windows; exports.
import { describe, expect, it } from 'vitest';
import { compared, differs, filterWords, turnsOf, windowBefore } from '../src/dashboard/data/compare';
import { csvOf, jsonOf } from '../src/dashboard/data/export';
import { shares } from '../src/dashboard/data/percentiles';
import { choices, everything, firstQuery, matching, ordered, placeOf, queryFrom, searchOf } from '../src/dashboard/data/query';
import { type Turn, turnFrom } from '../src/dashboard/data/turn';
import { change } from '../src/dashboard/data/words';

const T0 = Date.parse('2026-03-01T12:00:00Z');

function turn(id: string, atS: number, extra: Record<string, unknown> = {}): Turn {
  const made = turnFrom({ id, started_at: new Date(T0 + atS * 1000).toISOString(), kind: 'speech', status: 'completed', ...extra });
  if (!made) throw new Error('a turn with an id and a date is one');
  return made;
}

const waited = (id: string, atS: number, llm: number, tts: number, extra: Record<string, unknown> = {}) =>
  turn(id, atS, {
    voice_to_voice_ms: llm + tts,
    parts: [
      { stage: 'llm', from_ms: 0, to_ms: llm },
      { stage: 'tts', from_ms: llm, to_ms: llm + tts },
    ],
    ...extra,
  });

/** The newest first. */
const TURNS = [
  waited('turn_d', 40, 100, 900, { session_id: 'sess_2', engines: { stt: 'whisper' }, transcript: 'Tell me a Story.', response_id: 'resp_d', barged_in: true }),
  turn('turn_c', 30, { session_id: 'sess_1', engines: { stt: 'openai' }, status: 'failed', error: 'no answer in time', transcript: 'What time is it?' }),
  waited('turn_b', 20, 2_000, 50, { session_id: 'sess_1', engines: { stt: 'openai' }, transcript: 'And tomorrow?', reply: 'The same story.' }),
  turn('turn_a', 10, { session_id: 'sess_1', engines: { stt: 'openai' }, kind: 'typed', voice_to_voice_ms: 60 }),
];
const ids = (turns: readonly Turn[]) => turns.map(({ id }) => id.slice(-1)).join('');

describe('a filter', () => {
  it('admits turns by words, status, session, engine and kind, all of them together', () => {
    const admitted = (filter: Partial<typeof everything>) => ids(matching(TURNS, { ...everything, ...filter }));
    expect(admitted({})).toBe('dcba');
    expect(admitted({ words: 'STORY' })).toBe('db');
    expect(admitted({ words: 'story tomorrow' })).toBe('b');
    expect(admitted({ words: 'resp_d' })).toBe('d');
    expect(admitted({ words: 'in time' })).toBe('c');
    expect(admitted({ show: 'failed' })).toBe('c');
    expect(admitted({ show: 'slow' })).toBe('b');
    expect(admitted({ show: 'interrupted' })).toBe('d');
    expect(admitted({ session: 'sess_1' })).toBe('cba');
    expect(admitted({ engine: 'stt whisper' })).toBe('d');
    expect(admitted({ kind: 'typed' })).toBe('a');
    expect(admitted({ session: 'sess_1', words: 'story' })).toBe('b');
    expect(admitted({ session: 'sess_3' })).toBe('');
  });

  it('is in the address, and what an address cannot mean is ignored', () => {
    const query = { filter: { ...everything, words: 'a & b', show: 'failed', session: 'sess_1', engine: 'tts worker gpu-1' }, order: 'llm' } as const;
    expect(queryFrom(searchOf(query))).toEqual(query);
    expect(searchOf(firstQuery)).toBe('');
    expect(queryFrom('?show=everything&order=upwards&other=1')).toEqual(firstQuery);
  });

  it('offers what turns have, and engines only where they differ', () => {
    expect(choices(TURNS)).toEqual({
      sessions: [['sess_2', 1], ['sess_1', 3]],
      engines: [['stt openai', 3], ['stt whisper', 1]],
      kinds: [['speech', 3], ['typed', 1]],
    });
    expect(choices(TURNS.slice(1)).engines).toEqual([]);
    const many = Array.from({ length: 150 }, (_, i) => turn(`turn_${i}`, i, { session_id: `sess_${i}` }));
    expect(choices(many).sessions).toHaveLength(100);
  });
});

describe('the order', () => {
  it('is by time or by the slowest, and turns without a time come last', () => {
    expect(ids(ordered(TURNS, 'newest'))).toBe('dcba');
    expect(ids(ordered(TURNS, 'oldest'))).toBe('abcd');
    expect(ids(ordered(TURNS, 'voice_to_voice'))).toBe('bdac');
    expect(ids(ordered(TURNS, 'tts'))).toBe('dbac');
  });

  it('finds a turn by its own name or its answer’s', () => {
    expect([placeOf(TURNS, 'turn_b'), placeOf(TURNS, 'resp_d'), placeOf(TURNS, 'resp_x'), placeOf(TURNS, null)]).toEqual([2, 0, -1, -1]);
  });
});

describe('a comparison', () => {
  it('takes the window before, with the same filter', () => {
    const baseline = windowBefore(T0 + 45_000, 20_000, everything);
    expect(ids(turnsOf(TURNS, baseline))).toBe('ba');
    expect(ids(turnsOf(TURNS, { ...baseline, filter: { ...everything, kind: 'typed' } }))).toBe('a');
  });

  it('has a row for every stage that took time in either window', () => {
    const rows = compared([waited('turn_x', 0, 100, 0)], [waited('turn_y', 1, 80, 20)]);
    expect(rows.map(({ measure, before, now, differs: is }) => [measure, before.p50, now.p50, is])).toEqual([
      ['voice_to_voice', 100, 100, null],
      ['llm', 100, 80, null],
      ['tts', 0, 20, null],
    ]);
  });

  it('judges by all turns which window is faster, also where half of them did not wait in either', () => {
    const turns = (name: string, tts: (i: number) => number) => Array.from({ length: 20 }, (_, i) => waited(`turn_${name}${i}`, i, 100, tts(i)));
    const slow = turns('a', (i) => (i < 11 ? 0 : 500));
    const fast = turns('b', () => 0);
    const verdict = (before: Turn[], now: Turn[]) => compared(before, now).find(({ measure }) => measure === 'tts');
    expect(verdict(slow, fast)).toMatchObject({ before: { p50: 0 }, now: { p50: 0 }, differs: true, isFaster: true });
    expect(verdict(fast, slow)).toMatchObject({ differs: true, isFaster: false });
  });

  it('tells a difference from chance', () => {
    const around = (ms: number) => Array.from({ length: 20 }, (_, i) => ms + ((i * 37) % 20));
    expect(differs(around(200), around(230))).toBe(true);
    expect(differs(around(200), around(201))).toBe(false);
    expect(differs(around(200), around(200))).toBe(false);
    expect(differs(Array(20).fill(5), Array(20).fill(5))).toBe(false);
    expect(differs(around(200).slice(0, 7), around(900))).toBeNull();
    // Worked example: ranks of a are 1 to 8, so U is 0, and z is 3.36.
    expect(differs([1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16])).toBe(true);
  });

  it('has words', () => {
    expect([change(200, 150), change(200, 201), change(100, 200), change(0, 5), change(null, 5)]).toEqual(['−25 %', '±0 %', '+100 %', '–', '–']);
    expect(filterWords({ ...everything, engine: 'stt openai', show: 'failed', words: 'time' })).toBe('stt openai, failed, “time”');
    expect(filterWords(everything)).toBe('');
  });
});

describe('shares of the total', () => {
  it('add up to all of the time that was waited for', () => {
    expect(shares(TURNS)).toEqual({ llm: 2_100 / 3_050, tts: 950 / 3_050 });
    expect(shares([])).toEqual({});
  });
});

describe('an export', () => {
  it('as CSV has one line a turn, quoted where it must be, and no formulas', () => {
    const lines = csvOf([waited('turn_a', 0, 100.5, 20, { transcript: 'He said "no",\nthen left.', reply: '=HYPERLINK("x")', usage: {} })]).split('\r\n');
    expect(lines[0]).toBe(
      'turn,session,number,started_at,kind,status,barged_in,voice_to_voice_ms,endpointing_ms,stt_ms,queue_ms,llm_ms,chunking_ms,tts_ms,network_ms,sending_ms,playback_ms,wasted_ms,transport,hub,engines,error,transcript,language,filler,reply,heard',
    );
    expect(lines[1]).toBe(`turn_a,,0,2026-03-01T12:00:00.000Z,speech,completed,false,120.5,0,0,0,100.5,0,20,0,0,0,0,,,,,"He said ""no"",\nthen left.",,,"'=HYPERLINK(""x"")",`);
    expect(lines).toHaveLength(3);
  });

  it('as JSON has the records as the hub sent them', () => {
    const record = { id: 'turn_a', started_at: new Date(T0).toISOString(), of_a_newer_hub: { yes: true } };
    expect(JSON.parse(jsonOf([turnFrom(record) as Turn]))).toEqual({ turns: [record] });
  });
});
