// Conversations in a real Chromium against a running hub: kept, continued, exported, forgotten. See `run.mjs` for what it
// needs.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, answers, ask, axe, eventually, hooks, openPage, poll, talk, until } from './browser.mjs';

const { HUB_URL, QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');

const folder = mkdtempSync(join(tmpdir(), 'antiphon-conversations-'));
after(() => rmSync(folder, { recursive: true }));
const voice = { question: QUESTION_WAV };

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const words = async (page) => (await hooks(page)).captions.map(({ text }) => text);
const stored = (page) => page.evaluate(() => Object.keys(localStorage).filter((key) => key.startsWith('antiphon.conversation.')));
async function openSheet(page) {
  await page.click('#conversations-open');
  await page.waitForSelector('#conversations[open]');
}
/** The texts of the items that this page created in its newest session. */
const watchItems = (page) =>
  page.addInitScript(() => {
    window.items = [];
    const { send } = WebSocket.prototype;
    WebSocket.prototype.send = function (data) {
      const event = typeof data === 'string' ? JSON.parse(data) : {};
      if (event.type === 'session.update') window.items = [];
      if (event.type === 'conversation.item.create') window.items.push(event.item.content?.[0]?.text);
      return send.call(this, data);
    };
  });

test('a conversation survives a reload, and the next session knows it', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await watchItems(page);
  await ask(page, 'What is two plus three?', 1);
  const before = await words(page);
  await page.reload();
  await page.waitForSelector('#captions');
  await eventually(() => words(page), (shown) => assert.deepEqual(shown, before));
  await ask(page, 'What is two plus two?', 2);
  assert.deepEqual(await page.evaluate(() => window.items), [...before, 'What is two plus two?']);
  await close();
});

test('a new conversation begins without the old one, which can be opened again and deleted', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.reload();
  await watchItems(page);
  assert.ok(await page.isDisabled('#new'));
  await ask(page, 'What is two plus three?', 1);
  const first = await words(page);
  await page.click('#new');
  await page.waitForSelector('.invitation');
  await until(page, 'a new session', (hub) => hub.link === 'live');
  await ask(page, 'What is two plus two?', 1);
  assert.ok(!(await words(page)).includes(first[0]));
  await openSheet(page);
  await page.locator('.recent').getByRole('button', { name: 'What is two plus three?', exact: true }).click();
  await until(page, 'the first conversation', (hub) => hub.captions[0]?.text === first[0]);
  await openSheet(page);
  await page.locator('.recent').getByRole('button', { name: /^Delete “What is two plus two/ }).click();
  await poll(async () => (await page.locator('.recent li').count()) === 0, () => page.innerText('.recent'));
  await eventually(() => stored(page), (kept) => assert.equal(kept.length, 1));
  await close();
});

test('an answer that a new conversation ends was interrupted, and no connection was lost', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.fill('#text', 'Tell me a story');
  await page.press('#text', 'Enter');
  await until(page, 'spoken words', (hub) => hub.playback === 'playing' && hub.captions.some(({ role, revealed }) => role === 'assistant' && revealed > 0));
  await page.click('#new');
  await page.waitForSelector('.invitation');
  await until(page, 'a new session', (hub) => hub.link === 'live');
  assert.equal(await page.locator('#notice').count(), 0);
  const last = async () => {
    const [key] = await stored(page);
    const record = key && (await page.evaluate((key) => localStorage.getItem(key), key));
    return record ? JSON.parse(record).lines.at(-1) : null;
  };
  await eventually(last, (answer) => {
    assert.equal(answer?.end, 'cut');
    assert.ok(answer.heard > 0 && answer.heard < answer.text.length, JSON.stringify(answer));
  });
  await close();
});

test('the switch that keeps nothing deletes what was kept', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await ask(page, 'What is two plus three?', 1);
  await poll(async () => (await stored(page)).length === 1, () => 'nothing was stored');
  await openSheet(page);
  await page.uncheck('#keeps');
  await eventually(() => stored(page), (kept) => assert.deepEqual(kept, []));
  await eventually(() => page.isDisabled('#save-wav'), assert.ok);
  await eventually(() => page.innerText('#conversations [role=status]'), (words) => assert.equal(words, 'No sound is kept.'));
  await page.keyboard.press('Escape');
  await ask(page, 'What is two plus two?', 2);
  await page.reload();
  await page.waitForSelector('.invitation');
  assert.deepEqual(await stored(page), []);
  await close();
});

