// The measure of a turn's latency.
import { describe, expect, it } from 'vitest';
import { LoudTracker } from '../src/audio/loudness';
import type { ServerEvent } from '../src/protocol/events';
import { TurnClock } from '../src/state/turn_clock';

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
