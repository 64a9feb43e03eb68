// Calls of the client's functions: what is answered, when the answer is asked for, and what a lost hub makes of it.
import { beforeEach, expect, it, vi } from 'vitest';
import type { ServerEvent } from '../src/protocol/events';
import { type Tool, ToolCalls } from '../src/session/tool_calls';

type Sent = { type: string; item?: { call_id: string; output: string }; event_id?: string };

let sent: Sent[];
let number: number;
let calls: ToolCalls;
let isSilent: boolean;

const weather: Tool = { name: 'weather', description: '', parameters: {}, call: ({ city }) => `sunny in ${String(city)}` };
const outputs = () => sent.filter(({ item }) => item).map(({ item }) => [item?.call_id, item?.output]);
const asked = () => sent.filter(({ type }) => type === 'response.create');
const take = (event: ServerEvent) => calls.take(event, ++number);
const created = (id: string) => take({ type: 'response.created', response: { id } });
const done = (id: string, status = 'completed') => take({ type: 'response.done', response: { id, status } });
const call = (response_id: string, call_id: string, name = 'weather', args = '{"city":"Rome"}') =>
  take({ type: 'response.output_item.done', response_id, item: { id: `item_${call_id}`, type: 'function_call', status: 'completed', call_id, name, arguments: args } });
/** What runs a function is loaded when one is called. */
const settled = async () => {
  await vi.dynamicImportSettled();
  await new Promise((resolve) => setTimeout(resolve));
};

function begin(...tools: Tool[]): void {
  sent = [];
  number = 0;
  isSilent = false;
  calls = new ToolCalls(tools, (event) => sent.push(event as Sent), () => isSilent);
}

beforeEach(() => begin(weather));

it('sends the result, then asks for the answer, once the response is done', async () => {
  created('r1');
  call('r1', 'c1');
  await settled();
  expect([outputs(), asked()]).toEqual([[['c1', 'sunny in Rome']], []]);
  done('r1');
  expect(sent.map(({ type }) => type)).toEqual(['conversation.item.create', 'response.create']);
  created('r2');
  done('r2');
  expect(asked()).toHaveLength(1);
});

it('asks for text where the question was typed for a silent answer', async () => {
  isSilent = true;
  created('r1');
  call('r1', 'c1');
  await settled();
  done('r1');
  expect(asked()).toMatchObject([{ response: { output_modalities: ['text'] } }]);
});

it('asks once for two calls of a response, when both have a result', async () => {
  let finish: (value: string) => void = () => {};
  begin(weather, { ...weather, name: 'slow', call: () => new Promise((resolve) => (finish = resolve)) });
  created('r1');
  call('r1', 'c1');
  call('r1', 'c2', 'slow');
  done('r1');
  await settled();
  expect([outputs().length, asked().length]).toEqual([1, 0]);
  finish('late');
  await settled();
  expect([outputs().at(-1), asked().length]).toEqual([['c2', 'late'], 1]);
});

it('waits for another turn that began meanwhile, and asks after it', async () => {
  let finish: (value: string) => void = () => {};
  begin({ ...weather, call: () => new Promise((resolve) => (finish = resolve)) });
  created('r1');
  call('r1', 'c1');
  done('r1');
  created('r2');
  await settled();
  finish('late');
  await settled();
  expect(asked()).toHaveLength(0);
  done('r2');
  expect(asked()).toHaveLength(1);
});

it('asks for nothing after an interrupted response, whose successor reads the result', async () => {
  created('r1');
  call('r1', 'c1');
  done('r1', 'cancelled');
  await settled();
  expect([outputs().length, asked().length]).toEqual([1, 0]);
});

it('keeps to itself that another response was faster, and no other error', () => {
  const error = (event_id: string, code: string): ServerEvent => ({ type: 'error', error: { message: 'no', code, event_id } });
  created('r1');
  call('r1', 'c1');
  return settled().then(() => {
    done('r1');
    const { event_id = '' } = asked()[0] ?? {};
    expect(take(error(event_id, 'conversation_already_has_active_response'))).toBe(true);
    expect(take(error('other', 'conversation_already_has_active_response'))).toBe(false);
    expect(take(error(event_id, 'invalid_value'))).toBe(false);
  });
});

/** One response that calls `name`, and the answers to it. */
async function round(n: number, name?: string): Promise<void> {
  created(`r${n}`);
  call(`r${n}`, `c${n}`, name);
  await settled();
  done(`r${n}`);
}

