// Custom voices in a real Chromium: a voice is recorded with the microphone, added with the speaker's consent, played and
// removed. A hub of its own behind a small server that plays an engine with a library; what the browser records is decoded by
// the hub, and what it plays is the hub's.

import assert from 'node:assert/strict';
import { createServer, request as send } from 'node:http';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axeInBothThemes, eventually, openPage, openSettings, poll } from './browser.mjs';
import { Cable } from './cable.mjs';
import { OwnHub } from './own_hub.mjs';

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const LIMITS = { min_recording_ms: 1000, max_recording_ms: 60000, used_recording_ms: 10000, min_rate_hz: 16000, languages: ['en', 'de'], max_voices: 4 };

/** Answers `/v1/audio/voices` as the hub does with an engine that clones voices; the rest is the hub's. */
class Library {
  voices = [{ id: 'operator', object: 'audio.voice', name: 'Operator', language: 'en', recording_ms: 12000, note: null, custom: true, removable: false }];
  /** What was sent to be added, and the next answer to it: `{ status, body }`, or null for a voice. */
  sent = [];
  refuses = null;
  spoken = [];
  /** How long the list of voices takes. */
  listMs = 0;
  #cable;
  #server;

  constructor(hubUrl) {
    this.hubUrl = hubUrl;
    this.#cable = new Cable(hubUrl);
  }

