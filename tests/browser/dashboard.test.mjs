// The latency dashboard in a real Chromium: turns of a running hub, and, for what a hub cannot be made
// to show on demand, made-up ones (stand_in.mjs) behind the same page. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, axe, eventually, gone, openPage, poll, says, talk, until } from './browser.mjs';
import { StandIn, madeUpCluster, madeUpTurn } from './stand_in.mjs';

const HUB_URL = process.env.HUB_URL;
const QUESTION_WAV = process.env.QUESTION_WAV;
if (!HUB_URL || !QUESTION_WAV) throw new Error('HUB_URL and QUESTION_WAV must be set; see the head of run.mjs');

const test = (name, body) => nodeTest(name, { timeout: TEST_TIMEOUT_MS }, body);

/** The dashboard, once it has a line to the hub or says why not. */
const open = (t, url, context = {}) => openPage(t, { url, path: '/dashboard', shows: '#line:not(.connecting)', context });

async function madeUp(t, fill = () => {}) {
  const standIn = new StandIn(HUB_URL);
  fill(standIn);
  const url = await standIn.start();
  t.after(() => standIn.stop());
  return { standIn, url };
}

const textOf = (page, selector) => page.locator(selector).first().innerText();
const line = (page, kind) => page.waitForSelector(`#line.${kind}`);
/** "1.25 s" or "312 ms" in milliseconds. */
const inMs = (text) => parseFloat(text) * (/ms$/.test(text.trim()) ? 1 : 1000);

test('a spoken and a typed turn of a real hub appear as they happen, and their parts add up', async (t) => {
  const { page: dashboard } = await open(t, HUB_URL);
  await line(dashboard, 'live');
  const rows = () => dashboard.locator('.turn').evaluateAll((all) => all.map((row) => ({ id: row.dataset.turn, words: row.querySelector('.turn-words').textContent })));
  const before = (await rows()).map(({ id }) => id);
  /** The turn that came since, with these words. */
  const come = async (words) => {
    const found = async () => (await rows()).find((row) => !before.includes(row.id) && words.test(row.words));
    await poll(async () => (await found()) !== undefined, async () => `no turn with ${words} among ${JSON.stringify(await rows())}`);
    return (await found()).id;
  };
  const { page: chat } = await openPage(t, { url: HUB_URL, voice: { question: QUESTION_WAV } });
  await talk(chat, 'question');
  await until(chat, 'an answer that was played whole', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'done'));
  const spoken = await come(/time/i);
  await chat.fill('#text', 'How many feet are in a mile?');
  await chat.press('#text', 'Enter');
  const typed = await come(/^How many feet are in a mile\?$/);

  for (const id of [spoken, typed]) {
    const row = dashboard.locator(`.turn[data-turn="${id}"]`);
    await poll(async () => /\d/.test(await row.locator('.turn-ms').innerText()), async () => `no time: ${await row.innerText()}`);
    await row.locator('.turn-row').click();
    const detail = row.locator('.detail');
    // The reply is whole, and heard, once it has been played.
    await poll(async () => (await detail.locator('.heard').innerText()).length > 5, async () => `no reply: ${await detail.innerText()}`);
    await eventually(() => detail.locator('.lane').count(), (lanes) => assert.ok(lanes >= 2, 'the waterfall has lanes'));
    // Read at once: the record may still change when the client reports what sounded.
    const read = () => detail.locator('.parts').evaluate((list) => {
      const texts = [...list.querySelectorAll(':scope > div')].map((row) => row.querySelector('dd').textContent);
      return { sum: texts.pop(), parts: texts, missing: list.querySelectorAll('.bad').length };
    });
    await eventually(read, ({ sum, parts, missing }) => {
      const added = parts.reduce((all, text) => all + inMs(text), 0);
      assert.ok(parts.length >= 2 && Math.abs(inMs(sum) - added) <= parts.length * 0.5 + inMs(sum) / 100, `${parts} do not add up to ${sum}`);
      assert.equal(missing, 0, 'all of the time is accounted for');
    });
    assert.match(await detail.innerText(), /sess_/);
  }
  await says(dashboard, `.turn[data-turn="${typed}"] .badges`, /typed/);
  await says(dashboard, '#latest', /How many feet/);
  // The hub sends its state once a second.
  await says(dashboard, '#sessions .tile-value', /^[1-9]/);
  await says(dashboard, '#headline .big', /^\d/);
  // Where the machine has no GPU, it says so; either way the place is not empty.
  await says(dashboard, '#gpu', /No GPU|%|unknown/);
  await eventually(() => dashboard.locator('#queues dd').count(), (queues) => assert.ok(queues > 0, 'queues are told'));
  // An address names one turn.
  const named = `${HUB_URL.replace(/\/$/, '')}/dashboard#${spoken}`;
  await dashboard.goto('about:blank');
  await dashboard.goto(named);
  await dashboard.waitForSelector(`.turn[data-turn="${spoken}"] .detail`);
});