it('ends calls without end: the model is asked without functions, and then no more', async () => {
  const limits: unknown[] = [];
  begin(weather);
  calls = new ToolCalls([weather], (event) => sent.push(event as Sent), () => true, (limit) => limits.push(limit), 3);
  for (let n = 1; n <= 20; n++) await round(n);
  expect(asked()).toMatchObject([
    { response: { output_modalities: ['text'] } }, { response: { output_modalities: ['text'] } }, { response: { output_modalities: ['text'], tool_choice: 'none' } },
  ]);
  expect(asked()[0]).not.toHaveProperty('response.tool_choice');
  expect(limits).toEqual([{ kind: 'rounds', rounds: 3 }]);
  // What a model calls all the same is refused, so that no call is without a result.
  expect(outputs()).toHaveLength(20);
  expect(outputs().at(-1)?.[1]).toContain('No more functions');
  // The user's next turn begins again, typed or spoken.
  take({ type: 'conversation.item.added', item: { id: 'u', type: 'message', role: 'user' } });
  await round(21);
  expect(asked()).toHaveLength(4);
  for (let n = 22; n <= 30; n++) await round(n);
  take({ type: 'input_audio_buffer.committed', item_id: 'u2' });
  await round(31);
  expect(outputs().at(-1)?.[1]).toBe('sunny in Rome');
});

it('answers a function that there is not once, and asks for an answer without functions', async () => {
  const limits: unknown[] = [];
  begin();
  calls = new ToolCalls([], (event) => sent.push(event as Sent), () => false, (limit) => limits.push(limit));
  for (let n = 1; n <= 10; n++) await round(n, 'ping');
  expect(asked()).toMatchObject([{ response: { tool_choice: 'none' } }]);
  expect(limits).toEqual([{ kind: 'unknown', name: 'ping' }]);
});

it('reports to the model what fails: an unknown function, arguments, an exception, no result in time', async () => {
  vi.useFakeTimers();
  const signals: AbortSignal[] = [];
  const never: Tool = { ...weather, name: 'never', timeoutMs: 50, call: (_, signal) => (signals.push(signal), new Promise(() => {})) };
  const broken: Tool = { ...weather, name: 'broken', call: () => Promise.reject(new Error('no network')) };
  begin(weather, never, broken, { ...weather, name: 'nothing', call: () => undefined }, { ...weather, name: 'object', call: () => ({ a: 1 }) });
  created('r1');
  for (const [id, name, args] of [['c1', 'unknown', '{}'], ['c2', 'weather', '{'], ['c3', 'weather', '7'], ['c8', 'weather', '[]'], ['c4', 'broken', ''], ['c5', 'never', '{}'], ['c6', 'nothing', ''], ['c7', 'object', '']] as const) call('r1', id, name, args);
  await vi.advanceTimersByTimeAsync(49);
  expect([outputs().length, signals[0]?.aborted]).toEqual([7, false]);
  await vi.advanceTimersByTimeAsync(1);
  expect(signals[0]?.aborted).toBe(true);
  const found = Object.fromEntries(outputs() as [string, string][]);
  expect(found['c1']).toBe('{"error":"There is no function \'unknown\'."}');
  expect(JSON.parse(found['c2'] ?? '')).toHaveProperty('error');
  expect(found['c3']).toContain('not an object');
  expect(found['c8']).toContain('not an object');
  expect(found['c4']).toBe('{"error":"no network"}');
  expect(found['c5']).toBe('{"error":"No result after 50 ms."}');
  expect([found['c6'], found['c7']]).toEqual(['null', '{"a":1}']);
  vi.useRealTimers();
});

it('stops: what runs is aborted, and its result not sent', async () => {
  let finish: (value: string) => void = () => {};
  const signals: AbortSignal[] = [];
  begin({ ...weather, call: (_, signal) => (signals.push(signal), new Promise((resolve) => (finish = resolve))) });
  call('r1', 'c1');
  await settled();
  calls.stop();
  finish('late');
  await settled();
  expect([signals[0]?.aborted, sent.length]).toEqual([true, 0]);
});

it('goes back: later calls are void, and a result that the checkpoint lacks is sent again', async () => {
  call('r1', 'c1');
  call('r1', 'c2');
  await settled();
  take({ type: 'conversation.item.added', item: { id: 'o1', type: 'function_call_output', call_id: 'c1' } });
  const checkpoint = ++number;
  take({ type: 'conversation.item.added', item: { id: 'o2', type: 'function_call_output', call_id: 'c2' } });
  call('r2', 'c3');
  await settled();
  sent = [];
  calls.back(checkpoint);
  expect(outputs()).toEqual([['c2', 'sunny in Rome']]);
});
