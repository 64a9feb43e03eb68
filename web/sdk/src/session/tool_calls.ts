// Calls of the client's functions: runs them as the model asks for them, sends their results, and asks for the answer
// that uses them once all calls of a response have one. Owned by the conversation, which passes it all events.

import { type ServerEvent, type ToolDefinition, callOutput, responseCreate } from '../protocol/events.js';

/** A function that the model may call. */
export interface Tool extends ToolDefinition {
  /**
   * Returns, or resolves with, the result: text, or what `JSON.stringify` takes. What it throws is reported to the model, as is a
   * call that takes longer than `timeoutMs`. `signal` is aborted then, and when the conversation stops.
   */
  call: (args: Record<string, unknown>, signal: AbortSignal) => unknown;
  /** Default 30,000. */
  timeoutMs?: number;
}

/** Why the model gets no more functions until the user says something. */
export type ToolLimit = { kind: 'unknown'; name: string } | { kind: 'rounds'; rounds: number };

/** Responses in a row that may call functions before the user says something again. */
export const MAX_ROUNDS = 8;
/** Calls that are remembered; a hub goes back by few. */
const MAX_CALLS = 64;

interface Call {
  callId: string;
  responseId: string;
  /** Number of the message that brought it. */
  number: number;
  /** Null while the function runs. */
  output: string | null;
  /** Number of the message that confirmed the result. */
  confirmed: number | null;
  abort: AbortController;
}

export class ToolCalls {
  readonly #tools: ReadonlyMap<string, Tool>;
  readonly #send: (event: object) => void;
  readonly #isSilent: () => boolean;
  #calls: Call[] = [];
  /** Ended responses whose calls are answered, but not yet with a response. */
  #owed = new Set<string>();
  /** The response in progress. */
  #active: string | null = null;
  #nAsked = 0;
  readonly #maxRounds: number;
  readonly #limited: (limit: ToolLimit) => void;
  /** Responses asked for since the user said something. */
  #nRounds = 0;
  /** A function was called that there is not. */
  #unknown: string | null = null;
  /** The model was asked without functions: what it calls now is refused, and asked for is nothing. */
  #isOver = false;

  /** `isSilent`: whether responses are text now. `limited`: the model is asked without functions from now on. */
  constructor(
    tools: readonly Tool[], send: (event: object) => void, isSilent: () => boolean, limited: (limit: ToolLimit) => void = () => {}, maxRounds = MAX_ROUNDS,
  ) {
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#send = send;
    this.#isSilent = isSilent;
    this.#limited = limited;
    this.#maxRounds = maxRounds;
  }

  /** `number`: of the message that brought the event. Returns whether the event concerns only this. */
  take(event: ServerEvent, number: number): boolean {
    switch (event.type) {
      case 'response.created':
        this.#active = event.response.id;
        // It reads the results that were sent before.
        for (const id of this.#owed) if (!this.#isRunning(id)) this.#owed.delete(id);
        return false;
      case 'response.output_item.done': {
        const { type, call_id, name, arguments: args } = event.item;
        if (type === 'function_call' && call_id && name && event.item.status !== 'incomplete') this.#run(call_id, name, args ?? '', event.response_id, number);
        return false;
      }
      case 'input_audio_buffer.committed':
        this.#begin();
        return false;
      case 'conversation.item.added': {
        if (event.item.role === 'user') this.#begin();
        const call = this.#calls.find(({ callId }) => event.item.type === 'function_call_output' && callId === event.item.call_id);
        if (call) call.confirmed ??= number;
        return false;
      }
      case 'response.done':
        if (this.#active === event.response.id) this.#active = null;
        // An interrupted response is followed by the one to what interrupted it.
        if (event.response.status === 'completed' && this.#of(event.response.id).length > 0) this.#owed.add(event.response.id);
        this.#ask();
        return false;
      case 'error':
        // A newer turn's response was faster; the results are in the history that it, or the next one, reads.
        return event.error.event_id === this.#askId && event.error.code === 'conversation_already_has_active_response';
      default:
        return false;
    }
  }

  /** The session goes back to a checkpoint: later calls are void, and results that it does not include are sent again. */
  back(checkpoint: number): void {
    for (const call of this.#calls) if (call.number > checkpoint) call.abort.abort();
    this.#calls = this.#calls.filter(({ number }) => number <= checkpoint);
    this.#active = null;
    for (const call of this.#calls) {
      if (call.confirmed !== null && call.confirmed <= checkpoint) continue;
      call.confirmed = null;
      if (call.output !== null) this.#send(callOutput(call.callId, call.output));
    }
  }

  /** Aborts what runs; nothing is sent any more. */
  stop(): void {
    for (const { abort } of this.#calls) abort.abort();
    this.#calls = [];
    this.#owed.clear();
    this.#active = null;
    this.#begin();
  }

  /** The user said something. */
  #begin(): void {
    this.#nRounds = 0;
    this.#unknown = null;
    this.#isOver = false;
  }

  get #askId(): string {
    return `tools_${this.#nAsked}`;
  }

  #of(responseId: string): Call[] {
    return this.#calls.filter((call) => call.responseId === responseId);
  }

  #isRunning(responseId: string): boolean {
    return this.#of(responseId).some(({ output }) => output === null);
  }

  #run(callId: string, name: string, args: string, responseId: string, number: number): void {
    const call: Call = { callId, responseId, number, output: null, confirmed: null, abort: new AbortController() };
    this.#calls.push(call);
    while (this.#calls.length > MAX_CALLS) this.#calls.shift()?.abort.abort();
    const tool = this.#tools.get(name);
    if (!tool) this.#unknown ??= name;
    const refusal = this.#isOver ? 'No more functions can be called now.' : `There is no function '${name}'.`;
    const answer = tool && !this.#isOver ? run(tool, args, call.abort) : Promise.resolve(failure(refusal));
    void answer.catch((cause: unknown) => failure(String(cause))).then((output) => {
      if (!this.#calls.includes(call)) return;
      call.output = output;
      this.#send(callOutput(callId, output));
      this.#ask();
    });
  }

  #ask(): void {
    if (this.#active !== null || this.#owed.size === 0) return;
    if ([...this.#owed].some((id) => this.#isRunning(id))) return;
    this.#owed.clear();
    if (this.#isOver) return;
    this.#nAsked++;
    this.#nRounds++;
    const name = this.#unknown;
    this.#isOver = name !== null || this.#nRounds >= this.#maxRounds;
    this.#send(responseCreate(this.#isSilent(), this.#askId, this.#isOver));
    if (this.#isOver) this.#limited(name === null ? { kind: 'rounds', rounds: this.#nRounds } : { kind: 'unknown', name });
  }
}

/** The code that runs a function is loaded when one is called. */
const run = async (tool: Tool, args: string, abort: AbortController) => (await import('./tool_run.js')).outputOf(tool, args, abort);

const failure = (message: string) => JSON.stringify({ error: message });
