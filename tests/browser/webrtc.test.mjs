// WebRTC with OpenAI's agents SDK, unchanged, in a real Chromium on a page of a foreign origin. See `run.mjs` for what it needs;
// it starts a hub of its own, with a key.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, test as nodeTest } from 'node:test';
import { build } from 'esbuild';
import { TEST_TIMEOUT_MS, openPage, poll, say } from './browser.mjs';
import { OwnHub } from './own_hub.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const QUESTION_WAV = process.env.QUESTION_WAV;
const STORY_WAV = process.env.STORY_WAV ?? QUESTION_WAV;
const KEY = 'a-key-of-the-tests';

const voice = { question: QUESTION_WAV, story: STORY_WAV };

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

let hub;
let site;
let pageUrl;

before(async () => {
  const bundle = await build({
    entryPoints: [join(here, 'webrtc_page.mjs')],
    bundle: true,
    write: false,
    format: 'iife',
    platform: 'browser',
    define: { 'process.env.NODE_ENV': '"production"' },
    logLevel: 'error',
  });
  const script = bundle.outputFiles[0].text;
  site = createServer((request, response) => {
    const isScript = request.url.startsWith('/page.js');
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    response.end(isScript ? script : '<!doctype html><title>call</title><main>A call</main><script src="/page.js"></script>');
  });
  await new Promise((ready) => site.listen(0, '127.0.0.1', ready));
  pageUrl = `http://127.0.0.1:${site.address().port}`;
  hub = new OwnHub({ ANTIPHON_API_KEYS: KEY });
  await hub.start();
});

after(async () => {
  await hub?.stop();
  site?.close();
});

/** A page with the SDK, and a short-lived key. */
async function caller(t) {
  const answer = await fetch(`${hub.url}/v1/realtime/client_secrets`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ session: { type: 'realtime' } }),
  });
  assert.equal(answer.status, 200, await answer.clone().text());
  const { value } = await answer.json();
  const { page, close } = await openPage(t, { url: pageUrl, voice, shows: 'main' });
  const options = { url: `${hub.url}/v1/realtime/calls`, key: value };
  return { page, close, options };
}

const state = (page) =>
  page.evaluate(() => {
    const { events, errors, toolCalls, connectedAfterMs, callId, audibleMs, level } = window.call;
    return { events, errors, toolCalls, connectedAfterMs, callId, audibleMs, level };
  });

const types = (seen) => seen.events.map((event) => event.type);

async function until(page, what, condition) {
  await poll(
    async () => condition(await state(page)),
    async () => {
      const { events, ...rest } = await state(page);
      return `waited in vain for ${what}: ${JSON.stringify(rest)}; ${events.map((event) => event.type).join(' ')}`;
    },
  );
  return state(page);
}

test('a page of another origin connects, is heard and hears the answer', async (t) => {
  const { page, close, options } = await caller(t);
  await page.evaluate((options) => window.call.connect(options), options);
  await say(page, 'question');
  const connected = await state(page);
  assert.match(connected.callId, /^rtc_/);
  const seen = await until(page, 'an answer that was played', (seen) => types(seen).includes('output_audio_buffer.stopped') && seen.audibleMs > 300);
  // The answer is the last response: before it there may be one that calls the tool.
  // Whether it has begun to sound before it is complete is the machine's affair.
  for (const order of [
    ['session.created', 'session.updated', 'input_audio_buffer.speech_started', 'response.created', 'response.content_part.added', 'output_audio_buffer.started', 'output_audio_buffer.stopped'],
    ['response.created', 'response.content_part.added', 'response.done', 'output_audio_buffer.stopped'],
  ]) {
    const at = order.map((type) => (/^(session|input)/.test(type) ? types(seen).indexOf(type) : types(seen).lastIndexOf(type)));
    assert.ok(at.every((index, i) => index >= 0 && (i === 0 || at[i - 1] < index)), `${order} came as ${at} in ${types(seen).join(' ')}`);
  }
  assert.ok(!types(seen).some((type) => type.startsWith('antiphon.') || type === 'response.output_audio.delta'), types(seen).join(' '));
  const transcript = seen.events.find((event) => event.type === 'conversation.item.input_audio_transcription.completed');
  assert.match(transcript.transcript, /time/i);
  assert.deepEqual(seen.errors, []);
  assert.deepEqual(seen.toolCalls, ['get_time']);
  console.log(`# connected after ${Math.round(connected.connectedAfterMs)} ms, audible for ${seen.audibleMs} ms`);
  await close();
});

test('an interruption stops the answer, clears the buffer and truncates what was not played', async (t) => {
  const { page, close, options } = await caller(t);
  // The page interrupts by itself: on a slow machine the answer would be over before the test has seen it begin.
  await page.evaluate((options) => window.call.connect({ ...options, interruptAfterMs: 800 }), options);
  await say(page, 'story');
  const seen = await until(page, 'a truncated item and an empty buffer', (seen) => ['conversation.item.truncated', 'output_audio_buffer.cleared'].every((type) => types(seen).includes(type)));
  const heardMs = seen.audibleMs;
  const { audio_end_ms: endMs } = seen.events.find((event) => event.type === 'conversation.item.truncated');
  console.log(`# truncated at ${endMs} ms; audible for ${heardMs} ms`);
  assert.ok(endMs > 500, `${endMs}`);
  await poll(async () => (await state(page)).level < 0.01, () => 'the answer goes on');
  const after = await state(page);
  assert.ok(!types(after).includes('output_audio_buffer.stopped'), types(after).join(' '));
  assert.deepEqual(after.errors, []);
  await close();
});

test('where UDP is blocked, the call goes by TCP', async (t) => {
  const { page, close, options } = await caller(t);
  await page.evaluate((options) => window.call.connect(options), { ...options, tcpOnly: true });
  await say(page, 'question');
  await until(page, 'an answer that was played', (seen) => types(seen).includes('output_audio_buffer.stopped') && seen.audibleMs > 300);
  const { pair, 'remote-candidate': remote } = await page.evaluate(() => window.call.statistics());
  assert.equal(remote.find((candidate) => candidate.id === pair.remoteCandidateId).protocol, 'tcp');
  await close();
});

test('a hang-up ends the call for its page', async (t) => {
  const { page, close, options } = await caller(t);
  await page.evaluate((options) => window.call.connect(options), options);
  const { callId } = await state(page);
  const hangUp = () =>
    fetch(`${hub.url}/v1/realtime/calls/${callId}/hangup`, { method: 'POST', headers: { authorization: `Bearer ${KEY}` } });
  assert.equal((await hangUp()).status, 200);
  await poll(() => page.evaluate(() => window.call.peer.connectionState !== 'connected'), () => 'the page is still connected');
  assert.equal((await hangUp()).status, 404);
  await close();
});
