// The cluster on the dashboard: what is read of it, and what is said about it.
import { describe, expect, it } from 'vitest';
import { type Book, emptyBook, enter } from '../src/dashboard/data/book';
import { type Worker, clusterFrom } from '../src/dashboard/data/cluster';
import { type Turn, pageFrom, stateFrom, turnFrom } from '../src/dashboard/data/turn';
import { age, clockNote, linkWords, modelWarning, workerWarnings } from '../src/dashboard/data/words';

const at = '2026-03-01T12:00:00Z';

const STAGE = { stage: 'tts', engine: 'kokoro', model: 'kokoro-82m', voices: 4, slots: 8, in_flight: 3, service_ms: 90, wait_ms: 12.5, rate_hz: 24_000 };
const WORKER = { name: 'north', id: 'b2', build: '0.5.0', protocol: '1.0', draining: false, refused: null, up_ms: 60_000, silent_ms: 120, clock_offset_ms: 3, in_use: 1, stages: [STAGE] };
const HUB = { name: 'east', id: 'a1', build: '0.5.0', is_this: true, draining: false, sessions: 2, max_sessions: 200, up_ms: 90_000, clock_offset_ms: 0 };
const CLUSTER = {
  connected: true,
  since_ms: 65_000,
  server: 'nats-1',
  server_version: '2.15.1',
  hubs: [HUB],
  workers: [WORKER],
  lost: [{ name: 'south', id: 'c3', ago_ms: 5_000, why: 'no advert' }],
  attempts: 9,
  busy: 1,
  retried: 2,
  failed: 0,
  away: 0,
  stale: 4,
};

const read = (extra: Record<string, unknown> = {}) => {
  const cluster = clusterFrom({ at, cluster: { ...CLUSTER, ...extra } });
  if (!cluster) throw new Error('a cluster is one');
  return cluster;
};

const worker = (extra: Record<string, unknown>): Worker => {
  const [it] = read({ workers: [{ ...WORKER, ...extra }] }).workers;
  if (!it) throw new Error('a worker is one');
  return it;
};

describe('a cluster', () => {
  it('is read with its hubs, workers and counts', () => {
    const { hubs, workers, lost, counts, isConnected } = read();
    expect(isConnected).toBe(true);
    expect(hubs).toEqual([{ id: 'a1', name: 'east', build: '0.5.0', isThis: true, isDraining: false, sessions: 2, maxSessions: 200, upMs: 90_000, clockOffsetMs: 0 }]);
    expect(workers[0]).toMatchObject({ name: 'north', refused: null, silentMs: 120, stages: [{ stage: 'tts', model: 'kokoro-82m', slots: 8, inFlight: 3, waitMs: 12.5 }] });
    expect(lost).toEqual([{ id: 'c3', name: 'south', agoMs: 5_000, why: 'no advert' }]);
    expect(counts).toEqual({ attempts: 9, retried: 2, busy: 1, failed: 0, away: 0 });
  });

  it('is none where the hub is in none', () => {
    for (const body of [null, {}, { at }, { cluster: null }, { cluster: 'yes' }, { cluster: [] }]) expect(clusterFrom(body)).toBeNull();
  });

  it('is taken as far as it can be understood', () => {
    expect(clusterFrom({ cluster: {} })).toEqual({ isConnected: false, sinceMs: 0, server: '', serverVersion: '', hubs: [], workers: [], stageModels: [], lost: [], counts: {} });
    const { hubs, workers, lost } = read({ hubs: [{}, 3], workers: [{ stages: [{ stage: 'stt', engine: 'whisper', model: '' }, null] }], lost: 'none' });
    expect(hubs).toHaveLength(2);
    expect(hubs[0]).toMatchObject({ name: 'unnamed', sessions: 0, isThis: false });
    expect(workers[0]?.stages.map(({ stage, model }) => [stage, model])).toEqual([['stt', 'whisper'], ['unknown', '']]);
    expect(lost).toEqual([]);
  });
});

