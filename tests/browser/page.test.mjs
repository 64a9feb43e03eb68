// The voice chat page in a real Chromium against a running hub. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, eventually, gone, hooks, openPage, openSettings, poll, say, says, talk, until } from './browser.mjs';
import { Cable } from './cable.mjs';
import { composeWav } from './wav.mjs';

const HUB_URL = needed('HUB_URL');
const QUESTION_WAV = needed('QUESTION_WAV');
const STORY_WAV = process.env.STORY_WAV ?? QUESTION_WAV;

const folder = mkdtempSync(join(tmpdir(), 'antiphon-browser-'));
after(() => rmSync(folder, { recursive: true }));

const questionMic = join(folder, 'question.wav');
composeWav(questionMic, [1.5, QUESTION_WAV, 20]);
/** The question interrupts the story's answer once it sounds, however long that takes. */
const voice = { story: STORY_WAV, question: QUESTION_WAV };

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
/** Calls by WebRTC that the hub serves. */
const calls = (page) => page.evaluate(async () => (await (await fetch('api/state')).json()).transports.webrtc ?? 0);
/** Waits until the page shows as spoken the words that the hub's record of the turn has as heard. */
async function showsWhatWasHeard(page, { id, responseId }) {
  const recorded = async () => {
    const { turns } = await (await fetch(new URL('api/turns?limit=50', `${HUB_URL}/`))).json();
    return turns.find((turn) => turn.response_id === responseId)?.heard ?? '';
  };
  const shown = async () => {
    const { text, revealed } = (await hooks(page)).captions.find((caption) => caption.id === id);
    return text.slice(0, revealed).trim();
  };
  await poll(async () => (await recorded()) === (await shown()), async () => `recorded: ${await recorded()}; shown: ${await shown()}`);
}

const isAnswer = (caption) => caption.role === 'assistant';

for (const [codec, sound] of [['opus', { microphone: questionMic }], ['pcm16', { voice }]]) {
  test(`a spoken question is captioned, answered aloud and timed (${codec})`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, ...sound, codec });
    await (sound.voice ? talk(page, 'question') : page.click('#talk'));
    await until(page, 'a loud microphone', (hub) => hub.levels.microphone > 0.05);
    await until(page, 'the final words of the user', (hub) => hub.captions.some((c) => c.role === 'user' && c.final && c.text !== ''));
    await until(page, 'half a second of audible answer', (hub) => hub.audibleSamples > 10_000);
    await until(page, 'an answer that was played whole', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'done'));
    await eventually(() => hooks(page), (seen) => {
      assert.equal(seen.codec, codec);
      const answer = seen.captions.find(isAnswer);
      assert.ok(answer.text.length > 0 && answer.revealed === answer.text.length, 'all words are shown');
      assert.ok(answer.playedMs > 200, `only ${answer.playedMs} ms were played`);
      assert.ok(answer.latencyMs > 0 && answer.latencyMs < 15_000, `latency ${answer.latencyMs}`);
    });
    await says(page, '.reply .latency-total', /^\d+ ms$/);
    // The bar has parts, once the hub has reported the stages.
    await page.locator('.reply .bar rect').first().waitFor({ state: 'attached' });
    await page.locator('.user .words').first().waitFor();
    await close();
  });
}

test('speech over the answer stops it at once, and what was not heard is shown as cut', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice });
  // The page watches itself: what was played when the answer was cut, and at the end of the user's speech.
  await page.evaluate(() => {
    const count = ({ audibleSamples, renderedSamples }) => ({ audibleSamples, renderedSamples });
    const timer = setInterval(() => {
      const hub = window.__antiphon;
      if (window.atCut === undefined && hub.captions.some(({ status }) => status === 'cut')) window.atCut = count(hub);
      if (window.atCut === undefined || hub.phase === 'hearing') return;
      window.atEnd = count(hub);
      clearInterval(timer);
    }, 5);
  });
  await talk(page, 'story');
  await until(page, 'a sounding answer', (hub) => hub.phase === 'speaking' && hub.audibleSamples > 4_000);
  await say(page, 'question');
  await until(page, 'an answer that was cut', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'cut'));
  const cut = (await hooks(page)).captions.find((caption) => isAnswer(caption) && caption.status === 'cut');
  assert.ok(cut.revealed < cut.text.length, 'some words were not spoken');
  await eventually(() => page.locator('.reply.cut .unspoken').count(), (rests) => assert.equal(rests, 1));
  // What was queued at the cut, up to 300 ms, must not sound while the user goes on talking. Up to
  // 50 ms may: the report of a sample comes after it, and the stop fades out over a millisecond.
  await poll(() => page.evaluate(() => window.atEnd !== undefined), () => 'the interruption does not end');
  const [atCut, atEnd] = await page.evaluate(() => [window.atCut, window.atEnd]);
  assert.ok(atEnd.renderedSamples > atCut.renderedSamples + 10_000, 'the interruption was watched');
  const sounded = atEnd.audibleSamples - atCut.audibleSamples;
  assert.ok(sounded < 2_400, `${sounded} audible samples after the cut`);
  await until(page, 'an answer to the interruption', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.id !== cut.id && c.playedMs > 200));
  await showsWhatWasHeard(page, cut);
  await close();
});

