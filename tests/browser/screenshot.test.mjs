// The screenshot of the README: the page after a spoken and a typed question. The conversation is held each time, so that
// the picture can be made; with UPDATE_SCREENSHOTS=1 it is written to docs/images/page.png. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { TEST_TIMEOUT_MS, openPage, talk, until } from './browser.mjs';
import { ROOT } from './own_hub.mjs';

const PICTURE = join(ROOT, 'docs/images/page.png');
const [WIDTH, HEIGHT] = [1100, 720];
const MAX_BYTES = 400_000;

/** Width and height of a PNG: the first two numbers of its first chunk. */
function dimensions(png) {
  assert.equal(png.toString('latin1', 1, 4), 'PNG');
  return [png.readUInt32BE(16), png.readUInt32BE(20)];
}

test('the screenshot is of a real conversation', { timeout: TEST_TIMEOUT_MS }, async (t) => {
  const context = { viewport: { width: WIDTH, height: HEIGHT }, colorScheme: 'light', reducedMotion: 'reduce' };
  const { page, close } = await openPage(t, { url: process.env.HUB_URL, voice: { question: process.env.QUESTION_WAV }, context });
  const answered = (n) => (hub) => hub.captions.filter((c) => c.role === 'assistant' && c.status === 'done' && c.latencyMs !== null).length >= n;
  await talk(page, 'question');
  await until(page, 'a spoken answer', answered(1));
  await page.fill('#text', 'How many feet are in a mile?');
  await page.press('#text', 'Enter');
  await until(page, 'an answer to the typed question', answered(2));
  await until(page, 'a page that listens again', (hub) => hub.phase === 'listening');
  // The orb blends into it.
  await page.waitForTimeout(1_000);
  const shot = await page.screenshot({ animations: 'disabled' });
  if (process.env.UPDATE_SCREENSHOTS) {
    mkdirSync(dirname(PICTURE), { recursive: true });
    writeFileSync(PICTURE, shot);
  }
  const kept = readFileSync(PICTURE);
  assert.deepEqual(dimensions(shot), [WIDTH, HEIGHT]);
  assert.deepEqual(dimensions(kept), [WIDTH, HEIGHT], 'make it again with UPDATE_SCREENSHOTS=1');
  assert.ok(kept.length < MAX_BYTES, `${PICTURE} has ${kept.length} bytes`);
  await close();
});