describe('what is said of it', () => {
  it('is the connection, and what it means that there is none', () => {
    expect(linkWords(read())).toBe('Connected to NATS (nats-1 2.15.1) for 1 min.');
    expect(linkWords(read({ server: `N${'A'.repeat(55)}` }))).toBe('Connected to NATS (2.15.1) for 1 min.');
    expect(linkWords(read({ connected: false, since_ms: 4_200 }))).toBe('Not connected to NATS for 4 s: this hub reaches neither workers nor other hubs.');
  });

  it('is a model of a stage that no worker serves while another may', () => {
    const model = (extra: Record<string, unknown>) => {
      const stage = { stage: 'stt', model: 'whisper-base', setting: 'cluster.stt_model', fallback: 'whisper-tiny', is_served: false, is_fallback_served: true, fallback_requests: 3, ...extra };
      return read({ stage_models: [stage] }).stageModels.map(modelWarning);
    };
    expect(model({})).toEqual(['No worker serves whisper-base, the model of stt; the fallback whisper-tiny takes its requests.']);
    expect(model({ is_fallback_served: false })).toEqual(['No worker serves whisper-base, the model of stt, nor the fallback whisper-tiny.']);
    expect(model({ is_served: true })).toEqual([null]);
    expect(model({ fallback: null })).toEqual([null]);
    expect(worker({ stages: [STAGE, { ...STAGE, is_fallback: true }] }).stages.map(({ isFallback }) => isFallback)).toEqual([false, true]);
  });

  it('is a clock that is more than 2 s off', () => {
    expect([0, 2_000, -2_000].map(clockNote)).toEqual([null, null, null]);
    expect(clockNote(3_500)).toBe("its clock is 3.50 s ahead of this hub's");
    expect(clockNote(-90_000)).toBe("its clock is 1.5 min behind this hub's");
  });

  it('is a worker that is refused, silent or has another time', () => {
    expect(workerWarnings(worker({ silent_ms: 500 }))).toEqual([]);
    expect(workerWarnings(worker({ silent_ms: 1_200, refused: 'it speaks protocol 2.0', clock_offset_ms: -5_000 }))).toEqual([
      'it speaks protocol 2.0',
      'not heard for 1.20 s',
      "its clock is 5.00 s behind this hub's",
    ]);
  });

  it('is a time in its largest unit', () => {
    expect([-1, 0, 59_999, 60_000, 3_599_999, 3_600_000, 86_400_000 * 3].map(age)).toEqual(['0 s', '0 s', '59 s', '1 min', '59 min', '1 h', '3 d']);
  });
});

describe('turns of several hubs', () => {
  const turn = (id: string, hub: string | null): Turn => {
    const made = turnFrom({ id, started_at: at, hub });
    if (!made) throw new Error('a turn with an id and a date is one');
    return made;
  };

  it('name their hub', () => {
    expect([turn('turn_1', 'east').hub, turn('turn_2', null).hub]).toEqual(['east', null]);
  });

  it('come in pages by the place that the hub names, else by the last turn', () => {
    const turns = [{ id: 'turn_1', started_at: at }];
    expect(pageFrom({ turns, has_more: true, next: 'turn_1@17', missing_hubs: ['west', 3] })).toMatchObject({ before: 'turn_1@17', missingHubs: ['west'] });
    expect(pageFrom({ turns, has_more: true })).toMatchObject({ before: 'turn_1', missingHubs: [] });
  });

  it('are kept while their hub does not reply', () => {
    const ids = (book: Book) => book.turns.map(({ id }) => id).sort();
    const before = enter(emptyBook, { kind: 'list', turns: [turn('e', 'east'), turn('w', 'west'), turn('s', 'south')], capacity: null });
    const after = enter(before, { kind: 'list', turns: [turn('e', 'east')], capacity: null, missingHubs: ['west'] });
    expect([ids(after), after.missingHubs]).toEqual([['e', 'w'], ['west']]);
    expect(enter(after, { kind: 'list', turns: [turn('e', 'east')], capacity: null })).toMatchObject({ missingHubs: [], turns: [{ id: 'e' }] });
  });

  it('stand beside the latest state of the cluster only', () => {
    const state = stateFrom({ at });
    if (!state) throw new Error('a state with a date is one');
    const book = enter(emptyBook, { kind: 'state', state, cluster: read() });
    expect(book.cluster?.workers).toHaveLength(1);
    expect(enter(book, { kind: 'state', state }).cluster).toBeNull();
  });
});
