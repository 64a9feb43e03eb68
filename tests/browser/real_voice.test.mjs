// A conversation of three turns with real weights: a person's recordings are the microphone, Whisper base hears them, the voice
// hibari answers aloud. `make real-models` fetches both.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, answers, hooks, openPage, say, until } from './browser.mjs';
import { OwnHub, ROOT } from './own_hub.mjs';

const SPEECH = join(ROOT, 'tests/fixtures/speech');
/** Clips that end in a whole clause, of words that Whisper base knows. */
const CLIPS = ['nada_lily_02_haggard_0216.flac', 'bambatse_02_haggard_0323.flac', 'bambatse_10_haggard_0284.flac'];
const TEXTS = Object.fromEntries(
  readFileSync(join(SPEECH, 'texts.tsv'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split('\t')),
);

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);
const hub = new OwnHub({
  ANTIPHON_MODELS__DIR: join(ROOT, 'models'),
  ANTIPHON_STT__ENGINE: 'whisper',
  ANTIPHON_STT__MODEL: join(ROOT, 'target/models/whisper-base/ggml-base.bin'),
  ANTIPHON_TTS__ENGINE: 'hibari',
});

before(() => hub.start());
after(() => hub.stop());

const wordsOf = (text) => text.toLowerCase().replaceAll(/[^a-z' ]/g, ' ').split(/\s+/).filter(Boolean);

/** The fewest words that have to be replaced, left out or put in. */
function wordErrors(expected, heard) {
  let row = heard.map((_, i) => i + 1);
  row.unshift(0);
  for (const [i, word] of expected.entries()) {
    const next = [i + 1];
    for (const [j, other] of heard.entries()) next.push(Math.min(row[j] + (word === other ? 0 : 1), row[j + 1] + 1, next[j] + 1));
    row = next;
  }
  return row[heard.length];
}

test('three turns of a person are heard and answered aloud', async (t) => {
  const voice = Object.fromEntries(CLIPS.map((name) => [name, join(SPEECH, name)]));
  const { page, close } = await openPage(t, { url: hub.url, voice });
  await page.click('#talk');
  await until(page, 'an open microphone', ({ phase }) => phase === 'listening');
  const said = ({ captions }) => captions.filter(({ role, final, text }) => role === 'user' && final && text !== '');
  for (const [n, name] of CLIPS.entries()) {
    const before = (await hooks(page)).audibleSamples;
    await say(page, name);
    await until(page, `the words of turn ${n + 1}`, (shown) => said(shown).length > n);
    await until(page, `answer ${n + 1}, played whole`, (shown) => answers(shown) > n && shown.phase === 'listening');
    const shown = await hooks(page);
    const expected = wordsOf(TEXTS[name]);
    const heard = wordsOf(said(shown).slice(n).map(({ text }) => text).join(' '));
    assert.ok(wordErrors(expected, heard) * 5 <= expected.length, `${heard.join(' ')} for ${TEXTS[name]}`);
    assert.ok(shown.audibleSamples > before + 4_800, `only ${shown.audibleSamples - before} samples of the answer sounded`);
  }
  await close();
});
