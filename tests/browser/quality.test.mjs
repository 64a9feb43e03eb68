// What Lighthouse says of the chat page, and how large the page is, as a hub serves it. See `run.mjs` for what it needs.
// Lighthouse's figure for performance is printed only: it is measured, and a busy machine is slow.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';
import lighthouse from 'lighthouse';
import puppeteer from 'puppeteer-core';
import { TEST_TIMEOUT_MS, openPage, talk, until } from './browser.mjs';
import { Cable } from './cable.mjs';

const { HUB_URL, QUESTION_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');
/** Of all that a spoken conversation loads, as it travels; icons included. */
const MAX_PAGE_BYTES = 60_000;

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

for (const form of ['mobile', 'desktop']) {
  test(`Lighthouse finds nothing to improve in accessibility and best practices (${form})`, async (t) => {
    const browser = await puppeteer.launch({
      executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
    });
    t.after(() => browser.close());
    const screenEmulation = form === 'desktop' ? { mobile: false, width: 1350, height: 940, deviceScaleFactor: 1, disabled: false } : undefined;
    const throttling = form === 'desktop' ? { throttlingMethod: 'provided' } : {};
    const settings = { extends: 'lighthouse:default', settings: { formFactor: form, onlyCategories: ['accessibility', 'best-practices', 'performance'], ...throttling, ...(screenEmulation && { screenEmulation }) } };
    const { lhr } = await lighthouse(`${HUB_URL}/`, { logLevel: 'error' }, settings, await browser.newPage());
    const score = (name) => Math.round(lhr.categories[name].score * 100);
    t.diagnostic(`performance ${score('performance')}, accessibility ${score('accessibility')}, best practices ${score('best-practices')}`);
    const faults = ['accessibility', 'best-practices'].flatMap((name) =>
      lhr.categories[name].auditRefs.map(({ id, weight }) => ({ ...lhr.audits[id], weight })).filter(({ score, weight }) => weight > 0 && score !== null && score < 1),
    );
    assert.equal(lhr.runtimeError, undefined);
    assert.deepEqual(faults.map(({ id, title, details }) => `${id}: ${title} ${JSON.stringify(details?.items ?? []).slice(0, 600)}`), []);
    assert.deepEqual([score('accessibility'), score('best-practices')], [100, 100]);
  });
}

test('a conversation on the chat page loads little', async (t) => {
  const cable = new Cable(HUB_URL);
  await cable.plug();
  t.after(() => cable.unplug());
  const { page, close } = await openPage(t, { url: cable.url, voice: { question: QUESTION_WAV } });
  await talk(page, 'question');
  await until(page, 'an answer that was heard', ({ captions }) => captions.some((c) => c.role === 'assistant' && c.status === 'done'));
  // The page's own list of resources lacks what its audio thread loads.
  const loaded = [...cable.bytes].map(([path, bytes]) => ({ path, bytes })).filter(({ path }) => !/^\/(v1|readyz|api)/.test(path));
  const bytes = loaded.reduce((sum, file) => sum + file.bytes, 0);
  t.diagnostic(`${bytes} bytes: ${loaded.map(({ path, bytes }) => `${path} ${bytes}`).join(', ')}`);
  for (const kind of ['js', 'css']) assert.ok(loaded.some(({ path }) => path.endsWith(`.${kind}`)), `no ${kind}: ${JSON.stringify(loaded)}`);
  assert.ok(loaded.some(({ path, bytes }) => path.includes('/worklets-') && bytes > 1_000), `no worklets: ${JSON.stringify(loaded)}`);
  assert.ok(bytes > 20_000 && bytes <= MAX_PAGE_BYTES, `${bytes} bytes`);
  await close();
});