test('percentiles are those of the window one chooses', async (t) => {
  const answered = (id, agoMs, ms) => ({ ...madeUpTurn(id, Date.now() - agoMs), kind: 'speech', status: 'completed', voice_to_voice_ms: ms, parts: [{ stage: 'llm', from_ms: 0, to_ms: ms }] });
  const { url } = await madeUp(t, (standIn) => {
    for (let i = 0; i < 97; i += 1) standIn.turns.push(answered(i + 1, 10 * 60_000 + i, 100));
    for (let i = 0; i < 3; i += 1) standIn.turns.push(answered(i + 101, 2 * 60_000 + i, 900));
    standIn.turns.push(answered(200, 1_000, 2_500));
  });
  const { page, close } = await open(t, url);
  await page.selectOption('#window', { label: '15 minutes' });
  await says(page, '#headline .big', '100ms');
  assert.deepEqual(await page.locator('#headline .pair dd').allInnerTexts(), ['100 ms', '900 ms', '99 %']);
  await page.selectOption('#window', { label: '5 minutes' });
  await says(page, '#headline .big', '900ms');
  await page.selectOption('#window', { label: '1 minute' });
  await says(page, '#headline .big', '2.50s');
  assert.equal(await page.locator('#headline .big.late').count(), 1, 'it is beyond the objective, and looks like it');
  await page.click('#stages button:has-text("Model")');
  await eventually(() => page.inputValue('#over-time select'), (measure) => assert.equal(measure, 'llm'));
  await close();
});

test('what was not heard of a reply is told apart from what was', async (t) => {
  const { url } = await madeUp(t, (standIn) => {
    standIn.turns.push({ ...madeUpTurn(1, Date.now() - 1_000), status: 'cancelled', barged_in: true, reply: 'Once there was a king.', heard: 'Once there' });
  });
  const { page, close } = await open(t, url);
  await page.click('.turn-row');
  assert.equal(await textOf(page, '.detail .heard'), 'Once there');
  assert.equal((await textOf(page, '.detail .unheard')).trim(), 'was a king.');
  assert.match(await textOf(page, '.badges'), /barge-in/);
  await says(page, '#gpu', /No GPU is reported/);
  await close();
});

test('a filler is shown before the answer, with the language and what the turn cost', async (t) => {
  const { url } = await madeUp(t, (standIn) => {
    standIn.turns.push({
      ...madeUpTurn(1, Date.now() - 1_000),
      transcript: 'wie spät ist es', language: 'de', reply: 'Es ist zehn.', heard: 'Es ist zehn.', filler: { text: 'Einen Moment.', at_ms: 1_240 },
      cost: { cpu_ms: 62, gpu_ms: 0, wasted_ms: 3, tts: { cpu_ms: 62, gpu_ms: 0 }, filler: { cpu_ms: 21, gpu_ms: 0 } },
    });
  });
  const { page, close } = await open(t, url);
  await page.click('.turn-row');
  await page.waitForSelector('.detail .dialogue p');
  const said = await page.locator('.detail .dialogue p').allInnerTexts();
  assert.deepEqual(said.map((line) => line.replace(/\s+/g, ' ').trim()), ['asked wie spät ist es', 'filled in Einen Moment. at 1.24 s, since the answer was late', 'answered Es ist zehn.']);
  assert.equal(await page.locator('.detail [lang="de"]').innerText(), 'wie spät ist es');
  const compute = await page.locator('.fact-box', { has: page.getByRole('heading', { name: 'Compute' }) }).innerText();
  assert.match(compute, /cpu\s+62 ms[\s\S]*wasted\s+3\.?0? ms[\s\S]*tts\s+62 ms[\s\S]*filler\s+21 ms/);
  await close();
});

