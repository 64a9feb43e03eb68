// The dashboard's numbers: percentiles, the sliding window, the waterfall, the book and the stream.
import { describe, expect, it } from 'vitest';
import { type Book, emptyBook, enter, MAX_STATES } from '../src/dashboard/data/book';
import { percentile, percentiles, recent, samples, sliding, summary, valueOf } from '../src/dashboard/data/percentiles';
import { SseReader } from '../src/dashboard/data/sse';
import { type HubState, type Turn, pageFrom, queuedOf, stateFrom, turnFrom } from '../src/dashboard/data/turn';
import { heardOf, ticks, waterfall } from '../src/dashboard/data/waterfall';
import { sliceOf } from '../src/dashboard/view/VirtualRows';
import { bytes, duration, fieldName, fieldValue, percent, workerFacts } from '../src/dashboard/data/words';

const T0 = Date.parse('2026-03-01T12:00:00Z');

function turn(extra: Record<string, unknown> = {}, atS = 0): Turn {
  const made = turnFrom({ id: `turn_${atS}`, started_at: new Date(T0 + atS * 1000).toISOString(), status: 'completed', ...extra });
  if (!made) throw new Error('a turn with an id and a date is one');
  return made;
}

const answered = (ms: number, atS: number) => turn({ voice_to_voice_ms: ms }, atS);
const typed = (ms: number, atS: number) => turn({ kind: 'typed', voice_to_voice_ms: ms }, atS);

describe('a percentile', () => {
  it('is a value that was measured: the smallest that so many reach', () => {
    const hundred = Array.from({ length: 100 }, (_, i) => i + 1);
    expect(percentiles(hundred)).toEqual({ n: 100, p50: 50, p95: 95, p99: 99 });
    expect(percentiles([3, 1, 2])).toEqual({ n: 3, p50: 2, p95: 3, p99: 3 });
    expect(percentiles([7])).toEqual({ n: 1, p50: 7, p95: 7, p99: 7 });
  });

  it('of nothing is nothing', () => {
    expect(percentiles([])).toEqual({ n: 0, p50: null, p95: null, p99: null });
    expect(percentile([], 0)).toBeNull();
  });

  it('over a sliding window forgets what is too old and shows gaps', () => {
    const all = samples([answered(300, 40), answered(100, 0), answered(200, 10)], 'voice_to_voice');
    expect(all.map(({ ms }) => ms)).toEqual([100, 200, 300]);
    const { at, p50, p99 } = sliding(all, T0, T0 + 60_000, 15_000, 7);
    expect(at.map((ms) => (ms - T0) / 1000)).toEqual([0, 10, 20, 30, 40, 50, 60]);
    expect(p50).toEqual([100, 100, 200, null, 300, 300, null]);
    expect(p99).toEqual([100, 200, 200, null, 300, 300, null]);
    // The same as taking the window by itself at any moment.
    for (const [i, moment] of at.entries()) expect(p50[i]).toBe(percentiles(recent(all, moment, 15_000)).p50);
  });

  it('of a stage counts every answered turn, those that did not wait for it as zero, and all its parts', () => {
    const parts = [
      { stage: 'endpointing', from_ms: 0, to_ms: 200 },
      { stage: 'queue', from_ms: 200, to_ms: 230 },
      { stage: 'llm', from_ms: 230, to_ms: 300 },
      { stage: 'queue', from_ms: 300, to_ms: 305 },
    ];
    const it = turn({ parts, voice_to_voice_ms: 305 });
    expect([valueOf(it, 'queue'), valueOf(it, 'llm'), valueOf(it, 'tts'), valueOf(it, 'voice_to_voice')]).toEqual([35, 70, 0, 305]);
    // One that was not answered waited for nothing; one that was typed has no voice to begin with, and the stages behind it.
    expect(samples([it, turn({}, 1), typed(90, 2)], 'queue').map(({ ms }) => ms)).toEqual([35, 0]);
    expect(samples([it, typed(90, 2)], 'endpointing').map(({ ms }) => ms)).toEqual([200]);
    expect(samples([it, typed(90, 2)], 'voice_to_voice').map(({ ms }) => ms)).toEqual([305]);
    expect(summary([it, typed(9_000, 2)], T0 + 30_000, 60_000).within).toBe(1);
  });
});

