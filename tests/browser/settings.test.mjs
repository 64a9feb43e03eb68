// The settings sheet in a real Chromium against a running hub. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, ask, axe, drawn, eventually, gone, hooks, openPage, openSettings, poll, say, says, until } from './browser.mjs';
import { OwnHub, ROOT } from './own_hub.mjs';
import { composeWav } from './wav.mjs';

const { HUB_URL, QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');

const folder = mkdtempSync(join(tmpdir(), 'antiphon-settings-'));
after(() => rmSync(folder, { recursive: true }));
const questionMic = join(folder, 'question.wav');
composeWav(questionMic, [1.5, QUESTION_WAV, 20]);

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
/** What the hub says of the newest session: the events that it sent of it. */
const watchSessions = (page) =>
  page.addInitScript(() => {
    window.sessions = [];
    const Socket = window.WebSocket;
    window.WebSocket = class extends Socket {
      constructor(...args) {
        super(...args);
        this.addEventListener('message', ({ data }) => {
          const event = typeof data === 'string' ? JSON.parse(data) : {};
          if (event.type === 'session.updated') window.sessions.push(event.session);
        });
      }
    };
  });
const session = (page) => page.evaluate(() => window.sessions.at(-1));

test('settings are sent to the session, kept over a reload, and reset', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await watchSessions(page);
  await page.reload();
  await openSettings(page, '#instructions');
  await page.fill('#instructions', 'Answer in one sentence.');
  await page.selectOption('#eagerness', 'low');
  await says(page, '#eagerness-hint', /while you think/);
  await page.selectOption('#noise', 'near_field');
  await page.selectOption('#backchannels', 'true');
  await page.locator('#speed').press('ArrowRight');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#settings', { state: 'detached' });
  await ask(page, 'What is two plus three?', 1);
  const sent = await session(page);
  assert.equal(sent.instructions, 'Answer in one sentence.');
  assert.equal(sent.audio.output.speed, 1.05);
  assert.deepEqual(sent.audio.input.noise_reduction, { type: 'near_field' });
  assert.equal(sent.audio.input.turn_detection.eagerness, 'low');
  assert.equal(sent.audio.input.turn_detection.ignore_backchannels, true);
  // A change while the session runs goes to that session.
  await openSettings(page);
  await page.selectOption('#eagerness', 'high');
  await poll(async () => (await session(page)).audio.input.turn_detection.eagerness === 'high', async () => JSON.stringify(await session(page)));
  assert.equal((await hooks(page)).captions.filter((c) => c.id.startsWith('past/')).length, 0, 'it is the same session');
  await page.reload();
  await openSettings(page, '#instructions');
  assert.equal(await page.inputValue('#instructions'), 'Answer in one sentence.');
  assert.equal(await page.inputValue('#eagerness'), 'high');
  await page.click('#reset');
  await poll(async () => (await page.inputValue('#instructions')) === '' && (await page.inputValue('#eagerness')) === 'null', () => 'the settings stay');
  await close();
});

test('of a recognizer that knows one language no other is offered', async (t) => {
  const hub = new OwnHub({
    ANTIPHON_STT__ENGINE: 'whisper',
    ANTIPHON_STT__MODEL: join(ROOT, 'target/models/whisper-tiny.en/ggml-tiny.en.bin'),
  });
  await hub.start();
  t.after(() => hub.stop());
  const { page, close } = await openPage(t, { url: hub.url, refuse: true });
  await openSettings(page, '#language');
  await eventually(() => page.locator('#language option').allInnerTexts(), (offered) => assert.deepEqual(offered, ['Hub’s choice', 'English']));
  await close();
});

