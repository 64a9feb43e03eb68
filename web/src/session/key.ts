// The API key of a hub that requires one: from the page's address (`#key=...`), or typed on request.
// Kept in sessionStorage, so that it is discarded with the tab; removed from the address, so that it
// is neither visible nor shared.

const KEY = 'antiphon.key';
/** The characters allowed in a WebSocket subprotocol (RFC 9110: token); browsers reject others. */
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/** Null if the fragment contains no key, or one that cannot be sent. */
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
    // Storage is disabled: the key is kept until the page is closed.
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
 * The subprotocols of a socket, because a browser's WebSocket cannot set headers. With the
 * outbox of a session, that session is resumed after the last message received.
 */
export function protocols(key: string | null, resumes: { key: string; nReceived: number } | null = null): string[] {
  const secrets = [
    ...(key === null ? [] : [`openai-insecure-api-key.${key}`]),
    ...(resumes === null ? [] : [`antiphon-resume.${resumes.key}.${resumes.nReceived}`]),
  ];
  return secrets.length === 0 ? [] : ['realtime', ...secrets];
}

/** The authorization header of a request. */
export function authorization(key: string | null): Record<string, string> {
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}