describe('a summary', () => {
  it('counts what lies in the window', () => {
    const speculations = [
      { from_ms: -900, to_ms: -600, outcome: 'resumed' },
      { from_ms: 96, to_ms: 200, outcome: 'confirmed' },
    ];
    const turns = [turn({ status: 'failed', error: 'no model' }, 30), turn({ barged_in: true, voice_to_voice_ms: 2_001, speculations, wasted_ms: 40 }, 20), answered(2_000, 10), answered(100, -3_600)];
    expect(summary(turns, T0 + 30_000, 60_000)).toEqual({ turns: 3, bargeIns: 1, failed: 1, speculations: 2, confirmed: 1, wastedMs: 40, within: 0.5 });
    expect(summary([], T0, 60_000).within).toBeNull();
  });
});

describe('a list of rows', () => {
  it('draws what is in sight and a little more, and keeps its height', () => {
    for (const [open, extraPx] of [[-1, 0], [3, 500], [900, 500]] as const) {
      for (const fromPx of [-200, 0, 1_000, 20_000, 50_000]) {
        const { first, end, abovePx, belowPx } = sliceOf(1_000, 40, open, extraPx, fromPx, fromPx + 800);
        const drawnPx = (end - first) * 40 + (open >= first && open < end ? extraPx : 0);
        expect(end - first, `${open} at ${fromPx}`).toBeLessThan(60);
        expect(abovePx + drawnPx + belowPx).toBe(40_000 + extraPx);
        if (fromPx >= 0 && fromPx < 39_000) expect(abovePx <= fromPx && abovePx + drawnPx >= Math.min(fromPx + 800, 40_000)).toBe(true);
      }
    }
    expect(sliceOf(1_000, 40, -1, 0, -5_000, -4_000)).toMatchObject({ first: 0, end: 13 });
    expect(sliceOf(0, 40, -1, 0, 0, 800)).toEqual({ first: 0, end: 0, abovePx: 0, belowPx: 0 });
  });
});

describe('a waterfall', () => {
  const marks = { speech_end: 0, end_confirmed: 200, first_audio_sent: 400 };
  const parts = [
    { stage: 'endpointing', from_ms: 0, to_ms: 200 },
    { stage: 'llm', from_ms: 200, to_ms: 400, speculation: 0 },
  ];
  const stages = [
    { stage: 'stt', from_ms: -2_000, to_ms: 210 },
    { stage: 'llm', from_ms: 100, to_ms: 4_000, speculation: 0 },
    { stage: 'unheard_of', from_ms: 0, to_ms: 1 },
  ];

  it('has a lane for each stage that ran or was waited for, in the order of a turn', () => {
    const { lanes, marks: shown } = waterfall(turn({ marks, parts, stages, voice_to_voice_ms: 400 }), true);
    expect(lanes.map(({ stage }) => stage)).toEqual(['endpointing', 'stt', 'llm']);
    expect(lanes[2]?.critical).toEqual([{ stage: 'llm', fromMs: 200, toMs: 400, speculation: 0, open: false }]);
    expect(lanes[1]?.critical).toEqual([]);
    expect(shown.map(({ mark }) => mark)).toEqual(['speech_end', 'end_confirmed', 'first_audio_sent']);
  });

  it('shows the wait and a little around it, or all', () => {
    const it = turn({ marks, parts, stages, voice_to_voice_ms: 400 });
    expect(waterfall(it, false)).toMatchObject({ fromMs: -140, toMs: 560, isCut: true });
    expect(waterfall(it, true)).toMatchObject({ fromMs: -2_000, toMs: 4_000, isCut: true });
    const dropped = turn({ marks, parts, stages, voice_to_voice_ms: 400, speculations: [{ from_ms: -460, to_ms: -300, outcome: 'resumed' }] });
    expect(waterfall(dropped, false).fromMs).toBe(-460);
  });

  it('draws what still runs up to the last moment known', () => {
    const { lanes, toMs } = waterfall(turn({ status: 'answering', marks: { speech_end: 0, end_confirmed: 200 }, stages: [{ stage: 'llm', from_ms: 200, to_ms: null }, { stage: 'stt', from_ms: 0, to_ms: 260 }] }), true);
    expect(toMs).toBe(260);
    expect(lanes[1]?.bars).toEqual([{ stage: 'llm', fromMs: 200, toMs: 260, speculation: null, open: true }]);
  });

  it('has round steps', () => {
    expect(ticks(0, 1_000, 5)).toEqual([0, 200, 400, 600, 800, 1_000]);
    expect(ticks(-130, 640, 5)).toEqual([0, 200, 400, 600]);
    expect(ticks(0, 7, 4)).toEqual([0, 2, 4, 6]);
  });
});

