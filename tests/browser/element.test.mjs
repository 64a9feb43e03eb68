// `<antiphon-voice>` by one script tag from the hub, in pages of another origin: under strict policies, in a frame, twice in
// one page, without a microphone, without a key. See `run.mjs` for what it needs; how answers are drawn is in
// `element_answers.test.mjs`. The hub is the test's own: it has a key and lists the origin of the site that serves the pages.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axe, eventually, openPage, poll } from './browser.mjs';
import { serveSite } from './element_site.mjs';
import { OwnHub } from './own_hub.mjs';
import { composeWav } from './wav.mjs';

const { QUESTION_WAV } = process.env;
if (!QUESTION_WAV) throw new Error('QUESTION_WAV must be set; see the head of run.mjs');
const KEY = 'sk-of-the-element-test';

const folder = mkdtempSync(join(tmpdir(), 'antiphon-element-'));
const microphone = join(folder, 'question.wav');
composeWav(microphone, [1.5, QUESTION_WAV, 20]);
const hub = new OwnHub({ ANTIPHON_API_KEYS: KEY, ANTIPHON_MODELS__DIR: join(folder, 'models') });
let site, elsewhere;

before(async () => {
  [site, elsewhere] = [await serveSite(hub, KEY), await serveSite(hub, KEY)];
  hub.set('ANTIPHON_SERVER__ALLOWED_ORIGINS', JSON.stringify([site.url]));
  await hub.start();
});
after(async () => {
  for (const server of [site, elsewhere]) server?.close();
  await hub.stop();
  rmSync(folder, { recursive: true });
});

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

async function open(t, path, options = {}) {
  const { shows = 'antiphon-voice', url = site.url } = options;
  const opened = await openPage(t, { ...options, url, path, shows });
  const frame = options.frame ? opened.page.frames()[1] : opened.page;
  const seen = () => frame.evaluate(() => window.seen);
  const until = (what, condition) => poll(async () => condition(await seen()), async () => `waited in vain for ${what}: ${JSON.stringify(await seen()).slice(-2_000)}`);
  return { ...opened, frame, seen, until };
}

const isReady = (seen) => seen.some(({ kind }) => kind === 'ready');
const answered = (of) => (seen) => seen.some((event) => event.of === of && event.kind === 'turn' && event.detail.status === 'done' && event.detail.reply !== '');
const isHeard = (seen) => seen.some(({ kind, detail }) => kind === 'caption' && detail.role === 'user' && detail.final && /time/i.test(detail.text));

for (const colorScheme of ['light', 'dark']) {
  test(`a page under strict policies converses by keyboard and voice, and axe finds nothing (${colorScheme})`, async (t) => {
    const { page, until, seen, close } = await open(t, '/one?strict', { microphone, context: { colorScheme } });
    await until('the hub', isReady);
    assert.deepEqual(await axe(page), []);
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await until('the words of the user', isHeard);
    await until('a spoken answer', answered('a'));
    const turn = (await seen()).find((event) => answered('a')([event])).detail;
    assert.match(turn.user, /time/i);
    assert.ok(turn.latencyMs > 0, JSON.stringify(turn));
    assert.deepEqual(await axe(page), []);
    await eventually(() => page.locator('.talk').getAttribute('aria-label'), (label) => assert.equal(label, 'Stop the conversation'));
    // "Stop the conversation, pressed" would say that it has stopped.
    assert.equal(await page.locator('.talk[aria-pressed], .small[aria-pressed]').count(), 0);
    await page.locator('.talk').focus();
    await page.keyboard.press('Enter');
    await poll(async () => (await page.locator('antiphon-voice').getAttribute('phase')) === 'idle', () => 'it does not stop');
    await close();
  });
}

test('it converses in a frame', async (t) => {
  const { frame, until, close } = await open(t, '/frame', { microphone, shows: 'iframe', frame: true });
  await poll(async () => (await frame.evaluate(() => document.querySelector('antiphon-voice')?.phase ?? null)) === 'idle', () => 'no element in the frame');
  await frame.locator('.talk').click();
  await until('the words of the user', isHeard);
  await until('a spoken answer', answered('a'));
  await close();
});

test('two in one page converse apart, and one of them has the microphone', async (t) => {
  const { page, until, close } = await open(t, '/two', { microphone });
  const phase = (id) => page.locator(`#${id}`).getAttribute('phase');
  await page.locator('#a .talk').click();
  await until('the words of the user', isHeard);
  await until('a spoken answer', answered('a'));
  await page.locator('#b .talk').click();
  await poll(async () => (await phase('b')) === 'listening' && (await phase('a')) === 'idle', async () => `${await phase('a')}, ${await phase('b')}`);
  await until('the words and the answer of the second', (seen) => answered('b')(seen) && isHeard(seen.filter(({ of }) => of === 'b')));
  const lines = async () => [await page.locator('#a .line').count(), await page.locator('#b .line').count()];
  await eventually(lines, (counts) => assert.deepEqual(counts, [2, 2]));
  assert.deepEqual(await axe(page), []);
  await close();
});

test('a blocked microphone is a plain notice, and typing goes on', async (t) => {
  const { page, until, close } = await open(t, '/module', { refuse: true });
  await until('the hub', isReady);
  await page.locator('.talk').click();
  await until('the error', (seen) => seen.some(({ kind, detail }) => kind === 'error' && detail.problem.fault === 'refused' && /Allow it/.test(detail.message)));
  await page.locator('[role=alert]').getByText('microphone is blocked').waitFor();
  assert.deepEqual(await axe(page), []);
  await page.locator('.text').fill('What time is it?');
  await page.keyboard.press('Enter');
  await until('an answer', answered('a'));
  await close();
});