test('a call by WebRTC is captioned, answered aloud, cut by speech and timed', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice, transport: 'webrtc' });
  // The page takes the call once the hub has said what it offers.
  await page.waitForSelector('.engine b');
  await talk(page, 'story');
  await until(page, 'a loud microphone', (hub) => hub.levels.microphone > 0.05);
  await until(page, 'the final words of the user', (hub) => hub.captions.some((c) => c.role === 'user' && c.final && c.text !== ''));
  await until(page, 'a sounding answer', (hub) => hub.phase === 'speaking' && hub.audibleSamples > 4_000);
  assert.equal((await hooks(page)).transport, 'webrtc');
  await until(page, 'words of it', (hub) => hub.captions.some((c) => isAnswer(c) && c.revealed > 0));
  await say(page, 'question');
  await until(page, 'an answer that was cut', (hub) => hub.captions.some((c) => isAnswer(c) && c.status === 'cut'));
  const first = async () => (await hooks(page)).captions.find((c) => isAnswer(c) && c.status === 'cut');
  // The hub says what was heard after the cut.
  const cut = await eventually(first, ({ revealed, text }) => assert.ok(revealed > 0 && revealed < text.length, `${revealed} of ${text.length} characters were shown`));
  await until(page, 'an answer to the interruption', (hub) => hub.captions.some((c) => isAnswer(c) && c.id !== cut.id && c.status === 'done'));
  await showsWhatWasHeard(page, cut);
  await eventually(() => hooks(page), (seen) => {
    const answer = seen.captions.findLast((c) => isAnswer(c) && c.status === 'done');
    assert.ok(answer.revealed === answer.text.length && answer.playedMs > 200, JSON.stringify(answer));
    assert.ok(seen.captions.some((c) => isAnswer(c) && c.latencyMs > 0 && c.latencyMs < 15_000), JSON.stringify(seen.captions));
  });
  // The bar has parts, once the hub has reported the stages.
  await page.locator('.reply .bar rect').first().waitFor({ state: 'attached' });
  await eventually(() => calls(page), (served) => assert.equal(served, 1));
  await page.click('#talk');
  await poll(async () => (await calls(page)) === 0, () => 'the call goes on');
  await close();
});

test('the connection is chosen on the page, and the choice is remembered', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await openSettings(page, '#transport');
  assert.equal(await page.inputValue('#transport'), 'websocket');
  await page.keyboard.press('Escape');
  const ask = async (text, nAnswers) => {
    await page.fill('#text', text);
    await page.press('#text', 'Enter');
    await until(page, `answer ${nAnswers}`, (hub) => hub.captions.filter((c) => isAnswer(c) && c.playedMs > 100).length === nAnswers);
  };
  await ask('What can you do?', 1);
  await openSettings(page, '#transport');
  await page.selectOption('#transport', 'webrtc');
  await page.keyboard.press('Escape');
  await until(page, 'a call', (hub) => hub.link === 'live' && hub.transport === 'webrtc');
  await ask('What time is it?', 2);
  await page.keyboard.press('Escape');
  await until(page, 'silence', (hub) => hub.playback === 'idle' && hub.levels.reply < 0.01);
  await page.reload();
  await openSettings(page, '#transport');
  assert.equal(await page.inputValue('#transport'), 'webrtc');
  await poll(async () => (await calls(page)) === 0, () => 'the call goes on');
  await close();
});

