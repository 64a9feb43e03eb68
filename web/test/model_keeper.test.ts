// "Get all": every model is tried, each failure has its name, and Cancel ends it.
import type { Conversation } from '@antiphon/client';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { modelKeeperOf } from '../src/models/keeper';

/** What each model's pull comes to; `wait`: nothing, until it is cancelled. */
let fates: Record<string, 'here' | 'failed' | 'wait'>;
let asked: string[];
let cancelled: () => void;

const model = (name: string) => ({
  name, stage: 'stt', title: name.toUpperCase(), licence: 'MIT', languages: [], serves: false, lacks: null,
  variants: [{ precision: 'fp32', state: done.has(name) ? 'whole' : 'absent', about_bytes: 5, unchecked_files: 0 }], pull: null,
});
let done: Set<string>;
const json = (value: unknown, status = 200) => new Response(JSON.stringify(value), { status });
const events = (state: object) => new Response(`event: pull\ndata: ${JSON.stringify(state)}\n\n`, { headers: { 'content-type': 'text/event-stream' } });

async function hub(url: URL, { method = 'GET' }: RequestInit = {}): Promise<Response> {
  const { pathname } = url;
  const [, name] = /models\/(\w+)\/pull/.exec(pathname) ?? [];
  if (name === undefined) return json(pathname.endsWith('/api/models') ? { may_change: true, stages: [], models: Object.keys(fates).map(model), recommended: Object.keys(fates) } : {});
  if (method !== 'GET') asked.push(`${method} ${name}`);
  if (method === 'POST') return json({ state: 'pulling', phase: 'asking', bytes: 0, total_bytes: 5 }, 202);
  if (method === 'DELETE') {
    cancelled();
    return new Response(null, { status: 204 });
  }
  if (fates[name] === 'wait') {
    await new Promise<void>((resolve) => (cancelled = resolve));
    return events({ state: 'failed', message: 'Cancelled.' });
  }
  if (fates[name] === 'here') done.add(name);
  return events(fates[name] === 'here' ? { state: 'done', serves: true, message: 'It serves.' } : { state: 'failed', message: `${name} cannot be reached` });
}

beforeEach(() => {
  asked = [];
  done = new Set();
  cancelled = () => {};
  vi.stubGlobal('document', { baseURI: 'http://hub.example/' });
  vi.stubGlobal('location', { hash: '' });
  vi.stubGlobal('sessionStorage', { getItem: () => null });
  vi.stubGlobal('fetch', hub);
});
afterEach(() => vi.unstubAllGlobals());

const keeperOf = () => modelKeeperOf({ look: async () => {} } as unknown as Conversation);

it('goes on after a failure, and says which it was', async () => {
  fates = { a: 'failed', b: 'here', c: 'failed' };
  const keeper = keeperOf();
  await keeper.look();
  await keeper.pullRecommended();
  expect(asked).toEqual(['POST a', 'POST b', 'POST c']);
  expect(keeper.failures).toEqual([{ title: 'A', message: 'a cannot be reached' }, { title: 'C', message: 'c cannot be reached' }]);
  expect(keeper.isGettingAll).toBe(false);
  fates = { a: 'here', b: 'here', c: 'here' };
  await keeper.pullRecommended();
  expect(asked.slice(3)).toEqual(['POST a', 'POST c']);
  expect(keeper.failures).toEqual([]);
});

it('forgets an error when a view opens again, and not while a download ends', async () => {
  fates = { a: 'here' };
  const keeper = keeperOf();
  vi.stubGlobal('fetch', async () => {
    throw new TypeError('no hub');
  });
  await keeper.look();
  expect(keeper.fault).toBe('The hub does not answer.');
  vi.stubGlobal('fetch', hub);
  await keeper.look();
  expect(keeper.fault).toBeNull();
  vi.stubGlobal('fetch', async (url: URL, init: RequestInit = {}) => (init.method === 'POST' && url.pathname.endsWith('/api/llm/servers') ? json({ error: { message: 'It is gone.' } }, 404) : hub(url, init)));
  const pull = keeper.pull('a');
  await keeper.connectLlm(11434, 'llama');
  await pull;
  expect(keeper.fault).toBe('It is gone.');
});

it('does not ask again at once where the hub takes no more listeners', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  let follows = 0;
  vi.stubGlobal('fetch', async (url: URL) => {
    if (url.pathname.endsWith('/api/models')) return json({ may_change: false, stages: [], models: [{ ...model('a'), pull: { state: 'loading' } }], recommended: [] });
    follows += 1;
    return json({}, 503);
  });
  fates = {};
  await keeperOf().look();
  const rest = () => new Promise((done) => setImmediate(done));
  for (let i = 0; i < 100; i += 1) await rest();
  expect(follows).toBe(1);
  vi.advanceTimersByTime(2_000);
  while (follows < 2) await rest();
  vi.useRealTimers();
});

it('ends when it is cancelled, which is no failure', async () => {
  fates = { a: 'wait', b: 'here' };
  const keeper = keeperOf();
  await keeper.look();
  const all = keeper.pullRecommended();
  await vi.waitFor(() => expect(keeper.models?.models[0]?.pull?.state).toBe('pulling'));
  await vi.waitFor(() => expect(cancelled.name).not.toBe('cancelled'));
  expect(keeper.isGettingAll).toBe(true);
  await keeper.cancel('a');
  await all;
  expect(asked).toEqual(['POST a', 'DELETE a']);
  expect([keeper.isGettingAll, keeper.failures]).toEqual([false, []]);
});

it('keeps what a change came to, where an older look is answered later', async () => {
  const active = (connected: boolean) => ({ engine: connected ? 'openai' : 'assistant', model: connected ? 'llama' : null, base_url: null, connected, settings: null });
  let isConnected = true;
  let answerFirst = (): void => {};
  let looks = 0;
  vi.stubGlobal('fetch', async (_: URL, { method = 'GET' }: RequestInit = {}) => {
    if (method === 'DELETE') {
      isConnected = false;
      return json({ active: active(false) });
    }
    looks += 1;
    const seen = json({ active: active(isConnected), servers: [] });
    if (looks === 1) await new Promise<void>((resolve) => (answerFirst = resolve));
    return seen;
  });
  const keeper = keeperOf();
  const look = keeper.lookForLlm();
  await keeper.disconnectLlm();
  answerFirst();
  await look;
  expect(keeper.llm?.active.connected).toBe(false);
  expect(looks).toBe(2);
});
