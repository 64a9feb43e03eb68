// The chat page, the client package below it and `<antiphon-voice>` in a real Firefox, by WebDriver BiDi. See `run.mjs` for what
// it needs. Firefox's own fake microphone is a tone, so recorded speech takes its place in the page's audio graph. Firefox's
// audio runs with a loudspeaker only: the test starts a PulseAudio that has none but a null sink.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { networkInterfaces, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import puppeteer from 'puppeteer-core';
import { TEST_TIMEOUT_MS, eventually, poll } from './browser.mjs';
import { serveSite } from './element_site.mjs';
import { OwnHub } from './own_hub.mjs';
import { composeWav } from './wav.mjs';

const { HUB_URL, QUESTION_WAV, FIREFOX = '/usr/bin/firefox-esr' } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');
const KEY = 'sk-of-the-firefox-test';

const folder = mkdtempSync(join(tmpdir(), 'antiphon-firefox-'));
const question = join(folder, 'question.wav');
composeWav(question, [1.5, QUESTION_WAV, 20]);
const hub = new OwnHub({ ANTIPHON_API_KEYS: KEY, ANTIPHON_MODELS__DIR: join(folder, 'models') });
let site, browser, loudspeaker;

/** Returns its address once it serves. */
async function startLoudspeaker() {
  const socket = join(folder, 'loudspeaker');
  const modules = [`--load=module-native-protocol-unix socket=${socket} auth-anonymous=1`, '--load=module-null-sink'];
  const options = ['-n', '--daemonize=no', '--use-pid-file=no', '--exit-idle-time=-1', '--log-level=error', ...modules];
  const env = { ...process.env, HOME: folder, XDG_RUNTIME_DIR: folder };
  loudspeaker = spawn('pulseaudio', options, { env, stdio: 'inherit' });
  loudspeaker.once('error', (cause) => console.error(`pulseaudio does not start: ${cause.message}`));
  await poll(() => existsSync(socket) || loudspeaker.exitCode !== null, () => 'pulseaudio does not serve');
  assert.equal(loudspeaker.exitCode, null, 'pulseaudio has ended');
  return `unix:${socket}`;
}

before(async () => {
  site = await serveSite(hub, KEY);
  hub.set('ANTIPHON_SERVER__ALLOWED_ORIGINS', JSON.stringify([site.url]));
  await hub.start();
  browser = await launch(await startLoudspeaker());
});
after(async () => {
  await browser?.close();
  loudspeaker?.kill();
  site?.close();
  await hub.stop();
  rmSync(folder, { recursive: true });
});

/** `sound`: the address of a PulseAudio. */
const launch = (sound) =>
  puppeteer.launch({
    env: { ...process.env, PULSE_SERVER: sound },
    browser: 'firefox',
    executablePath: FIREFOX,
    headless: true,
    defaultViewport: null,
    extraPrefsFirefox: {
      'media.navigator.streams.fake': true,
      'media.navigator.permission.disabled': true,
      'media.autoplay.default': 0,
    },
  });

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

/**
 * Runs in the page before its scripts: what the page reads of its microphone, which it opens as ever, is the recording, once.
 */
function hear(base64) {
  const recording = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  AudioContext.prototype.createMediaStreamSource = function () {
    const node = this.createGain();
    void this.decodeAudioData(recording.buffer.slice()).then((buffer) => {
      const source = this.createBufferSource();
      source.buffer = buffer;
      source.connect(node);
      source.start();
    });
    return node;
  };
}

/** The same for a call, whose microphone's track the browser sends itself. */
function call(base64) {
  const recording = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    // The permission, which also lets the browser name its addresses to the peer.
    await ask(wanted);
    const context = new AudioContext();
    const source = context.createBufferSource();
    source.buffer = await context.decodeAudioData(recording.buffer.slice());
    const track = context.createMediaStreamDestination();
    source.connect(track);
    source.start();
    return track.stream;
  };
}

/** puppeteer also sets the screen's orientation, which Firefox before 144 does not know; Debian's is 140. */
async function resize(page, width, height) {
  await page.setViewport({ width, height }).catch((error) => {
    if (!/unknown command emulation\.setScreenOrientationOverride/.test(error.message)) throw error;
  });
  await eventually(() => page.evaluate(() => [innerWidth, innerHeight]), (size) => assert.deepEqual(size, [width, height]));
}

