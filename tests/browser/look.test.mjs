// What the chat page looks like: the orb at rest and while it listens, the latency ribbon of large screens, and axe while a
// conversation goes on, in both themes. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axe, eventually, gone, openPage, poll, says, talk, until } from './browser.mjs';

const { HUB_URL, QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');

/** Silent until it is said. */
const voice = { question: QUESTION_WAV };

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

/** The orb's canvas: a hash of its pixels, and how opaque the ring is in which the user's voice is drawn. */
const orb = (page) =>
  page.evaluate(() => {
    const canvas = document.querySelector('.orb-canvas');
    const { data, width } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let [hash, opaque, n] = [0, 0, 0];
    for (let i = 0; i < data.length; i += 4) {
      hash = (hash * 31 + data[i] + data[i + 1] * 7 + data[i + 2] * 13 + data[i + 3] * 17) | 0;
      const [x, y] = [((i / 4) % width) - width / 2, Math.floor(i / 4 / width) - width / 2];
      const radius = Math.hypot(x, y) / (width / 2);
      if (radius > 0.67 && radius < 0.72) [opaque, n] = [opaque + data[i + 3] / 255, n + 1];
    }
    return { hash, ring: opaque / n };
  });

test('the orb moves while it waits, and looks different while it listens', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice });
  const atRest = await orb(page);
  await poll(async () => (await orb(page)).hash !== atRest.hash, () => 'the orb does not move');
  await page.click('#talk');
  await until(page, 'a page that listens', (hub) => hub.phase === 'listening');
  // Phases blend into each other.
  await poll(async () => (await orb(page)).ring > 4 * atRest.ring, async () => `the ring: ${atRest.ring} at rest, ${(await orb(page)).ring} while it listens`);
  await close();
});

test('with reduced motion the orb stands still, and its phases differ all the same', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, voice, context: { reducedMotion: 'reduce' } });
  // The first frames blend in.
  let before = await orb(page);
  await poll(async () => {
    const last = before.hash;
    await page.waitForTimeout(300);
    before = await orb(page);
    return last === before.hash;
  }, () => 'the orb moves');
  await page.click('#talk');
  await until(page, 'a page that listens', (hub) => hub.phase === 'listening');
  await poll(async () => (await orb(page)).ring > 4 * before.ring, async () => `the ring: ${before.ring} at rest, ${(await orb(page)).ring} while it listens`);
  await close();
});

for (const colorScheme of ['dark', 'light']) {
  test(`a large screen shows the latency of each turn, and axe finds nothing (${colorScheme})`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, voice, context: { viewport: { width: 1920, height: 1080 }, colorScheme } });
    await page.waitForSelector('.ribbon-empty');
    // Removed as soon as the answer is measured: seen by the page itself.
    await page.evaluate(() => {
      window.liveRows = 0;
      new MutationObserver(() => (window.liveRows += document.querySelectorAll('.ribbon li[aria-hidden]').length)).observe(document.body, { childList: true, subtree: true });
    });
    await talk(page, 'question');
    await until(page, 'a spoken answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'done' && c.latencyMs !== null && c.marks !== null));
    const read = () =>
      page.evaluate(() => {
        const row = document.querySelector('.ribbon li a');
        const caption = JSON.parse(JSON.stringify(window.__antiphon.captions.find((c) => c.role === 'assistant')));
        return { caption, text: row?.innerText, href: row?.href, title: row?.title };
      });
    const { caption } = await eventually(read, ({ caption, text, href, title }) => {
      assert.equal(text, `${Math.round(caption.latencyMs)}`);
      assert.match(href, new RegExp(`#${caption.responseId}$`));
      assert.match(title, /time[\s\S]*waiting for the end of your turn \d+ ms/i);
    });
    assert.ok((await page.evaluate(() => window.liveRows)) > 0, 'the turn was not shown while it was answered');
    // Its bar is as long as the axis says.
    const share = await page.evaluate(() => {
      const [bands, ...bars] = ['.ribbon-bands', '.ribbon-bands rect'].flatMap((what) => [...document.querySelectorAll(what)]).map((element) => element.getBoundingClientRect());
      return (Math.max(...bars.map(({ right }) => right)) - bands.left) / bands.width;
    });
    const [, , end] = (await page.locator('.ribbon-axis').innerText()).match(/[\d.]+ m?s/g);
    const axisMs = Number.parseFloat(end) * (end.endsWith('ms') ? 1 : 1_000);
    assert.ok(Math.abs(share - caption.latencyMs / axisMs) < 0.02, `${share} of ${axisMs} ms shows ${caption.latencyMs} ms`);
    await page.fill('#text', 'What is two plus three?');
    await page.press('#text', 'Enter');
    await until(page, 'a typed one', (hub) => hub.captions.filter((c) => c.role === 'assistant' && c.status === 'done' && c.latencyMs !== null).length === 2);
    await poll(async () => (await page.locator('.ribbon li a').count()) === 2, () => page.locator('.ribbon').innerHTML());
    await says(page, '.ribbon', /median of 2 answers/);
    // A band runs from turn to turn for each stage that both have.
    const bands = () =>
      page.evaluate(() => {
        const [above, below] = [...document.querySelectorAll('.ribbon-bands g')].map((row) => [...row.querySelectorAll('rect')].map((bar) => bar.getAttribute('class')));
        return { shared: above.filter((stage) => below.includes(stage)).length, flows: document.querySelectorAll('.ribbon-flow').length };
      });
    await eventually(bands, ({ flows, shared }) => assert.equal(flows, shared));
    assert.deepEqual(await axe(page), []);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 1920);
    // Timings are one setting; the inspector takes the place.
    await page.click('#inspector-open');
    await page.waitForSelector('.drawer');
    await gone(page, '.ribbon');
    await close();
  });

  test(`axe finds nothing while a phone talks, and in a warning (${colorScheme})`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, voice, context: { viewport: { width: 390, height: 844 }, colorScheme, reducedMotion: 'reduce' } });
    await talk(page, 'question');
    await until(page, 'a spoken answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'done' && c.latencyMs !== null));
    await page.click('.latency summary');
    assert.deepEqual(await axe(page), []);
    await gone(page, '.ribbon');
    await close();
    const refused = await openPage(t, { url: HUB_URL, refuse: true, context: { colorScheme, reducedMotion: 'reduce' } });
    await refused.page.click('#talk');
    await refused.page.waitForSelector('#notice.warning');
    assert.deepEqual(await axe(refused.page), []);
    await refused.close();
  });
}
