// What the page says, and keeps, where browser, machine or user give it what it cannot use: in a real Chromium against a
// running hub. See `run.mjs` for what it needs. Refused microphones are in `page.test.mjs`, long instructions in
// `settings.test.mjs`.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, answers, ask, eventually, gone, hooks, openPage, openSettings, poll, says, talk, until } from './browser.mjs';
import { Cable } from './cable.mjs';
import { composeWav } from './wav.mjs';

const { HUB_URL, QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');

const folder = mkdtempSync(join(tmpdir(), 'antiphon-notices-'));
after(() => rmSync(folder, { recursive: true }));
const questionMic = join(folder, 'question.wav');
composeWav(questionMic, [1.5, QUESTION_WAV, 60]);

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const notice = async (page, words) => {
  await page.waitForSelector('#notice');
  await poll(async () => words.test(await page.innerText('#notice')), () => page.innerText('#notice'));
};

test('without any microphone the page says so, and typing works', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, devices: false });
  await page.click('#talk');
  await notice(page, /No microphone found.*type/s);
  await ask(page, 'What is two plus three?', 1);
  await close();
});

test('a chosen microphone that is not there is named as such, and another one is chosen', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, microphone: questionMic });
  await page.evaluate(() => localStorage.setItem('antiphon.settings', JSON.stringify({ version: 1, microphone: 'gone' })));
  await page.reload();
  await page.click('#talk');
  await notice(page, /chosen microphone is not there.*settings/s);
  await openSettings(page, '#microphone');
  await says(page, '#microphone option:checked', 'Not connected');
  await page.selectOption('#microphone', 'null');
  await page.keyboard.press('Escape');
  await page.click('#talk');
  await until(page, 'an open microphone', (hub) => hub.phase === 'listening' || hub.phase === 'hearing');
  await gone(page, '#notice');
  await close();
});

test('a chosen loudspeaker that is unplugged is replaced until it is back', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.addInitScript(() => {
    const device = (deviceId) => ({ kind: 'audiooutput', deviceId, label: deviceId, groupId: '' });
    window.outputs = ['default', 'headset'];
    window.sinks = [];
    navigator.mediaDevices.enumerateDevices = async () => window.outputs.map(device);
    // The fake devices have no loudspeaker to choose.
    AudioContext.prototype.setSinkId = async function (id) {
      window.sinks.push(id);
      Object.defineProperty(this, 'sinkId', { value: id, configurable: true });
    };
    window.change = (outputs) => {
      window.outputs = outputs;
      navigator.mediaDevices.dispatchEvent(new Event('devicechange'));
    };
  });
  await page.evaluate(() => localStorage.setItem('antiphon.settings', JSON.stringify({ version: 1, loudspeaker: 'headset' })));
  await page.reload();
  await ask(page, 'What is two plus three?', 1);
  const sinks = (expected) => eventually(() => page.evaluate(() => window.sinks), (used) => assert.deepEqual(used, expected));
  await sinks(['headset']);
  await page.evaluate(() => window.change(['default']));
  await notice(page, /chosen loudspeaker is not there/);
  await sinks(['headset', '']);
  await page.evaluate(() => window.change(['default', 'headset']));
  await sinks(['headset', '', 'headset']);
  await gone(page, '#notice');
  await close();
});

test('of two tabs one talks: the first one stops, says so, keeps its words, and takes over again', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice: { question: QUESTION_WAV } });
  await talk(page, 'question');
  await until(page, 'an answer', (hub) => answers(hub) === 1);
  const said = (await hooks(page)).captions.map(({ text }) => text);
  const other = await page.context().newPage();
  await other.goto(HUB_URL);
  await other.click('#talk');
  await until(page, 'silence in the first tab', (hub) => hub.link === 'off');
  await notice(page, /another tab/);
  assert.deepEqual((await hooks(page)).captions.map(({ text }) => text), said);
  await until(other, 'a session of the second tab', (hub) => hub.link === 'live');
  await page.click('#notice .pill');
  await until(page, 'the microphone', (hub) => hub.phase === 'listening' || hub.phase === 'hearing');
  await until(other, 'silence in the second tab', (hub) => hub.link === 'off');
  await gone(page, '#notice');
  await close();
});

test('a browser without an Opus encoder talks by PCM', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, microphone: questionMic });
  await page.addInitScript(() => {
    delete window.AudioEncoder;
  });
  await page.reload();
  await page.click('#talk');
  await until(page, 'an answer', (hub) => answers(hub) === 1);
  assert.equal((await hooks(page)).codec, 'pcm16');
  await gone(page, '#notice');
  await close();
});

