// The inspector's drawer in the voice chat, in a real Chromium against a running hub. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, answers, ask, axe, eventually, hooks, openPage, poll, says, until } from './browser.mjs';

const HUB_URL = process.env.HUB_URL;
if (!HUB_URL) throw new Error('HUB_URL must be set; see the head of run.mjs');

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const types = (page) => page.locator('.event .event-type').allInnerTexts();
const come = (page, type) => poll(async () => (await types(page)).includes(type), async () => `no ${type} among ${await types(page)}`);

test('the drawer shows how the session began, follows it, and sends into it', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await ask(page, 'What is two plus three?', 1);
  assert.equal(await page.evaluate(() => performance.getEntriesByType('resource').filter(({ name }) => /Drawer/.test(name)).length), 0, 'nothing of it is loaded before');
  await page.evaluate(() => document.activeElement.blur());
  await page.keyboard.press('i');
  await page.waitForSelector('#inspector');
  await page.fill('#words', 'session');
  await come(page, 'session.created');
  assert.doesNotMatch(await page.innerText('#events'), /ar_|•{4}/);
  await page.fill('#words', '');
  await page.fill('#draft', JSON.stringify({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'What is two plus two?' }] } }));
  await page.click('#send-event');
  await page.fill('#draft', '{"type": "response.create"}');
  await page.press('#draft', 'Control+Enter');
  await until(page, 'the answer on the page', (hub) => answers(hub) === 2);
  // Keys typed here are not the page's: no microphone, no second sheet.
  await page.focus('#draft');
  await page.keyboard.type(' m,i');
  assert.equal(await page.locator('#settings').count(), 0);
  assert.equal((await hooks(page)).link, 'live');
  await page.keyboard.press('Escape');
  await page.waitForSelector('#inspector', { state: 'detached' });
  // What comes while it is closed is there when it is opened again.
  await ask(page, 'What is two plus six?', 3);
  await page.click('#inspector-open');
  await page.fill('#words', 'plus six');
  await come(page, 'conversation.item.create');
  await close();
});

test('an event with a secret is edited without dots', async (t) => {
  const { page, close } = await openPage(t, { url: HUB_URL, refuse: true });
  await ask(page, 'What is two plus three?', 1);
  await page.click('#inspector-open');
  await page.fill('#draft', JSON.stringify({ type: 'session.update', event_id: 'mine', session: { type: 'realtime', instructions: 'The code is sk-secret-secret.' } }));
  await page.click('#send-event');
  await page.fill('#words', 'mine');
  await page.locator('.event.sent', { hasText: 'session.update' }).click();
  await says(page, '#detail', /•••/);
  await page.click('#edit');
  await eventually(() => page.inputValue('#draft'), (draft) => assert.doesNotMatch(draft, /•|sk-/));
  await says(page, '#draft-state', /session\.instructions/);
  await close();
});

for (const [width, height, colorScheme] of [[320, 640, 'dark'], [768, 1024, 'light'], [1280, 800, 'light'], [1920, 1080, 'dark']]) {
  test(`axe finds nothing, and nothing runs over the edge, at ${width} by ${height}, ${colorScheme}`, async (t) => {
    const { page, close } = await openPage(t, { url: HUB_URL, refuse: true, context: { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' } });
    await ask(page, 'What is two plus three?', 1);
    // A phone has no button for it; its key works there, too.
    if (width > 640) {
      await page.click('#inspector-open');
    } else {
      await page.evaluate(() => document.activeElement?.blur());
      await page.keyboard.press('i');
    }
    await page.fill('#words', 'session.created');
    await page.locator('.event', { hasText: 'session.created' }).click();
    assert.deepEqual(await axe(page), []);
    const outside = await page.evaluate(() => [...document.querySelectorAll('.header button, .composer, .drawer button, .drawer select')].filter((element) => {
      const { left, right } = element.getBoundingClientRect();
      return left < -1 || right > window.innerWidth + 1;
    }).map(({ id, className }) => id || className));
    assert.deepEqual(outside, []);
    assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= width);
    if (process.env.SHOTS) await page.screenshot({ path: `${process.env.SHOTS}/drawer-${width}.png` });
    await close();
  });
}
