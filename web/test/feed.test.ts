// The dashboard's feed on made-up answers of a hub.
import { afterEach, expect, it, vi } from 'vitest';
import type { Line } from '../src/dashboard/data/book';
import { Feed } from '../src/dashboard/feed';

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

it('connects again where the hub dropped updates and refuses the list', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const lists = [200, 429, 200];
  const streams: ReadableStreamDefaultController<Uint8Array>[] = [];
  vi.stubGlobal('location', { hash: '' });
  vi.stubGlobal('sessionStorage', { getItem: () => null, setItem: () => {} });
  vi.stubGlobal('document', { baseURI: 'https://hub.example/' });
  vi.stubGlobal('window', new EventTarget());
  vi.stubGlobal('fetch', async (url: URL) => {
    if (url.pathname === '/api/turns/live') return new Response(new ReadableStream<Uint8Array>({ start: (stream) => void streams.push(stream) }));
    return new Response(JSON.stringify({ turns: [], capacity: 10, has_more: false }), { status: lists.shift() ?? 500 });
  });
  const feed = new Feed();
  const reaches = async (kind: Line['kind']) => {
    while (feed.book.line.kind !== kind) await new Promise((done) => setImmediate(done));
  };
  feed.start();
  await reaches('live');
  streams[0]?.enqueue(new TextEncoder().encode('event: missed\ndata: {}\n\n'));
  await reaches('gone');
  vi.advanceTimersByTime(1_000);
  await reaches('live');
  expect([lists, streams.length]).toEqual([[], 2]);
  feed.stop();
});
