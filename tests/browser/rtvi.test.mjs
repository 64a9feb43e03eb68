// RTVI with pipecat's own client, WebSocket and small-webrtc transports, unchanged, in a real Chromium on a page of a foreign origin. See `run.mjs`
// for what it needs; it starts a hub of its own, with a key.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { after, before, test as nodeTest } from 'node:test';
import { build } from 'esbuild';
import { TEST_TIMEOUT_MS, eventually, openPage, poll, say } from './browser.mjs';
import { OwnHub } from './own_hub.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const QUESTION_WAV = process.env.QUESTION_WAV;
const STORY_WAV = process.env.STORY_WAV ?? QUESTION_WAV;
const KEY = 'a-key-of-the-tests';

/** Silent until it is said: the question interrupts the story's answer once it sounds, however long that takes. */
const voice = { story: STORY_WAV, question: QUESTION_WAV };

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

let hub;
let site;
let pageUrl;

before(async () => {
  const options = { bundle: true, write: false, format: 'iife', platform: 'browser', logLevel: 'error' };
  const bundle = await build({ entryPoints: [join(here, 'rtvi_page.mjs')], ...options });
  const script = bundle.outputFiles[0].text;
  site = createServer((request, response) => {
    const isScript = request.url.startsWith('/page.js');
    response.setHeader('content-type', isScript ? 'text/javascript' : 'text/html');
    response.end(isScript ? script : '<!doctype html><title>bot</title><main>A bot</main><script src="/page.js"></script>');
  });
  await new Promise((ready) => site.listen(0, '127.0.0.1', ready));
  pageUrl = `http://127.0.0.1:${site.address().port}`;
  hub = new OwnHub({ ANTIPHON_API_KEYS: KEY, ANTIPHON_SERVER__ALLOWED_ORIGINS: pageUrl });
  await hub.start();
});

after(async () => {
  await hub?.stop();
  site?.close();
});

/** A short-lived key of these session settings. */
async function shortLived(session = {}) {
  const answer = await fetch(`${hub.url}/v1/realtime/client_secrets`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ session: { type: 'realtime', ...session } }),
  });
  assert.equal(answer.status, 200, await answer.clone().text());
  return (await answer.json()).value;
}

/** A page whose client is ready. `sound`: its microphone, options of `openPage`. */
async function bot(t, sound, session = {}) {
  const value = await shortLived(session);
  const { page, close } = await openPage(t, { url: pageUrl, ...sound, shows: 'main' });
  const url = `${hub.url.replace('http', 'ws')}/v1/rtvi`;
  const ready = await page.evaluate(([url, token]) => window.bot.connect(url, token), [url, value]);
  assert.match(ready.version, /^2\./);
  return { page, close };
}

const state = (page) => page.evaluate(() => window.bot.seen);
const types = (seen) => seen.events.map((event) => event.type);
const of = (seen, type) => seen.events.filter((event) => event.type === type).map((event) => event.data);

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

/** Asks for a story, and another question over its answer once that sounds. */
async function interrupt(page, sounds) {
  await say(page, 'story');
  await until(page, 'a sounding answer', (seen) => types(seen).includes('botStartedSpeaking') && sounds(seen));
  await say(page, 'question');
}

/** That these came in this order; others may lie between. */
function inOrder(seen, expected) {
  let from = 0;
  for (const type of expected) {
    const at = types(seen).indexOf(type, from);
    assert.ok(at >= 0, `no ${type} in its place in ${types(seen).join(' ')}`);
    from = at + 1;
  }
}

test('a page of another origin is ready, is heard and hears the answer', async (t) => {
  const { page, close } = await bot(t, { voice });
  await say(page, 'question');
  const isSpoken = (data) => data.spoken_status === 'completed' && data.will_be_spoken;
  const seen = await until(page, 'an answer that was played', (seen) => types(seen).includes('botStoppedSpeaking') && of(seen, 'botOutput').some(isSpoken));
  inOrder(seen, ['connected', 'botReady', 'userStartedSpeaking', 'userStoppedSpeaking', 'userTranscript', 'botLlmStarted', 'botStartedSpeaking', 'botStoppedSpeaking']);
  const transcript = of(seen, 'userTranscript').findLast((data) => data.final);
  assert.match(transcript.text, /time/i);
  assert.ok(seen.bytes > 24_000 && seen.loudest > 1_000, `${seen.bytes} bytes, at most ${seen.loudest}`);
  assert.deepEqual(seen.errors, []);
  assert.equal(seen.states.at(-1), 'ready');
  console.log(`# ready after ${Math.round(seen.connectedAfterMs)} ms`);
  await page.evaluate(() => window.bot.client.disconnect());
  await until(page, 'the end', (seen) => seen.states.at(-1) === 'disconnected');
  await close();
});

