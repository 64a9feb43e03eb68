// Made-up turns behind the real page: a small HTTP server that answers `/api/...` itself and takes
// all else from a running hub. For what a real hub cannot be made to show on demand: hundreds of
// turns of every kind, a GPU, deep queues, a lost line. The numbers are made up and the same in each run.
//
// By hand, to look at the dashboard: HUB_URL=http://127.0.0.1:8080 node stand_in.mjs

import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { Cable } from './cable.mjs';

const ASKED = [
  ['What time is it?', 'It is ten to three in the afternoon.'],
  ['How many feet are in a mile?', 'There are 5280 feet in a mile.'],
  ['Tell me a story about a lighthouse keeper.', 'There was once a keeper who lit his lamp every evening, though no ship had passed for years. One night a small boat came, and its one sailor asked him why he had never stopped.'],
  ['Yes.', 'Good. Then I go on.'],
  ['What is twelve times seven, and how do you know that without a pencil at hand?', 'Twelve times seven is 84. Ten times seven is 70, twice seven is 14.'],
  ['Spell onomatopoeia.', 'O, N, O, M, A, T, O, P, O, E, I, A.'],
];

/** The same numbers in each run (mulberry32). */
function chance(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const round = (ms) => Math.round(ms * 1000) / 1000;

/** One made-up turn. `seed` decides everything about it. */
export function madeUpTurn(seed, startedAt) {
  const random = chance(seed);
  const between = (low, high) => low + (high - low) * random();
  const [transcript, reply] = ASKED[Math.floor(random() * ASKED.length)];
  const kind = random() < 0.12 ? 'typed' : 'speech';
  const failed = random() < 0.03;
  const isSpeculative = kind === 'speech' && random() < 0.6;
  const slow = random() < 0.06 ? 6 : 1;
  const lengths = {
    endpointing: kind === 'typed' ? 0 : between(isSpeculative ? 130 : 200, isSpeculative ? 260 : 500),
    stt: kind === 'typed' || isSpeculative ? 0 : between(4, 40),
    queue: random() < 0.1 ? between(5, 90) : 0,
    llm: isSpeculative ? 0 : between(30, 220) * slow,
    chunking: between(2, 40),
    tts: between(8, 60) * slow,
    sending: between(0.4, 3),
    playback: between(20, 60),
  };
  const parts = [];
  let at = 0;
  for (const [stage, length] of Object.entries(lengths)) {
    if (length === 0) continue;
    parts.push({ stage, from_ms: round(at), to_ms: round(at + length), speculation: isSpeculative && stage === 'chunking' ? 0 : null });
    at += length;
  }
  const total = failed ? null : round(at);
  const end = (stage) => parts.find((part) => part.stage === stage)?.to_ms;
  const speculations = isSpeculative ? [{ from_ms: 96, to_ms: round(lengths.endpointing), outcome: random() < 0.8 ? 'confirmed' : 'changed' }] : [];
  if (kind === 'speech' && random() < 0.2) speculations.unshift({ from_ms: -900, to_ms: -640, outcome: 'resumed' });
  const bargedIn = !failed && random() < 0.12;
  const heard = bargedIn ? reply.slice(0, Math.floor(reply.length * between(0.2, 0.8))) : reply;
  const stages = [
    ...(kind === 'speech' ? [{ stage: 'stt', from_ms: -1400, to_ms: round(lengths.endpointing + lengths.stt), speculation: null }] : []),
    ...speculations.map(({ from_ms, to_ms }, speculation) => ({ stage: 'llm', from_ms: from_ms + 6, to_ms: Math.min(to_ms, from_ms + 150), speculation })),
    ...speculations.map(({ from_ms, to_ms }, speculation) => ({ stage: 'tts', from_ms: Math.min(to_ms, from_ms + 150), to_ms, speculation })),
    ...parts,
    ...(failed ? [] : [{ stage: 'llm', from_ms: round(at - 60), to_ms: round(at + 300), speculation: null }, { stage: 'tts', from_ms: round(at - 30), to_ms: round(at + 500), speculation: null }]),
  ];
  return {
    id: `turn_${String(seed).padStart(6, '0')}`,
    session_id: `sess_${seed % 7}`,
    turn: seed,
    started_at: new Date(startedAt).toISOString(),
    kind,
    status: failed ? 'failed' : bargedIn ? 'cancelled' : 'completed',
    error: failed ? 'The language model did not answer in time.' : null,
    barged_in: bargedIn,
    transcript,
    reply: failed ? null : reply,
    heard: failed ? null : heard,
    marks: { speech_end: 0, end_confirmed: end('endpointing'), stt_final: end('stt'), llm_first_token: end('llm'), first_chunk: end('chunking'), tts_first_audio: end('tts'), first_audio_sent: end('sending'), ...(failed ? {} : { first_audio_heard: total }) },
    voice_to_voice_ms: total,
    heard_by: failed ? null : random() < 0.7 ? 'report' : 'estimate',
    parts: failed ? parts.slice(0, 3) : parts,
    stages,
    waits: { stt_decoder_ms: round(lengths.queue) },
    speculations,
    wasted_ms: speculations.filter(({ outcome }) => outcome !== 'confirmed').length * 41.5,
    endpointing: kind === 'typed' ? null : { probability: 0.87, wait_ms: round(lengths.endpointing), spoken_ms: 1480, wording: 'question', energy_fall_db: 11.2, pitch_fall_semitones: 2.1, n_pauses: 1, typical_pause_ms: 320 },
    audio: { generated_ms: 2400, sent_ms: 2400, heard_ms: bargedIn ? 900 : 2400, n_underruns: 0, underrun_ms: 0 },
    engines: { vad: 'earshot', stt: 'openai', llm: 'assistant', tts: 'flite' },
    usage: { input_tokens: 84, output_tokens: 17 },
  };
}

export function madeUpState(at, { gpu = null, depth = 0, turns = 0, cluster = null } = {}) {
  const wave = Math.sin(at / 20_000);
  return {
    at: new Date(at).toISOString(),
    sessions: 4 + Math.round(3 * wave),
    connections: 5 + Math.round(3 * wave),
    queues: { stt_waiting: depth, tts_waiting: Math.max(0, Math.round(2 * wave)) },
    engines: { vad: 'earshot', stt: 'openai', llm: 'assistant', tts: 'flite' },
    process: { cpu_percent: 24 + 9 * wave, memory_bytes: 142_000_000 + 4_000_000 * wave },
    gpu,
    counters: { turns, responses: turns, errors: 3, barge_ins: 12, speculative_responses: 96, speculative_responses_confirmed: 71, speculation_wasted_seconds: 1.04 },
    ...(cluster === null ? {} : { cluster }),
  };
}

/** Two hubs, and workers of every kind. */
export function madeUpCluster() {
  const hub = { build: '0.5.0', is_this: false, draining: false, sessions: 31, max_sessions: 200, up_ms: 7_400_000, clock_offset_ms: 4 };
  const worker = { build: '0.5.0', protocol: '1.0', draining: false, refused: null, up_ms: 720_000, silent_ms: 80, clock_offset_ms: 2, in_use: 3 };
  const stage = (stage, model, slots, in_flight, wait_ms) => ({ stage, engine: model, model, voices: 3, slots, in_flight, service_ms: 110, wait_ms, rate_hz: 24_000 });
  return {
    connected: true,
    since_ms: 7_400_000,
    server: 'nats-1',
    server_version: '2.15.1',
    hubs: [{ ...hub, id: 'a1', name: 'east', is_this: true }, { ...hub, id: 'b2', name: 'west-with-quite-a-long-name.example', draining: true, clock_offset_ms: -3_400 }],
    workers: [
      { ...worker, id: 'c3', name: 'gpu-1', stages: [stage('stt', 'whisper: large-v3-turbo', 8, 3, 0), stage('tts', 'kokoro:fp16', 16, 19, 84.2), stage('turn', 'smart-turn', 4, 0, 0)] },
      { ...worker, id: 'd4', name: 'gpu-2', draining: true, silent_ms: 940, stages: [stage('tts', 'kokoro:fp16', 16, 2, 0)] },
      { ...worker, id: 'e5', name: 'from-the-future', build: '0.9.0', protocol: '2.0', refused: 'it speaks protocol 2.0; this hub speaks 1.0', stages: [] },
    ],
    lost: [{ name: 'gpu-3', id: 'f6', ago_ms: 42_000, why: 'its connection ended' }],
    attempts: 4_711,
    busy: 12,
    retried: 9,
    failed: 1,
    away: 0,
  };
}

/** `key`: what it wants, null for none. `isLimited`: it takes no more requests. `state`: options of `madeUpState`. */
export class StandIn {
  #cable;
  #server;
  #streams = new Set();
  turns = [];
  /** Recordings of turns, WAV by the turn's id. */
  sounds = new Map();
  key = null;
  isLimited = false;
  state = {};

  constructor(hubUrl) {
    this.#cable = new Cable(hubUrl);
  }

  /** @returns its address */
  async start(port = 0) {
    await this.#cable.plug();
    this.#server = http.createServer((request, response) => this.#answer(request, response));
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(port, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  async stop() {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
    await this.#cable.unplug();
  }

  /** Turns of the last `minutes`, the newest a few seconds old. */
  fill(n, minutes, now = Date.now()) {
    for (let i = 0; i < n; i += 1) this.turns.push(madeUpTurn(i + 1, now - 4_000 - ((n - 1 - i) / Math.max(1, n - 1)) * minutes * 60_000));
  }

  tell(event, body) {
    for (const stream of this.#streams) stream.write(`event: ${event}\ndata: ${JSON.stringify(body)}\n\n`);
  }

  /** Adds a turn, or a new version of one, and tells those who listen. */
  happen(turn) {
    this.turns = [...this.turns.filter(({ id }) => id !== turn.id), turn];
    this.tell('turn', turn);
  }

  tick(at = Date.now()) {
    this.tell('state', madeUpState(at, { turns: this.turns.length, ...this.state }));
  }

  #answer(request, response) {
    const { pathname } = new URL(request.url, 'http://any');
    if (!pathname.startsWith('/api/')) {
      request.pipe(http.request(new URL(request.url, this.#cable.url), { method: request.method, headers: request.headers }, (answer) => answer.pipe(response.writeHead(answer.statusCode, answer.headers))).on('error', () => response.destroy()));
      return;
    }
    if (this.isLimited) {
      response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '1' }).end('{"error":{"type":"invalid_request_error"}}');
    } else if (this.key !== null && request.headers.authorization !== `Bearer ${this.key}`) {
      response.writeHead(401, { 'content-type': 'application/json' }).end('{"error":{"type":"invalid_request_error"}}');
    } else if (pathname === '/api/turns/live') {
      response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' }).flushHeaders();
      this.#streams.add(response);
      response.on('close', () => this.#streams.delete(response));
      this.tick();
    } else if (pathname === '/api/turns') {
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ turns: [...this.turns].reverse(), capacity: 1000 }));
    } else if (this.sounds.has(soundOf(pathname))) {
      response.writeHead(200, { 'content-type': 'audio/wav' }).end(this.sounds.get(soundOf(pathname)));
    } else {
      response.writeHead(404).end();
    }
  }
}

/** The turn of `/api/turns/{id}/audio`. */
const soundOf = (pathname) => /^\/api\/turns\/([^/]+)\/audio$/.exec(pathname)?.[1];

/** Turn by turn, as they would come from a hub in use. */
async function play(hubUrl, port) {
  const standIn = new StandIn(hubUrl);
  standIn.fill(240, 40);
  console.log(`dashboard with made-up turns: ${await standIn.start(port)}dashboard`);
  setInterval(() => standIn.tick(), 1_000);
  for (let seed = 1_000; ; seed += 1) {
    const turn = madeUpTurn(seed, Date.now());
    const begun = { ...turn, status: 'answering', reply: null, heard: null, voice_to_voice_ms: null, parts: [], stages: turn.stages.slice(0, 1), marks: { speech_end: 0 } };
    standIn.happen(begun);
    await new Promise((done) => setTimeout(done, 700));
    standIn.happen(turn);
    await new Promise((done) => setTimeout(done, 3_000));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await play(process.env.HUB_URL ?? 'http://127.0.0.1:8080', Number(process.env.PORT ?? 0));
