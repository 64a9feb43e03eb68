// The inspector's microphone that is disconnected.
import { afterEach, expect, it, vi } from 'vitest';
import { Talk, type TalkState } from '../src/inspector/talk';

class AudioNodeStub {
  gain = { value: 1 };
  port = { onmessage: null, postMessage: () => {} };
  connect = () => this;
  disconnect = () => {};
}

afterEach(() => void vi.unstubAllGlobals());

it('ends the talk, so that its button begins another one as the notice says', async () => {
  let disconnect = (): void => {};
  const close = vi.fn(async () => {});
  const node = () => new AudioNodeStub();
  const audioWorklet = { addModule: async () => {} };
  const context = { state: 'running', audioWorklet, createGain: node, createMediaStreamSource: node, addEventListener: () => {}, removeEventListener: () => {}, resume: async () => {}, close };
  const track = { enabled: true, stop: () => {}, addEventListener: (_: string, listener: () => void) => void (disconnect = listener) };
  const stream = { getTracks: () => [track], getAudioTracks: () => [track] };
  vi.stubGlobal('window', { isSecureContext: true });
  vi.stubGlobal('AudioContext', function () { return context; });
  vi.stubGlobal('AudioWorkletNode', AudioNodeStub);
  vi.stubGlobal('navigator', { mediaDevices: { getUserMedia: async () => stream } });
  const states: TalkState[] = [];
  const talk = new Talk(() => true, (state) => states.push(state));
  await talk.toggle();
  expect(states.at(-1)).toMatchObject({ phase: 'on', fault: null });
  disconnect();
  expect(states.at(-1)).toMatchObject({ phase: 'off', fault: expect.stringContaining('Press “Talk”') as string });
  expect(close).toHaveBeenCalledOnce();
});
