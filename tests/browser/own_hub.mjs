// A hub process of a test's own, which it may configure, kill and start again.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { poll } from './browser.mjs';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');
const BINARY = process.env.ANTIPHON ?? join(ROOT, 'target/debug/antiphon');

export class OwnHub {
  #env;
  #process = null;
  url = '';

  /** `env`: settings, such as `{ ANTIPHON_STT__DECODERS: '1' }`. Without one for it, it keeps no list of speech jobs. */
  constructor(env) {
    this.#env = { ...process.env, ANTIPHON_SPEECH__JOBS_DIR: '', ...env };
  }

  /** A setting of its next start, where it is known late. */
  set(name, value) {
    this.#env[name] = value;
  }

  /** Returns once it serves. On the same port where it served before. */
  async start() {
    let output = '';
    const port = this.url === '' ? 0 : new URL(this.url).port;
    const hub = spawn(BINARY, ['serve', '--listen', `127.0.0.1:${port}`], { cwd: ROOT, env: this.#env });
    this.#process = hub;
    hub.stdout.on('data', (data) => (output += data));
    hub.stderr.on('data', (data) => (output += data));
    const listening = /is listening on (http:\S+\d)/;
    await poll(() => listening.test(output) || hub.exitCode !== null, () => `the hub does not start: ${output}`);
    this.url = listening.exec(output)?.[1] ?? assert.fail(`the hub did not start: ${output}`);
  }

  /** `SIGTERM`: it drains; `SIGKILL`: it is gone. Returns when it has ended. */
  async stop(signal = 'SIGTERM') {
    const hub = this.#process;
    this.#process = null;
    if (hub === null || hub.exitCode !== null || hub.signalCode !== null) return;
    const ended = new Promise((done) => hub.once('exit', done));
    hub.kill(signal);
    await ended;
  }
}
