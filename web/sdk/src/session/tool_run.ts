// Runs one call of a client's function, and reports to the model what fails. Loaded when a function is called.

import type { Tool } from './tool_calls.js';

const TIMEOUT_MS = 30_000;

/** The result as the model reads it; it never rejects. */
export async function outputOf(tool: Tool, text: string, abort: AbortController): Promise<string> {
  const timeoutMs = tool.timeoutMs ?? TIMEOUT_MS;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new Error(`No result after ${timeoutMs} ms.`));
      abort.abort();
    }, timeoutMs);
  });
  try {
    const args: unknown = text === '' ? {} : JSON.parse(text);
    if (typeof args !== 'object' || args === null || Array.isArray(args)) return failure('The arguments are not an object.');
    const value = await Promise.race([tool.call(args as Record<string, unknown>, abort.signal), late]);
    return typeof value === 'string' ? value : (JSON.stringify(value) ?? 'null');
  } catch (cause) {
    return failure(cause instanceof Error ? cause.message : String(cause));
  } finally {
    clearTimeout(timer);
  }
}

function failure(message: string): string {
  return JSON.stringify({ error: message });
}
