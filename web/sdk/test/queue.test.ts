// The playback queue, block by block, as the audio thread drives it.
import { describe, expect, it } from 'vitest';
import { PlaybackQueue } from '../src/audio/queue';

const RATE = 24_000;
/** 20 ms of a loud constant: any gap or leftover is plain to see. */
const frame = (itemId: string, index: number, value = 0.5) => ({ itemId, offset: index * 480, rateHz: RATE, samples: new Float32Array(480).fill(value) });

function render(queue: PlaybackQueue, samples: number): Float32Array {
  const out = new Float32Array(samples);
  for (let at = 0; at < samples; at += 120) queue.render(out.subarray(at, at + 120));
  return out;
}

describe('PlaybackQueue', () => {
  it('plays the first frame at once and says when it first sounded', () => {
    const queue = new PlaybackQueue(RATE);
    render(queue, 240);
    queue.push(frame('a', 0));
    const out = render(queue, 480);
    expect(out[200]).toBe(0.5);
    const report = queue.report();
    expect(report).toMatchObject({ itemId: 'a', playedSamples: 480 });
    expect(report.firstSounds).toEqual([{ itemId: 'a', atSample: 240 }]);
    expect(queue.report().firstSounds).toEqual([]);
  });

  it('reports the playhead in 24 kHz samples whatever the rates', () => {
    const queue = new PlaybackQueue(48_000);
    for (let i = 0; i < 10; i++) queue.push({ itemId: 'a', offset: 1000 + i * 480, rateHz: 48_000, samples: new Float32Array(960) });
    render(queue, 4800);
    expect(queue.report().playedSamples).toBe(1000 + 2400);
  });

  it('stops at once on pause, keeps what waits, and goes on', () => {
    const queue = new PlaybackQueue(RATE);
    for (let i = 0; i < 5; i++) queue.push(frame('a', i));
    render(queue, 480);
    queue.pause();
    const quiet = render(queue, 960);
    // A millisecond or two of fade, then nothing.
    expect(Math.max(...quiet.subarray(200).map(Math.abs))).toBe(0);
    expect(queue.report()).toMatchObject({ state: 'paused', playedSamples: 480, queuedMs: 80 });
    queue.resume();
    expect(render(queue, 480)[300]).toBe(0.5);
    expect(queue.report().playedSamples).toBe(960);
  });

  it('reports the end of an item that has no audio', () => {
    const queue = new PlaybackQueue(RATE);
    queue.push(frame('a', 0));
    queue.end('b');
    queue.end('a');
    expect(queue.report().finished).toEqual(['b']);
    render(queue, 480);
    expect(queue.report().finished).toEqual(['a']);
  });

  it('counts what ran dry in the middle of an item, and not its end', () => {
    const queue = new PlaybackQueue(RATE);
    queue.push(frame('a', 0));
    render(queue, 480 + 1200);
    expect(queue.report()).toMatchObject({ underruns: 0, underrunMs: 0 });
    queue.push(frame('a', 1));
    queue.end('a');
    render(queue, 480);
    expect(queue.report()).toMatchObject({ underruns: 1, underrunMs: 50, finished: ['a'] });
    render(queue, 2400);
    queue.push(frame('b', 0));
    render(queue, 240);
    expect(queue.report()).toMatchObject({ itemId: 'b', underruns: 0 });
  });

  it('says where an item was when it was flushed, once', () => {
    const queue = new PlaybackQueue(RATE);
    for (let i = 0; i < 5; i++) queue.push(frame('a', i));
    render(queue, 720);
    queue.flush();
    expect(queue.report().stopped).toEqual({ itemId: 'a', playedSamples: 720, underruns: 0, underrunMs: 0 });
    expect(queue.report().stopped).toBeNull();
  });

  it('flush drops everything and is ready for the next reply', () => {
    const queue = new PlaybackQueue(RATE);
    for (let i = 0; i < 5; i++) queue.push(frame('a', i));
    render(queue, 120);
    queue.pause();
    queue.flush();
    expect(Math.max(...render(queue, 960).subarray(200).map(Math.abs))).toBe(0);
    expect(queue.report()).toMatchObject({ state: 'empty', itemId: null, queuedMs: 0, finished: [] });
    queue.push(frame('b', 0));
    expect(render(queue, 240)[200]).toBe(0.5);
  });

  it('tells the end of an item once, whether its end is known before or after it played', () => {
    for (const early of [true, false]) {
      const queue = new PlaybackQueue(RATE);
      queue.push(frame('a', 0));
      if (early) queue.end('a');
      render(queue, 600);
      if (!early) queue.end('a');
      expect(queue.report()).toMatchObject({ finished: ['a'], playedSamples: 480, state: 'empty' });
      render(queue, 600);
      expect(queue.report().finished).toEqual([]);
    }
  });

  it('plays frames that come after the item was called complete', () => {
    const queue = new PlaybackQueue(RATE);
    queue.push(frame('a', 0));
    queue.end('a');
    render(queue, 480);
    queue.push(frame('a', 1));
    render(queue, 600);
    expect(queue.report()).toMatchObject({ playedSamples: 960 });
  });

  it('goes from one item to the next and counts each from its own start', () => {
    const queue = new PlaybackQueue(RATE);
    queue.push(frame('a', 0));
    queue.push(frame('b', 0));
    render(queue, 600);
    expect(queue.report()).toMatchObject({ itemId: 'b', playedSamples: 120, finished: ['a'] });
  });

  it('waits a little after it ran dry, but never for good', () => {
    const queue = new PlaybackQueue(RATE);
    queue.push(frame('a', 0));
    render(queue, 600);
    queue.push(frame('a', 1));
    // 20 ms wait, 40 are asked for: it holds back ...
    render(queue, 480);
    expect(queue.report()).toMatchObject({ state: 'filling', playedSamples: 480 });
    // ... and plays when that much time has passed without more.
    render(queue, 480 * 5);
    expect(queue.report().playedSamples).toBe(960);
  });

  it('refuses and counts what is over its bound', () => {
    const queue = new PlaybackQueue(RATE);
    for (let i = 0; i < 6100; i++) queue.push(frame('a', i));
    const { refused, queuedMs } = queue.report();
    expect(refused).toBeGreaterThan(90);
    expect(queuedMs).toBeLessThanOrEqual(120_020);
  });
});

describe('discarded audio', () => {
  it('is not heard, and nothing about it is reported', () => {
    const queue = new PlaybackQueue(RATE);
    queue.push(frame('a', 0));
    queue.push(frame('a', 1));
    queue.end('a');
    render(queue, 240);
    queue.discard();
    expect(render(queue, 480).at(-1)).toBeCloseTo(0, 3);
    expect(queue.report()).toMatchObject({ state: 'empty', itemId: null, stopped: null, finished: [], firstSounds: [], nDiscards: 1 });
    // The same item again sounds and ends as if it were the first time.
    queue.push(frame('a', 0));
    queue.end('a');
    render(queue, 600);
    expect(queue.report()).toMatchObject({ finished: ['a'], firstSounds: [{ itemId: 'a' }] });
  });
});