async function open(t, url, { shows, speech = null, width = 1000, height = 800, within = browser }) {
  const page = await within.newPage();
  t.after(() => page.close());
  const faults = [];
  // What a policy keeps away, and a call that finds no way to the hub, are no errors of a script.
  page.on('pageerror', ({ message }) => /^(Content-Security-Policy|WebRTC: ICE failed)/.test(message) || faults.push(message));
  await resize(page, width, height);
  if (speech) await page.evaluateOnNewDocument(speech, readFileSync(question).toString('base64'));
  await page.goto(url);
  await page.waitForSelector(shows);
  const hooks = () => page.evaluate(() => {
    const { phase, codec, transport, levels, audibleSamples, captions } = window.__antiphon;
    return JSON.parse(JSON.stringify({ phase, codec, transport, levels, audibleSamples, captions }));
  });
  const until = (what, condition) => poll(async () => condition(await hooks()), async () => `waited in vain for ${what}: ${JSON.stringify(await hooks())}`);
  return { page, until, hooks, done: () => assert.deepEqual(faults, [], 'the page threw') };
}

const isAnswered = ({ captions, audibleSamples }) => audibleSamples > 10_000 && captions.some((c) => c.role === 'assistant' && c.status === 'done');
const isHeard = ({ captions }) => captions.some((c) => c.role === 'user' && c.final && /time/i.test(c.text));

test('the chat page understands speech and plays the answer', async (t) => {
  const { page, until, hooks, done } = await open(t, `${HUB_URL}/`, { shows: '#talk', speech: hear });
  await until('the hub', ({ phase }) => phase === 'idle');
  await page.click('#talk');
  await until('the words of the user', isHeard);
  await until('an answer that was heard', isAnswered);
  assert.equal((await hooks()).codec, 'opus');
  done();
});

test("the browser's own microphone is opened and heard", async (t) => {
  const { page, until, done } = await open(t, `${HUB_URL}/`, { shows: '#talk' });
  await page.click('#talk');
  await until('the level of the tone', ({ levels, phase }) => levels.microphone > 0.01 && ['listening', 'hearing', 'thinking', 'speaking'].includes(phase));
  await page.click('#talk');
  await until('the end', ({ phase }) => phase === 'idle');
  done();
});

test('a call by WebRTC is understood and answered aloud', async (t) => {
  // Firefox has no loopback addresses for calls: the hub needs one of an interface.
  const own = Object.values(networkInterfaces()).flat().find(({ family, internal }) => family === 'IPv4' && !internal);
  assert.ok(own, 'this machine has no network interface besides loopback, which a call in Firefox needs');
  const calls = new OwnHub({ ANTIPHON_RTC__LISTEN: `${own.address}:0`, ANTIPHON_MODELS__DIR: join(folder, 'models') });
  await calls.start();
  t.after(() => calls.stop());
  const { page, until, hooks, done } = await open(t, `${calls.url}/?transport=webrtc`, { shows: '.engine b', speech: call });
  await page.click('#talk');
  await until('the words of the user', isHeard);
  await until('an answer that was heard', isAnswered);
  assert.equal((await hooks()).transport, 'webrtc');
  const served = async () => (await (await fetch(`${calls.url}/api/state`)).json()).transports.webrtc ?? 0;
  await eventually(served, (calls) => assert.equal(calls, 1));
  await page.click('#talk');
  await poll(async () => (await served()) === 0, () => 'the call goes on');
  done();
});

test('where a call finds no way to the hub, the page says so, and a button goes on by WebSocket', async (t) => {
  // The hub takes calls on loopback, where Firefox makes none.
  const { page, until, hooks, done } = await open(t, `${HUB_URL}/?transport=webrtc`, { shows: '.engine b', speech: hear });
  await page.click('#talk');
  await page.waitForSelector('#notice .pill');
  const notice = () => page.evaluate(() => document.querySelector('#notice')?.innerText ?? '');
  await eventually(notice, (words) => assert.match(words, /call could not be connected.*WebRTC.*Use a WebSocket/s));
  await page.click('#notice .pill');
  await until('the words of the user', isHeard);
  await until('an answer that was heard', isAnswered);
  assert.equal((await hooks()).transport, 'websocket');
  await poll(async () => (await page.$('#notice')) === null, notice);
  done();
});