test('a speculation is hatched, and the waited-for stretch is marked', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => it.fill(3, 1));
  standIn.state = { gpu: [{ name: 'H200', utilization: 42, memory_bytes: 2 ** 30, memory_total_bytes: 2 ** 37 }], depth: 140 };
  const speculative = {
    ...madeUpTurn(9, Date.now()),
    stages: [{ stage: 'llm', from_ms: 90, to_ms: 160, speculation: 0 }],
    parts: [{ stage: 'endpointing', from_ms: 0, to_ms: 200, speculation: null }, { stage: 'playback', from_ms: 200, to_ms: 240, speculation: null }],
    speculations: [{ from_ms: 90, to_ms: 200, outcome: 'confirmed' }],
    voice_to_voice_ms: 240,
  };
  const { page, close } = await open(t, url);
  standIn.happen(speculative);
  await page.waitForSelector(`.turn[data-turn="${speculative.id}"]`);
  await eventually(() => page.locator('#latest .bar-of.speculation').count(), (speculations) => assert.equal(speculations, 1));
  assert.equal(await page.locator('#latest .bar-of.critical').count(), 2);
  assert.equal(await page.locator('#latest .limit.human').count(), 1, 'the line of 200 ms is inside');
  await says(page, '#gpu', /H200[\s\S]*42 %, 1\.0 GiB of 128 GiB/);
  await says(page, '#queues .bad', /140/);
  await close();
});

test('a hub without turns says what to do, and one that is gone is told and found again', async (t) => {
  const { standIn, url } = await madeUp(t);
  const { page, close } = await open(t, url);
  await says(page, '#no-turns', /No turns yet[\s\S]*voice chat/);
  standIn.fill(5, 1);
  const port = Number(new URL(url).port);
  await standIn.stop();
  await line(page, 'gone');
  await says(page, '#notice', /gone since[\s\S]*Trying/);
  await standIn.start(port);
  await line(page, 'live');
  await gone(page, '#notice');
  await poll(async () => (await page.locator('.turn').count()) === 5, async () => `${await page.locator('.turn').count()} turns`);
  await close();
});

test('a key is asked for, refused when wrong, and kept in the tab when right', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => it.fill(2, 1));
  standIn.key = 'sk-right';
  const { page, close } = await open(t, url);
  await says(page, '#notice[data-kind=key]', /wants a key/);
  await page.fill('#key', 'sk-wrong');
  await page.press('#key', 'Enter');
  await poll(async () => /refused/.test(await textOf(page, '#notice')), async () => textOf(page, '#notice'));
  await page.fill('#key', 'sk-right');
  await page.press('#key', 'Enter');
  await line(page, 'live');
  await poll(async () => (await page.locator('.turn').count()) === 2, async () => `${await page.locator('.turn').count()} turns`);
  await page.reload();
  await line(page, 'live');
  await close();
});

test('a limit that is reached is named, and the page goes on once it is over', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => it.fill(2, 1));
  standIn.isLimited = true;
  const { page, close } = await open(t, url);
  await says(page, '#notice[data-kind=unfit]', /no more requests/);
  standIn.isLimited = false;
  await line(page, 'live');
  await gone(page, '#notice');
  await close();
});

test('of a thousand turns only those in sight are drawn, and an address still leads to the last', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => it.fill(1_000, 40));
  const last = standIn.turns.toSorted((a, b) => Date.parse(a.started_at) - Date.parse(b.started_at))[0];
  const { page, close } = await open(t, url);
  await eventually(() => page.locator('.turn').count(), (rows) => assert.ok(rows > 0 && rows < 120, `${rows} rows`));
  await page.evaluate(() => window.scrollTo(0, document.querySelector('.turn-list').getBoundingClientRect().bottom - 300));
  await page.waitForSelector(`.turn[data-turn="${last.id}"]`);
  await eventually(() => page.locator('.turn').count(), (rows) => assert.ok(rows < 120, `${rows} rows`));
  assert.equal(await page.getAttribute(`.turn[data-turn="${last.id}"]`, 'aria-setsize'), '1000');
  await page.goto(new URL(`/dashboard#${last.id}`, url).href);
  await page.reload();
  await page.waitForSelector(`.turn[data-turn="${last.id}"] .detail`);
  await close();
});