describe('what was heard', () => {
  it('is a beginning of the reply; the rest was not', () => {
    expect(heardOf(turn({ reply: 'One two three.', heard: 'One two ' }))).toEqual({ heard: 'One two', unheard: ' three.', unknown: false });
    expect(heardOf(turn({ reply: 'One.', heard: 'One.' }))).toEqual({ heard: 'One.', unheard: '', unknown: false });
    expect(heardOf(turn({ reply: 'One.', heard: '' }))).toEqual({ heard: '', unheard: 'One.', unknown: false });
    expect(heardOf(turn({ reply: 'One.' }))).toEqual({ heard: 'One.', unheard: '', unknown: true });
  });
});

describe('the book', () => {
  const ids = (book: Book) => book.turns.map(({ startedAt }) => (startedAt - T0) / 1000);

  it('keeps each turn once, the newest first, and forgets beyond its capacity', () => {
    let book = enter(emptyBook, { kind: 'list', turns: [turn({}, 1), turn({}, 3)], capacity: 3 });
    book = enter(book, { kind: 'turn', turn: turn({ status: 'answering' }, 2) });
    book = enter(book, { kind: 'turn', turn: turn({ status: 'completed', voice_to_voice_ms: 250 }, 2) });
    expect(ids(book)).toEqual([3, 2, 1]);
    expect(book.turns[1]?.voiceToVoiceMs).toBe(250);
    expect(ids(enter(book, { kind: 'turn', turn: turn({}, 4) }))).toEqual([4, 3, 2]);
  });

  it('takes over what a hub that was started again knows', () => {
    const before = enter(emptyBook, { kind: 'list', turns: [turn({}, 1)], capacity: null });
    expect(ids(enter(before, { kind: 'list', turns: [turn({}, 9)], capacity: null }))).toEqual([9]);
  });

  it('keeps an hour of states', () => {
    const state = stateFrom({ at: new Date(T0).toISOString() });
    let book = emptyBook;
    for (let i = 0; state && i < MAX_STATES + 5; i += 1) book = enter(book, { kind: 'state', state: { ...state, at: i } });
    expect([book.states.length, book.states[0]?.at]).toEqual([MAX_STATES, 5]);
    if (state) book = enter(book, { kind: 'state', state: { ...state, at: 7 } });
    expect(book.states.map(({ at }) => at)).toEqual([5, 6, 7]);
  });
});

