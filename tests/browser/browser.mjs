// One Chromium with a WAV file as its microphone, and a page of the hub in it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';
import { chromium } from 'playwright-core';

const EXECUTABLE = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** A hub on a busy machine may be slow; no test is about speed. It bounds each wait. */
const WAIT_MS = Number(process.env.PATIENCE_S ?? 120) * 1000;
export const TEST_TIMEOUT_MS = WAIT_MS * 6;

/**
 * The browser ends with the test, also with one that fails; `close` ends it early and fails where the page threw.
 * @param {{ microphone?: string, voice?: object, url: string, path?: string, shows?: string, codec?: string, transport?: string, refuse?: boolean, autoplay?: boolean, hash?: string, devices?: boolean, context?: object }} options
 *   autoplay: whether sound starts without a click; path: of the page below the address; hash: its fragment; devices: whether there are any; shows: what it must come to show; microphone: the WAV it hears, once; voice: WAVs by name, which it hears when `say` names them; refuse: the user says no to the microphone; context: playwright's context options
 */
export async function openPage(t, { microphone, voice, url, path = '/', shows = '#talk', codec, transport, hash = '', refuse = false, autoplay = true, devices = true, context = {} }) {
  const browser = await chromium.launch({
    executablePath: EXECUTABLE,
    args: [
      '--no-sandbox',
      ...(devices ? ['--use-fake-device-for-media-stream'] : []),
      refuse ? '--deny-permission-prompts' : '--use-fake-ui-for-media-stream',
      ...(microphone ? [`--use-file-for-fake-audio-capture=${microphone}%noloop`] : []),
      '--disable-background-networking',
      `--autoplay-policy=${autoplay ? 'no-user-gesture-required' : 'document-user-activation-required'}`,
      // There is no graphics card to help; imitating one takes the processor from the audio.
      '--disable-gpu',
    ],
  });
  t.after(() => browser.close());
  const page = await (await browser.newContext(context)).newPage();
  page.setDefaultTimeout(WAIT_MS);
  if (voice) await page.addInitScript(speakInto, Object.fromEntries(Object.entries(voice).map(([name, path]) => [name, readFileSync(path).toString('base64')])));
  const faults = [];
  page.on('pageerror', (error) => faults.push(error.message));
  const query = new URLSearchParams({ ...(codec ? { audio: codec } : {}), ...(transport ? { transport } : {}) }).toString();
  await page.goto(new URL(`${path}${query && `?${query}`}${hash}`, url).href);
  await page.waitForSelector(shows);
  await drawn(page);
  const close = async () => {
    await browser.close();
    assert.deepEqual(faults, [], 'the page threw');
  };
  return { page, close };
}

/** Runs in the page before its scripts: each microphone that the page opens hears what `say` names. Silence until then. */
function speakInto(recordings) {
  const ask = navigator.mediaDevices?.getUserMedia.bind(navigator.mediaDevices);
  if (!ask) return;
  const microphones = [];
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    // The permission.
    for (const track of (await ask(wanted)).getTracks()) track.stop();
    const context = new AudioContext();
    const microphone = context.createMediaStreamDestination();
    microphones.push({ context, microphone });
    return microphone.stream;
  };
  window.__say = async (name) => {
    if (microphones.length === 0) return false;
    const bytes = Uint8Array.from(atob(recordings[name]), (c) => c.charCodeAt(0));
    for (const { context, microphone } of microphones) {
      const source = context.createBufferSource();
      source.buffer = await context.decodeAudioData(bytes.buffer.slice());
      source.connect(microphone);
      source.start();
    }
    return true;
  };
}

/** Presses the microphone of the chat page, and says a recording once the page listens. */
export async function talk(page, name) {
  await page.click('#talk');
  await until(page, 'an open microphone', ({ phase }) => phase === 'listening');
  await say(page, name);
}

/** Says a recording of the option `voice` of `openPage`, once the page has opened a microphone. Returns when it begins. */
export const say = (page, name) => poll(() => page.evaluate((name) => window.__say(name), name), () => 'the page opens no microphone');

