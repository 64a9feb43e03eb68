// The client package, as it is built, in a real Chromium on a page that knows nothing but its interface. See `run.mjs` for
// what it needs. The page is served by a server in front of the hub, as a reverse proxy is; it is not one of the hub's pages,
// and has the policy that a test asks for in its address.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import { basename, join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, eventually, openPage, poll, say } from './browser.mjs';
import { ROOT } from './own_hub.mjs';

const { HUB_URL, QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');
const PACKAGE = join(ROOT, 'web/sdk');

const SCRIPT = `import { Conversation, phaseOf } from './package/index.js';
const asked = new URLSearchParams(location.search);
const calls = [];
const weather = {
  name: 'get_weather', description: 'Tells the present weather in a city.',
  parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  call: ({ city }) => (calls.push(city), { weather: 'sunny', degrees: 21 }),
};
const conversation = new Conversation({ hub: '/',
  tools: [weather], transport: asked.get('transport') ?? undefined,
  ...(asked.get('audio') === 'pcm16' ? { worklets: './package/worklets.js', codec: 'pcm16' } : {}),
});
const events = [];
conversation.onEvent(({ direction, bytes, event, audio }) => events.push({ direction, bytes, type: event?.type ?? (audio ? 'audio' : '?') }));
document.querySelector('#talk').onclick = () => conversation.talk();
document.querySelector('#ask').onclick = () => conversation.type('What is the weather in Paris?');
window.seen = () => ({
  ...conversation.state, phase: phaseOf(conversation.state), codec: conversation.codec, transport: conversation.transport,
  audible: conversation.sound.audibleSamples, calls, events,
});
await conversation.look();`;
const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self' ws:";
const PAGE = '<!doctype html><title>client</title><button id="talk">Talk</button><button id="ask">Ask</button><script type="module" src="./page.js"></script>';

const hub = new URL(HUB_URL);
let site;

/** What the hub is asked for, as one of its own pages would ask. */
const toHub = ({ url: path, method, headers }) => ({
  host: hub.hostname, port: hub.port, path, method,
  headers: { ...headers, host: hub.host, ...(headers.origin ? { origin: hub.origin } : {}) },
});

function answer(request, response) {
  const { pathname, searchParams } = new URL(request.url, 'http://any');
  if (!pathname.startsWith('/sdk/')) {
    const asked = http.request(toHub(request), (answered) => {
      response.writeHead(answered.statusCode, answered.headers);
      answered.pipe(response);
    });
    asked.on('error', () => response.destroy());
    return request.pipe(asked);
  }
  const policy = searchParams.has('audio') || searchParams.has('policy') ? { 'content-security-policy': POLICY } : {};
  const file = basename(pathname);
  const body = pathname === '/sdk/' ? PAGE : pathname === '/sdk/page.js' ? SCRIPT : readFileSync(join(PACKAGE, 'dist', file));
  response.writeHead(200, { 'content-type': pathname === '/sdk/' ? 'text/html' : 'text/javascript', ...policy }).end(body);
}

function upgrade(request, socket, head) {
  const asked = http.request(toHub(request));
  asked.on('upgrade', (answered, other, first) => {
    const lines = Object.entries(answered.headers).map(([name, value]) => `${name}: ${value}`);
    socket.write(['HTTP/1.1 101 Switching Protocols', ...lines, '', ''].join('\r\n'));
    socket.write(first);
    for (const [from, to] of [[socket, other], [other, socket]]) from.on('error', () => to.destroy()).pipe(to);
  });
  asked.on('error', () => socket.destroy());
  asked.end(head);
}

before(async () => {
  execFileSync('npm', ['run', 'build'], { cwd: PACKAGE, stdio: 'pipe' });
  site = http.createServer(answer).on('upgrade', upgrade);
  await new Promise((ready, failed) => site.once('error', failed).listen(0, '127.0.0.1', ready));
});
after(() => {
  site?.closeAllConnections();
  site?.close();
});

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const seen = (page) => page.evaluate(() => window.seen?.() ?? null);

async function open(t, options) {
  const { page, close } = await openPage(t, { url: `http://127.0.0.1:${site.address().port}`, path: '/sdk/', ...options });
  const until = (what, condition) =>
    poll(
      async () => condition((await seen(page)) ?? { captions: [], events: [], calls: [], audible: 0, voices: [] }),
      async () => `waited in vain for ${what}: ${JSON.stringify(await seen(page)).slice(0, 2_000)}`,
    );
  await until('the hub', ({ voices }) => voices.length > 0);
  return { page, close, until };
}

const isAnswered = ({ captions, audible }) => audible > 10_000 && captions.some((c) => c.role === 'assistant' && c.status === 'done');

for (const transport of ['websocket', 'webrtc']) {
  test(`the package converses by ${transport}, from a blob, and shows each message`, async (t) => {
    const { page, close, until } = await open(t, { voice: { question: QUESTION_WAV }, transport });
    await page.click('#talk');
    await until('an open microphone', ({ phase }) => phase === 'listening');
    await say(page, 'question');
    await until('the words of the user', ({ captions }) => captions.some((c) => c.role === 'user' && c.final && c.text !== ''));
    await until('an answer that was heard', isAnswered);
    await eventually(() => seen(page), ({ events, ...state }) => {
      assert.equal(state.transport, transport);
      assert.equal(state.problem, null);
      const has = (direction, type) => events.some((event) => event.direction === direction && event.type === type && event.bytes > 10);
      assert.ok(has('sent', 'session.update') && has('received', 'session.updated') && has('received', 'response.done'));
      // A call's audio and what was heard of it are the browser's and the hub's.
      const isSocket = transport === 'websocket';
      for (const [direction, type] of [['sent', 'audio'], ['received', 'audio'], ['sent', 'output_audio_buffer.played']]) assert.equal(has(direction, type), isSocket, type);
    });
    await close();
  });
}

test('a function of the page is called, and the answer uses its result', async (t) => {
  const { page, close, until } = await open(t, { refuse: true });
  await page.click('#ask');
  await until('a spoken answer', isAnswered);
  const { calls, events } = await eventually(() => seen(page), ({ captions }) => assert.match(captions.at(-1).text, /sunny/i));
  assert.deepEqual(calls.map((city) => city.toLowerCase()), ['paris']);
  assert.equal(events.filter(({ direction, type }) => direction === 'sent' && type === 'response.create').length, 2);
  await close();
});

test('a page that forbids blobs converses with the worklets as a file', async (t) => {
  const { page, close, until } = await open(t, { refuse: true, codec: 'pcm16' });
  await page.click('#ask');
  await until('a spoken answer', isAnswered);
  assert.equal((await seen(page)).codec, 'pcm16');
  await close();
});

test('without that file such a page learns what is wrong, and the session is not left half open', async (t) => {
  const { page, until } = await open(t, { refuse: true, path: '/sdk/?policy' });
  await page.click('#ask');
  await until('the problem', ({ problem }) => problem?.kind === 'audio-blocked');
  await until('no session', ({ link }) => link === 'off');
});