describe('what the hub says', () => {
  it('goes on behind the last turn of a page while there are more', () => {
    const turns = [{ id: 'turn_2', started_at: new Date(T0).toISOString() }, { id: 'turn_1', started_at: new Date(T0).toISOString() }];
    expect(pageFrom({ turns, has_more: true, capacity: 9 })).toMatchObject({ before: 'turn_1', capacity: 9 });
    expect(pageFrom({ turns, has_more: false }).before).toBeNull();
    expect(pageFrom({ turns: [], has_more: true }).before).toBeNull();
    expect(pageFrom(null)).toEqual({ turns: [], capacity: null, before: null, missingHubs: [] });
  });

  it('is taken as far as it can be understood', () => {
    expect(turnFrom(null)).toBeNull();
    expect(turnFrom({ id: 'turn_1' })).toBeNull();
    expect(turn({ status: 'odd', voice_to_voice_ms: 'soon', parts: [{ stage: 'llm' }, 3], engines: { llm: 1, tts: 'flite' } })).toMatchObject({
      status: 'answering',
      voiceToVoiceMs: null,
      parts: [],
      engines: { tts: 'flite' },
    });
    expect(Object.keys(turn({ audio: { heard_ms: 1, odd_ms: 2, generated_ms: 3 } }).audio)).toEqual(['generated_ms', 'heard_ms', 'odd_ms']);
    expect(stateFrom({})).toBeNull();
    const queued = (queues: object) => queuedOf(stateFrom({ at: new Date(T0).toISOString(), queues }) as HubState);
    expect([queued({ stt_waiting: 2, tts_waiting: 1, inbound_kib: 9 }), queued({ stt_waiting: 0 }), queued({})]).toEqual([3, 0, null]);
    expect(stateFrom({ at: new Date(T0).toISOString(), gpu: [], queues: { stt: 2, odd: null }, load: { brownout: 1, level: 'no_speculation', pressure: { processor: 1.1 } } })).toMatchObject({ load: { brownout: 1, pressure: { processor: 1.1 } }, gpus: null, queues: { stt: 2 }, cpuPercent: null });
    expect(stateFrom({ at: new Date(T0).toISOString(), gpu: [{ name: 'G', utilization: 50 }] })?.gpus).toEqual([{ name: 'G', utilization: 50, memoryBytes: null, memoryTotalBytes: null }]);
  });

  it('has the filler, the language and what it cost', () => {
    const cost = { cpu_ms: 12.5, gpu_ms: 40, wasted_ms: 2, stt: { cpu_ms: 4.5, gpu_ms: 0 }, tts: { cpu_ms: 8, gpu_ms: 40 }, filler: { cpu_ms: 1, gpu_ms: 2 } };
    const it = turn({ transcript: 'wie spät ist es', language: 'de', filler: { text: 'Einen Moment.', at_ms: 1010.5 }, cost });
    expect(it).toMatchObject({ language: 'de', filler: { text: 'Einen Moment.', atMs: 1010.5 } });
    expect(it.cost).toEqual({ cpu_ms: 12.5, gpu_ms: 40, wasted_ms: 2, stt_ms: 4.5, tts_ms: 48, filler_ms: 3 });
    expect(turn({ filler: 3, language: 4, cost: { llm: 'none' } })).toMatchObject({ language: null, filler: null, cost: {} });
  });

  it('has the filler, the language and what it cost', () => {
    const cost = { cpu_ms: 12.5, gpu_ms: 40, wasted_ms: 2, stt: { cpu_ms: 4.5, gpu_ms: 0 }, tts: { cpu_ms: 8, gpu_ms: 40 }, filler: { cpu_ms: 1, gpu_ms: 2 } };
    const it = turn({ transcript: 'wie spät ist es', language: 'de', filler: { text: 'Einen Moment.', at_ms: 1010.5 }, cost });
    expect(it).toMatchObject({ language: 'de', filler: { text: 'Einen Moment.', atMs: 1010.5 } });
    expect(it.cost).toEqual({ cpu_ms: 12.5, gpu_ms: 40, wasted_ms: 2, stt_ms: 4.5, tts_ms: 48, filler_ms: 3 });
    expect(turn({ filler: 3, language: 4, cost: { llm: 'none' } })).toMatchObject({ language: null, filler: null, cost: {} });
  });

  it('names the workers that served it, where there are any', () => {
    const parts = [{ stage: 'stt', from_ms: 0, to_ms: 10 }, { stage: 'network', from_ms: 10, to_ms: 13 }, { stage: 'tts', from_ms: 13, to_ms: 20 }, { stage: 'network', from_ms: 20, to_ms: 24 }];
    const it = turn({ parts, voice_to_voice_ms: 24, stt_worker: 'north', tts_worker: 'south', retried: 2 });
    expect(valueOf(it, 'network')).toBe(7);
    expect(waterfall(it, true).lanes.map(({ stage }) => stage)).toEqual(['stt', 'tts', 'network']);
    expect(workerFacts(it)).toEqual([['stt worker', 'north'], ['tts worker', 'south'], ['failed attempts before', '2']]);
    expect(workerFacts(turn({}))).toEqual([]);
  });

  it('comes in pieces cut anywhere', () => {
    const text = ': hello\n\nevent: turn\nid: 3\ndata: {"a":\ndata: 1}\r\n\r\nevent:state\ndata:{}\r\rdata: plain\n\n';
    const expected = [
      { event: 'turn', data: '{"a":\n1}' },
      { event: 'state', data: '{}' },
      { event: 'message', data: 'plain' },
    ];
    for (let size = 1; size <= text.length; size += 1) {
      const reader = new SseReader();
      const found = [];
      for (let i = 0; i < text.length; i += size) found.push(...reader.push(text.slice(i, i + size)));
      expect(found, `pieces of ${size}`).toEqual(expected);
    }
  });
});

describe('numbers', () => {
  it('are written as people read them', () => {
    expect([0, 0.03, 0.42, 9.97, 312.4, 999.6, 2_340, 90_000].map(duration)).toEqual(['0 ms', '0 ms', '0.4 ms', '10 ms', '312 ms', '1.00 s', '2.34 s', '1.5 min']);
    expect([512, 2_048, 150 * 2 ** 20].map(bytes)).toEqual(['512 B', '2.0 KiB', '150 MiB']);
    expect([0, 0.004, 0.5, 0.9996, 1].map(percent)).toEqual(['0 %', '0.4 %', '50 %', '99.9 %', '100 %']);
    expect([fieldName('stt_decoder_ms'), fieldName('n_pauses'), fieldName('energy_fall_db')]).toEqual(['stt decoder', 'pauses', 'energy fall']);
    expect([fieldValue('wait_ms', 412), fieldValue('model_probability', 0.87), fieldValue('completeness', 0.6), fieldValue('wording', 'question'), fieldValue('n_pauses', 2)]).toEqual(['412 ms', '87 %', '60 %', 'question', '2']);
  });
});
