// The page's own latency measure and the bar of the hub's timeline.
import { describe, expect, it } from 'vitest';
import { LoudTracker } from '../src/audio/loudness';
import type { ServerEvent } from '../src/protocol/events';
import { TurnClock, segments, shownLatency } from '../src/state/latency';

const started: ServerEvent = { type: 'input_audio_buffer.speech_started', item_id: 'u', audio_start_ms: 900 };
const stopped = (audio_end_ms: number): ServerEvent => ({ type: 'input_audio_buffer.speech_stopped', item_id: 'u', audio_end_ms });

describe('LoudTracker', () => {
  it('finds the last sample above 5 % of the peak', () => {
    const tracker = new LoudTracker();
    tracker.push([0, 0.8, 0.5, 0.03, 0.02], 0.1, 1.5);
    expect(tracker.lastLoud(1, 2)).toBeCloseTo(1.3);
    tracker.push([0.05], 0.1, 1.6);
    expect(tracker.lastLoud(1, 2)).toBeCloseTo(1.6);
    expect(tracker.lastLoud(1, 1.25)).toBeCloseTo(1.2);
  });

  it('hears nothing in silence', () => {
    const tracker = new LoudTracker();
    tracker.push([0.0005, 0.0004], 0.1, 1);
    expect(tracker.lastLoud(0, 2)).toBeNull();
  });

  it('forgets what is older than a long utterance', () => {
    const tracker = new LoudTracker();
    tracker.push([0.5], 0.02, 1);
    tracker.push([0.5], 0.02, 50);
    expect(tracker.lastLoud(0, 10)).toBeNull();
  });
});

describe('TurnClock', () => {
  it('measures from the last loud sample before the end the hub dated, once a turn', () => {
    const clock = new TurnClock();
    clock.heard(started, 11, 10);
    clock.heard(stopped(2000), 12.4, 10);
    const spans: unknown[] = [];
    const ms = clock.sounded(12.6, (span) => (spans.push(span), 12));
    expect(ms).toBeCloseTo(600);
    expect(spans).toEqual([{ fromS: 10, toS: 12.1 }]);
    expect(clock.sounded(13, () => 12)).toBeNull();
  });

  it('looks up to the arrival of the event when the date cannot be', () => {
    const clock = new TurnClock();
    clock.heard(started, 11, 10);
    clock.heard(stopped(99_000), 12.4, 10);
    clock.sounded(12.6, (span) => (expect(span.toS).toBe(12.4), null));
  });

  it('measures typed turns from the sending, and forgets a turn in which new speech began', () => {
    const clock = new TurnClock();
    clock.typed(5);
    expect(clock.sounded(5.25, () => null)).toBeCloseTo(250);
    clock.typed(6);
    clock.heard(started, 6.1, 0);
    expect(clock.sounded(6.3, () => 6)).toBeNull();
  });
});

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
