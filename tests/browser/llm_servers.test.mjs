// Language models on the hub's machine, in a real Chromium: the page says what the offline assistant can do, lists what a server
// that speaks as Ollama does serves, connects it with one click, and the next conversation is answered by it.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axeInBothThemes, eventually, openPage, poll, says, until } from './browser.mjs';
import { OwnHub } from './own_hub.mjs';
import { composeWav } from './wav.mjs';

const { QUESTION_WAV } = process.env;
if (!QUESTION_WAV) throw new Error('QUESTION_WAV must be set; see the head of run.mjs');
const folder = mkdtempSync(join(tmpdir(), 'antiphon-llm-'));
const silence = join(folder, 'silence.wav');
composeWav(silence, [120, QUESTION_WAV]);

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

/** Answers as Ollama does; without models until `has` is set. */
class Ollama {
  has = false;
  #server;

  async start() {
    this.#server = createServer((request, response) => {
      if (request.url === '/v1/models') {
        const model = { id: 'llama3.2:latest', object: 'model', created: 1733000000, owned_by: 'library' };
        response.writeHead(200, { 'content-type': 'application/json' });
        return void response.end(JSON.stringify({ object: 'list', data: this.has ? [model] : null }));
      }
      if (request.url !== '/v1/chat/completions') return void response.writeHead(404).end();
      const delta = (choice) => `data: ${JSON.stringify({ choices: [{ index: 0, ...choice }] })}\n\n`;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(delta({ delta: { content: 'I am a large model.' } }) + delta({ delta: {}, finish_reason: 'stop' }) + 'data: [DONE]\n\n');
    });
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(0, '127.0.0.1', ready));
    return this.#server.address().port;
  }

  stop() {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }
}

const ollama = new Ollama();
let hub;
let url = '';

before(async () => {
  const port = await ollama.start();
  // Without models, so that they are recommended.
  const recognizer = { ANTIPHON_STT__ENGINE: 'auto', ANTIPHON_STT__MODEL: 'whisper-1' };
  hub = new OwnHub({ ANTIPHON_LLM__LOCAL_PORTS: `${port}`, ...recognizer, ANTIPHON_MODELS__DIR: '/nonexistent' });
  await hub.start();
  url = hub.url;
});

after(async () => {
  await hub?.stop();
  ollama.stop();
  rmSync(folder, { recursive: true });
});

/** Asks the page's conversation who it is, and waits for the model's answer. */
async function meet(page) {
  const footer = () => page.innerText('#engines');
  await poll(async () => /llama3.2:latest[\s\S]*thinks/.test(await footer()), footer);
  await page.fill('#text', 'Who are you?');
  await page.press('#text', 'Enter');
  await until(page, 'its answer', (seen) => seen.captions.some((caption) => caption.role === 'assistant' && /large model/.test(caption.text)));
}

test('a language model that is started later is found by the panel, connected, and disconnected', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  const note = page.locator('#offline-note');
  await note.waitFor();
  assert.match(await note.innerText(), /offline assistant answers[\s\S]*arithmetic/);
  await note.getByRole('button', { name: 'Connect a language model' }).click();
  const stage = page.locator('.engine-stage[data-stage=llm]');
  await stage.getByText('It has no model').waitFor();
  await eventually(() => stage.innerText(), (words) => assert.match(words, /Offline assistant[\s\S]*nothing else/));
  await says(page, '#recommended', /Whisper base[\s\S]*Piper/);
  ollama.has = true;
  await stage.getByRole('button', { name: 'Look again' }).click();
  await stage.getByText('Ollama on the hub’s machine').waitFor();
  await stage.getByRole('button', { name: 'Connect llama3.2:latest' }).click();
  await stage.locator('.llm-kept').waitFor();
  await eventually(() => stage.locator('.engine-stage-now').innerText(), (words) => assert.match(words, /llama3.2:latest/));
  await stage.locator('summary').click();
  assert.deepEqual(await axeInBothThemes(page), []);
  assert.match(await stage.locator('pre').innerText(), /\[llm\]\nengine = "openai"/);
  await page.keyboard.press('Escape');
  await meet(page);
  await page.click('#engines-open');
  await stage.getByRole('button', { name: 'Disconnect' }).click();
  await stage.getByText('nothing else').waitFor();
  await close();
});

for (const isLive of [false, true]) {
  test(`a first visit offers the model that is found, and one click connects it (${isLive ? 'for the session after the one that has begun' : 'before a session'})`, async (t) => {
    ollama.has = true;
    const { page, close } = await openPage(t, { url, microphone: silence });
    const found = page.locator('#found-model');
    await found.waitFor();
    await says(page, '#found-model', /llama3.2:latest[\s\S]*Ollama on the hub’s machine/);
    assert.deepEqual(await axeInBothThemes(page), []);
    if (isLive) {
      await page.click('#talk');
      await until(page, 'a session', ({ link }) => link === 'live');
    }
    await found.getByRole('button', { name: 'Connect llama3.2:latest' }).click();
    await page.locator('#offline-note').waitFor({ state: 'detached' });
    await meet(page);
    const answer = await fetch(new URL('api/llm/servers', url), { method: 'DELETE' });
    assert.equal(answer.status, 200, await answer.text());
    await close();
  });
}

test('a model that is gone by the click is a plain message, and the offline assistant still answers', async (t) => {
  ollama.has = true;
  const { page, close } = await openPage(t, { url, refuse: true });
  const connect = page.getByRole('button', { name: 'Connect llama3.2:latest' });
  await connect.waitFor();
  ollama.has = false;
  await connect.click();
  await page.locator('#found-model [role=alert]').waitFor();
  await says(page, '#found-model [role=alert]', /No server on this machine serves this model/);
  assert.equal(await page.locator('#offline-note').count(), 1);
  await close();
});
