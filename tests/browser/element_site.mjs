// A site of another origin than the hub, whose pages hold `<antiphon-voice>` by one script tag. With `?strict` in the address a
// page has policies that permit no more than docs/guide/embedding.md asks for, with `?nokey` it sets no key, and with `?asks` it
// types a question at once. `window.seen` is
// what the elements have dispatched.

import http from 'node:http';

const script = (key) => `window.seen = [];
for (const voice of document.querySelectorAll('antiphon-voice')) {
  for (const kind of ['ready', 'caption', 'turn', 'error']) voice.addEventListener(kind, ({ detail }) => seen.push({ of: voice.id, kind, detail }));
  if (!new URLSearchParams(location.search).has('nokey')) voice.key = '${key}';
  if (new URLSearchParams(location.search).has('asks')) voice.send('What time is it?');
}`;
const page = (body) => `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A shop</title>
<style>:root { color-scheme: light dark }</style></head><body><main><h1>A shop</h1>${body}<script src="page.js"></script></main></body></html>`;
const PAGES = {
  '/one': (hub) => page(`<script src="${hub}/sdk/antiphon-voice.js"></script><antiphon-voice id="a"></antiphon-voice>`),
  '/two': (hub) => page(`<script src="${hub}/sdk/antiphon-voice.js"></script><antiphon-voice id="a" label="Sales"></antiphon-voice><antiphon-voice id="b" label="Support" instructions="Be brief."></antiphon-voice>`),
  '/frame': () => page('<iframe title="Assistant" src="one" allow="microphone"></iframe>'),
  '/module': (hub) => page(`<script type="module" src="${hub}/sdk/antiphon-voice.js"></script><antiphon-voice id="a" src="${hub}"></antiphon-voice>`),
};
const policies = (hub) => ({
  'content-security-policy': `default-src 'none'; script-src 'self' ${hub}; connect-src ${hub} ${hub.replace('http', 'ws')}; style-src 'unsafe-inline'; require-trusted-types-for 'script'`,
  'cross-origin-embedder-policy': 'require-corp',
  'cross-origin-opener-policy': 'same-origin',
});

/** `hub`: its `url` is read at each request. Returns the site's address and what ends it. */
export async function serveSite(hub, key) {
  const server = http.createServer(({ url }, response) => {
    const { pathname, searchParams } = new URL(url, 'http://any');
    if (pathname === '/page.js') return response.writeHead(200, { 'content-type': 'text/javascript' }).end(script(key));
    const body = PAGES[pathname]?.(hub.url);
    response.writeHead(body ? 200 : 404, { 'content-type': 'text/html', ...(searchParams.has('strict') ? policies(hub.url) : {}) }).end(body);
  });
  await new Promise((ready, failed) => server.once('error', failed).listen(0, '127.0.0.1', ready));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => (server.closeAllConnections(), server.close()) };
}
