// Runs the browser tests and prints TAP; the exit status is 0 when all passed.
//
//   HUB_URL=http://127.0.0.1:8080 QUESTION_WAV=question.wav STORY_WAV=story.wav node run.mjs [name pattern]
//
// HUB_URL       a running hub that serves the built page; at most 200 sessions (one test fills it),
//               and nobody else in it meanwhile
// QUESTION_WAV  a short question that the hub's engines understand, PCM16 WAV:
//               antiphon say "What time is it?" -o question.wav
// STORY_WAV     a request whose answer lasts over five seconds, at the same rate; it is interrupted
//               with the question: antiphon say "Tell me a story." -o story.wav
//               (default: QUESTION_WAV, which then must have such an answer)
// RETRIES       how often the files in which a test failed run again, default 0
// TEST_TIMES    a folder, into which how long each test took is written
// PATIENCE_S    longest wait for anything, default 30; more on a very busy machine
// UPDATE_SCREENSHOTS=1  writes docs/images/page.png, which the README shows
// CHROMIUM      the browser, default /usr/bin/chromium
// FIREFOX       the other one, default /usr/bin/firefox-esr; its audio needs the program pulseaudio
// WEBKIT        WebKitGTK's MiniBrowser, default that of Debian; its tests need WebKitWebDriver and Xvfb

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const missing = ['HUB_URL', 'QUESTION_WAV'].filter((name) => !process.env[name]);
const browser = process.env.CHROMIUM ?? '/usr/bin/chromium';
if (missing.length > 0) stop(`set ${missing.join(' and ')}; the head of this file tells how`);
if (!existsSync(browser)) stop(`there is no browser at ${browser}; install chromium or set CHROMIUM`);
const firefox = process.env.FIREFOX ?? '/usr/bin/firefox-esr';
if (!existsSync(firefox)) stop(`there is no browser at ${firefox}; install firefox-esr and pulseaudio, or set FIREFOX`);
if (!existsSync(join(here, 'node_modules'))) stop(`run "npm ci" in ${here} first`);

const [pattern] = process.argv.slice(2);
const options = ['--test', '--test-concurrency=1', ...report('tap', 'stdout')];
if (pattern) options.push(`--test-name-pattern=${pattern}`);
const files = ['page.test.mjs', 'look.test.mjs', 'settings.test.mjs', 'conversations.test.mjs', 'sdk.test.mjs', 'element.test.mjs', 'element_answers.test.mjs', 'real_voice.test.mjs', 'screenshot.test.mjs', 'quality.test.mjs', 'dashboard.test.mjs', 'inspector.test.mjs', 'drawer.test.mjs', 'models.test.mjs', 'llm_servers.test.mjs', 'voices.test.mjs', 'failures.test.mjs', 'notices.test.mjs', 'handover.test.mjs', 'rtvi.test.mjs', 'webrtc.test.mjs', 'firefox.test.mjs', 'webkit.test.mjs'].map((file) => join(here, file));
process.exit(run(files, Number(process.env.RETRIES ?? 0)));

/** The exit status of the last run: after the first one only the files in which a test failed run. */
function run(files, retries) {
  const folder = mkdtempSync(join(tmpdir(), 'antiphon-browser-'));
  const list = join(folder, 'failed');
  const reports = report(join(here, 'failed_files.mjs'), list);
  if (process.env.TEST_TIMES) reports.push(...report(join(here, 'durations.mjs'), join(process.env.TEST_TIMES, `browser-${retries}.tsv`)));
  const { status } = spawnSync(process.execPath, [...options, ...reports, ...files], { stdio: 'inherit' });
  const failed = existsSync(list) ? [...new Set(readFileSync(list, 'utf8').split('\n').filter(Boolean))] : [];
  rmSync(folder, { recursive: true });
  if (status === 0 || retries === 0 || failed.length === 0) return status ?? 1;
  const names = failed.map((file) => basename(file)).join(', ');
  console.log(`# again, since a test failed: ${names}`);
  const again = run(failed, retries - 1);
  if (again === 0) console.log(`# FLAKY: passed when they ran again: ${names}`);
  return again;
}

/** The options of a reporter: its name or file, and where its lines go. */
function report(reporter, destination) {
  return [`--test-reporter=${reporter.endsWith('.mjs') ? pathToFileURL(reporter) : reporter}`, `--test-reporter-destination=${destination}`];
}

function stop(message) {
  console.error(message);
  process.exit(2);
}