test('a connection that is dead without a word, as after sleep, is noticed, and the conversation goes on', async (t) => {
  const cable = new Cable(HUB_URL);
  await cable.plug();
  t.after(() => cable.unplug());
  const { page, close } = await openPage(t, { url: cable.url, refuse: true });
  await ask(page, 'What is two plus three?', 1);
  cable.freeze();
  await page.fill('#text', 'What is two plus six?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer to what was asked meanwhile', (hub) => hub.link === 'live' && hub.captions.some((c) => c.role === 'assistant' && /8/.test(c.text)));
  assert.equal((await hooks(page)).captions.filter((c) => c.role === 'user').length, 2);
  await close();
});

test('a clock that jumps changes neither the countdown nor the session', async (t) => {
  const cable = new Cable(HUB_URL);
  await cable.plug();
  t.after(() => cable.unplug());
  const { page, close } = await openPage(t, { url: cable.url, refuse: true });
  await page.addInitScript(() => {
    const { now } = Date;
    window.jumpMs = 0;
    Date.now = () => now() + window.jumpMs;
  });
  await page.reload();
  await ask(page, 'What is two plus three?', 1);
  await page.evaluate(() => (window.jumpMs = 3_600_000));
  await ask(page, 'What is two plus six?', 2);
  assert.equal((await hooks(page)).captions.filter((c) => c.id.startsWith('past/')).length, 0, 'it is the same session');
  await cable.unplug();
  await until(page, 'the loss', (hub) => hub.link === 'resuming' || hub.link === 'waiting');
  await page.waitForSelector('.countdown');
  await page.evaluate(() => (window.jumpMs = -3_600_000));
  // Read at once: it goes when the page tries to connect.
  const secondsLeft = () => page.evaluate(() => Number(document.querySelector('.countdown')?.innerText ?? 0));
  const first = await secondsLeft();
  const left = await eventually(secondsLeft, (seconds) => assert.ok(seconds === 0 || seconds !== first, `${seconds} s stay`));
  assert.ok(first <= 30 && left <= 30, `${first} s, then ${left} s`);
  await cable.plug();
  await until(page, 'the way back', (hub) => hub.link === 'live');
  await close();
});

test('a countdown begins with the seconds that are left', async (t) => {
  const cable = new Cable(HUB_URL);
  await cable.plug();
  t.after(() => cable.unplug());
  const { page, close } = await openPage(t, { url: cable.url, refuse: true });
  await ask(page, 'What is two plus three?', 1);
  // What is painted, frame by frame.
  await page.evaluate(() => {
    window.first = null;
    const look = () => {
      window.first ??= document.querySelector('.countdown')?.innerText ?? null;
      requestAnimationFrame(look);
    };
    look();
  });
  await cable.unplug();
  const first = await eventually(() => page.evaluate(() => window.first), (seconds) => assert.notEqual(seconds, null));
  assert.ok(Number(first) > 0, `it begins with ${first} s`);
  await close();
});

test('a conversation of 300 lines is shown from the 101st, exported in full, and goes on', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.evaluate(() => {
    const lines = Array.from({ length: 300 }, (_, i) => ({ role: i % 2 ? 'assistant' : 'user', text: `Line ${i}.`, heard: `Line ${i}.`.length, end: null, typed: true, latencyMs: null, startMs: 0, endMs: 0 }));
    localStorage.setItem('antiphon.conversation.long', JSON.stringify({ version: 1, id: 'long', startedAt: 1, changedAt: 1, lines }));
    sessionStorage.setItem('antiphon.current', 'long');
  });
  await page.reload();
  await page.waitForSelector('.older');
  await says(page, '.older', /^100 earlier/);
  await page.fill('#text', 'What is two plus three?');
  await page.press('#text', 'Enter');
  await until(page, 'the answer', ({ captions }) => captions.at(-1).role === 'assistant' && captions.at(-1).status === 'done' && /5/.test(captions.at(-1).text));
  await page.click('#conversations-open');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#save-json')]);
  const { lines } = JSON.parse(readFileSync(await file.path()));
  assert.deepEqual([lines.length, lines[0].text, lines[299].text, lines[300].text], [302, 'Line 0.', 'Line 299.', 'What is two plus three?']);
  await close();
});

test('a text that is too long is refused with its length, and stays in the field', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.fill('#text', 'x'.repeat(100_001));
  await says(page, '#too-long', /100,001 characters: at most 100,000/);
  await page.press('#text', 'Enter');
  assert.equal((await hooks(page)).captions.length, 0);
  assert.equal((await page.inputValue('#text')).length, 100_001);
  await close();
});
