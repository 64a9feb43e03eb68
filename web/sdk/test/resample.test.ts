// The resampler: right pitch and level, no seam, no mirror tones, any block length.
import { describe, expect, it } from 'vitest';
import { Framer } from '../src/audio/framer';
import { Resampler } from '../src/audio/resample';

const tone = (hz: number, rateHz: number, n: number) => Float32Array.from({ length: n }, (_, i) => Math.sin((2 * Math.PI * hz * i) / rateHz) * 0.5);

/** Feeds blocks of the lengths in turn until the input is used up. */
function inBlocks(resampler: Resampler, input: Float32Array, lengths: number[]): Float32Array {
  const out: number[] = [];
  for (let at = 0, i = 0; at < input.length; i++) {
    const length = lengths[i % lengths.length] ?? 128;
    out.push(...resampler.process(input.subarray(at, at + length)));
    at += length;
  }
  return Float32Array.from(out);
}

/** Level of one frequency, as the amplitude of a sine. */
function amplitude(signal: Float32Array, hz: number, rateHz: number): number {
  let re = 0;
  let im = 0;
  signal.forEach((sample, i) => {
    re += sample * Math.cos((2 * Math.PI * hz * i) / rateHz);
    im += sample * Math.sin((2 * Math.PI * hz * i) / rateHz);
  });
  return (2 * Math.hypot(re, im)) / signal.length;
}

describe('Resampler', () => {
  it.each([[48000, 24000], [44100, 24000], [24000, 48000], [24000, 44100], [16000, 24000]])('keeps a 1 kHz tone from %i to %i Hz', (from, to) => {
    const out = inBlocks(new Resampler(from, to), tone(1000, from, from), [128]);
    expect(Math.abs(out.length - to)).toBeLessThan(40);
    const middle = out.subarray(to * 0.1, to * 0.9);
    expect(amplitude(middle, 1000, to)).toBeCloseTo(0.5, 2);
    // All that is not the tone: 46 dB below it at least.
    const power = middle.reduce((sum, x) => sum + x * x, 0) / middle.length;
    expect(Math.abs(power - 0.125)).toBeLessThan(0.125 * 0.01);
  });

  it('gives the same samples however the input is cut', () => {
    const input = tone(700, 44100, 9000);
    const whole = new Resampler(44100, 24000).process(input);
    const cut = inBlocks(new Resampler(44100, 24000), input, [1, 128, 7, 441, 64]);
    expect(cut.length).toBe(whole.length);
    cut.forEach((sample, i) => expect(sample).toBeCloseTo(whole[i] ?? 9, 5));
  });

  it('takes away what the lower rate cannot carry', () => {
    const out = inBlocks(new Resampler(48000, 24000), tone(17000, 48000, 48000), [128]);
    expect(Math.max(...out.subarray(200, 20000).map(Math.abs))).toBeLessThan(0.002);
  });

  it('copies when the rates agree, and refuses rates that are none', () => {
    const input = tone(300, 24000, 50);
    const out = new Resampler(24000, 24000).process(input);
    expect(out).toEqual(input);
    expect(out.buffer).not.toBe(input.buffer);
    expect(() => new Resampler(0, 24000)).toThrow(RangeError);
  });
});

describe('Framer', () => {
  it('loses and doubles nothing', () => {
    const framer = new Framer(480);
    const input = Float32Array.from({ length: 2000 }, (_, i) => i);
    const frames = [...framer.push(input.subarray(0, 130)), ...framer.push(input.subarray(130))];
    expect(frames.map((frame) => frame.length)).toEqual([480, 480, 480, 480]);
    expect(frames.flatMap((frame) => [...frame])).toEqual([...input.subarray(0, 1920)]);
  });
});
