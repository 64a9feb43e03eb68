// The engines' panel in a real Chromium: whoever runs the hub gets a better voice with one click, sees it come, and the
// next conversation is spoken by it. A hub of its own, a mirror of its own, and the fixture of a Piper voice.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { fileURLToPath } from 'node:url';
import { TEST_TIMEOUT_MS, openPage, poll, until } from './browser.mjs';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const BINARY = process.env.ANTIPHON ?? join(ROOT, 'target/debug/antiphon');
const VOICE = join(ROOT, 'tests/fixtures/voices/piper/en_US-tone-low.onnx');
const FILES = { '/tone/tone.onnx': readFileSync(VOICE), '/tone/tone.onnx.json': readFileSync(`${VOICE}.json`) };
const REGISTRY = `
[[model]]
name = "tone"
stage = "tts"
family = "piper"
title = "The tone"
base = "https://models.invalid/tone/"
licence = "Apache-2.0"
languages = ["en"]
rate_hz = 16000
auto = 99
offer_cores = 1
note = "Hums what it is told."
[[model.variant]]
precision = "fp32"
files = [
    { role = "graph", path = "tone.onnx", bytes = ${FILES['/tone/tone.onnx'].length} },
    { role = "config", path = "tone.onnx.json", bytes = ${FILES['/tone/tone.onnx.json'].length} },
]
`;

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const folder = mkdtempSync(join(tmpdir(), 'antiphon-models-'));

/** Sends half of each file, and the rest when `open` is called. */
class Mirror {
  #server;
  #waiting = [];
  #isOpen = false;

  async start() {
    this.#server = createServer((request, response) => {
      const bytes = FILES[request.url];
      if (!bytes) return void response.writeHead(404).end();
      response.writeHead(200, { 'content-length': bytes.length });
      response.write(bytes.subarray(0, bytes.length / 2));
      const rest = () => response.end(bytes.subarray(bytes.length / 2));
      if (this.#isOpen) rest();
      else this.#waiting.push(rest);
    });
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  open() {
    this.#isOpen = true;
    for (const rest of this.#waiting.splice(0)) rest();
  }

  stop() {
    this.#server?.closeAllConnections();
    this.#server?.close();
  }
}

const mirror = new Mirror();
let hub;
let url = '';

before(async () => {
  writeFileSync(join(folder, 'registry.toml'), REGISTRY);
  const env = {
    ...process.env,
    ANTIPHON_MODELS__DIR: join(folder, 'models'),
    ANTIPHON_MODELS__REGISTRY: join(folder, 'registry.toml'),
    ANTIPHON_MODELS__MIRROR: await mirror.start(),
    ANTIPHON_STT__DECODERS: '1',
  };
  let told = '';
  hub = spawn(BINARY, ['serve', '--listen', '127.0.0.1:0'], { cwd: ROOT, env });
  hub.stdout.on('data', (data) => (told += data));
  hub.stderr.on('data', (data) => (told += data));
  const listening = /is listening on (http:\S+\d)/;
  await poll(() => listening.test(told) || hub.exitCode !== null, () => `the hub does not start: ${told}`);
  url = listening.exec(told)?.[1] ?? assert.fail(`the hub did not start: ${told}`);
});

after(async () => {
  const ended = hub && hub.exitCode === null ? new Promise((done) => hub.once('exit', done)) : null;
  hub?.kill();
  await ended;
  mirror.stop();
  rmSync(folder, { recursive: true });
});

test('one click gets the better voice, with a progress bar, and the next conversation is spoken by it', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  const voice = page.locator('.engine-stage[data-stage=tts]');
  const footer = () => page.innerText('#engines');
  assert.match(await footer(), /flite speaks/);
  await page.click('#engines-open');
  assert.match(await voice.innerText(), /flite/);
  assert.match(await voice.locator('.offer').innerText(), /The tone[\s\S]*Apache-2.0/);
  await voice.getByRole('button', { name: 'Get it' }).click();
  const bar = voice.locator('progress');
  await poll(
    async () => (await bar.count()) === 1 && Number(await bar.getAttribute('value')) > 0,
    async () => `no progress: ${await voice.innerText()}`,
  );
  assert.ok(Number(await bar.getAttribute('value')) < 1, 'half of it has not come yet');
  mirror.open();
  await voice.getByText('It serves from the next conversation on.').waitFor();
  assert.match(await voice.locator('.engine-stage-now').innerText(), /The tone[\s\S]*tone:fp32/);
  await page.keyboard.press('Escape');
  await poll(async () => /piper speaks/.test(await footer()), footer);
  await page.fill('#text', 'What can you do?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer in the new voice', (seen) => seen.captions.some((caption) => caption.role === 'assistant' && caption.playedMs > 100));
  const { turns } = await (await fetch(new URL('api/turns?limit=1', `${url}/`))).json();
  assert.equal(turns[0].engines.tts, 'piper');
  await close();
});

test('who does not run the hub sees the engines and is offered nothing', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  await page.route('**/api/models', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ json: { ...(await answer.json()), may_change: false } });
  });
  await page.click('#engines-open');
  await page.locator('.engine-stage[data-stage=stt]').waitFor();
  assert.match(await page.innerText('#engines-panel'), /Whoever runs the hub can add better engines/);
  assert.equal(await page.locator('#engines-panel').getByRole('button', { name: /^(Get|Remove)/ }).count(), 0);
  await close();
});
