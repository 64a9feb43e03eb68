// Sessions that move to another hub or go back to a checkpoint, as the page sees them: in a real Chromium, against a hub
// that follows a script. It needs nothing but the built page; see `run.mjs` for the browser.

import assert from 'node:assert/strict';
import { test as nodeTest } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { TEST_TIMEOUT_MS, gone, hooks, openPage, poll, until } from './browser.mjs';
import { ScriptedHub } from './scripted_hub.mjs';

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const isFrame = (message) => 'sequence' in message;
const sequences = (messages) => messages.filter(isFrame).map(({ sequence }) => sequence);
const events = (messages, type) => messages.filter((message) => message.type === type);

/** A conversation whose microphone is sending. */
async function talk(t) {
  const hub = new ScriptedHub();
  const url = await hub.start();
  t.after(() => hub.stop());
  const { page, close } = await openPage(t, { url, codec: 'pcm16' });
  await page.click('#talk');
  const peer = await hub.accept();
  peer.event({ type: 'session.created', session: { id: 'sess_1' } });
  peer.event({ type: 'antiphon.session.resumable', key: 'rk_1', within_s: 30 });
  peer.event({ type: 'antiphon.session.checkpoint', received: 0 });
  await sent(peer, 'the microphone', (got) => sequences(got).length > 20);
  return { hub, page, peer, close };
}

const sent = (peer, what, condition) => poll(async () => condition(peer.got), async () => `waited in vain for ${what}: ${JSON.stringify(peer.got.slice(-5))}`);

function beginReply(peer, response, item, words) {
  peer.event({ type: 'response.created', response: { id: response, status: 'in_progress' } });
  peer.event({ type: 'response.output_item.added', response_id: response, item: { id: item, type: 'message', role: 'assistant' } });
  peer.event({ type: 'response.output_audio_transcript.delta', response_id: response, item_id: item, delta: words });
}

function endReply(peer, response, item, words) {
  peer.event({ type: 'response.output_audio_transcript.done', response_id: response, item_id: item, transcript: words });
  peer.event({ type: 'response.output_audio.done', response_id: response, item_id: item });
  peer.event({ type: 'antiphon.output_audio.sent', response_id: response, item_id: item });
  peer.event({ type: 'response.done', response: { id: response, status: 'completed' } });
}

/** Notes every notice and every status that the page shows from now on. */
const watch = (page) =>
  page.evaluate(() => {
    window.__shown = [];
    const look = () => {
      for (const element of document.querySelectorAll('#notice, .status')) window.__shown.push(`${element.id || 'status'}: ${element.textContent}`);
    };
    new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
    look();
  });
const shown = (page) => page.evaluate(() => [...new Set(window.__shown)]);

test('a session that moves to another hub continues, and nobody notices', async (t) => {
  const { hub, page, peer, close } = await talk(t);
  await watch(page);
  beginReply(peer, 'r', 'a', 'one two three four');
  for (let index = 0; index < 15; index++) peer.frame('a', index, index);
  await until(page, 'the first sound', ({ captions }) => captions.some((caption) => caption.playedMs > 100));
  // The old hub includes what came up to here; what the page sends until it has connected again is lost on the way.
  const included = [...peer.got];
  peer.move();
  const next = await hub.accept();
  assert.deepEqual(next.ticket, { key: 'rk_1', received: peer.nSent });
  await pause(300);
  assert.deepEqual(next.got, [], 'nothing is sent before the session is resumed');
  next.event({ type: 'antiphon.session.resumed', after: peer.nSent, received: included.length });
  for (let index = 15; index < 40; index++) next.frame('a', index, index);
  endReply(next, 'r', 'a', 'one two three four');
  await until(page, 'the end of the answer', ({ captions }) => captions.some((caption) => caption.status === 'done'));

  const { captions } = await hooks(page);
  assert.equal(captions.length, 1);
  assert.deepEqual([captions[0].text, captions[0].receivedMs], ['one two three four', 800]);
  await sent(next, 'the microphone, which goes on', (got) => sequences(got).length > 20);
  const frames = included.concat(next.got).filter(isFrame);
  assert.deepEqual(frames.map(({ sequence, offset }) => [sequence, offset]), frames.map((_, i) => [i, i * 480]), 'every frame once, in order');
  assert.equal(events(included.concat(next.got), 'session.update').length, 1);
  const told = await shown(page);
  assert.ok(!told.some((text) => /^notice|Reconnecting/.test(text)), `shown: ${told.join('; ')}`);
  await close();
});

test('a session whose hub fails goes back to its checkpoint: what is void disappears, what was said is said once', async (t) => {
  const { hub, page, peer, close } = await talk(t);
  beginReply(peer, 'r', 'a', 'the first answer');
  for (let index = 0; index < 10; index++) peer.frame('a', index, index);
  endReply(peer, 'r', 'a', 'the first answer');
  await until(page, 'the first answer', ({ captions }) => captions.some((caption) => caption.status === 'done'));
  const included = [...peer.got];
  peer.event({ type: 'antiphon.session.checkpoint', received: included.length });
  const checkpoint = peer.nSent;

  peer.event({ type: 'input_audio_buffer.speech_started', item_id: 'u', audio_start_ms: 100 });
  peer.event({ type: 'input_audio_buffer.committed', item_id: 'u' });
  beginReply(peer, 'r2', 'b', 'void words');
  // Ten seconds: it would be heard for long.
  for (let index = 0; index < 500; index++) peer.frame('b', 10 + index, index);
  await sent(peer, 'a report of the void answer', (got) => events(got, 'output_audio_buffer.played').some(({ item_id, audio_end_ms }) => item_id === 'b' && audio_end_ms > 300));
  peer.break();
  const next = await hub.accept();
  assert.ok(next.ticket.received > checkpoint);
  next.event({ type: 'antiphon.session.resumed', after: checkpoint, received: included.length });
  await until(page, 'the end of the void answer', ({ captions, playback }) => playback === 'idle' && captions.length === 1);
  await sent(next, 'the microphone', (got) => sequences(got).length > 40);
  assert.equal((await hooks(page)).captions[0].text, 'the first answer');
  assert.deepEqual(events(next.got, 'output_audio_buffer.played'), [], 'nothing is said about void output');

  beginReply(next, 'r2', 'b', 'the second answer');
  for (let index = 0; index < 20; index++) next.frame('b', 10 + index, index);
  endReply(next, 'r2', 'b', 'the second answer');
  await until(page, 'the second answer', ({ captions }) => captions.at(-1).id === 'b' && captions.at(-1).status === 'done');
  const { captions } = await hooks(page);
  assert.deepEqual(captions.map(({ text, receivedMs }) => [text, receivedMs]), [['the first answer', 200], ['the second answer', 400]]);
  await sent(next, 'a report of what was played', (got) => events(got, 'output_audio_buffer.played').length > 0);
  const [first] = events(next.got, 'output_audio_buffer.played');
  assert.ok(first.item_id === 'b' && first.audio_end_ms < 300, JSON.stringify(first));
  const frames = sequences(included.concat(next.got));
  assert.deepEqual(frames, frames.map((_, i) => i), 'every frame once, in order');
  await gone(page, '#notice');
  await close();
});
