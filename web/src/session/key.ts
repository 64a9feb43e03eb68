// The key of a hub that wants one: from the page's address (`#key=...`), or typed when the hub asks.
// Kept in sessionStorage, so that it goes with the tab; taken out of the address, so that it is
// neither seen nor shared with it.

const KEY = 'antiphon.key';
/** What a WebSocket's subprotocol can carry (RFC 9110: token); browsers refuse the rest. */
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/** Null where the fragment holds none, or none that could be sent. */
export function keyFrom(hash: string): string | null {
  const key = new URLSearchParams(hash.replace(/^#/, '')).get('key')?.trim();
  return key && isKey(key) ? key : null;
}

export function isKey(key: string): boolean {
  return TOKEN.test(key);
}

export function loadKey(): string | null {
  const key = keyFrom(location.hash);
  if (key === null) return stored();
  history.replaceState(null, '', location.pathname + location.search);
  saveKey(key);
  return key;
}

export function saveKey(key: string): void {
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    // Storage is switched off: the key lasts until the page is left.
  }
}

function stored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/**
 * The subprotocols of a socket: a browser's WebSocket can set no header. With a ticket, the session
 * it is for goes on behind the last message received.
 */
export function protocols(key: string | null, ticket: { key: string; nReceived: number } | null = null): string[] {
  const secrets = [
    ...(key === null ? [] : [`openai-insecure-api-key.${key}`]),
    ...(ticket === null ? [] : [`antiphon-resume.${ticket.key}.${ticket.nReceived}`]),
  ];
  return secrets.length === 0 ? [] : ['realtime', ...secrets];
}

/** The header of a request. */
export function authorization(key: string | null): Record<string, string> {
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}