/** Opens the settings and waits for an element of theirs. */
export async function openSettings(page, shows = '#settings') {
  await page.click('#settings-open');
  await page.waitForSelector(shows, { state: 'attached' });
}

/** What the page's test hooks say now. */
export const hooks = (page) =>
  page.evaluate(() => {
    const { phase, link, playback, codec, transport, levels, audibleSamples, renderedSamples, lastAudibleMs, captions } = window.__antiphon;
    return { phase, link, playback, codec, transport, levels, audibleSamples, renderedSamples, lastAudibleMs, captions };
  });

/**
 * Waits until `condition` of the hooks is true; fails with what the page shows. It asks from outside:
 * waiting inside the page would need eval, which a content security policy rightly forbids.
 */
export async function until(page, what, condition) {
  await poll(
    async () => condition(await hooks(page)),
    async () => `waited in vain for ${what}. The page: ${JSON.stringify(await hooks(page))}; notice: ${await page.locator('#notice').allInnerTexts()}`,
  );
  await drawn(page);
}

/** Waits until the page shows what its state was: it draws in the next frame, and what that begins follows. A hidden page has no frames. */
export const drawn = (page) =>
  page.evaluate(() => new Promise((done) => {
    setTimeout(done, 1_000);
    requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
  }));

/** Waits until nothing matches; it may show for a moment more. */
export const gone = (page, selector) =>
  poll(async () => (await page.locator(selector).count()) === 0, async () => `${selector} stays: ${await page.locator(selector).allInnerTexts()}`);

/** Answers that were played to their end, also those of earlier sessions. A reply may be done before its sound arrives. */
export const answers = ({ captions }) => captions.filter(({ role, status, playedMs, id }) => role === 'assistant' && status === 'done' && (playedMs > 0 || id.startsWith('past/'))).length;

/** Types a question and waits until this many answers were played. */
export async function ask(page, text, nAnswers) {
  await page.fill('#text', text);
  await page.press('#text', 'Enter');
  await until(page, `answer ${nAnswers}`, (hub) => answers(hub) === nAnswers);
}

/** Asks until `answer` is true; `complaint` makes the message when it never is. */
export async function poll(answer, complaint) {
  for (const end = Date.now() + WAIT_MS; Date.now() < end; await pause(20)) if (await answer()) return;
  throw new Error(await complaint());
}

/**
 * Reads until `check` accepts what was read, and returns it; fails with the last complaint of `check`. For what follows an event
 * a moment later, such as what the page draws in its next frame.
 */
export async function eventually(read, check) {
  for (const end = Date.now() + WAIT_MS; ; await pause(20)) {
    const value = await read();
    try {
      check(value);
      return value;
    } catch (complaint) {
      if (Date.now() >= end) throw complaint;
    }
  }
}

/** Waits until the first element that matches has this text. */
export const says = (page, selector, words) =>
  eventually(() => page.locator(selector).first().innerText(), (text) => (words instanceof RegExp ? assert.match(text, words) : assert.equal(text, words)));

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds wrong with the page: rule, and the elements. It runs in an isolated world, as the page's policy forbids scripts from elsewhere. */
export async function axe(page) {
  const devtools = await page.context().newCDPSession(page);
  const { frameTree } = await devtools.send('Page.getFrameTree');
  const { executionContextId: contextId } = await devtools.send('Page.createIsolatedWorld', { frameId: frameTree.frame.id });
  const run = (expression) => devtools.send('Runtime.evaluate', { expression, contextId, awaitPromise: true, returnByValue: true });
  await run(AXE);
  const { result, exceptionDetails } = await run('axe.run().then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, any }) => `${target} ${any.map(({ message }) => message)}`).join(", ")}`))');
  assert.equal(exceptionDetails, undefined, JSON.stringify(exceptionDetails));
  return result.value;
}

/** What axe finds in the dark and in the light theme. */
export async function axeInBothThemes(page) {
  const found = [];
  for (const colorScheme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    found.push(...(await axe(page)).map((fault) => `${colorScheme}: ${fault}`));
  }
  return found;
}
