// Runs the browser tests and prints TAP; the exit status is 0 when all passed.
//
//   node run.mjs [name pattern]
//
// Each file has a hub of its own, which `.ci/with-hub` starts, with a port and folders of its own. The hubs hear by recognizer.mjs,
// which knows the recordings and computes nothing, so that each core runs a file. What a file prints comes in one piece, when it
// has ended.
//
// HUB_URL       a running hub that serves the built page, instead: the files run one after the other. It takes at most 200
//               sessions (one test fills it), and nobody else is in it meanwhile
// QUESTION_WAV  a short question that the hub's engines understand, PCM16 WAV; default: "What time is it?", by .ci/recordings
// STORY_WAV     a request whose answer lasts over five seconds, at the same rate; it is interrupted with the question
//               (default: QUESTION_WAV, which then must have such an answer)
// FILES         some of the files, such as page,look
// ANTIPHON      the program, default target/debug/antiphon
// RETRIES       how often the files in which a test failed run again, one after the other; default 0
// TEST_TIMES    a folder, into which how long each test took is written
// PATIENCE_S    longest wait for anything, default 120; it bounds a test that fails, and no other takes it
// UPDATE_SCREENSHOTS=1  writes docs/images/page.png, which the README shows
// CHROMIUM      the browser, default /usr/bin/chromium
// FIREFOX       the other one, default /usr/bin/firefox-esr; its audio needs the program pulseaudio
// WEBKIT        WebKitGTK's MiniBrowser, default that of Debian; its tests need WebKitWebDriver and Xvfb

import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Recognizer } from './recognizer.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '../..');
const browser = process.env.CHROMIUM ?? '/usr/bin/chromium';
if (!existsSync(browser)) stop(`there is no browser at ${browser}; install chromium or set CHROMIUM`);
const firefox = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
if (!existsSync(firefox)) stop(`there is no browser at ${firefox}; install firefox-esr and pulseaudio, or set FIREFOX`);
if (!existsSync(join(here, 'node_modules'))) stop(`run "npm ci" in ${here} first`);

/** The longest first, so that none of them begins when the others have ended. */
const ALL_FILES = [
  'page', 'conversations', 'notices', 'settings', 'look', 'dashboard', 'rtvi', 'firefox', 'real_voice', 'webrtc', 'element', 'quality', 'inspector', 'sdk',
  'failures', 'screenshot', 'drawer', 'voices', 'models', 'llm_servers', 'handover', 'element_answers', 'webkit',
];
// Settings of a file's hub. A speculative answer comes with the end of the turn: the page would not draw that it waits.
const SETTINGS = { look: { ANTIPHON_SPECULATION__AFTER_MS: '0' } };
const FILES = process.env.FILES?.split(',') ?? ALL_FILES;
const unknown = FILES.filter((name) => !ALL_FILES.includes(name));
if (unknown.length > 0) stop(`there is no file ${unknown.join(', ')} of tests; there are ${ALL_FILES.join(', ')}`);
const [pattern] = process.argv.slice(2);
const { HUB_URL } = process.env;

const folder = mkdtempSync(join(tmpdir(), 'antiphon-browser-'));
process.once('exit', () => rmSync(folder, { recursive: true }));
if (!process.env.QUESTION_WAV) record();
const recognizer = HUB_URL || process.env.ANTIPHON_STT__ENGINE ? null : await hearRecordings();
const failed = await runAll(FILES, HUB_URL ? 1 : availableParallelism());
process.exitCode = failed.length === 0 || (await passesAgain(failed, Number(process.env.RETRIES ?? 0))) ? 0 : 1;
recognizer?.stop();

/** Makes the recordings, for all hubs. */
function record() {
  const { status } = spawnSync(join(root, '.ci/recordings'), [folder], { stdio: 'inherit' });
  if (status !== 0) stop('.ci/recordings made no recordings');
  process.env.QUESTION_WAV = join(folder, 'question.wav');
  process.env.STORY_WAV = join(folder, 'story.wav');
}

/** Lets the hubs of all files hear the recordings, and nothing else. */
async function hearRecordings() {
  const { QUESTION_WAV, STORY_WAV = QUESTION_WAV } = process.env;
  const recognizer = new Recognizer([['What time is it?', QUESTION_WAV], ['Tell me a story.', STORY_WAV]]);
  Object.assign(process.env, { ANTIPHON_STT__ENGINE: 'openai', ANTIPHON_STT__BASE_URL: await recognizer.start(), ANTIPHON_STT__API_KEY_ENV: '' });
  return recognizer;
}

/** Runs the files, `nLanes` at once; returns those that failed. */
async function runAll(files, nLanes) {
  const waiting = [...files];
  const failed = [];
  const lane = async () => {
    for (let name; (name = waiting.shift()) !== undefined; ) if (!(await passes(name))) failed.push(name);
  };
  await Promise.all(Array.from({ length: nLanes }, lane));
  return failed;
}

/** Whether the files that failed pass when they run again, alone. */
async function passesAgain(files, retries) {
  const names = files.join(', ');
  console.log(`# failed: ${names}`);
  if (retries === 0) return false;
  const failed = await runAll(files, 1);
  if (failed.length > 0) return passesAgain(failed, retries - 1);
  console.log(`# FLAKY: passed when they ran again: ${names}`);
  return true;
}

/** Runs a file to its end; returns whether all of its tests passed. */
async function passes(name) {
  const options = ['--test', ...report('tap', 'stdout')];
  if (process.env.TEST_TIMES) options.push(...report(join(here, 'durations.mjs'), join(process.env.TEST_TIMES, `browser-${name}.tsv`)));
  if (pattern) options.push(`--test-name-pattern=${pattern}`);
  const test = [process.execPath, ...options, join(here, `${name}.test.mjs`)];
  const [program, ...args] = HUB_URL ? test : [join(root, '.ci/with-hub'), ...test];
  const start = Date.now();
  let output = '';
  const env = { ...process.env, ...SETTINGS[name] };
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (output += data));
  const code = await new Promise((ended) => child.once('close', ended));
  console.log(`${output}# ${name}: ${code === 0 ? 'passed' : 'FAILED'} after ${Math.round((Date.now() - start) / 1000)} s`);
  return code === 0;
}

/** The options of a reporter: its name or file, and where its lines go. */
function report(reporter, destination) {
  return [`--test-reporter=${reporter.endsWith('.mjs') ? pathToFileURL(reporter) : reporter}`, `--test-reporter-destination=${destination}`];
}

function stop(message) {
  console.error(message);
  process.exit(2);
}
