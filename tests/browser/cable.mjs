// A cable between page and hub that a test can pull out and plug in again: a small HTTP and
// WebSocket relay on its own port. Host and Origin are written as the hub's own page would send
// them, since the hub refuses pages of other places.

import http from 'node:http';
import net from 'node:net';

export class Cable {
  #hub;
  #server = null;
  #port = 0;
  #sockets = new Set();
  /** Bytes of the bodies that came by HTTP, as they travel, by path; of the last one where a path came again. */
  bytes = new Map();

  constructor(hubUrl) {
    this.#hub = new URL(hubUrl);
  }

  get url() {
    return `http://127.0.0.1:${this.#port}/`;
  }

  /** Begins to listen; after `unplug` on the same port as before. */
  async plug() {
    const server = http.createServer((request, response) => this.#relay(request, response));
    server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
    server.on('connection', (socket) => this.#keep(socket));
    await new Promise((ready, failed) => server.once('error', failed).listen(this.#port, '127.0.0.1', ready));
    this.#port = server.address().port;
    this.#server = server;
  }

  /** All connections break in this moment, and new ones are refused. */
  async unplug() {
    const closed = new Promise((done) => this.#server.close(done));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  /** What is connected now hears nothing any more, as after one end has slept; new connections work. */
  freeze() {
    for (const socket of this.#sockets) {
      socket.unpipe();
      socket.removeAllListeners('data');
      socket.pause();
    }
  }

  #keep(socket) {
    this.#sockets.add(socket);
    socket.on('close', () => this.#sockets.delete(socket));
    // A pulled cable makes errors on both ends; the test looks at the page.
    socket.on('error', () => {});
  }

  #headers(request) {
    const headers = { ...request.headers, host: this.#hub.host };
    if (headers.origin) headers.origin = this.#hub.origin;
    return headers;
  }

  #relay(request, response) {
    const { hostname, port } = this.#hub;
    const onward = http.request({ hostname, port, path: request.url, method: request.method, headers: this.#headers(request), agent: false }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      const { pathname } = new URL(request.url, this.#hub);
      let bytes = 0;
      answer.on('data', (data) => this.bytes.set(pathname, (bytes += data.length)));
      answer.pipe(response);
    });
    onward.on('error', () => response.destroy());
    request.pipe(onward);
  }

  #upgrade(request, socket, head) {
    const hub = net.connect(Number(this.#hub.port), this.#hub.hostname, () => {
      const lines = Object.entries(this.#headers(request)).map(([name, value]) => `${name}: ${value}`);
      hub.write(`GET ${request.url} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
      hub.write(head);
      hub.pipe(socket).pipe(hub);
    });
    this.#keep(hub);
    hub.on('close', () => socket.destroy());
    socket.on('close', () => hub.destroy());
  }
}
