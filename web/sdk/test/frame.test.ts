// The binary frame, byte for byte.
import { describe, expect, it } from 'vitest';
import { FrameError, FrameKind, decodeFrame, encodeFrame } from '../src/protocol/frame';
import { floatFromPcm16, pcm16FromFloat } from '../src/protocol/pcm';

describe('frame', () => {
  it('lays the header out little endian, then the id, then the payload', () => {
    const bytes = encodeFrame({ kind: FrameKind.Reply, sequence: 0x01020304, sampleOffset: 0x0506, itemId: 'ab', payload: new Uint8Array([9, 8]) });
    expect([...bytes]).toEqual([2, 2, 0, 0, 4, 3, 2, 1, 6, 5, 0, 0, 0, 0, 0, 0, 97, 98, 9, 8]);
  });

  it('reads what it wrote, offsets beyond 32 bits too', () => {
    const frame = { kind: FrameKind.Microphone, sequence: 7, sampleOffset: 2 ** 40 + 480, itemId: '', payload: new Uint8Array([1, 2, 3]) };
    expect(decodeFrame(encodeFrame(frame).buffer)).toEqual(frame);
  });

  it('wraps the sequence number at 32 bits', () => {
    const bytes = encodeFrame({ kind: 1, sequence: 2 ** 32 + 5, sampleOffset: 0, itemId: '', payload: new Uint8Array() });
    expect(decodeFrame(bytes.buffer).sequence).toBe(5);
  });

  it('refuses what is no frame', () => {
    const cutId = new Uint8Array(16);
    cutId[0] = 2;
    cutId[1] = 4;
    const unknown = new Uint8Array(20).fill(0);
    unknown[0] = 9;
    for (const bytes of [new Uint8Array(15), cutId, unknown]) expect(() => decodeFrame(bytes.buffer)).toThrow(FrameError);
    expect(() => encodeFrame({ kind: 2, sequence: 0, sampleOffset: 0, itemId: 'x'.repeat(256), payload: cutId })).toThrow(FrameError);
  });
});

describe('pcm16', () => {
  it('goes there and back within one step', () => {
    const samples = Float32Array.from({ length: 200 }, (_, i) => Math.sin(i / 7) * 0.9);
    const back = floatFromPcm16(pcm16FromFloat(samples));
    expect(back.length).toBe(200);
    back.forEach((sample, i) => expect(Math.abs(sample - (samples[i] ?? 0))).toBeLessThan(2 / 32768));
  });

  it('clips, makes NaN silence and leaves an odd byte out', () => {
    expect([...floatFromPcm16(pcm16FromFloat(new Float32Array([2, -2, Number.NaN])))]).toEqual([32767 / 32768, -32767 / 32768, 0]);
    expect(floatFromPcm16(new Uint8Array([0, 64, 1])).length).toBe(1);
  });

  it('reads a payload that lies at an odd place of its buffer', () => {
    expect([...floatFromPcm16(new Uint8Array([7, 0, 64]).subarray(1))]).toEqual([0.5]);
  });
});
