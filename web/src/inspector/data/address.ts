// The address of a Realtime server as it is typed, and how a browser passes its key. Pure functions.

/** The characters allowed in a WebSocket subprotocol (RFC 9110: token). */
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

export type Address = { kind: 'fit'; url: string; model: string } | { kind: 'unfit'; why: string };

/**
 * `api.openai.com`, `http://127.0.0.1:8080/v1` and `wss://host/v1/realtime?model=...` all name a server. `model`
 * replaces that of the address unless it is empty.
 */
export function addressFrom(text: string, model: string): Address {
  const typed = text.trim();
  if (typed === '') return { kind: 'unfit', why: 'Enter the address of a server.' };
  const isLocal = /^(localhost|127\.|\[::1\])/.test(typed);
  let url: URL;
  try {
    url = new URL(/^[a-z]+:\/\//i.test(typed) ? typed : `${isLocal ? 'ws' : 'wss'}://${typed}`);
  } catch {
    return { kind: 'unfit', why: 'This is not an address.' };
  }
  if (url.protocol === 'http:') url.protocol = 'ws:';
  if (url.protocol === 'https:') url.protocol = 'wss:';
  if (url.protocol !== 'ws:' && url.protocol !== 'wss:') return { kind: 'unfit', why: 'The address begins with wss, ws, https or http.' };
  if (url.username !== '' || url.password !== '') return { kind: 'unfit', why: 'A key belongs into its own field.' };
  const path = url.pathname.replace(/\/+$/, '');
  url.pathname = path === '' ? '/v1/realtime' : path.endsWith('/v1') ? `${path}/realtime` : path;
  url.hash = '';
  if (model.trim() !== '') url.searchParams.set('model', model.trim());
  return { kind: 'fit', url: url.href, model: url.searchParams.get('model') ?? '' };
}

/** As OpenAI's own browser clients pass it. Null: the key has characters that no browser sends. */
export function protocolsOf(key: string): string[] | null {
  const typed = key.trim();
  if (typed === '') return ['realtime'];
  return TOKEN.test(typed) ? ['realtime', `openai-insecure-api-key.${typed}`] : null;
}