test('what is typed is answered without sound where the user wants it so', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.addInitScript(() => {
    window.replies = { sound: 0, text: 0 };
    const Socket = window.WebSocket;
    window.WebSocket = class extends Socket {
      constructor(...args) {
        super(...args);
        this.addEventListener('message', ({ data }) => {
          if (typeof data !== 'string') window.replies.sound += 1;
          else if (JSON.parse(data).type === 'response.output_text.done') window.replies.text += 1;
        });
      }
    };
  });
  await page.reload();
  await ask(page, 'What is two plus three?', 1);
  // All of its sound has come once it has been played.
  await until(page, 'silence', ({ playback, captions }) => playback === 'idle' && captions.at(-1).revealed === captions.at(-1).text.length);
  const spoken = await page.evaluate(() => window.replies);
  assert.ok(spoken.sound > 0 && spoken.text === 0, `aloud at first: ${JSON.stringify(spoken)}`);
  await openSettings(page, '#typing');
  await page.check('#typing');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#settings', { state: 'detached' });
  const before = await page.evaluate(() => window.replies.sound);
  await page.fill('#text', 'What is two plus four?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer in text', ({ captions }) => captions.length === 4 && captions[3].status === 'done');
  assert.equal(await page.evaluate(() => window.replies.text), 1);
  assert.equal(await page.evaluate(() => window.replies.sound), before, 'no sound came with it');
  assert.match((await hooks(page)).captions.at(-1).text, /6|six/);
  await close();
});

test('the sheet keeps the keyboard, Escape closes it, and nothing behind it reacts', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.waitForSelector('.engine b');
  await page.keyboard.press(',');
  await page.waitForSelector('#settings[open] #noise');
  for (let i = 0; i < 40; i += 1) {
    await page.keyboard.press('Tab');
    const inside = await page.evaluate(() => document.activeElement === document.body || document.querySelector('#settings').contains(document.activeElement));
    assert.ok(inside, `Tab ${i + 1} left the sheet`);
  }
  await page.focus('#settings .close');
  await page.keyboard.press('m');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#settings', { state: 'detached' });
  assert.equal((await hooks(page)).link, 'off');
  await close();
});

test('a press that is dragged out of the sheet or into it leaves it open, and a click beside it closes it', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await openSettings(page, '#instructions');
  await page.fill('#instructions', 'Answer in one sentence.');
  await page.locator('#instructions').scrollIntoViewIfNeeded();
  const { x, y } = await page.locator('#instructions').boundingBox();
  const places = [x + 60, 4];
  for (const [from, to] of [places, places.toReversed()]) {
    await page.mouse.move(from, y + 15);
    await page.mouse.down();
    await page.mouse.move(to, y + 15, { steps: 4 });
    await page.mouse.up();
    await drawn(page);
    assert.equal(await page.locator('#settings[open]').count(), 1, `from ${from} to ${to}`);
  }
  await page.mouse.click(4, 4);
  await page.waitForSelector('#settings', { state: 'detached' });
  await close();
});

test('theme, size and announcements change the page at once', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true, context: { colorScheme: 'dark' } });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await openSettings(page, '#theme');
  await page.selectOption('#theme', 'light');
  await eventually(ground, (colour) => assert.notEqual(colour, dark));
  await page.selectOption('#caption-size', 'largest');
  await page.uncheck('#announces');
  await page.keyboard.press('Escape');
  await ask(page, 'What is two plus three?', 1);
  for (const place of ['#captions', '#status']) await eventually(() => page.getAttribute(place, 'aria-live'), (live) => assert.equal(live, 'off', place));
  const size = () => page.evaluate(() => parseFloat(getComputedStyle(document.querySelector('.reply')).fontSize));
  const largest = await size();
  await openSettings(page, '#theme');
  await page.selectOption('#caption-size', 'small');
  await eventually(size, (px) => assert.ok(px < largest / 1.5, `${px} px, ${largest} at first`));
  await page.selectOption('#theme', 'system');
  await eventually(ground, (colour) => assert.equal(colour, dark));
  await close();
});

