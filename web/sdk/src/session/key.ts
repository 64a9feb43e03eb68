// How the API key of a hub travels: as a subprotocol of a socket, as a header of a request. Never in an address.

/** The characters allowed in a WebSocket subprotocol (RFC 9110: token); browsers reject others. */
const TOKEN = /^[\w!#$%&'*+.^`|~-]+$/;

/** Whether a key can be sent. */
export function isKey(key: string): boolean {
  return TOKEN.test(key);
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