test('without a loudspeaker the page says why nothing sounds, and what to do', async (t) => {
  const silent = await launch(`unix:${join(folder, 'none')}`);
  t.after(() => silent.close());
  const { page, until, hooks, done } = await open(t, `${HUB_URL}/`, { shows: '#talk', within: silent });
  await page.click('#talk');
  const notice = () => page.evaluate(() => document.querySelector('#notice')?.innerText ?? '');
  await eventually(notice, (words) => assert.match(words, /not started the sound.*Start sound.*loudspeaker/s));
  assert.equal((await hooks()).audibleSamples, 0);
  // A change of the settings does not bring the sound.
  await page.click('#settings-open');
  await page.waitForSelector('#theme');
  await page.select('#theme', 'light');
  await page.keyboard.press('Escape');
  await poll(async () => (await page.$('#settings')) === null, () => 'the sheet stays');
  assert.match(await notice(), /Start sound/);
  await page.click('#talk');
  await until('the end', ({ phase }) => phase === 'idle');
  await poll(async () => (await page.$('#notice')) === null, notice);
  done();
});

test('without a loudspeaker the element says why nothing sounds, as long as there is a session', async (t) => {
  const silent = await launch(`unix:${join(folder, 'none')}`);
  t.after(() => silent.close());
  const { page, done } = await open(t, `${site.url}/one`, { shows: 'antiphon-voice', within: silent });
  const notice = () => page.evaluate(() => document.querySelector('antiphon-voice').shadowRoot.querySelector('[role=alert]:not([hidden])')?.innerText ?? '');
  await page.click('>>> .talk');
  await poll(async () => /not started the sound.*Start sound.*loudspeaker/s.test(await notice()), notice);
  await page.click('>>> .talk');
  await poll(async () => (await notice()) === '', notice);
  done();
});

test('a page of another origin converses by its element', async (t) => {
  const { page, done } = await open(t, `${site.url}/one?strict`, { shows: 'antiphon-voice', speech: hear });
  const seen = () => page.evaluate(() => JSON.parse(JSON.stringify(window.seen)));
  const until = (what, condition) => poll(async () => (await seen()).some(condition), async () => `waited in vain for ${what}: ${JSON.stringify(await seen()).slice(-2_000)}`);
  await until('the hub', ({ kind }) => kind === 'ready');
  await page.click('>>> .talk');
  await until('the words of the user', ({ kind, detail }) => kind === 'caption' && detail.role === 'user' && detail.final && /time/i.test(detail.text));
  await until('a spoken answer', ({ kind, detail }) => kind === 'turn' && detail.status === 'done' && detail.reply !== '');
  done();
});

for (const [width, height] of [[320, 640], [390, 844], [768, 1024], [1920, 1080]]) {
  test(`the layout of the chat page fits ${width} by ${height}`, async (t) => {
    const { page, done } = await open(t, `${HUB_URL}/`, { shows: '#talk', width, height });
    const outside = await page.evaluate(() => {
      const boxes = [...document.querySelectorAll('#talk, #status, #mute, #text, header select, .example')].map((element) => [element.id || element.className, element.getBoundingClientRect()]);
      const { clientWidth: across, scrollWidth } = document.documentElement;
      const shown = boxes.filter(([, { width }]) => width > 0);
      const bad = shown.filter(([, { left, right }]) => left < 0 || right > across + 0.5);
      return { n: shown.length, bad: bad.map(([name]) => name), scrolls: scrollWidth > across };
    });
    assert.ok(outside.n >= 4, JSON.stringify(outside));
    assert.deepEqual({ bad: outside.bad, scrolls: outside.scrolls }, { bad: [], scrolls: false });
    const text = await page.$eval('#text', (input) => input.getBoundingClientRect().bottom);
    assert.ok(text <= height, `the field to type in ends at ${text}`);
    done();
  });
}
