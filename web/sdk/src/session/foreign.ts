// Tells a hub that refuses the page's origin from one that does not answer: browsers give both the same error. Loaded when a
// hub of another origin cannot be read.

/** Whether something answers there, to pages of its own. It says in the console what the operator can do. */
export async function isRefused(url: URL, timeoutMs: number): Promise<boolean> {
  try {
    // The answer cannot be read; that there is one is what is asked for.
    await fetch(url, { mode: 'no-cors', cache: 'no-store', signal: AbortSignal.timeout(timeoutMs) });
  } catch {
    return false;
  }
  console.error(`The hub at ${url.origin} does not let pages of ${location.origin} connect. To allow them, add "${location.origin}" to server.allowed_origins of the hub.`);
  return true;
}
