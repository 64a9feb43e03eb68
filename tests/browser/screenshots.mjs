// The pictures of the README and the manual, of real conversations in Chromium: the page at five sizes, and ten seconds of a
// barge-in as WebM. `make screenshots` runs it; it needs what `run.mjs` needs, and ffmpeg. They go to docs/images, but for the
// sizes that no page shows, which go to target/screenshots.

import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { openPage, until } from './browser.mjs';
import { ROOT } from './own_hub.mjs';
import { composeWav } from './wav.mjs';

const { HUB_URL, QUESTION_WAV, STORY_WAV } = process.env;
if (!HUB_URL || !QUESTION_WAV || !STORY_WAV) throw new Error('HUB_URL, QUESTION_WAV and STORY_WAV must be set; see the head of run.mjs');
const SIZES = [['320', 320, 640], ['390', 390, 844], ['768', 768, 1024], ['1080p', 1920, 1080], ['4k', 3840, 2160]];
const RECORDED_S = 10;
const [WIDTH, HEIGHT] = [960, 600];
const MAX_BYTES = 1_000_000;

const shown = join(ROOT, 'docs/images');
const sizes = join(ROOT, 'target/screenshots');
for (const folder of [shown, sizes]) mkdirSync(folder, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'antiphon-screenshots-'));
const open = [];
/** What `openPage` takes for a test. */
const run = { after: (close) => open.push(close) };
const isAnswered = (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'done');

async function screenshots() {
  const microphone = join(folder, 'question.wav');
  composeWav(microphone, [1.5, QUESTION_WAV, 60]);
  const context = { viewport: { width: 1280, height: 800 }, colorScheme: 'dark', reducedMotion: 'reduce' };
  const { page, close } = await openPage(run, { url: HUB_URL, microphone, context });
  await page.click('#talk');
  await until(page, 'a spoken answer', isAnswered);
  await until(page, 'a page that listens again', (hub) => hub.phase === 'listening');
  for (const [name, width, height] of SIZES) {
    await page.setViewportSize({ width, height });
    await pause(300);
    const path = join(sizes, `page-${name}.png`);
    await page.screenshot({ path, animations: 'disabled' });
    console.log(`${path}: ${statSync(path).size} bytes`);
  }
  await close();
}

/** The story is interrupted by the question. Chromium sends a picture at each change, with its time. */
async function recording() {
  const microphone = join(folder, 'barge_in.wav');
  composeWav(microphone, [1, STORY_WAV, 4, QUESTION_WAV, 60]);
  const context = { viewport: { width: WIDTH, height: HEIGHT }, colorScheme: 'dark' };
  const { page, close } = await openPage(run, { url: HUB_URL, microphone, context });
  const devtools = await page.context().newCDPSession(page);
  const frames = [];
  devtools.on('Page.screencastFrame', ({ data, metadata, sessionId }) => {
    frames.push({ data, atS: metadata.timestamp });
    void devtools.send('Page.screencastFrameAck', { sessionId }).catch(() => undefined);
  });
  await page.click('#talk');
  await until(page, 'the words of the story', (hub) => hub.captions.some((c) => c.role === 'user' && c.text !== ''));
  await devtools.send('Page.startScreencast', { format: 'png', maxWidth: WIDTH, maxHeight: HEIGHT });
  await until(page, 'an interrupted answer', (hub) => hub.captions.some((c) => c.role === 'assistant' && c.status === 'cut'));
  await until(page, 'the answer to the question', isAnswered);
  await pause(500);
  await devtools.send('Page.stopScreencast');
  const { captions } = await page.evaluate(() => ({ captions: window.__antiphon.captions.map(({ role, text, status }) => `${role} ${status ?? ''}: ${text}`) }));
  console.log(captions.join('\n'));
  await close();
  write(frames);
}

/** The last ten seconds. */
function write(frames) {
  // They may arrive in another order than they were drawn in.
  frames.sort((a, b) => a.atS - b.atS);
  const endS = frames.at(-1).atS;
  const kept = frames.filter(({ atS }) => atS > endS - RECORDED_S);
  const list = kept.map(({ data, atS }, i) => {
    const file = join(folder, `${i}.png`);
    writeFileSync(file, Buffer.from(data, 'base64'));
    return `file '${file}'\nduration ${((kept[i + 1]?.atS ?? endS) - atS).toFixed(3)}`;
  });
  const names = join(folder, 'frames.txt');
  writeFileSync(names, `${list.join('\n')}\nfile '${join(folder, `${kept.length - 1}.png`)}'\n`);
  const path = join(shown, 'barge-in.webm');
  const options = ['-y', '-loglevel', 'error', '-f', 'concat', '-safe', '0', '-i', names, '-vf', 'fps=20,format=yuv420p', '-c:v', 'libvpx-vp9', '-b:v', '0', '-crf', '38', '-an', path];
  const { status, stderr, error } = spawnSync('ffmpeg', options, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ffmpeg: ${error?.message ?? stderr}`);
  const { size } = statSync(path);
  if (size > MAX_BYTES) throw new Error(`${path} has ${size} bytes, and may have ${MAX_BYTES}`);
  console.log(`${path}: ${size} bytes, ${kept.length} pictures`);
}

try {
  await screenshots();
  await recording();
} finally {
  for (const close of open) await close();
  rmSync(folder, { recursive: true });
}
