// A recognizer for recordings that it knows: a server with /v1/audio/transcriptions that compares the loudness of what was said,
// 20 ms by 20 ms, with that of each recording, and answers with the words of the one it resembles most. A hub with
// `stt.engine = "openai"` hears by it and computes nothing, so that files of browser tests run side by side. It knows no words:
// what Whisper hears is tested in real_voice.test.mjs. `run.mjs` starts it for its hubs, tests/clients/run.py as a program:
//
//   node recognizer.mjs WORDS=FILE ...     prints its address; ends when its standard input does

import http from 'node:http';
import { fileURLToPath } from 'node:url';
import { parseWav, readWav } from './wav.mjs';

const FRAME_S = 0.02;
/** Frames quieter than this share of the loudest one are silence at an end. */
const SILENCE = 0.1;
/** Below this correlation an utterance is none of the recordings. A call may lose pieces of one. */
const RESEMBLES = 0.3;
/** Utterances of the tests have at most 60 s. */
const MAX_BYTES = 4_000_000;

export class Recognizer {
  #server = http.createServer((request, response) => void this.#answer(request, response));
  #known;

  /** `recordings`: [words, WAV file]. */
  constructor(recordings) {
    this.#known = recordings.map(([words, path]) => ({ words, envelope: envelopeOf(readWav(path)) }));
  }

  /** Returns the address up to and including /v1. */
  async start() {
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.#server.address().port}/v1`;
  }

  stop() {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #answer(request, response) {
    const json = (status, body) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (request.url !== '/v1/audio/transcriptions') return json(200, { object: 'list', data: [{ id: 'recordings', object: 'model' }] });
    const pieces = [];
    let length = 0;
    for await (const piece of request) {
      length += piece.length;
      if (length > MAX_BYTES) return json(413, { error: { message: `an utterance of more than ${MAX_BYTES} bytes` } });
      pieces.push(piece);
    }
    const body = Buffer.concat(pieces);
    const at = body.indexOf('RIFF');
    if (at < 0) return json(400, { error: { message: 'there is no WAV file' } });
    json(200, { text: this.#hear(envelopeOf(parseWav(body.subarray(at), 'the utterance'))), language: 'english' });
  }

  /** The words of the recording that resembles it most; none where no recording does. */
  #hear(envelope) {
    const likely = this.#known.map(({ words, envelope: known }) => ({ words, resemblance: resemblance(envelope, known) }));
    likely.sort((a, b) => b.resemblance - a.resemblance);
    return likely[0].resemblance >= RESEMBLES ? likely[0].words : '';
  }
}

/** The loudness of each frame, without the silence at both ends. */
function envelopeOf({ rateHz, samples }) {
  const n = Math.round(rateHz * FRAME_S);
  const frames = Array.from({ length: Math.floor(samples.length / n) }, (_, i) => {
    const frame = samples.subarray(i * n, (i + 1) * n);
    return Math.sqrt(frame.reduce((sum, sample) => sum + sample * sample, 0) / n);
  });
  const loudest = frames.reduce((most, frame) => Math.max(most, frame), 0);
  const isLoud = (frame) => frame > loudest * SILENCE;
  return frames.slice(Math.max(0, frames.findIndex(isLoud)), frames.findLastIndex(isLoud) + 1);
}

/** The highest correlation of two envelopes, of all ways to lay the shorter one over the longer one, by the share that it covers. */
function resemblance(one, other) {
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  if (short.length === 0) return 0;
  let best = 0;
  for (let at = 0; at <= long.length - short.length; at += 1) best = Math.max(best, correlation(short, long.slice(at, at + short.length)));
  return best * Math.sqrt(short.length / long.length);
}

function correlation(a, b) {
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  const meanA = mean(a);
  const meanB = mean(b);
  let product = 0;
  let squaresA = 0;
  let squaresB = 0;
  for (let i = 0; i < a.length; i += 1) {
    product += (a[i] - meanA) * (b[i] - meanB);
    squaresA += (a[i] - meanA) ** 2;
    squaresB += (b[i] - meanB) ** 2;
  }
  return squaresA === 0 || squaresB === 0 ? 0 : product / Math.sqrt(squaresA * squaresB);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const recordings = process.argv.slice(2).map((pair) => [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)]);
  const recognizer = new Recognizer(recordings);
  console.log(await recognizer.start());
  process.stdin.resume().once('end', () => recognizer.stop());
}
