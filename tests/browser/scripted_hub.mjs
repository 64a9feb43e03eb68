// A hub that follows a test's script: it serves the built page, and its WebSocket says what the test wants. For what a
// real hub cannot be made to do on demand: hand a session over after a certain message, or lose what was said since a
// checkpoint. It keeps to RFC 6455 as far as a browser uses it: no fragments, no extensions.

import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import http from 'node:http';
import { extname, join, normalize } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { ROOT } from './own_hub.mjs';

const DIST = join(ROOT, 'web/dist');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const READY = { ready: true, sessions: 0, max_sessions: 4, engines: { vad: 'earshot', stt: 'openai', llm: 'assistant', tts: 'flite' } };
/** Longest wait for the page. */
const WAIT_MS = 20_000;

export class ScriptedHub {
  #server = null;
  #waiting = [];
  #sockets = new Set();
  #pages;

  /** `pages`: HTML by path, served beside the built page. */
  constructor(pages = {}) {
    this.#pages = pages;
  }

  /** @returns the page's address */
  async start() {
    this.#server = http.createServer((request, response) => void this.#answer(request, response));
    this.#server.on('upgrade', (request, socket) => this.#upgrade(request, socket));
    await new Promise((ready, failed) => this.#server.once('error', failed).listen(0, '127.0.0.1', ready));
    return `http://127.0.0.1:${this.#server.address().port}/`;
  }

  async stop() {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.closeAllConnections();
    await new Promise((done) => this.#server.close(done));
  }

  /** The page's next connection. */
  async accept() {
    for (const end = Date.now() + WAIT_MS; Date.now() < end; await pause(5)) if (this.#waiting.length > 0) return this.#waiting.shift();
    throw new Error('the page does not connect');
  }

  async #answer(request, response) {
    const { pathname } = new URL(request.url, 'http://any');
    const json = (body) => response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    if (pathname === '/readyz') return json(READY);
    if (pathname === '/v1/audio/voices') return json({ voices: [], default: null });
    const page = this.#pages[pathname];
    if (page !== undefined) return response.writeHead(200, { 'content-type': 'text/html' }).end(page);
    const file = join(DIST, normalize(pathname === '/' ? 'index.html' : pathname));
    try {
      const body = await readFile(file);
      response.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'application/octet-stream' }).end(body);
    } catch {
      response.writeHead(404).end();
    }
  }

  #upgrade(request, socket) {
    const offers = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((offer) => offer.trim());
    const accept = createHash('sha1').update(request.headers['sec-websocket-key'] + GUID).digest('base64');
    const lines = ['HTTP/1.1 101 Switching Protocols', 'Upgrade: websocket', 'Connection: Upgrade', `Sec-WebSocket-Accept: ${accept}`];
    if (offers.includes('realtime')) lines.push('Sec-WebSocket-Protocol: realtime');
    socket.write(`${lines.join('\r\n')}\r\n\r\n`);
    this.#sockets.add(socket);
    const ticket = offers.find((offer) => offer.startsWith('antiphon-resume.'))?.split('.') ?? null;
    this.#waiting.push(new Peer(socket, ticket && { key: ticket[1], received: Number(ticket[2]) }));
  }
}

/** One connection of the page. */
class Peer {
  #socket;
  #unread = Buffer.alloc(0);
  /** What it resumes; null for a new session. */
  ticket;
  /** What the page sent on this connection: events, and frames as `{ sequence, offset }`. */
  got = [];
  /** Number of messages sent on this connection. */
  nSent = 0;

  constructor(socket, ticket) {
    this.#socket = socket;
    this.ticket = ticket;
    socket.on('data', (data) => this.#read(data));
    socket.on('error', () => {});
  }

  event(event) {
    this.#send(1, Buffer.from(JSON.stringify({ event_id: 'event_1', ...event })));
  }

  /** A reply frame with 20 ms of a loud tone. */
  frame(itemId, sequence, index) {
    const header = Buffer.alloc(16);
    header[0] = 2;
    header[1] = itemId.length;
    header.writeUInt32LE(sequence, 4);
    header.writeBigUInt64LE(BigInt(index * 480), 8);
    const samples = Buffer.alloc(960);
    for (let i = 0; i < 480; i++) samples.writeInt16LE(Math.round(9_000 * Math.sin((i + index * 480) / 8)), 2 * i);
    this.#send(2, Buffer.concat([header, Buffer.from(itemId), samples]));
  }

  /** Closes as a hub does that hands the session over. */
  move() {
    const reason = 'the session moves to another hub';
    this.#write(8, Buffer.concat([Buffer.from([1012 >> 8, 1012 & 255]), Buffer.from(reason)]));
  }

  /** The connection breaks without a close frame. */
  break() {
    this.#socket.destroy();
  }

  #send(opcode, payload) {
    this.nSent++;
    this.#write(opcode, payload);
  }

  #write(opcode, payload) {
    const length = payload.length < 126 ? Buffer.from([payload.length]) : Buffer.from([126, payload.length >> 8, payload.length & 255]);
    this.#socket.write(Buffer.concat([Buffer.from([0x80 | opcode]), length, payload]));
  }

  #read(data) {
    this.#unread = Buffer.concat([this.#unread, data]);
    for (let at; (at = this.#next()) > 0; ) this.#unread = this.#unread.subarray(at);
  }

  /** Takes one frame; returns its length, or 0 where it is not complete. */
  #next() {
    const bytes = this.#unread;
    if (bytes.length < 2) return 0;
    const short = bytes[1] & 127;
    const head = short < 126 ? 2 : short === 126 ? 4 : 10;
    if (bytes.length < head + 4) return 0;
    const length = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    const end = head + 4 + length;
    if (bytes.length < end) return 0;
    const mask = bytes.subarray(head, head + 4);
    const payload = Buffer.from(bytes.subarray(head + 4, end).map((byte, i) => byte ^ mask[i & 3]));
    const opcode = bytes[0] & 15;
    if (opcode === 1) this.got.push(JSON.parse(payload.toString()));
    if (opcode === 2) this.got.push({ sequence: payload.readUInt32LE(4), offset: Number(payload.readBigUInt64LE(8)) });
    if (opcode === 8) this.#socket.end();
    return end;
  }
}