test('typed text is answered aloud without a microphone', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.fill('#text', 'What can you do?');
  await page.press('#text', 'Enter');
  await until(page, 'an audible answer', (hub) => hub.audibleSamples > 4_000);
  await until(page, 'its words', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.revealed > 0 && c.latencyMs !== null));
  const seen = await hooks(page);
  assert.equal(seen.levels.microphone, 0);
  assert.equal(seen.captions[0].text, 'What can you do?');
  // A question typed meanwhile ends the answer; Escape ends the next one, and it is quiet.
  await page.fill('#text', 'Tell me a story');
  await page.press('#text', 'Enter');
  await until(page, 'a second answer', (hub) => hub.captions.filter((c) => c.role === 'assistant').length === 2 && hub.playback === 'playing');
  await page.keyboard.press('Escape');
  await until(page, 'silence', (hub) => hub.playback === 'idle' && hub.levels.reply === 0);
  await close();
});

test('words are written in their own direction', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  const direction = (selector) => page.locator(selector).first().evaluate((element) => getComputedStyle(element).direction);
  await page.fill('#text', 'שלום, Antiphon!');
  assert.equal(await direction('#text'), 'rtl');
  await page.press('#text', 'Enter');
  assert.equal(await direction('.user .words'), 'rtl');
  assert.equal(await direction('#captions'), 'ltr');
  await close();
});

test('a refused microphone is told in plain words, and typing still works', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await page.click('#talk');
  await page.waitForSelector('#notice[data-kind=microphone]');
  await says(page, '#notice', /microphone/i);
  await page.fill('#text', 'What time is it?');
  await page.press('#text', 'Enter');
  await until(page, 'an audible answer', (hub) => hub.audibleSamples > 2_000);
  await close();
});

test('another voice can be chosen before and after the answer began, and is remembered', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL });
  await openSettings(page, '#voice option:nth-child(2)');
  const offered = await page.locator('#voice option').evaluateAll((options) => options.map(({ value }) => value).filter(Boolean));
  assert.ok(offered.length > 1, 'the hub offers voices');
  const ask = async (nAnswers) => {
    await page.fill('#text', 'What can you do?');
    await page.press('#text', 'Enter');
    await until(page, `answer ${nAnswers}`, (hub) => hub.captions.filter((c) => c.role === 'assistant' && c.playedMs > 100).length === nAnswers);
  };
  await page.selectOption('#voice', offered.at(-1));
  await page.keyboard.press('Escape');
  await ask(1);
  await openSettings(page, '#voice');
  await page.selectOption('#voice', offered[0]);
  await page.keyboard.press('Escape');
  await until(page, 'a new session', (hub) => hub.link === 'live' && hub.captions.every((c) => c.role === 'user' || c.id.startsWith('past/')));
  await ask(2);
  await gone(page, '#notice');
  await page.reload();
  await openSettings(page, `#voice option[value="${offered[0]}"]`);
  assert.equal(await page.inputValue('#voice'), offered[0]);
  await close();
});

test('a full hub says so before it asks for the microphone', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, microphone: questionMic });
  const { max_sessions: seats } = await page.evaluate(async () => (await fetch('readyz')).json());
  assert.ok(seats <= 200, `start the hub with at most 200 sessions for this test, not ${seats}`);
  const taken = () => page.evaluate(async () => (await (await fetch('readyz')).json()).sessions);
  // A session of the test before would leave its seat later.
  await poll(async () => (await taken()) === 0, async () => `seats are taken: ${await taken()}`);
  const holder = await page.context().newPage();
  await holder.goto(HUB_URL);
  await holder.evaluate(async (n) => {
    const url = new URL('v1/realtime', location.href);
    url.protocol = 'ws:';
    window.held = Array.from({ length: n }, () => new WebSocket(url));
    await Promise.all(window.held.map((socket) => new Promise((done) => (socket.onopen = socket.onerror = done))));
  }, seats);
  await page.click('#talk');
  await page.waitForSelector('#notice[data-kind=link]');
  await says(page, '#notice', /has no room/);
  await until(page, 'no session', (hub) => hub.link === 'off');
  // A seat becomes free: the message's own button gets it.
  await holder.close();
  await poll(async () => (await taken()) < seats, async () => `the seats stay taken: ${await taken()}`);
  await page.click('#notice .pill');
  await until(page, 'a conversation', (hub) => hub.link === 'live');
  await gone(page, '#notice');
  await close();
});

test('a microphone that speaks for long keeps its connection and its session', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice });
  await talk(page, 'story');
  await until(page, 'an answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.playedMs > 300));
  // Longer than a connection is kept on which nothing leaves.
  for (const since = Date.now(); Date.now() - since < 10_000; await page.waitForTimeout(250)) {
    assert.equal((await hooks(page)).link, 'live');
  }
  await gone(page, '#notice');
  assert.equal((await hooks(page)).captions.filter((c) => c.id.startsWith('past/')).length, 0, 'it is the same session');
  await close();
});

