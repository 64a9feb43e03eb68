// What was said last, kept for a recognizer that failed.
import { describe, expect, it } from 'vitest';
import { RecentAudio } from '../src/audio/recent';
import { floatFromPcm16 } from '../src/protocol/pcm';

const FRAME = 480;
const samplesOf = (audio: string) => floatFromPcm16(Uint8Array.from(atob(audio), (byte) => byte.charCodeAt(0)));

/** `n` frames at 24 kHz; every sample of frame i is i / 10 000. */
function filled(n: number): RecentAudio {
  const recent = new RecentAudio(24_000);
  for (let i = 0; i < n; i++) recent.push(new Float32Array(FRAME).fill(i / 10_000));
  return recent;
}

describe('the recent audio', () => {
  it('gives the stretch that was spoken, with a little around it', async () => {
    // 100 frames were captured, and the 80 newest of them sent: the stream begins at frame 20.
    const samples = samplesOf((await filled(100).recording(400, 800, 1_600)) ?? '');
    const frames = Array.from({ length: samples.length / FRAME }, (_, i) => Math.round((samples[i * FRAME] ?? 0) * 10_000));
    expect(frames[0]).toBe(20 + 20 - 5);
    expect(frames.at(-1)).toBe(20 + 40 + 10 - 1);
  });

  it('has nothing where the beginning is kept no more', async () => {
    expect(await filled(10).recording(0, 100, 60_000)).toBeNull();
    expect(await filled(0).recording(0, 100, 0)).toBeNull();
    expect(samplesOf((await filled(2_000).recording(39_000, null, 40_000)) ?? '')).toHaveLength(55 * FRAME);
  });
});