test('an address carries settings, says so, and does not save them', async (t) => {
  const context = { permissions: ['clipboard-read', 'clipboard-write'] };
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true, hash: '#instructions=Speak+like+a+pirate.&theme=light', context });
  await says(page, '#notice', /instructions, theme/);
  assert.equal(await page.evaluate(() => localStorage.getItem('antiphon.settings')), null);
  await openSettings(page, '#instructions');
  assert.equal(await page.inputValue('#instructions'), 'Speak like a pirate.');
  await page.selectOption('#noise', 'off');
  const saved = await eventually(() => page.evaluate(() => localStorage.getItem('antiphon.settings')), assert.ok);
  assert.doesNotMatch(saved, /pirate/);
  await page.click('#share');
  await poll(async () => /Copied/.test(await page.innerText('.settings-foot')), () => page.innerText('.settings-foot'));
  const { hash, search } = new URL(await page.evaluate(() => navigator.clipboard.readText()));
  assert.deepEqual([Object.fromEntries(new URLSearchParams(hash.slice(1))), search], [{ instructions: 'Speak like a pirate.', noiseReduction: 'off', theme: 'light' }, '']);
  await close();
});

test('instructions that the hub would refuse are refused before they are sent, and stay in the field', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await openSettings(page, '#instructions');
  await page.evaluate(() => {
    const field = document.querySelector('#instructions');
    field.value = 'x'.repeat(4 * 1024 * 1024);
    field.dispatchEvent(new Event('input', { bubbles: true }));
    field.dispatchEvent(new Event('change', { bubbles: true }));
  });
  await poll(async () => /4,096 KiB; the hub takes 256/.test(await page.innerText('#instructions-hint')), () => page.innerText('#instructions-hint'));
  assert.equal(await page.evaluate(() => localStorage.getItem('antiphon.settings')), null);
  assert.equal(await page.evaluate(() => document.querySelector('#instructions').value.length), 4 * 1024 * 1024);
  await close();
});

test('a microphone is tested without a conversation, chosen while talking, and the volume is heard', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, microphone: questionMic, context: { permissions: ['microphone'] } });
  await openSettings(page, '#microphone option:nth-child(2)');
  await page.click('#test-microphone');
  const level = () => page.evaluate(() => new DOMMatrix(getComputedStyle(document.querySelector('.meter i')).transform).a);
  await poll(async () => (await level()) > 0.5, async () => `the meter shows ${await level()}`);
  await page.click('#test-microphone');
  await page.keyboard.press('Escape');
  await page.click('#talk');
  await until(page, 'the answer', (hub) => hub.audibleSamples > 4_000);
  await openSettings(page, '#microphone option:nth-child(2)');
  const devices = await page.locator('#microphone option').evaluateAll((options) => options.map(({ value }) => value).filter((value) => value !== 'null'));
  await page.selectOption('#microphone', devices.at(-1));
  await until(page, 'another microphone', (hub) => hub.phase !== 'connecting' && hub.levels.microphone > 0);
  assert.equal((await hooks(page)).link, 'live');
  const speakers = await page.locator('#loudspeaker option').evaluateAll((options) => options.map(({ value }) => value).filter((value) => value !== 'null'));
  if (speakers.length > 0) await page.selectOption('#loudspeaker', speakers[0]);
  await page.locator('#volume').fill('0.2');
  await gone(page, '#notice');
  await close();
});

test('a microphone that the browser allows after another one was chosen is not tested', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, microphone: questionMic, context: { permissions: ['microphone'] } });
  await openSettings(page, '#microphone option:nth-child(2)');
  await page.evaluate(() => {
    const { mediaDevices } = navigator;
    const ask = mediaDevices.getUserMedia.bind(mediaDevices);
    window.tracks = [];
    mediaDevices.getUserMedia = async (wanted) => {
      const stream = await ask(wanted);
      window.tracks.push(...stream.getTracks());
      await new Promise((allow) => (window.allow = allow));
      return stream;
    };
  });
  await page.click('#test-microphone');
  await poll(() => page.evaluate(() => window.tracks.length === 1), () => 'no microphone is asked for');
  await page.selectOption('#microphone', { index: 1 });
  await drawn(page);
  await page.evaluate(() => window.allow());
  await eventually(() => page.evaluate(() => window.tracks[0].readyState), (state) => assert.equal(state, 'ended'));
  assert.equal(await page.innerText('#test-microphone'), 'Test');
  assert.equal(await page.getByText('could not be opened').count(), 0);
  await close();
});

