// The API key of a hub that requires one: from the page's address (`#key=...`), or typed on request.
// Kept in sessionStorage, so that it is discarded with the tab; removed from the address, so that it
// is neither visible nor shared.

import { isKey } from '@antiphon/client';

const KEY = 'antiphon.key';
/** The last one that was saved, for browsers whose storage is disabled. */
let saved: string | null = null;

/** Null if the fragment contains no key, or one that cannot be sent. */
export function keyFrom(hash: string): string | null {
  const key = new URLSearchParams(hash.replace(/^#/, '')).get('key')?.trim();
  return key && isKey(key) ? key : null;
}

export function loadKey(): string | null {
  const key = keyFrom(location.hash);
  if (key === null) return stored();
  history.replaceState(null, '', location.pathname + location.search);
  saveKey(key);
  return key;
}

export function saveKey(key: string): void {
  saved = key;
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
    return saved;
  }
}