test('a cluster is shown with its hubs, workers and the hub of each turn', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => {
    for (const [n, hub] of ['east', 'west', 'east'].entries()) it.turns.push({ ...madeUpTurn(n + 1, Date.now() - (3 - n) * 1_000), hub });
  });
  const { page, close } = await open(t, url);
  await line(page, 'live');
  assert.equal(await page.locator('#cluster').count(), 0, 'there is no cluster');
  standIn.state = { cluster: madeUpCluster() };
  standIn.tick();
  await page.waitForSelector('#cluster');
  assert.match(await textOf(page, '#cluster-link'), /Connected to NATS \(nats-1 2\.15\.1\) for 2 h/);
  assert.match(await textOf(page, '.member[data-hub=east]'), /this one[\s\S]*31 of 200 sessions/);
  assert.match(await textOf(page, '.member[data-hub^=west]'), /draining[\s\S]*3\.40 s behind/);
  assert.match(await textOf(page, '.member[data-worker=gpu-1]'), /stt whisper: large-v3-turbo[\s\S]*3 of 8 slots in use[\s\S]*19 of 16 slots in use[\s\S]*wait 84 ms/);
  assert.match(await textOf(page, '.member[data-worker=gpu-2]'), /draining[\s\S]*not heard for 940 ms/);
  assert.match(await textOf(page, '.member[data-worker=from-the-future]'), /not used[\s\S]*speaks protocol 2\.0/);
  assert.match(await textOf(page, '#lost'), /gpu-3, 42 s ago[\s\S]*its connection ended/);
  assert.match(await textOf(page, '#cluster-counts .bad'), /workers lost[\s\S]*1/);
  await eventually(() => page.locator('.turn .turn-hub').allInnerTexts(), (hubs) => assert.deepEqual(hubs, ['east', 'west', 'east']));
  await page.locator('.turn-row').nth(1).click();
  await says(page, '.detail', /hub[\s\S]*west/);
  await close();
});

test('turns are filtered, sorted and searched, all figures follow, and the address keeps the choice', async (t) => {
  const now = Date.now();
  const of = (n, ms, extra) => ({ ...madeUpTurn(n, now - n * 1_000), kind: 'speech', status: 'completed', barged_in: false, error: null, transcript: `question ${n}`, session_id: 'sess_a', voice_to_voice_ms: ms, parts: [{ stage: 'llm', from_ms: 0, to_ms: ms }], ...extra });
  const { standIn, url } = await madeUp(t, (standIn) => {
    standIn.turns = [
      of(4, 400, { session_id: 'sess_b', engines: { stt: 'whisper' }, response_id: 'resp_4' }),
      of(3, 3_000, {}),
      of(2, null, { status: 'failed', error: 'The language model did not answer in time.', parts: [] }),
      of(1, 200, {}),
    ];
  });
  const { page, close } = await open(t, url);
  const listed = () => page.locator('.turn').evaluateAll((rows) => rows.map((row) => Number(row.dataset.turn.slice(-1))).join(''));
  const lists = (turns) => eventually(listed, (found) => assert.equal(found, turns));
  await lists('1234');
  await page.selectOption('#order', { label: 'Slowest first' });
  await lists('3412');
  await page.selectOption('#show', { label: 'Failed' });
  await lists('2');
  await says(page, '#errors', /1/);
  await says(page, '#filters', /1 of 4 turns/);
  await page.selectOption('#show', { label: 'All turns' });
  await page.selectOption('#engine', 'stt whisper');
  await lists('4');
  // The percentiles are of the turns that match.
  await says(page, '#headline .big', '400ms');
  await eventually(() => new URL(page.url()).search, (search) => assert.equal(search, '?engine=stt+whisper&order=voice_to_voice'));
  await page.reload();
  await line(page, 'live');
  await lists('4');
  await page.click('#filters .link');
  await page.fill('#words', 'QUESTION 3');
  await lists('3');
  // A link from the chat names the answer; where the filter hides its turn, the page says so.
  await page.evaluate(() => (location.hash = 'resp_4'));
  await page.waitForSelector('#hidden-turn');
  await page.click('#hidden-turn .link');
  await page.waitForSelector('.turn[data-turn$="4"] .detail');
  await page.click('.only-session');
  await lists('4');
  // Screen readers hear what a choice leaves, and not each turn that comes, and find no count that is past.
  const announced = () => page.textContent('#filters [role=status]');
  assert.equal(await announced(), '1 of 4 turns');
  standIn.happen(of(5, 300, { session_id: 'sess_b' }));
  await says(page, '.filter-count', /2 of 5 turns/);
  assert.equal(await announced(), '');
  await close();
});

