// What those who listen to the messages get, and that they disturb nothing.
import { expect, it, vi } from 'vitest';
import { FrameKind, encodeFrame } from '../src/protocol/frame';
import { Tap, type WireEvent } from '../src/session/tap';

it('shows events with their size in bytes, and frames of audio with their position', () => {
  const tap = new Tap();
  const seen: WireEvent[] = [];
  const end = tap.listen((event) => seen.push(event));
  tap.message('sent', '{"type":"é"}');
  tap.message('received', 'no JSON');
  const frame = encodeFrame({ kind: FrameKind.Reply, sequence: 1, sampleOffset: 480, itemId: 'item_1', payload: new Uint8Array(60) });
  tap.message('received', frame.buffer);
  // A view into a larger buffer, as a decoder may hand it over.
  tap.message('sent', new Uint8Array([0, ...frame]).subarray(1));
  tap.message('received', new ArrayBuffer(3));
  end();
  tap.message('sent', '{}');
  expect(seen.map(({ direction, bytes, event, text, audio }) => ({ direction, bytes, event, text, audio }))).toEqual([
    { direction: 'sent', bytes: 13, event: { type: 'é' }, text: '{"type":"é"}', audio: null },
    { direction: 'received', bytes: 7, event: null, text: 'no JSON', audio: null },
    { direction: 'received', bytes: 82, event: null, text: null, audio: { itemId: 'item_1', sampleOffset: 480 } },
    { direction: 'sent', bytes: 82, event: null, text: null, audio: { itemId: 'item_1', sampleOffset: 480 } },
    { direction: 'received', bytes: 3, event: null, text: null, audio: null },
  ]);
  expect(seen.every(({ atMs }) => atMs > 0)).toBe(true);
});

it('goes on when a listener fails', () => {
  const report = vi.fn();
  vi.stubGlobal('reportError', report);
  const tap = new Tap();
  const second = vi.fn();
  tap.listen(() => {
    throw new Error('broken');
  });
  tap.listen(second);
  tap.message('sent', '{}');
  expect([report.mock.calls.length, second.mock.calls.length]).toEqual([1, 1]);
  vi.unstubAllGlobals();
});