test('an interruption ends the answer', async (t) => {
  const { page, close } = await bot(t, { voice });
  await interrupt(page, (seen) => seen.bytes > 24_000);
  const seen = await until(page, 'a second turn', (seen) => types(seen).filter((type) => type === 'userStoppedSpeaking').length > 1);
  inOrder(seen, ['botStartedSpeaking', 'userStartedSpeaking', 'botStoppedSpeaking']);
  assert.deepEqual(seen.errors, []);
  await close();
});

test('text is answered, context is taken, and a message that is not served is refused', async (t) => {
  const { page, close } = await bot(t, { voice });
  await page.evaluate(() => window.bot.client.sendText('What is twelve plus thirty?'));
  const seen = await until(page, 'an answer', (seen) => types(seen).includes('botStoppedSpeaking'));
  const said = of(seen, 'botLlmText').map((data) => data.text).join('');
  assert.match(said, /42|forty[- ]two/i);
  const refused = await page.evaluate(() => window.bot.client.sendClientRequest('no-such', {}).then(() => 'served', (error) => error.data?.error ?? String(error)));
  assert.match(refused, /session\.update/);
  const updated = await page.evaluate(() => window.bot.client.sendClientRequest('session.update', { instructions: 'Be brief.' }));
  assert.equal(updated.instructions, 'Be brief.');
  await close();
});