test('two windows are compared, the one before or one that was kept', async (t) => {
  const { url } = await madeUp(t, (standIn) => {
    const add = (agoMs, ms) => standIn.turns.push({ ...madeUpTurn(standIn.turns.length + 1, Date.now() - agoMs), kind: 'speech', status: 'completed', voice_to_voice_ms: ms, parts: [{ stage: 'llm', from_ms: 0, to_ms: ms - 50 }, { stage: 'tts', from_ms: ms - 50, to_ms: ms }] });
    for (let i = 0; i < 12; i += 1) add(7 * 60_000 + i * 1_000, 400 + i);
    for (let i = 0; i < 12; i += 1) add(60_000 + i * 1_000, 200 + i);
  });
  const { page, close } = await open(t, url);
  await page.selectOption('#window', { label: '5 minutes' });
  assert.equal(await page.locator('#comparison').count(), 0);
  await page.selectOption('#compare', 'before');
  await says(page, '#comparison [data-measure=llm]', /355 ms[\s\S]*155 ms[\s\S]*−56 %[\s\S]*faster/);
  await says(page, '#comparison [data-measure=tts]', /50 ms[\s\S]*50 ms[\s\S]*±0 %[\s\S]*within chance/);
  await page.click('#keep');
  await eventually(() => page.inputValue('#compare'), (compared) => assert.equal(compared, 'kept'));
  await says(page, '#comparison [data-measure=llm]', /155 ms[\s\S]*155 ms[\s\S]*±0 %/);
  await says(page, '#stages', /share[\s\S]*Model[\s\S]*76 %[\s\S]*Voice[\s\S]*24 %/);
  await close();
});

test('the turns that are listed are exported as CSV and JSON', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => it.fill(5, 1));
  const { page, close } = await open(t, url);
  await page.fill('#words', 'turn_000003');
  await poll(async () => (await page.locator('.turn').count()) === 1, async () => 'all are listed');
  const saved = async (button) => {
    const [download] = await Promise.all([page.waitForEvent('download'), page.click(button)]);
    return { name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8') };
  };
  const csv = await saved('#export-csv');
  assert.equal(csv.name, 'antiphon-turns.csv');
  assert.match(csv.text, /^turn,session,.*\r\nturn_000003,/);
  const { text } = await saved('#export-json');
  assert.deepEqual(JSON.parse(text), { turns: JSON.parse(JSON.stringify(standIn.turns.filter(({ id }) => id === 'turn_000003'))) });
  await close();
});

test('what the microphone heard of a turn is played where it was recorded, or it is said why not', async (t) => {
  const { standIn, url } = await madeUp(t, (it) => {
    it.fill(3, 1);
    it.turns[0].recording = { from_ms: 0, to_ms: 1_000 };
    it.turns[1].recording = { from_ms: 0, to_ms: 1_000 };
  });
  standIn.sounds.set(standIn.turns[0].id, readFileSync(QUESTION_WAV));
  const { page, close } = await open(t, url);
  const opened = async (turn) => {
    await page.click(`.turn[data-turn="${turn.id}"] .turn-row`);
    return page.locator(`.turn[data-turn="${turn.id}"] .detail-tools`);
  };
  const here = await opened(standIn.turns[0]);
  await here.getByRole('button', { name: 'Play what was said' }).click();
  await poll(async () => (await here.locator('audio').evaluate((audio) => audio.currentTime)) > 0.05, async () => `silent: ${await here.innerHTML()}`);
  const gone = await opened(standIn.turns[1]);
  await gone.getByRole('button', { name: 'Play what was said' }).click();
  await gone.locator('[role=alert]').getByText('no longer there').waitFor();
  const never = await opened(standIn.turns[2]);
  assert.equal(await never.getByRole('button', { name: 'Play' }).count(), 0);
  await close();
});

