// The engines' panel in a real Chromium: the operator gets a better engine with one click, sees it come, and it
// serves the next conversation. A hub of its own, a mirror of its own, and the fixture of a Silero graph.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axeInBothThemes, eventually, openPage, poll, until } from './browser.mjs';
import { OwnHub, ROOT } from './own_hub.mjs';

const GRAPH = readFileSync(join(ROOT, 'tests/fixtures/onnx/silero.onnx'));
const REGISTRY = `
[[model]]
name = "fixture"
stage = "vad"
family = "silero"
title = "The fixture"
base = "https://models.invalid/vad/"
licence = "Apache-2.0"
languages = []
rate_hz = 16000
auto = 99
core_ms = 1
note = "Knows loud from quiet."
[[model.variant]]
precision = "fp32"
files = [{ role = "graph", path = "fixture.onnx", bytes = ${GRAPH.length} }]
`;

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const folder = mkdtempSync(join(tmpdir(), 'antiphon-models-'));

/** Sends half of the graph, and the rest when `open` is called. */
class Mirror {
  #server;
  #waiting = [];
  #isOpen = false;

  async start() {
    this.#server = createServer((request, response) => {
      if (request.url !== '/vad/fixture.onnx') return void response.writeHead(404).end();
      const half = Math.floor(GRAPH.length / 2);
      response.writeHead(200, { 'content-length': GRAPH.length });
      response.write(GRAPH.subarray(0, half));
      const rest = () => response.end(GRAPH.subarray(half));
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
  hub = new OwnHub({
    ANTIPHON_STT__ENGINE: 'auto',
    ANTIPHON_STT__MODEL: 'whisper-1',
    ANTIPHON_MODELS__DIR: join(folder, 'models'),
    ANTIPHON_MODELS__REGISTRY: join(folder, 'registry.toml'),
    ANTIPHON_MODELS__MIRROR: await mirror.start(),
    ANTIPHON_STT__DECODERS: '1',
  });
  await hub.start();
  url = hub.url;
});

after(async () => {
  await hub?.stop();
  mirror.stop();
  rmSync(folder, { recursive: true });
});

test('one click gets the better engine, with a progress bar, and it serves the next conversation', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  const stage = page.locator('.engine-stage[data-stage=vad]');
  const footer = () => page.innerText('#engines');
  await poll(async () => /earshot hears speech/.test(await footer()), footer);
  await page.click('#engines-open');
  await eventually(() => stage.innerText(), (words) => assert.match(words, /earshot/));
  await eventually(() => stage.locator('.offer').innerText(), (words) => assert.match(words, /The fixture[\s\S]*Apache-2.0/));
  await stage.getByRole('button', { name: 'Get it' }).click();
  const bar = stage.locator('progress');
  await poll(
    async () => (await bar.count()) === 1 && Number(await bar.getAttribute('value')) > 0,
    async () => `no progress: ${await stage.innerText()}`,
  );
  assert.ok(Number(await bar.getAttribute('value')) < 1, 'half of it has not come yet');
  const announced = stage.locator('.pull [aria-live]');
  assert.equal(await announced.innerText(), '', 'each megabyte is announced');
  await stage.getByRole('button', { name: 'Cancel The fixture' }).click();
  await eventually(() => announced.innerText(), (words) => assert.match(words, /^Cancelled\./));
  await eventually(() => bar.count(), (bars) => assert.equal(bars, 0));
  await stage.getByRole('button', { name: 'Try again' }).click();
  await poll(async () => (await bar.count()) === 1, async () => `no progress: ${await stage.innerText()}`);
  mirror.open();
  await stage.getByText('It serves from the next conversation on.').waitFor();
  const serving = () => stage.locator('.engine-stage-now').innerText();
  await poll(async () => /The fixture[\s\S]*fixture:fp32/.test(await serving()), serving);
  await page.keyboard.press('Escape');
  await poll(async () => /silero hears speech/.test(await footer()), footer);
  await page.fill('#text', 'What can you do?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer', (seen) => seen.captions.some((caption) => caption.role === 'assistant' && caption.playedMs > 100));
  const turns = async () => (await (await fetch(new URL('api/turns?limit=1', `${url}/`))).json()).turns;
  await eventually(turns, ([last]) => assert.equal(last?.engines.vad, 'silero'));
  await close();
});

test('a hub without a recognizer says so and can be written to', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  const note = page.getByText('This hub hears nobody yet');
  await note.waitFor();
  await note.getByRole('button', { name: 'Get one' }).click();
  await page.locator('.engine-stage[data-stage=stt]').waitFor();
  await page.keyboard.press('Escape');
  await page.fill('#text', 'What can you do?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer', (seen) => seen.captions.some(({ role, playedMs }) => role === 'assistant' && playedMs > 100));
  await close();
});

test('who does not run the hub sees the engines and is offered nothing', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  await page.route('**/api/models', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ json: { ...(await answer.json()), may_change: false } });
  });
  await page.click('#engines-open');
  // The panel may first show what the page was told before the route was there.
  await page.locator('#engines-panel').getByText('The operator can add better engines').waitFor();
  await page.locator('.engine-stage[data-stage=stt]').waitFor();
  assert.equal(await page.locator('#engines-panel').getByRole('button', { name: /^(Get|Remove)/ }).count(), 0);
  await close();
});

test("axe finds nothing in the engines' panel", async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  await page.click('#engines-open');
  await page.locator('.engine-stage[data-stage=vad]').waitFor();
  for (const more of await page.locator('.engine-stage-more summary').all()) await more.click();
  assert.deepEqual(await axeInBothThemes(page), []);
  await close();
});
