// The inspector in a real Chromium: a whole exchange with a running hub by hand-written events. See `run.mjs` for what it
// needs.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axe, eventually, openPage, poll, say, says } from './browser.mjs';
import { composeWav } from './wav.mjs';

const { HUB_URL, QUESTION_WAV, STORY_WAV = QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');

const folder = mkdtempSync(join(tmpdir(), 'antiphon-inspector-'));
after(() => rmSync(folder, { recursive: true }));

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const open = (t, context = {}, options = {}) => openPage(t, { url: HUB_URL, path: '/inspector', shows: '#address', context, ...options });
const types = (page) => page.locator('.event .event-type').allInnerTexts();
/** Waits until the types of the events that are listed are such. */
const listed = (page, check) => eventually(() => types(page), check);
const come = (page, type) => poll(async () => (await types(page)).includes(type), async () => `no ${type} among ${await types(page)}`);
async function connect(page) {
  await page.click('#connect');
  await page.waitForSelector('.inspector[data-state=open]');
  await come(page, 'session.created');
}
async function send(page, event) {
  await page.fill('#draft', JSON.stringify(event));
  await page.click('#send-event');
}
const item = (text) => ({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });

test('events are sent by hand, answered, listed, filtered and searched', async (t) => {
  const { page, close } = await open(t);
  assert.ok(await page.locator('#send-event').isDisabled(), 'there is no connection');
  await connect(page);
  await send(page, item('What time is it?'));
  await page.fill('#draft', '{"type": "response.create"}');
  await page.press('#draft', 'Control+Enter');
  await come(page, 'response.done');
  assert.ok(!(await types(page)).includes('response.output_audio.delta'), 'audio is left out');
  await page.check('#audio');
  await come(page, 'response.output_audio.delta');
  const delta = page.locator('.event', { hasText: 'response.output_audio.delta' }).first();
  // Its duration, not its text.
  await eventually(() => delta.locator('.event-size').innerText(), (size) => assert.match(size, /\d (ms|s)$/));
  await page.uncheck('#audio');
  await page.selectOption('#direction', 'sent');
  await listed(page, (found) => assert.deepEqual(found.sort(), ['conversation.item.create', 'response.create']));
  await page.selectOption('#direction', 'all');
  await page.fill('#words', 'what time');
  await listed(page, (found) => assert.ok(found.length > 0 && found.every((type) => /conversation|response/.test(type)), `${found}`));
  await page.fill('#words', '');
  await send(page, { type: 'no.such.event' });
  await come(page, 'error');
  await page.selectOption('#group', 'errors');
  await listed(page, (found) => assert.deepEqual(found, ['error']));
  await page.click('#connect');
  await page.selectOption('#group', 'all');
  await come(page, 'closed');
  await close();
});

/** A recording as the microphone: silence in seconds, and files. */
function recording(name, parts) {
  const path = join(folder, name);
  composeWav(path, parts);
  return path;
}

/** Waits for these words in what is shown of the event of this type that came first; gives what they match. */
async function shown(page, type, words) {
  await page.locator('.event', { has: page.locator('.event-type', { hasText: new RegExp(`^${type}$`) }) }).first().click();
  return words.exec(await says(page, '#detail', words));
}

test('a spoken question is heard by the server, and its answer is played', async (t) => {
  const { page, close } = await open(t, {}, { microphone: recording('question.wav', [1.5, QUESTION_WAV, 20]) });
  assert.ok(await page.locator('#talk').isDisabled(), 'there is no connection');
  await connect(page);
  await page.click('#talk');
  await come(page, 'conversation.item.input_audio_transcription.completed');
  await shown(page, 'conversation.item.input_audio_transcription.completed', /time/i);
  const state = () => page.innerText('#talk-state');
  await poll(async () => /played: [\d.]+ (ms|s|min) so far/.test(await state()), state);
  await come(page, 'response.done');
  assert.equal(await page.locator('[role=status]#count').count(), 0, 'a screen reader would read the number of events at each');
  await eventually(() => page.innerText('#talk'), (words) => assert.equal(words, 'Stop talking'));
  assert.deepEqual(await axe(page), []);
  await page.click('#connect');
  await poll(async () => (await page.innerText('#talk')) === 'Talk', () => 'it talks without a connection');
  await close();
});

test('speech over the answer stops it, and the server learns what was heard', async (t) => {
  const { page, close } = await open(t, {}, { voice: { story: STORY_WAV, question: QUESTION_WAV } });
  await connect(page);
  await page.click('#talk');
  await say(page, 'story');
  await says(page, '#talk-state', /played: [\d.]+ (s|min) so far/);
  await say(page, 'question');
  await come(page, 'conversation.item.truncated');
  const [, heardMs] = await shown(page, 'conversation.item.truncate', /audio_end_ms: (\d+)/);
  assert.ok(Number(heardMs) > 0, `heard ${heardMs} ms`);
  await close();
});

test('a refused microphone is a plain notice, and events are still sent by hand', async (t) => {
  const { page, close } = await open(t, {}, { refuse: true });
  await connect(page);
  await page.click('#talk');
  await page.locator('.talk-fault').waitFor();
  await says(page, '.talk-fault', /microphone is not allowed/);
  assert.deepEqual(await axe(page), []);
  await send(page, item('What time is it?'));
  await come(page, 'conversation.item.added');
  await says(page, '#talk', 'Talk');
  await close();
});

test('a paused list stands still, and goes on with what came', async (t) => {
  const { page, close } = await open(t);
  await connect(page);
  await page.click('#pause');
  const before = await types(page);
  await send(page, item('Hello.'));
  await poll(async () => /\(\d+ new\)/.test(await page.locator('#pause').innerText()) && !/\(0 new/.test(await page.locator('#pause').innerText()), async () => page.locator('#pause').innerText());
  assert.deepEqual(await types(page), before);
  await page.click('#pause');
  await come(page, 'conversation.item.create');
  await close();
});

test('one event is shown in full, edited, sent again, and copied as code', async (t) => {
  const { page, close } = await open(t, { permissions: ['clipboard-read', 'clipboard-write'] });
  await connect(page);
  await send(page, { type: 'session.update', session: { type: 'realtime', instructions: 'Be brief.' } });
  await come(page, 'session.updated');
  const sent = page.locator('.event.sent', { hasText: 'session.update' });
  await sent.click();
  await says(page, '#detail', /sent at[\s\S]*instructions: "Be brief\."/);
  for (const [language, expect] of [['python', /client\.realtime\.connect[\s\S]*"instructions": "Be brief\."/], ['typescript', /new WebSocket\("ws:\/\//], ['curl', /client_secrets[\s\S]*Be brief/]]) {
    await page.click(`#copy-${language}`);
    await poll(async () => expect.test(await page.evaluate(() => navigator.clipboard.readText())), async () => page.locator('#copied').innerText());
  }
  await page.click('#edit');
  await eventually(() => page.inputValue('#draft'), (draft) => assert.match(draft, /Be brief/));
  await page.click('#send-event');
  await poll(async () => (await sent.count()) === 2, async () => `${await sent.count()} were sent`);
  await close();
});

test('a call of a tool is listed and answered', async (t) => {
  const { page, close } = await open(t);
  await connect(page);
  const tool = { type: 'function', name: 'get_weather', description: 'The weather of a city.', parameters: { type: 'object', properties: { city: { type: 'string' } } } };
  await send(page, { type: 'session.update', session: { type: 'realtime', output_modalities: ['text'], tools: [tool] } });
  await send(page, item('What is the weather in Paris?'));
  await send(page, { type: 'response.create', response: { tool_choice: { type: 'function', name: 'get_weather' } } });
  await page.waitForSelector('#calls');
  await says(page, '#calls', /get_weather/);
  await page.locator('#calls').getByRole('button', { name: 'answer it' }).click();
  await page.click('#send-event');
  await poll(async () => /after \d/.test(await page.locator('#calls').innerText()), async () => page.locator('#calls').innerText());
  await close();
});

test('the keyboard moves through the events', async (t) => {
  const { page, close } = await open(t);
  await connect(page);
  await page.focus('#events');
  await page.keyboard.press('Home');
  await says(page, '#detail h2', /^connecting to/);
  await page.keyboard.press('End');
  const last = async () => ({ shown: await page.locator('#detail h2').innerText(), last: (await types(page)).at(-1) });
  await eventually(last, ({ shown, last }) => assert.equal(shown, last));
  await eventually(() => page.locator('[role=option][aria-selected=true]').count(), (selected) => assert.equal(selected, 1));
  await close();
});

test('an address that leads nowhere says so, and a key never appears', async (t) => {
  const { page, close } = await open(t);
  await page.fill('#address', 'ftp://nowhere');
  await page.click('#connect');
  await says(page, '.connect-note', /begins with/);
  await page.fill('#address', 'ws://127.0.0.1:9/v1/realtime?key=sk-in-address');
  await page.fill('#api-key', 'sk-never-shown');
  await page.click('#connect');
  await poll(async () => (await types(page)).some((type) => /not connected/.test(type)), async () => `${await types(page)}`);
  assert.doesNotMatch(await page.locator('#events').innerText(), /sk-/);
  assert.deepEqual(await page.evaluate(() => [sessionStorage.length, localStorage.length]), [0, 0]);
  await close();
});

for (const [width, height, colorScheme] of [[320, 700, 'dark'], [390, 844, 'light'], [1440, 900, 'dark'], [3840, 2160, 'light']]) {
  test(`axe finds nothing, and nothing runs over the edge, at ${width} by ${height}, ${colorScheme}`, async (t) => {
    const { page, close } = await open(t, { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' });
    await connect(page);
    await page.locator('.event', { hasText: 'session.created' }).click();
    assert.deepEqual(await axe(page), []);
    const outside = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(outside <= 0, `${outside} px over the edge`);
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/inspector-${width}.png` });
    await close();
  });
}