test('keys that are pressed in the page are answered', async (t) => {
  const { page, close } = await bot(t, { voice });
  await page.evaluate(() => window.bot.client.sendDTMF('12#'));
  const seen = await until(page, 'an answer', (seen) => types(seen).includes('botStoppedSpeaking'));
  assert.match(of(seen, 'userLlmText')[0].text, /pressed these keys of the phone: 12#/);
  assert.deepEqual(seen.errors, []);
  await close();
});

test('a function of the page is called', async (t) => {
  const { page, close } = await bot(t, { voice });
  const tool = { type: 'function', name: 'get_colour', description: 'The colour.', parameters: { type: 'object', properties: {} } };
  await page.evaluate((session) => window.bot.client.sendClientRequest('session.update', session), { tools: [tool], tool_choice: { type: 'function', name: 'get_colour' } });
  await page.evaluate(() => window.bot.client.sendText('Which colour is it?'));
  const seen = await until(page, 'a call', (seen) => seen.calls.length > 0 && types(seen).includes('llmFunctionCallStopped'));
  assert.equal(seen.calls[0].functionName, 'get_colour');
  inOrder(seen, ['llmFunctionCallStarted', 'llmFunctionCallInProgress', 'llmFunctionCallStopped']);
  await close();
});

test('a wrong key is refused', async (t) => {
  const { page } = await openPage(t, { url: pageUrl, voice, shows: 'main' });
  const url = `${hub.url.replace('http', 'ws')}/v1/rtvi`;
  const failure = await page.evaluate(([url]) => window.bot.connect(url, 'wrong').then(() => 'connected', (error) => String(error)), [url]);
  assert.notEqual(failure, 'connected');
});

for (const way of ['offer', 'start']) {
  test(`by WebRTC (${way}) a page of another origin is ready, is heard, and hears and cuts the answer`, async (t) => {
    const token = await shortLived();
    const { page, close } = await openPage(t, { url: pageUrl, voice, shows: 'main' });
    const url = way === 'offer' ? `${hub.url}/v1/rtvi/api/offer` : `${hub.url}/v1/rtvi/start`;
    const ready = await page.evaluate((options) => window.bot.call(options), { [way]: url, token });
    assert.match(ready.version, /^2\./);
    await interrupt(page, (seen) => seen.audibleMs > 500);
    const seen = await until(page, 'a second turn', (seen) => types(seen).filter((type) => type === 'userStoppedSpeaking').length > 1 && seen.audibleMs > 500);
    inOrder(seen, ['connected', 'botReady', 'userStartedSpeaking', 'userStoppedSpeaking', 'userTranscript', 'botLlmStarted', 'botStartedSpeaking', 'userStartedSpeaking', 'botStoppedSpeaking']);
    assert.deepEqual(seen.errors, []);
    const calls = async () => (await (await fetch(`${hub.url}/v1/realtime/calls`, { headers: { authorization: `Bearer ${KEY}` } })).json()).data;
    // The call of a test before may take a moment to end.
    await eventually(calls, (served) => assert.deepEqual(served.map((call) => call.transport), ['rtvi-webrtc']));
    console.log(`# ready after ${Math.round(seen.connectedAfterMs)} ms, audible for ${seen.audibleMs} ms`);
    await page.evaluate(() => window.bot.client.disconnect());
    await until(page, 'the end', (seen) => seen.states.at(-1) === 'disconnected');
    await poll(async () => (await calls()).length === 0, () => 'the call goes on');
    await close();
  });
}

test('by WebRTC a call goes on when it is negotiated again, on its connection and on a new one', async (t) => {
  const { page, close } = await openPage(t, { url: pageUrl, voice, shows: 'main' });
  const offer = `${hub.url}/v1/rtvi/api/offer`;
  await page.evaluate((options) => window.bot.call(options), { offer, token: await shortLived() });
  const call = async () => {
    const answer = await fetch(`${hub.url}/v1/realtime/calls`, { headers: { authorization: `Bearer ${KEY}` } });
    return (await answer.json()).data.map(({ id, session_id }) => ({ id, session_id }));
  };
  const before = await eventually(call, (calls) => assert.equal(calls.length, 1));
  /** The transport negotiates; gives whether it is connected, whether by the connection before, and the call's id. */
  const negotiate = (isNew) =>
    page.evaluate(async (isNew) => {
      const { transport } = window.bot;
      const pc = transport.pc;
      // What a server asks for, and what the transport does by itself when its connection has failed.
      if (isNew) await transport.attemptReconnection(true);
      else await transport.handleSignallingMessage({ type: 'signalling', message: { type: 'renegotiate' } });
      const deadline = performance.now() + 30_000;
      const isDone = () => !transport.isReconnecting && transport.pc?.signalingState === 'stable' && transport.pc.connectionState === 'connected' && transport.dc.readyState === 'open';
      while (!isDone() && performance.now() < deadline) await new Promise((wait) => setTimeout(wait, 20));
      return { isDone: isDone(), isSame: transport.pc === pc, pcId: transport.pc_id };
    }, isNew);
  // Silence is packets of three bytes. Whether the page plays them is no measure: the transport forgets a new connection's track
  // when it closes the one before.
  const soundBytes = () =>
    page.evaluate(async () => {
      const reports = [...(await window.bot.transport.pc.getStats()).values()];
      // Before the first packet there is no report.
      const received = reports.find(({ type, kind }) => type === 'inbound-rtp' && kind === 'audio');
      return received ? received.bytesReceived - 3 * received.packetsReceived : 0;
    });
  const answered = async (nth) => {
    await page.evaluate(() => window.bot.client.sendText('What is twelve plus thirty?'));
    const before = await soundBytes();
    const seen = await until(page, `answer ${nth}`, (seen) => types(seen).filter((type) => type === 'botStoppedSpeaking').length === nth);
    await eventually(soundBytes, (bytes) => assert.ok(bytes - before > 1_000, `${bytes - before} bytes of answer ${nth} arrived`));
    return seen;
  };
  await answered(1);
  assert.deepEqual(await negotiate(false), { isDone: true, isSame: true, pcId: before[0].id });
  await answered(2);
  assert.deepEqual(await negotiate(true), { isDone: true, isSame: false, pcId: before[0].id });
  const seen = await answered(3);
  assert.deepEqual(await call(), before, 'it is the same session');
  assert.deepEqual([seen.states.at(-1), seen.errors], ['ready', []]);
  await close();
});

// The page is closed without a look at its errors: the library may read the stream of its microphone after it has let go of it.
test('by WebRTC a wrong key is refused', async (t) => {
  const { page } = await openPage(t, { url: pageUrl, voice, shows: 'main' });
  const offer = `${hub.url}/v1/rtvi/api/offer`;
  const failure = await page.evaluate((options) => window.bot.call(options).then(() => 'connected', (error) => String(error)), { offer, token: 'wrong' });
  assert.notEqual(failure, 'connected');
});

test('by WebRTC a function of the page is called', async (t) => {
  const { page, close } = await openPage(t, { url: pageUrl, voice, shows: 'main' });
  const offer = `${hub.url}/v1/rtvi/api/offer`;
  await page.evaluate((options) => window.bot.call(options), { offer, token: await shortLived() });
  const tool = { type: 'function', name: 'get_colour', description: 'The colour.', parameters: { type: 'object', properties: {} } };
  await page.evaluate((session) => window.bot.client.sendClientRequest('session.update', session), { tools: [tool], tool_choice: { type: 'function', name: 'get_colour' } });
  await page.evaluate(() => window.bot.client.sendText('Which colour is it?'));
  const seen = await until(page, 'a call', (seen) => seen.calls.length > 0 && types(seen).includes('llmFunctionCallStopped'));
  assert.equal(seen.calls[0].functionName, 'get_colour');
  await close();
});