test('another tab never writes the same conversation', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await ask(page, 'What is two plus three?', 1);
  await poll(async () => (await stored(page)).length === 1, () => 'nothing was stored');
  const current = await page.evaluate(() => sessionStorage.getItem('antiphon.current'));
  // As a browser's "duplicate tab" does it.
  const other = await page.context().newPage();
  await other.addInitScript((id) => sessionStorage.setItem('antiphon.current', id), current);
  await other.goto(HUB_URL);
  await other.waitForSelector('.invitation');
  await ask(other, 'What is two plus two?', 1);
  await poll(async () => (await stored(page)).length === 2, async () => `${await stored(page)}`);
  assert.equal((await words(page)).length, 2);
  await close();
});

for (const transport of ['websocket', 'webrtc']) {
  test(`both sides are saved as sound, text, JSON and subtitles, and copied (${transport})`, async (t) => {
    const context = { permissions: ['microphone', 'clipboard-read', 'clipboard-write'] };
    const { page, close } = await openPage(t, { url: HUB_URL, voice, transport, context });
    await page.waitForSelector('.engine b');
    await talk(page, 'question');
    await until(page, 'an answer', (hub) => answers(hub) === 1);
    assert.equal((await hooks(page)).transport, transport);
    const said = await words(page);
    await openSheet(page);
    const save = async (ending) => {
      const [file] = await Promise.all([page.waitForEvent('download'), page.click(`#save-${ending}`)]);
      assert.match(file.suggestedFilename(), new RegExp(`^antiphon-\\d{4}-\\d\\d-\\d\\d-\\d{4}\\.${ending}$`));
      return readFileSync(await file.path());
    };
    assert.equal((await save('txt')).toString(), `You: ${said[0]}\nAntiphon: ${said[1]}\n`);
    const { lines } = JSON.parse(await save('json'));
    assert.deepEqual(lines.map(({ who, text }) => [who, text]), [['You', said[0]], ['Antiphon', said[1]]]);
    assert.match((await save('srt')).toString(), /^1\n00:00:\d\d,\d{3} --> 00:00:\d\d,\d{3}\nYou: /);
    const wav = await save('wav');
    const rateHz = wav.readUInt32LE(24);
    const samples = new Int16Array(wav.buffer, wav.byteOffset + 44, (wav.length - 44) >> 1);
    /** Share of the loud samples of a side within the times of a line. */
    const loudWithin = (side, { startMs, endMs }) => {
      let [inside, all] = [0, 0];
      for (let i = side; i < samples.length; i += 2) {
        if (Math.abs(samples[i]) < 1_000) continue;
        all += 1;
        const ms = ((i >> 1) / rateHz) * 1_000;
        if (ms >= startMs - 600 && ms <= endMs + 600) inside += 1;
      }
      assert.ok(all > 2_000, `side ${side} is silent`);
      return inside / all;
    };
    assert.ok(loudWithin(0, lines[0]) > 0.95, `you: ${loudWithin(0, lines[0])} within ${JSON.stringify(lines[0])}`);
    assert.ok(loudWithin(1, lines[1]) > 0.95, `Antiphon: ${loudWithin(1, lines[1])} within ${JSON.stringify(lines[1])}`);
    await page.click('#copy');
    await poll(async () => (await page.evaluate(() => navigator.clipboard.readText())).includes(said[1]), () => 'nothing was copied');
    await close();
  });
}

for (const [width, height, colorScheme] of [[320, 640, 'light'], [768, 1024, 'dark']]) {
  test(`axe finds nothing in the conversation's sheet at ${width} by ${height}, ${colorScheme}`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, refuse: true, context: { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' } });
    await ask(page, 'What is two plus three?', 1);
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/talked-${width}.png` });
    await page.click('#new');
    await page.waitForSelector('.invitation');
    await openSheet(page);
    await page.waitForSelector('.recent li');
    assert.deepEqual(await axe(page), []);
    const outside = await page.evaluate(() => document.querySelector('#conversations').scrollWidth - document.querySelector('#conversations').clientWidth);
    assert.ok(outside <= 0, `${outside} px over the edge`);
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/conversations-${width}.png` });
    await close();
  });
}
