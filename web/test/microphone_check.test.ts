// Microphones that are allowed after their sheet was closed: they are let go.
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { checkMicrophone } from '../src/session/microphone_check';
import { Recorder } from '../src/voices/recorder';

let stop: () => void;
let closed: AbortController;

beforeEach(() => {
  stop = vi.fn();
  closed = new AbortController();
  vi.stubGlobal('window', { isSecureContext: true, MediaRecorder: null });
  vi.stubGlobal('AudioContext', function () { return { close: async () => {} }; });
  const getUserMedia = async () => {
    closed.abort();
    return { getTracks: () => [{ stop }] };
  };
  vi.stubGlobal('navigator', { mediaDevices: { getUserMedia } });
});
afterEach(() => void vi.unstubAllGlobals());

it('the test of the settings', async () => {
  await expect(checkMicrophone(null, closed.signal)).rejects.toThrow();
  expect(stop).toHaveBeenCalledOnce();
});

it('the recording of a voice', async () => {
  await Recorder.start(1_000, closed.signal);
  expect(stop).toHaveBeenCalledOnce();
});