for (const colorScheme of ['dark', 'light']) {
  test(`axe finds nothing on the dashboard, ${colorScheme}`, async (t) => {
    const { url } = await madeUp(t, (standIn) => {
      standIn.fill(80, 25);
      standIn.turns[79].recording = { from_ms: 0, to_ms: 1_000 };
      standIn.state = { cluster: madeUpCluster(), gpu: [{ name: 'H200', utilization: 42, memory_bytes: 2 ** 30, memory_total_bytes: 2 ** 37 }] };
    });
    const { page, close } = await open(t, url, { colorScheme, reducedMotion: 'reduce' });
    await page.selectOption('#compare', 'before');
    await page.locator('.turn-row').first().click();
    await page.waitForSelector('#comparison');
    assert.deepEqual(await axe(page), []);
    await close();
  });
}

test('the keyboard alone reaches a turn and opens it', async (t) => {
  const { url } = await madeUp(t, (standIn) => standIn.fill(4, 1));
  const { page, close } = await open(t, url);
  const reached = () => page.evaluate(() => document.activeElement?.className ?? '');
  for (let i = 0; i < 60 && (await reached()) !== 'turn-row'; i += 1) await page.keyboard.press('Tab');
  assert.equal(await reached(), 'turn-row');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.detail');
  assert.equal(await page.locator('.turn-row[aria-expanded=true]').count(), 1);
  await page.keyboard.press('Space');
  await poll(async () => (await page.locator('.detail').count()) === 0, async () => 'it stays open');
  await close();
});

for (const [width, height, colorScheme] of [[320, 700, 'light'], [390, 844, 'dark'], [844, 390, 'light'], [1440, 900, 'dark'], [3840, 2160, 'light']]) {
  test(`nothing runs over the edge of a screen of ${width} by ${height}`, async (t) => {
    const { url } = await madeUp(t, (standIn) => {
      standIn.fill(60, 20);
      standIn.turns = standIn.turns.map((turn, n) => ({ ...turn, hub: n % 2 ? 'east' : 'west-with-quite-a-long-name.example' }));
      standIn.state = { cluster: madeUpCluster() };
    });
    const { page, close } = await open(t, url, { viewport: { width, height }, colorScheme, reducedMotion: 'reduce' });
    await page.selectOption('#compare', 'before');
    await page.locator('.turn-row').nth(2).click();
    await page.waitForSelector('.detail');
    await page.waitForSelector('#cluster');
    const outside = await page.evaluate((screenWidth) => {
      const wide = document.documentElement.scrollWidth - screenWidth;
      const names = [...document.querySelectorAll('.card, .tile, button, select, .pill, canvas, .strip, dd, td')]
        .filter((element) => element.getBoundingClientRect().right > screenWidth + 1 || element.getBoundingClientRect().left < -1)
        .map(({ tagName, className, id }) => `${tagName} ${id || className}`);
      // Text that is wider than its card is cut off, which no scroll bar shows.
      const cut = [...document.querySelectorAll('.card, .tile, .fact-box, .box')].filter((element) => element.scrollWidth > element.clientWidth + 1).map(({ id, className }) => id || className);
      return { wide, names, cut };
    }, width);
    assert.deepEqual(outside, { wide: 0, names: [], cut: [] });
    // The chart has room, and the still page really is still.
    const { width: chart } = await page.locator('#over-time .plot').boundingBox();
    assert.ok(chart > Math.min(300, width * 0.7), `the chart is ${chart} wide`);
    assert.equal(await page.locator('.line-dot').evaluate((dot) => getComputedStyle(dot).animationName), 'none');
    await close();
  });
}