test('a sample of a voice is heard', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await openSettings(page, '#voice option:nth-child(2)');
  const [answer] = await Promise.all([page.waitForResponse((response) => response.url().endsWith('/v1/audio/speech')), page.click('#hear')]);
  assert.equal(answer.status(), 200);
  await poll(async () => (await page.innerText('#hear')) === 'Hear it', () => 'the sample does not end');
  await page.selectOption('#voice', { index: 1 });
  const [other] = await Promise.all([page.waitForRequest((request) => request.url().endsWith('/v1/audio/speech')), page.click('#hear')]);
  assert.deepEqual(other.postDataJSON().voice, { id: await page.inputValue('#voice') });
  await close();
});

test('push to talk: what is said while the space bar is held is answered, the rest is not heard', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice: { question: QUESTION_WAV }, hash: '#pushToTalk=true' });
  await page.click('#talk');
  await until(page, 'a closed microphone', (hub) => hub.phase === 'muted');
  await poll(async () => (await page.innerText('#status')) === 'Hold to talk', () => page.innerText('#status'));
  assert.equal(await page.evaluate(() => document.activeElement.id), 'talk', 'the button that was pressed has the focus');
  await page.keyboard.down('Space');
  await until(page, 'an open microphone', (hub) => hub.phase === 'listening');
  await say(page, 'question');
  await until(page, 'the question', (hub) => hub.levels.microphone > 0.05);
  // Not a pause between its words.
  let quietSince = null;
  await until(page, 'its end', (hub) => {
    quietSince = hub.levels.microphone < 0.01 ? (quietSince ?? Date.now()) : null;
    return quietSince !== null && Date.now() - quietSince > 500;
  });
  const { captions } = await hooks(page);
  assert.deepEqual(captions.filter((c) => c.committed || c.role !== 'user'), [], 'words may be shown while they are said, and nothing is a turn before the release');
  await page.keyboard.up('Space');
  await until(page, 'an answer', (hub) => hub.captions.some((c) => c.role === 'user' && c.text !== '') && hub.captions.some((c) => c.role === 'assistant' && c.playedMs > 100));
  await until(page, 'a closed microphone', (hub) => hub.levels.microphone === 0);
  await close();
});

test('push to talk: the space bar that is held in the field writes spaces', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true, hash: '#pushToTalk=true' });
  await page.focus('#text');
  for (let i = 0; i < 3; i += 1) await page.keyboard.down('Space');
  await page.keyboard.up('Space');
  assert.equal(await page.inputValue('#text'), '   ');
  await close();
});

for (const [width, height, colorScheme] of [[320, 640, 'dark'], [390, 844, 'light'], [768, 1024, 'dark'], [1920, 1080, 'light']]) {
  test(`axe finds nothing in the sheet, and nothing runs over the edge, at ${width} by ${height}, ${colorScheme}`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, refuse: true, context: { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' } });
    await page.waitForSelector('.engine b');
    assert.deepEqual(await axe(page), []);
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/page-${width}.png` });
    await openSettings(page, '#voice option:nth-child(2)');
    assert.deepEqual(await axe(page), []);
    const outside = await page.evaluate(() => {
      const sheet = document.querySelector('#settings');
      return [document.documentElement.scrollWidth - window.innerWidth, sheet.scrollWidth - sheet.clientWidth];
    });
    assert.deepEqual(outside.map((px) => Math.max(0, px)), [0, 0]);
    if (process.env.SHOTS) {
      await page.screenshot({ path: `${process.env.SHOTS}/settings-${width}.png` });
      await page.locator('#reset').scrollIntoViewIfNeeded();
      await page.screenshot({ path: `${process.env.SHOTS}/settings-${width}-end.png` });
    }
    await close();
  });
}