  async start() {
    await this.#cable.plug();
    this.#server = createServer((request, response) => void this.#answer(request, response));
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  async stop() {
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
    await this.#cable.unplug();
  }

  async #answer(request, response) {
    const { pathname } = new URL(request.url, 'http://any');
    const isOurs = pathname.startsWith('/v1/audio/voices') || pathname === '/v1/audio/speech';
    if (!isOurs) {
      const options = { method: request.method, headers: request.headers };
      const onward = send(new URL(request.url, this.#cable.url), options, (answer) => answer.pipe(response.writeHead(answer.statusCode, answer.headers)));
      request.pipe(onward.on('error', () => response.destroy()));
      return;
    }
    const pieces = [];
    for await (const piece of request) pieces.push(piece);
    const json = (status, body) => response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (pathname === '/v1/audio/speech') {
      const asked = JSON.parse(Buffer.concat(pieces));
      this.spoken.push(asked.voice.id);
      const answer = await fetch(new URL(pathname, this.hubUrl), { method: 'POST', body: JSON.stringify({ ...asked, voice: 'alloy' }) });
      response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') }).end(Buffer.from(await answer.arrayBuffer()));
    } else if (request.method === 'GET') {
      await new Promise((done) => setTimeout(done, this.listMs));
      json(200, { voices: this.voices, default: 'operator', library: LIMITS, object: 'list', data: this.voices, has_more: false });
    } else if (request.method === 'DELETE') {
      const id = decodeURIComponent(pathname.split('/').at(-1));
      this.voices = this.voices.filter((voice) => voice.id !== id);
      json(200, { id, object: 'audio.voice.deleted', deleted: true });
    } else {
      const form = await new Response(Buffer.concat(pieces), { headers: { 'content-type': request.headers['content-type'] } }).formData();
      this.sent.push(form);
      if (this.refuses) return json(...this.refuses);
      const voice = { ...this.voices[0], id: 'voice_0123456789abcdef', name: form.get('name'), language: form.get('language') ?? 'en', removable: true };
      this.voices.push(voice);
      json(200, voice);
    }
  }
}

let hub;
let library;
let url = '';

before(async () => {
  hub = new OwnHub({ ANTIPHON_STT__DECODERS: '1', ANTIPHON_MODELS__DIR: 'nowhere/models' });
  await hub.start();
  library = new Library(hub.url);
  url = await library.start();
});

after(async () => {
  await library?.stop();
  await hub?.stop();
});

test('a voice is recorded, added with consent, chosen, played and removed', async (t) => {
  const { page, close } = await openPage(t, { url, microphone: process.env.QUESTION_WAV });
  await page.click('#engines-open');
  const section = page.locator('#voices');
  await section.getByText('Operator').waitFor();
  assert.equal(await section.getByRole('button', { name: 'Remove Operator' }).count(), 0, "the operator's is not the page's to remove");
  await section.getByText('Add a voice', { exact: true }).click();
  const add = section.getByRole('button', { name: 'Add the voice' });
  await add.click();
  await section.getByText('Record the voice, or choose a file.').waitFor();

  await section.getByRole('button', { name: 'Record' }).click();
  const stop = section.getByRole('button', { name: 'Stop', exact: true });
  const seconds = section.locator('.recorded-for');
  const told = section.locator('.voice-microphone [role=status]');
  await poll(async () => /^([2-9]|\d\d) s$/.test(await seconds.innerText()), async () => `nothing is recorded: ${await seconds.innerText()}`);
  assert.equal(await told.innerText(), '', 'a screen reader would speak into the recording');
  await stop.click();
  await eventually(() => told.innerText(), (words) => assert.match(words, /^Recorded \d/));
  await section.getByLabel('Name').fill('Anna');
  await section.getByLabel('Language').selectOption('de');
  await section.getByLabel(/^Words of the recording/).fill('What time is it?');
  await add.click();
  await section.getByText('The speaker has to agree.').waitFor();
  assert.deepEqual(await axeInBothThemes(page), []);
  assert.equal(library.sent.length, 0, 'nothing is sent without consent');
  await section.getByLabel(/agrees that this hub speaks with a clone/).check();
  await add.click();
  await section.getByText('Anna can speak now: choose it as the voice.').waitFor();

  const [form] = library.sent;
  assert.deepEqual([form.get('name'), form.get('language'), form.get('ref_text')], ['Anna', 'de', 'What time is it?']);
  assert.match(form.get('consent'), /agrees/);
  const heard = new FormData();
  heard.set('file', form.get('audio_sample'), 'recording');
  heard.set('response_format', 'verbose_json');
  const answer = await (await fetch(new URL('v1/audio/transcriptions', `${hub.url}/`), { method: 'POST', body: heard })).json();
  assert.ok(answer.duration > 1.5, `the hub reads what the browser recorded: ${JSON.stringify(answer)}`);

  await page.keyboard.press('Escape');
  await openSettings(page, '#voice');
  await poll(async () => (await page.locator('#voice option').allInnerTexts()).includes('Anna (de)'), () => 'the voice cannot be chosen');
  await page.keyboard.press('Escape');
  await page.click('#engines-open');
  await section.getByRole('button', { name: 'Play a sample of Anna' }).click();
  await section.getByRole('button', { name: 'Stop a sample of Anna' }).waitFor();
  await section.getByRole('button', { name: 'Play a sample of Anna' }).waitFor();
  assert.deepEqual(library.spoken, ['voice_0123456789abcdef']);
  assert.equal(await section.locator('.failed').count(), 0);

  await section.getByRole('button', { name: 'Remove Anna' }).click();
  await section.getByRole('button', { name: 'Really remove Anna' }).click();
  await section.getByText('Anna was removed.').waitFor();
  assert.deepEqual(library.voices.map(({ id }) => id), ['operator']);
  await close();
});

test('a second press while the browser asks for the microphone begins no second recording', async (t) => {
  const { page, close } = await openPage(t, { url, microphone: process.env.QUESTION_WAV });
  await page.evaluate(() => {
    const { mediaDevices } = navigator;
    const ask = mediaDevices.getUserMedia.bind(mediaDevices);
    const allowed = new Promise((allow) => (window.allow = allow));
    window.nAsked = 0;
    mediaDevices.getUserMedia = async (wanted) => {
      window.nAsked += 1;
      await allowed;
      return ask(wanted);
    };
  });
  await page.click('#engines-open');
  const section = page.locator('#voices');
  await section.getByText('Add a voice', { exact: true }).click();
  const record = section.getByRole('button', { name: 'Record' });
  await record.click();
  await record.click();
  await page.evaluate(() => window.allow());
  await section.getByRole('button', { name: 'Stop', exact: true }).click();
  await section.getByText(/^Recorded \d/).waitFor();
  assert.equal(await page.evaluate(() => window.nAsked), 1);
  await close();
});

test('what the hub refuses is said in its words, and the draft is kept', async (t) => {
  const { page, close } = await openPage(t, { url, refuse: true });
  library.refuses = [400, { error: { message: 'The recording is silent.', param: 'audio_sample' } }];
  await page.click('#engines-open');
  const section = page.locator('#voices');
  await section.getByText('Add a voice', { exact: true }).click();
  await section.getByRole('button', { name: 'Record' }).click();
  await section.getByText('The microphone is not available.').waitFor();
  await section.getByLabel('or a file').setInputFiles(process.env.QUESTION_WAV);
  await section.getByLabel('Name').fill('Ben');
  await section.getByLabel(/agrees that this hub speaks with a clone/).check();
  await section.getByRole('button', { name: 'Add the voice' }).click();
  await section.getByText('The recording is silent.').waitFor();
  assert.deepEqual(await axeInBothThemes(page), []);
  assert.equal(await section.getByLabel('Name').inputValue(), 'Ben');
  library.refuses = null;
  library.listMs = 300;
  await section.getByRole('button', { name: 'Add the voice' }).click();
  await section.getByText(/^Ben can speak now/).waitFor();
  await eventually(() => section.getByLabel('Name').inputValue(), (name) => assert.equal(name, ''));
  if (process.env.VOICES_SCREENSHOT) await page.screenshot({ path: process.env.VOICES_SCREENSHOT });
  await close();
});

test('an engine whose voices are fixed offers none', async (t) => {
  const { page, close } = await openPage(t, { url: hub.url, refuse: true });
  await page.click('#engines-open');
  await page.locator('.engine-stage[data-stage=tts]').waitFor();
  await page.waitForLoadState('networkidle');
  assert.equal(await page.locator('#voices').count(), 0);
  await close();
});
