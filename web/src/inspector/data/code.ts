// Code that sends the same events. Keys are read from the environment and are never in it. Pure functions.

export const LANGUAGES = ['python', 'typescript', 'curl'] as const;
export type Language = (typeof LANGUAGES)[number];
export const LANGUAGE_WORDS: Record<Language, string> = { python: 'Python', typescript: 'TypeScript', curl: 'curl' };

/**
 * A program that connects to `url`, sends `events` in order and prints what comes. curl speaks HTTP, so that it can
 * create a short-lived key with the settings of a `session.update`, and nothing else: null then.
 */
export function codeOf(language: Language, url: string, events: readonly object[]): string | null {
  switch (language) {
    case 'python':
      return python(url, events);
    case 'typescript':
      return typescript(url, events);
    case 'curl':
      return curl(url, events);
  }
}

function python(url: string, events: readonly object[]): string {
  const { base, model } = partsOf(url);
  const sends = events.map((event) => `        await connection.send(${pythonValue(event, 8)})\n`).join('');
  return `# pip install "openai[realtime]"
import asyncio
import os

from openai import AsyncOpenAI


async def main():
    client = AsyncOpenAI(
        api_key=os.environ.get("OPENAI_API_KEY", "none"),
        websocket_base_url=${JSON.stringify(base)},
    )
    async with client.realtime.connect(model=${JSON.stringify(model)}) as connection:
${sends}        async for event in connection:
            print(event.to_json(indent=None))


asyncio.run(main())
`;
}

/** Python's literals differ from JSON's in three words. */
function pythonValue(value: unknown, indent: number): string {
  const inner = ' '.repeat(indent + 4);
  if (value === null || value === undefined) return 'None';
  if (value === true) return 'True';
  if (value === false) return 'False';
  if (typeof value !== 'object') return JSON.stringify(value);
  const isList = Array.isArray(value);
  const parts = isList ? value.map((one) => pythonValue(one, indent + 4)) : Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${pythonValue(one, indent + 4)}`);
  const [open, close] = isList ? ['[', ']'] : ['{', '}'];
  return parts.length === 0 ? `${open}${close}` : `${open}\n${parts.map((part) => `${inner}${part},\n`).join('')}${' '.repeat(indent)}${close}`;
}

function typescript(url: string, events: readonly object[]): string {
  const sends = events.map((event) => `  socket.send(JSON.stringify(${JSON.stringify(event, null, 2).replaceAll('\n', '\n  ')}));\n`).join('');
  return `// Node 22 or later, Deno, Bun: no dependencies.
const key = process.env.OPENAI_API_KEY;
const socket = new WebSocket(${JSON.stringify(url)}, ['realtime', ...(key ? [\`openai-insecure-api-key.\${key}\`] : [])]);
socket.onopen = () => {
${sends}};
socket.onmessage = ({ data }) => console.log(data);
socket.onclose = ({ code, reason }) => console.log('closed', code, reason);
`;
}

function curl(url: string, events: readonly object[]): string | null {
  const [event] = events as readonly Record<string, unknown>[];
  if (events.length !== 1 || event?.['type'] !== 'session.update') return null;
  const { base } = partsOf(url);
  const body = JSON.stringify({ session: event['session'] }, null, 2).replaceAll("'", "'\\''");
  return `# A short-lived key of a session with these settings, for a browser.
curl ${base.replace(/^ws/, 'http')}/realtime/client_secrets \\
  -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d '${body}'
`;
}

/** The address below which the API's routes are, and the model. */
function partsOf(url: string): { base: string; model: string } {
  const address = new URL(url);
  return { base: address.origin.replace(/^null$/, '') + address.pathname.replace(/\/realtime$/, ''), model: address.searchParams.get('model') ?? 'gpt-realtime' };
}

/** Events to begin with. */
export const TEMPLATES: readonly object[] = [
  { type: 'session.update', session: { type: 'realtime', instructions: 'Answer in one sentence.' } },
  { type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'What time is it?' }] } },
  { type: 'response.create' },
  { type: 'response.create', response: { output_modalities: ['text'] } },
  { type: 'response.cancel' },
  { type: 'conversation.item.create', item: { type: 'function_call_output', call_id: 'call_', output: '{}' } },
  { type: 'conversation.item.retrieve', item_id: 'item_' },
  { type: 'conversation.item.delete', item_id: 'item_' },
  { type: 'input_audio_buffer.commit' },
  { type: 'input_audio_buffer.clear' },
  { type: 'output_audio_buffer.clear' },
];

export type Draft = { kind: 'fit'; event: object } | { kind: 'unfit'; why: string };

/** The event that was typed. */
export function draftFrom(text: string): Draft {
  try {
    const event: unknown = JSON.parse(text);
    const type = typeof event === 'object' && event !== null ? (event as { type?: unknown }).type : undefined;
    return typeof type === 'string' && type !== '' ? { kind: 'fit', event: event as object } : { kind: 'unfit', why: 'An event is an object with a "type".' };
  } catch (cause) {
    return { kind: 'unfit', why: cause instanceof Error ? cause.message : 'This is not JSON.' };
  }
}
