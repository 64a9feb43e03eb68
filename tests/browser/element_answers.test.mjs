// How `<antiphon-voice>` draws an answer's markdown: in a real Chromium, against a hub that follows a script. It needs nothing
// but the built page; see `run.mjs` for the browser.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axe, eventually, openPage, poll } from './browser.mjs';
import { ScriptedHub } from './scripted_hub.mjs';

const PAGE = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A shop</title></head><body><main><h1>A shop</h1>
<script src="sdk/antiphon-voice.js"></script><antiphon-voice></antiphon-voice></main></body></html>`;
const ANSWER = '<think>Tea, then.</think>Make **tea**:\n\n- boil `1 l` of [water](https://a.example/x)\n- [no](javascript:alert(1))\n\n1. first\n\n```\nlet a;\n```\n<b>end</b>';

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

/** An element whose conversation has begun, with the words of an answer that is under way. */
async function answering(t) {
  const hub = new ScriptedHub({ '/element': PAGE });
  const url = await hub.start();
  t.after(() => hub.stop());
  const { page, close } = await openPage(t, { url, path: '/element', shows: 'antiphon-voice', refuse: true });
  await page.locator('.text').fill('How is tea made?');
  await page.keyboard.press('Enter');
  const peer = await hub.accept();
  peer.event({ type: 'session.created', session: { id: 'sess_1' } });
  peer.event({ type: 'response.created', response: { id: 'r', status: 'in_progress' } });
  peer.event({ type: 'response.output_item.added', response_id: 'r', item: { id: 'a', type: 'message', role: 'assistant' } });
  const says = (delta) => peer.event({ type: 'response.output_text.delta', response_id: 'r', item_id: 'a', content_index: 0, delta });
  const words = page.locator('.reply .words');
  const html = () => words.evaluate((element) => element.innerHTML);
  const shows = (part) => poll(async () => (await words.count()) === 1 && (await html()).includes(part), html);
  return { page, peer, close, says, words, html, shows };
}

test('markdown is elements, an unsafe address is text, and nothing is HTML of the model', async (t) => {
  const { page, peer, close, says, words, shows } = await answering(t);
  says(ANSWER);
  peer.event({ type: 'response.output_text.done', response_id: 'r', item_id: 'a', content_index: 0, text: ANSWER });
  peer.event({ type: 'response.done', response: { id: 'r', status: 'completed' } });
  await shows('&lt;b&gt;end&lt;/b&gt;');
  const texts = (selector) => words.locator(selector).allTextContents();
  assert.deepEqual(await texts('strong'), ['tea']);
  assert.deepEqual(await texts('ul > li'), ['boil 1 l of water', '[no](javascript:alert(1))']);
  assert.deepEqual(await texts('li code'), ['1 l']);
  assert.deepEqual(await texts('ol > li'), ['first']);
  assert.deepEqual(await texts('pre'), ['let a;']);
  assert.deepEqual(await texts('details'), ['What the model thoughtTea, then.']);
  assert.deepEqual(await words.locator('a').evaluateAll((links) => links.map(({ href, target, rel }) => [href, target, rel])), [['https://a.example/x', '_blank', 'noopener noreferrer']]);
  assert.equal(await words.locator('b').count(), 0);
  assert.deepEqual(await axe(page), []);
  await close();
});

test('what is shown stays in place while an answer grows: nothing is announced twice, an open thought stays open', async (t) => {
  const { close, says, words, html, shows } = await answering(t);
  says('<think>Hm.</think>- one **two**');
  await shows('<strong>two</strong>');
  await words.locator('summary').click();
  await words.evaluate((element) => {
    window.kept = [element.querySelector('strong'), element.querySelector('li')];
    window.removed = [];
    new MutationObserver((changes) => window.removed.push(...changes.flatMap(({ removedNodes }) => [...removedNodes].map(String)))).observe(element, { subtree: true, childList: true });
  });
  says(' three\n- four');
  await shows('four');
  assert.deepEqual(await words.evaluate((element) => [element.querySelector('strong') === window.kept[0], element.querySelector('li') === window.kept[1], window.removed]), [true, true, []], await html());
  assert.equal(await words.locator('details').getAttribute('open'), '');
  await close();
});

test('an answer that ends before its first word has no words; only what the user said can be not understood', async (t) => {
  const { peer, close, shows } = await answering(t);
  await shows('…');
  peer.event({ type: 'response.done', response: { id: 'r', status: 'cancelled' } });
  await shows('(no words)');
  await close();
});

test('a list in a language that is written from the right is indented from the right', async (t) => {
  const { close, says, words, shows } = await answering(t);
  says('- אחת\n  - שתיים\n- שלוש');
  await shows('שלוש');
  const indents = (selector, property) =>
    words.locator(selector).first().evaluate((element, property) => ['Left', 'Right'].map((side) => parseFloat(getComputedStyle(element)[property + side]) > 0), property);
  assert.deepEqual(await indents('ul', 'padding'), [false, true]);
  assert.deepEqual(await indents('.nested', 'margin'), [false, true]);
  await close();
});

test('the rest of an answer that was interrupted is struck out, with its markdown and the reason', async (t) => {
  const { peer, close, says, words, shows } = await answering(t);
  says('It is **noon** now.');
  await shows('<strong>noon</strong>');
  peer.event({ type: 'conversation.item.truncated', item_id: 'a', content_index: 0, audio_end_ms: 0 });
  peer.event({ type: 'antiphon.item.heard', item_id: 'a', transcript: 'It is' });
  await shows('class="unspoken"');
  const rest = words.locator('.unspoken');
  // The hub says first that the answer was cut, then what was heard of it.
  await eventually(() => rest.textContent(), (text) => assert.equal(text, ' noon now.'));
  assert.equal(await rest.locator('strong').textContent(), 'noon');
  assert.deepEqual([await rest.getAttribute('title'), await rest.getAttribute('part')], ['Not spoken: you interrupted', 'unspoken']);
  assert.equal(await words.locator('.spoken').textContent(), 'It is');
  await close();
});
