// The two audio codecs of the extension socket: Opus through WebCodecs, or raw PCM16. Both have the
// same interface: samples in, payload out; payload in, chunks out, in order.

import { floatFromPcm16, pcm16FromFloat } from '../protocol/pcm.js';
import { WIRE_RATE_HZ } from '../protocol/frame.js';
import type { Chunk } from './queue.js';

export type Codec = 'opus' | 'pcm16';

const OPUS_RATE_HZ = 48_000;
const OPUS_BITS_PER_S = 32_000;
const FRAME_US = 20_000;

export interface MicrophoneEncoder {
  /** Sampling rate of the input of `encode`. */
  readonly rateHz: number;
  encode(samples: Float32Array<ArrayBuffer>): void;
  close(): void;
}

export interface ReplyDecoder {
  decode(itemId: string, offset: number, payload: Uint8Array): void;
  /** Calls back once the chunks of all payloads so far have been delivered. */
  afterAll(callback: () => void): void;
  /** Discards payloads that are not decoded yet. */
  reset(): void;
  close(): void;
}

const ENCODER: AudioEncoderConfig = {
  codec: 'opus',
  sampleRate: OPUS_RATE_HZ,
  numberOfChannels: 1,
  bitrate: OPUS_BITS_PER_S,
  // In-band error correction and the voice mode; the hub uses them to conceal lost packets.
  opus: { frameDuration: FRAME_US, application: 'voip', useinbandfec: true, packetlossperc: 5 } as OpusEncoderConfig,
};
const DECODER: AudioDecoderConfig = { codec: 'opus', sampleRate: OPUS_RATE_HZ, numberOfChannels: 1 };

/** Opus if the browser supports both directions, otherwise PCM16. */
export async function bestCodec(): Promise<Codec> {
  if (typeof AudioEncoder === 'undefined' || typeof AudioDecoder === 'undefined') return 'pcm16';
  try {
    const [encoder, decoder] = await Promise.all([
      AudioEncoder.isConfigSupported(ENCODER),
      AudioDecoder.isConfigSupported(DECODER),
    ]);
    return encoder.supported && decoder.supported ? 'opus' : 'pcm16';
  } catch {
    // A browser that does not know the shape of the configuration rejects it instead of reporting no support.
    return 'pcm16';
  }
}

export function microphoneEncoder(codec: Codec, send: (payload: Uint8Array) => void, fail: (cause: Error) => void): MicrophoneEncoder {
  return codec === 'opus' ? new OpusEncoder(send, fail) : new PcmEncoder(send);
}

export function replyDecoder(codec: Codec, play: (chunk: Chunk) => void, fail: (cause: Error) => void): ReplyDecoder {
  return codec === 'opus' ? new OpusDecoder(play, fail) : new PcmDecoder(play);
}

class PcmEncoder implements MicrophoneEncoder {
  readonly rateHz = WIRE_RATE_HZ;
  constructor(private readonly send: (payload: Uint8Array) => void) {}
  encode(samples: Float32Array): void {
    this.send(pcm16FromFloat(samples));
  }
  close(): void {}
}

class OpusEncoder implements MicrophoneEncoder {
  readonly rateHz = OPUS_RATE_HZ;
  readonly #encoder: AudioEncoder;
  #timestampUs = 0;

  constructor(send: (payload: Uint8Array) => void, fail: (cause: Error) => void) {
    this.#encoder = new AudioEncoder({
      output: (chunk) => {
        const packet = new Uint8Array(chunk.byteLength);
        chunk.copyTo(packet);
        send(packet);
      },
      error: fail,
    });
    this.#encoder.configure(ENCODER);
  }

  encode(samples: Float32Array<ArrayBuffer>): void {
    if (this.#encoder.state !== 'configured') return;
    const data = new AudioData({
      format: 'f32-planar',
      sampleRate: OPUS_RATE_HZ,
      numberOfFrames: samples.length,
      numberOfChannels: 1,
      timestamp: this.#timestampUs,
      data: samples,
    });
    this.#timestampUs += FRAME_US;
    this.#encoder.encode(data);
    data.close();
  }

  close(): void {
    if (this.#encoder.state !== 'closed') this.#encoder.close();
  }
}

class PcmDecoder implements ReplyDecoder {
  constructor(private readonly play: (chunk: Chunk) => void) {}
  decode(itemId: string, offset: number, payload: Uint8Array): void {
    this.play({ itemId, offset, rateHz: WIRE_RATE_HZ, samples: floatFromPcm16(payload) });
  }
  afterAll(callback: () => void): void {
    callback();
  }
  reset(): void {}
  close(): void {}
}

/** Decoding is asynchronous and in order, one output per packet: each output belongs to the oldest waiting entry. */
class OpusDecoder implements ReplyDecoder {
  readonly #decoder: AudioDecoder;
  #waiting: ({ itemId: string; offset: number } | (() => void))[] = [];
  #timestampUs = 0;

  constructor(
    private readonly play: (chunk: Chunk) => void,
    fail: (cause: Error) => void,
  ) {
    this.#decoder = new AudioDecoder({ output: (data) => this.#output(data), error: fail });
    this.#decoder.configure(DECODER);
  }

  decode(itemId: string, offset: number, payload: Uint8Array): void {
    if (this.#decoder.state !== 'configured') return;
    this.#waiting.push({ itemId, offset });
    const timestamp = this.#timestampUs;
    this.#timestampUs += FRAME_US;
    this.#decoder.decode(new EncodedAudioChunk({ type: 'key', timestamp, duration: FRAME_US, data: payload }));
  }

  afterAll(callback: () => void): void {
    this.#waiting.push(callback);
    this.#callBack();
  }

  reset(): void {
    this.#waiting = [];
    if (this.#decoder.state === 'closed') return;
    this.#decoder.reset();
    this.#decoder.configure(DECODER);
  }

  close(): void {
    this.#waiting = [];
    if (this.#decoder.state !== 'closed') this.#decoder.close();
  }

  #output(data: AudioData): void {
    const packet = this.#waiting.shift();
    const samples = new Float32Array(data.numberOfFrames);
    data.copyTo(samples, { planeIndex: 0, format: 'f32-planar' });
    const rateHz = data.sampleRate;
    data.close();
    if (packet && typeof packet !== 'function') this.play({ ...packet, rateHz, samples });
    this.#callBack();
  }

  #callBack(): void {
    for (let next = this.#waiting[0]; typeof next === 'function'; next = this.#waiting[0]) {
      this.#waiting.shift();
      next();
    }
  }
}
