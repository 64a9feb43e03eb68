// What the page says and offers when a part of the hub fails, or all of it: in a real Chromium, against hubs that are made to
// fail. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, gone, hooks, openPage, poll, says, talk, until } from './browser.mjs';
import { OwnHub } from './own_hub.mjs';

const QUESTION_WAV = process.env.QUESTION_WAV;
if (!QUESTION_WAV) throw new Error('QUESTION_WAV must be set; see the head of run.mjs');

const folder = mkdtempSync(join(tmpdir(), 'antiphon-failures-'));
after(() => rmSync(folder, { recursive: true }));

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const answers = (hub) => hub.captions.filter((caption) => caption.role === 'assistant' && caption.status === 'done');

/** A recognizer that fails until it is healed; then it understands one question, and counts the seconds it was given. */
class Recognizer {
  isHealed = false;
  bytes = 0;
  #server = createServer((request, response) => {
    let bytes = 0;
    request.on('data', (data) => (bytes += data.length));
    request.on('end', () => {
      this.bytes = bytes;
      const body = this.isHealed ? { text: 'What time is it?' } : { error: { message: 'out of order' } };
      response.writeHead(this.isHealed ? 200 : 500, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });

  async start() {
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.#server.address().port}/v1`;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

for (const codec of ['opus', 'pcm16']) {
  test(`a dead recognizer is named, typing works without it, and what was said can be tried again (${codec})`, async (t) => {
    const recognizer = new Recognizer();
    const hub = new OwnHub({
      ANTIPHON_STT__ENGINE: 'openai',
      ANTIPHON_STT__BASE_URL: await recognizer.start(),
      ANTIPHON_STT__API_KEY_ENV: '',
      ANTIPHON_MODELS__DIR: join(folder, 'models'),
    });
    t.after(async () => {
      recognizer.stop();
      await hub.stop();
    });
    await hub.start();
    const { page, close } = await openPage(t, { url: hub.url, voice: { question: QUESTION_WAV }, codec });
    await talk(page, 'question');
    await page.waitForSelector('#notice[data-kind=hub]');
    await says(page, '#notice', /words could not be transcribed/i);
    await until(page, 'listening again', (seen) => seen.phase === 'listening');
    await says(page, '.user .words', /not transcribed/);

    await page.fill('#text', 'What is two plus two?');
    await page.press('#text', 'Enter');
    await until(page, 'an answer to what was typed', (seen) => answers(seen).length === 1);

    recognizer.isHealed = true;
    await page.click('#notice .pill');
    await until(page, 'the words, from the recording', (seen) => seen.captions.some((c) => c.role === 'user' && c.text === 'What time is it?'));
    await until(page, 'an answer to them', (seen) => answers(seen).length === 2);
    assert.ok(recognizer.bytes > 16_000, `the recording had ${recognizer.bytes} bytes`);
    await gone(page, '#notice');
    await gone(page, '.unclear');
    await close();
  });
}

test('a hub that is killed: nothing untrue is said, what is typed meanwhile is kept and sent', async (t) => {
  const hub = new OwnHub({ ANTIPHON_STT__DECODERS: '1', ANTIPHON_MODELS__DIR: join(folder, 'models') });
  t.after(() => hub.stop('SIGKILL'));
  await hub.start();
  const { page, close } = await openPage(t, { url: hub.url, refuse: true });
  await page.fill('#text', 'What time is it?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer', (seen) => answers(seen).length === 1);
  await hub.stop('SIGKILL');
  await page.waitForSelector('#notice[data-kind=link] .countdown');
  assert.doesNotMatch(await page.innerText('#notice'), /nothing .*lost/i);
  const left = () => page.innerText('#notice .countdown').then(Number);
  const first = await left();
  await poll(async () => (await left()) < first, async () => `it is not counted down: ${await left()}`);
  assert.equal(await page.locator('.reply .tag').count(), 0, 'the whole answer is not called interrupted');

  await page.fill('#text', 'What is two plus two?');
  await page.press('#text', 'Enter');
  await page.waitForSelector('.user .tag:has-text("not sent")');
  await says(page, '#notice .pill', /connect again/i);
  await hub.start();
  await until(page, 'an answer to what was typed meanwhile', (seen) => seen.link === 'live' && answers(seen).length === 2);
  await poll(async () => /new session has begun/i.test(await page.innerText('#notice')), () => page.innerText('#notice'));
  await gone(page, '.user .tag');
  assert.equal((await hooks(page)).captions.filter((caption) => caption.role === 'user').length, 2);
  await close();
});
