// The bar of a turn's timeline.
import { describe, expect, it } from 'vitest';
import { segments, shownLatency } from '../src/state/latency';

describe('segments', () => {
  const marks = { speech_end: 0, end_confirmed: 200, stt_final: 210, llm_first_token: 230, first_chunk: 240, tts_first_audio: 260, first_audio_sent: 262 };

  it('splits the turn and gives the rest to the way back', () => {
    const found = segments(marks, 300);
    expect(found.map(({ key, ms }) => [key, ms])).toEqual([['wait', 200], ['hear', 10], ['think', 20], ['phrase', 10], ['voice', 20], ['send', 2], ['play', 38]]);
    expect(found.reduce((sum, { ms }) => sum + ms, 0)).toBe(300);
  });

  it('shows the way to a worker as a segment behind its stage, at most as long', () => {
    const found = segments(marks, null, { stt_network_ms: 12, tts_network_ms: 5 });
    expect(found.map(({ key, ms }) => [key, ms])).toEqual([['wait', 200], ['hop', 10], ['think', 20], ['phrase', 10], ['voice', 15], ['hop', 5], ['send', 2]]);
  });

  it('leaves out marks that are missing or were made early, on a guess', () => {
    const found = segments({ end_confirmed: 200, stt_final: 120, llm_first_token: 150, first_audio_sent: 215 }, null);
    expect(found.map(({ key, ms }) => [key, ms])).toEqual([['wait', 200], ['send', 15]]);
    expect(segments(null, 300)).toEqual([]);
  });

  it('shows its own measure before the hub’s', () => {
    expect(shownLatency(marks, 301)).toBe(301);
    expect(shownLatency(marks, null)).toBe(262);
    expect(shownLatency(null, null)).toBeNull();
  });
});