test('a lost connection is told and taken up where it broke off, the answer too', async (t) => {
  const cable = new Cable(HUB_URL);
  await cable.plug();
  t.after(() => cable.unplug());
  const { page, close } = await openPage(t, { url: cable.url, voice });
  await talk(page, 'story');
  await until(page, 'an answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.playedMs > 300));
  await cable.unplug();
  await until(page, 'the loss', (hub) => hub.link === 'resuming');
  await page.waitForSelector('#notice[data-kind=link]');
  await says(page, '#notice', /lost/i);
  const broken = (await hooks(page)).captions.find((c) => c.role === 'assistant');
  assert.notEqual(broken.status, 'cut', 'what was playing is not given up');
  await cable.plug();
  await until(page, 'the way back', (hub) => hub.link === 'live');
  await gone(page, '#notice');
  await until(page, 'more of the same answer', (hub) => {
    const answer = hub.captions.find((c) => c.role === 'assistant');
    return answer.playedMs > 2_000 || answer.status === 'done';
  });
  assert.equal((await hooks(page)).captions.filter((c) => c.id.startsWith('past/')).length, 0, 'it is the same session');
  await close();
});

test('a hub that does not come back in time is told, and the captions are kept', async (t) => {
  const cable = new Cable(HUB_URL);
  await cable.plug();
  t.after(() => cable.unplug());
  const { page, close } = await openPage(t, { url: cable.url, refuse: true });
  await page.fill('#text', 'What time is it?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.playedMs > 100));
  const before = (await hooks(page)).captions.length;
  await cable.unplug();
  await until(page, 'the loss', (hub) => hub.link === 'waiting' && hub.playback === 'idle');
  assert.equal((await hooks(page)).captions.length, before);
  await cable.plug();
  await until(page, 'the way back', (hub) => hub.link === 'live');
  await page.fill('#text', 'What time is it?');
  await page.press('#text', 'Enter');
  const sounded = (await hooks(page)).audibleSamples;
  await until(page, 'an answer after it', (hub) => hub.audibleSamples > sounded + 4_000);
  await close();
});

test('the keyboard alone starts, mutes and stops a conversation', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, microphone: questionMic });
  await page.keyboard.press('Space');
  await until(page, 'the start', (hub) => hub.phase === 'listening' || hub.phase === 'hearing');
  await page.keyboard.press('m');
  await until(page, 'mute', (hub) => hub.phase === 'muted' && hub.levels.microphone === 0);
  await page.keyboard.press('m');
  await until(page, 'the end of mute', (hub) => hub.phase !== 'muted');
  await page.focus('#talk');
  await page.keyboard.press('Enter');
  await until(page, 'the end', (hub) => hub.link === 'off');
  await page.keyboard.press('Enter');
  await until(page, 'another start', (hub) => hub.link === 'live');
  await eventually(() => page.getAttribute('#talk', 'aria-label'), (label) => assert.equal(label, 'Stop the conversation'));
  // "Stop the conversation, pressed" would say that it has stopped.
  assert.equal(await page.locator('#talk[aria-pressed], #mute[aria-pressed]').count(), 0);
  await close();
});

for (const [width, height] of [[320, 568], [390, 844], [844, 390]]) {
  test(`nothing runs over the edge of a screen of ${width} by ${height}`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, context: { viewport: { width, height }, hasTouch: true, isMobile: true } });
    // Compared with the screen, not with innerWidth: a phone's page that is too wide makes that wider too.
    const overflow = () =>
      page.evaluate(([screenWidth, screenHeight]) => {
        const outside = [...document.querySelectorAll('button, input, select, .status')]
          .filter((element) => !element.closest('.captions, .invitation'))
          .filter((element) => {
            const { left, right, top, bottom } = element.getBoundingClientRect();
            return left < -1 || right > screenWidth + 1 || top < -1 || bottom > screenHeight + 1;
          });
        return { wide: document.documentElement.scrollWidth - screenWidth, outside: outside.map(({ id, className }) => id || className) };
      }, [width, height]);
    assert.deepEqual(await overflow(), { wide: 0, outside: [] });
    await page.tap('.example');
    await until(page, 'an answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.revealed > 0));
    assert.deepEqual(await overflow(), { wide: 0, outside: [] });
    assert.equal(await page.locator('#captions').getAttribute('aria-live'), 'polite');
    await close();
  });
}

function needed(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; see the head of run.mjs`);
  return value;
}
