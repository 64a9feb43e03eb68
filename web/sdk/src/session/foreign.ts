// Distinguishes a hub that refuses the page's origin from one that does not answer: browsers give both the same error. Loaded when a
// hub of another origin cannot be read.

/** Whether a hub answers there, to pages of other origins. It says in the console what its operator can do. */
export async function isRefused(base: string, timeoutMs: number): Promise<boolean> {
  const url = new URL('sdk/worklets.js', base);
  try {
    // A file that any page may load. It cannot be read here; that there is an answer is what is asked for.
    await fetch(url, { mode: 'no-cors', cache: 'no-store', signal: AbortSignal.timeout(timeoutMs) });
  } catch {
    return false;
  }
  console.error(`The hub at ${url.origin} does not let pages of ${location.origin} connect. To allow them, add "${location.origin}" to server.allowed_origins of the hub.`);
  return true;
}
