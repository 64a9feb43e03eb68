// The page's clock as the hub is told it.
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { HubClock, capturedMs, heardMs } from '../src/session/hub_clock';

describe('heardMs', () => {
  it('counts the delay of the output, by the timestamp where there is one', () => {
    const stamp = { contextTime: 2, performanceTime: 10_040 };
    expect(heardMs({ currentTime: 2.03, getOutputTimestamp: () => stamp }, 2.5, 10_060)).toBe(10_540);
    const none = { contextTime: 0, performanceTime: 0 };
    expect(heardMs({ currentTime: 2, outputLatency: 0.02, getOutputTimestamp: () => none }, 2.5, 10_000)).toBe(10_520);
    expect(heardMs({ currentTime: 2 }, 2.5, 10_000)).toBe(10_500);
    expect(capturedMs({ currentTime: 2 }, 1.5, 10_000)).toBe(9_500);
  });

  it('does not ask Firefox for the latency, which may stop the page', () => {
    vi.stubGlobal('navigator', { userAgent: 'Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0' });
    const asked = vi.fn();
    const context = { currentTime: 2, getOutputTimestamp: asked, get outputLatency() { return asked(), 0; } };
    expect(heardMs(context, 2.5, 10_000)).toBe(10_500);
    expect(asked).not.toHaveBeenCalled();
    vi.unstubAllGlobals();
  });
});

describe('HubClock', () => {
  let nowMs = 0;
  beforeEach(() => {
    vi.useFakeTimers();
    vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
  });
  afterEach(() => {
    vi.restoreAllMocks();
    vi.useRealTimers();
  });

  it('brings each answer back with the next ping, quickly at first', () => {
    const sent: object[] = [];
    const clock = new HubClock((event) => sent.push(event), () => 7, vi.fn());
    clock.begin();
    for (nowMs of [20, 40, 60, 80, 100]) clock.take({ type: 'antiphon.clock.pong', client_ms: 0, hub_ms: 0 });
    expect(sent).toHaveLength(4);
    expect(sent[0]).toEqual({ type: 'antiphon.clock.ping', client_ms: 0, microphone_ms: 7 });
    expect(sent[1]).toEqual({ type: 'antiphon.clock.ping', client_ms: 20, pong_ms: 20, microphone_ms: 7 });
    nowMs = 6_000;
    vi.advanceTimersByTime(5_000);
    expect(sent[4]).toMatchObject({ client_ms: 6_000, pong_ms: 100 });
    vi.advanceTimersByTime(5_000);
    expect(sent[5]).not.toHaveProperty('pong_ms');
    clock.stop();
    vi.advanceTimersByTime(20_000);
    expect(sent).toHaveLength(6);
  });

  it('misses a hub that answered before and does not any more', () => {
    const gone = vi.fn();
    const clock = new HubClock(() => {}, () => null, gone);
    clock.begin();
    vi.advanceTimersByTime(60_000);
    expect(gone, 'a server without pings is not missed').not.toHaveBeenCalled();
    clock.take({ type: 'antiphon.clock.pong', client_ms: 0, hub_ms: 0 });
    vi.advanceTimersByTime(9_000);
    expect(gone).not.toHaveBeenCalled();
    vi.advanceTimersByTime(60_000);
    expect(gone).toHaveBeenCalledTimes(1);
  });
});