test('a new session announces no earlier caption or turn again, and keeps their lines', async (t) => {
  const { page, seen, until, close } = await open(t, '/one', { refuse: true });
  await until('the hub', isReady);
  const ask = () => page.evaluate(() => document.querySelector('antiphon-voice').send('What time is it?'));
  const nDone = () => page.evaluate(() => document.querySelector('antiphon-voice').conversation.state.captions.filter(({ status }) => status === 'done').length);
  await ask();
  await poll(async () => (await nDone()) === 1, async () => `${await nDone()} answers, not 1`);
  await page.evaluate(() => {
    const voice = document.querySelector('antiphon-voice');
    window.lines = [...voice.shadowRoot.querySelectorAll('.line')];
    voice.stop();
  });
  await ask();
  await poll(async () => (await nDone()) === 2, async () => `${await nDone()} answers, not 2`);
  assert.equal((await seen()).filter(({ kind }) => kind === 'turn').length, 2);
  assert.equal(await page.evaluate(() => window.lines.filter(({ isConnected }) => isConnected).length), 2);
  await close();
});

test('words are written in their own direction', async (t) => {
  const { page, until, close } = await open(t, '/one', { refuse: true });
  await until('the hub', isReady);
  await page.evaluate(() => void document.querySelector('antiphon-voice').send('שלום, Antiphon!'));
  const directions = () => page.locator('.user .words, .bar').evaluateAll((all) => all.map((one) => getComputedStyle(one).direction));
  await eventually(directions, (found) => assert.deepEqual(found, ['ltr', 'rtl']));
  await close();
});

test('sound that the browser keeps back is a plain notice, and its button starts it', async (t) => {
  // The page asks before anything of this test reaches it: to Chromium a script of the test is a gesture of the user.
  const { page, until, close } = await open(t, '/one?asks', { refuse: true, autoplay: false });
  const sound = () => page.evaluate(() => document.querySelector('antiphon-voice').conversation.audio?.context.state);
  const notice = page.locator('[role=alert]');
  await notice.getByText('has not started the sound').waitFor();
  assert.equal(await sound(), 'suspended');
  assert.deepEqual(await axe(page), []);
  await notice.getByRole('button', { name: 'Start sound' }).click();
  await notice.waitFor({ state: 'hidden' });
  await eventually(sound, (state) => assert.equal(state, 'running'));
  await until('an answer that was heard', answered('a'));
  await close();
});

test('attributes and properties are what the session gets, moved or not, and the page of another origin is refused', async (t) => {
  const { page, seen, until, close } = await open(t, '/one?nokey', { refuse: true });
  await until('the missing key', (seen) => seen.some(({ kind, detail }) => kind === 'error' && detail.problem.kind === 'key'));
  await page.locator('[role=alert]').getByText('needs a key').waitFor();
  assert.ok(!isReady(await seen()));
  // A key as an attribute is none.
  await page.evaluate((key) => document.querySelector('antiphon-voice').setAttribute('key', key), KEY);
  const sent = await page.evaluate(async (key) => {
    const voice = document.querySelector('antiphon-voice');
    const sent = (window.sent = []);
    voice.setAttribute('instructions', 'Answer like a pirate.');
    voice.conversation.onEvent(({ direction, event }) => direction === 'sent' && event?.type === 'session.update' && sent.push(event.session));
    voice.key = key;
    // It is moved, and keeps its conversation.
    const { conversation } = voice;
    document.body.append(voice);
    await voice.send('What time is it?');
    return conversation === voice.conversation;
  }, KEY);
  assert.ok(sent, 'a moved element has begun another conversation');
  await until('an answer', answered('a'));
  await until('the hub', isReady);
  assert.equal((await page.evaluate(() => window.sent))[0].instructions, 'Answer like a pirate.');
  // Removed, it releases what it had.
  const link = await page.evaluate(async () => {
    const voice = document.querySelector('antiphon-voice');
    const { conversation } = voice;
    voice.remove();
    await Promise.resolve();
    return [conversation.state.link, voice.conversation];
  });
  assert.deepEqual(link, ['off', null]);
  await close();
  const other = await open(t, '/one?nokey', { refuse: true, url: elsewhere.url });
  const names = (text) => text.includes('server.allowed_origins') && text.includes(elsewhere.url);
  const said = other.page.waitForEvent('console', { predicate: (message) => names(message.text()) });
  await other.page.evaluate(() => (document.querySelector('antiphon-voice').key = 'sk-any'));
  await other.until('that it may not connect', (seen) => seen.some(({ kind, detail }) => kind === 'error' && detail.problem.kind === 'origin'));
  await said;
});

test('the screen stays on while the microphone is, and no longer', async (t) => {
  const { page, until, close } = await open(t, '/one', { microphone });
  await until('the hub', isReady);
  // The browser's own; a test machine's screen shows nothing of it.
  await page.evaluate(() => {
    const { wakeLock } = navigator;
    const request = wakeLock.request.bind(wakeLock);
    window.locks = [];
    wakeLock.request = async (kind) => (window.locks.push(await request(kind)), window.locks.at(-1));
  });
  const locks = () => page.evaluate(() => window.locks.map(({ type, released }) => `${type} ${released ? 'released' : 'held'}`));
  const become = (expected) => poll(async () => JSON.stringify(await locks()) === JSON.stringify(expected), async () => `${await locks()}, not ${expected}`);
  await page.locator('.talk').click();
  await become(['screen held']);
  await page.locator('.talk').click();
  await become(['screen released']);
  await close();
});
