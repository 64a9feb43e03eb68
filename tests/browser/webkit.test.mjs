// The layout of the chat page in a real WebKit: WebKitGTK's small browser by WebDriver, on a virtual display. It has no
// microphone and no loudspeaker; conversations are tested in Chromium and Firefox. See `run.mjs` for what it needs.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test as nodeTest } from 'node:test';
import { TEST_TIMEOUT_MS, eventually, poll } from './browser.mjs';

/** Debian's, below the folder of the machine's architecture. */
const installed = readdirSync('/usr/lib').map((folder) => `/usr/lib/${folder}/webkit2gtk-4.1/MiniBrowser`).find(existsSync);
const { HUB_URL, WEBKIT = installed } = process.env;
if (!HUB_URL) throw new Error('HUB_URL must be set; see the head of run.mjs');
/** Longest wait for an answer of the driver. */
const ANSWER_MS = 60_000;

const folder = mkdtempSync(join(tmpdir(), 'antiphon-webkit-'));
const programs = [];
let base = '';

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

function start(program, args, options) {
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'inherit'], ...options });
  child.once('error', (cause) => console.error(`${program} does not start: ${cause.message}`));
  programs.push(child);
  return child;
}

before(async () => {
  // It chooses a free display and writes its number.
  const display = start('Xvfb', ['-displayfd', '3', '-screen', '0', '1400x1000x24', '-nolisten', 'tcp'], { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] });
  const [number] = await once(display.stdio[3], 'data');
  const port = await freePort();
  const env = {
    ...process.env, DISPLAY: `:${String(number).trim()}`, HOME: folder, XDG_RUNTIME_DIR: folder,
    // There is no graphics card, and no bus for accessibility.
    LIBGL_ALWAYS_SOFTWARE: '1', WEBKIT_DISABLE_DMABUF_RENDERER: '1', NO_AT_BRIDGE: '1',
  };
  start('WebKitWebDriver', [`--port=${port}`], { env });
  base = `http://127.0.0.1:${port}`;
  const isReady = () => fetch(`${base}/status`).then(({ ok }) => ok, () => false);
  await poll(isReady, () => 'WebKitWebDriver does not answer');
});

after(async () => {
  for (const program of programs.reverse()) {
    if (program.exitCode !== null || program.pid === undefined) continue;
    program.kill();
    await once(program, 'exit');
  }
  rmSync(folder, { recursive: true });
});

async function call(method, path, body) {
  const response = await fetch(`${base}${path}`, { method, ...(body && { body: JSON.stringify(body) }), signal: AbortSignal.timeout(ANSWER_MS) });
  const { value } = await response.json();
  assert.ok(response.ok, `${method} ${path}: ${JSON.stringify(value)}`);
  return value;
}

/** Its window has no bars, which would set a smallest width. */
async function open(t) {
  const browser = { 'webkitgtk:browserOptions': { binary: WEBKIT, args: ['--automation', '--full-screen'] } };
  const { sessionId, capabilities } = await call('POST', '/session', { capabilities: { alwaysMatch: browser } });
  const session = `/session/${sessionId}`;
  t.after(() => call('DELETE', session));
  t.diagnostic(`WebKitGTK ${capabilities.browserVersion}`);
  const evaluate = (body) => call('POST', `${session}/execute/sync`, { script: body, args: [] });
  return { session, evaluate };
}

for (const [width, height] of [[390, 844], [1280, 800]]) {
  nodeTest(`the layout of the chat page fits ${width} by ${height}`, { timeout: TEST_TIMEOUT_MS }, async (t) => {
    const { session, evaluate } = await open(t);
    await call('POST', `${session}/window/rect`, { width, height });
    await call('POST', `${session}/url`, { url: `${HUB_URL}/` });
    await poll(() => evaluate('return document.querySelector(".engine b") !== null'), () => evaluate('return document.body.innerText'));
    // The window takes its size a moment after it was asked to.
    await eventually(() => evaluate('return [innerWidth, innerHeight]'), (size) => assert.deepEqual(size, [width, height]));
    const seen = await evaluate(`
      const names = ['#talk', '#mute', '#hush', '#text', '#settings-open', '#inspector-open', '.send', '.example'];
      const shown = (element) => element && element.getBoundingClientRect().width > 0 && getComputedStyle(element).visibility === 'visible';
      const missing = names.filter((name) => !shown(document.querySelector(name)));
      const boxes = [...document.querySelectorAll('button, input, .status')].filter(shown).map((element) => [element.id || element.className, element.getBoundingClientRect()]);
      const outside = boxes.filter(([, { left, right }]) => left < -0.5 || right > innerWidth + 0.5).map(([name]) => name);
      const text = document.querySelector('#text').getBoundingClientRect();
      return { missing, n: boxes.length, outside, scrolls: document.documentElement.scrollWidth - innerWidth, textEnds: text.bottom };
    `);
    // Nothing to mute or to stop yet, and a phone has no room for it. Its inspector has a key and no button.
    assert.deepEqual(seen.missing, width < 600 ? ['#mute', '#hush', '#inspector-open'] : []);
    assert.ok(seen.n >= 8, JSON.stringify(seen));
    assert.deepEqual([seen.outside, seen.scrolls], [[], 0]);
    assert.ok(seen.textEnds <= height, `the field to type in ends at ${seen.textEnds}`);
  });
}
