// The loudspeaker's end of the worklet: which reports it passes on.
import { expect, it, vi } from 'vitest';
import type { PlaybackReport } from '../src/audio/messages';
import { Speaker } from '../src/audio/speaker';

it('passes on no report from before audio was discarded', async () => {
  const port = { onmessage: (_message: { data: Partial<PlaybackReport> }) => {}, postMessage: vi.fn() };
  vi.stubGlobal('AudioWorkletNode', class {
    port = port;
    connect = (node: unknown) => node;
  });
  const createGain = () => ({ connect: vi.fn() });
  const context = { createGain, audioWorklet: { addModule: async () => {} }, destination: null } as unknown as AudioContext;
  const report = vi.fn();
  const speaker = await Speaker.open(context, 'worklets.js', report);
  port.onmessage({ data: { nDiscards: 0, itemId: 'a' } });
  speaker.discard();
  port.onmessage({ data: { nDiscards: 0, itemId: 'a' } });
  port.onmessage({ data: { nDiscards: 1, itemId: null } });
  expect(report.mock.calls.map(([{ itemId }]) => itemId as unknown)).toEqual(['a', null]);
  expect(port.postMessage).toHaveBeenCalledWith({ kind: 'discard' });
  vi.unstubAllGlobals();
});
