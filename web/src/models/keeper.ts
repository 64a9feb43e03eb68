// Reads the hub's models, starts downloads, and follows them to their end. Draws nothing.

import { SseReader } from '../dashboard/data/sse';
import { type Conversation, authorization } from '@antiphon/client';
import { loadKey } from '../session/key';
import { type LlmServers, type Models, isUnderWay, llmServersFrom, missingOf, modelsFrom, pullFrom, withPull } from './data';

const ANSWER_MS = 8_000;
/** A download whose connection was refused or lost is followed again after this time. */
const FOLLOW_AGAIN_MS = 2_000;

const keepers = new WeakMap<Conversation, ModelKeeper>();

/** That of a page's conversation, made for the first view that asks. A change of the engines shows in the conversation's state. */
export function modelKeeperOf(conversation: Conversation): ModelKeeper {
  const keeper = keepers.get(conversation) ?? new ModelKeeper(() => void conversation.look());
  keepers.set(conversation, keeper);
  return keeper;
}

export class ModelKeeper {
  #models: Models | null = null;
  #llm: LlmServers | null = null;
  /** Changes of the model that answers, made from here. */
  #llmChanges = 0;
  #fault: string | null = null;
  /** Of the recommended models that are being got. */
  #batch: AbortSignal | null = null;
  #cancelBatch: AbortController | null = null;
  #failures: { title: string; message: string }[] = [];
  #listeners = new Set<() => void>();
  #followed = new Set<string>();

  /** `served`: called when a model has started or stopped serving. */
  constructor(private readonly served: () => void) {}

  get models(): Models | null {
    return this.#models;
  }

  /** The language model servers on the hub's machine; null before they were read, or for a caller who may not connect one. */
  get llm(): LlmServers | null {
    return this.#llm;
  }

  /** The error of the last request. */
  get fault(): string | null {
    return this.#fault;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads the models for a view that opens, and follows downloads that are in progress. */
  async look(): Promise<void> {
    this.#fault = null;
    await this.#readModels();
  }

  async #readModels(): Promise<void> {
    const answer = await this.#ask('api/models', 'GET');
    if (answer === null) return;
    this.#models = modelsFrom(answer) ?? this.#models;
    this.#changed();
    if (this.#models?.mayChange) void this.lookForLlm();
    for (const { name, pull } of this.#models?.models ?? []) if (isUnderWay(pull)) void this.#follow(name);
  }

  /** Asks the hub which language model servers run on its machine. */
  async lookForLlm(): Promise<void> {
    const before = this.#llmChanges;
    const answer = await this.#ask('api/llm/servers', 'GET');
    // It was asked before a change that is known by now: what it says of the model that answers may be older.
    if (before !== this.#llmChanges) return this.lookForLlm();
    this.#takeLlm(answer);
  }

  /** Lets a model of one of these servers answer, from the next conversation on. */
  async connectLlm(port: number, model: string): Promise<void> {
    await this.#changeLlm('POST', { port, model });
  }

  /** Lets the configured language model answer again. */
  async disconnectLlm(): Promise<void> {
    await this.#changeLlm('DELETE');
  }

  async #changeLlm(method: 'POST' | 'DELETE', body?: object): Promise<void> {
    this.#fault = null;
    const answer = await this.#ask('api/llm/servers', method, body);
    this.#llmChanges += 1;
    this.#takeLlm(answer);
    this.served();
  }

  #takeLlm(answer: unknown): void {
    if (answer === null) return;
    this.#llm = llmServersFrom(answer, this.#llm?.servers) ?? this.#llm;
    this.#changed();
  }

  /** Whether "Get all" is under way. */
  get isGettingAll(): boolean {
    return this.#batch !== null && !this.#batch.aborted;
  }

  /** What the last "Get all" could not get, and why. */
  get failures(): readonly { title: string; message: string }[] {
    return this.#failures;
  }

  /** Gets the recommended models, one after the other; one that fails does not keep the others from coming. */
  async pullRecommended(): Promise<void> {
    const cancel = (this.#cancelBatch = new AbortController());
    this.#batch = cancel.signal;
    this.#failures = [];
    for (const { name, title } of this.#models ? missingOf(this.#models) : []) {
      if (cancel.signal.aborted) break;
      await this.pull(name);
      const pull = this.#models?.models.find((model) => model.name === name)?.pull ?? null;
      const message = this.#fault ?? (pull?.state === 'failed' ? pull.message : null);
      if (message !== null && !cancel.signal.aborted) this.#failures = [...this.#failures, { title, message }];
      this.#changed();
    }
    if (this.#batch === cancel.signal) this.#batch = null;
    this.#changed();
  }

  /** Ends a download, and with it "Get all"; what came is kept. */
  async cancel(name: string): Promise<void> {
    this.#cancelBatch?.abort();
    this.#fault = null;
    await this.#ask(`api/models/${encodeURIComponent(name)}/pull`, 'DELETE');
    this.#changed();
  }

  async pull(name: string): Promise<void> {
    this.#fault = null;
    const pull = pullFrom(await this.#ask(`api/models/${encodeURIComponent(name)}/pull`, 'POST'));
    if (pull === null) return;
    this.#report(name, pull);
    await this.#follow(name);
  }

  async remove(name: string): Promise<void> {
    this.#fault = null;
    if ((await this.#ask(`api/models/${encodeURIComponent(name)}`, 'DELETE')) !== null) await this.#readModels();
  }

  /** Follows a download to its end; if the connection is refused or lost, the list is read again a little later. */
  async #follow(name: string): Promise<void> {
    if (this.#followed.has(name)) return;
    this.#followed.add(name);
    try {
      const url = new URL(`api/models/${encodeURIComponent(name)}/pull`, document.baseURI);
      const answer = await fetch(url, { headers: authorization(loadKey()), cache: 'no-store' });
      if (answer.ok && answer.body !== null) await this.#read(name, answer.body);
    } catch {
      // The connection was lost. The download continues at the hub, and the next look shows it.
    }
    const kept = this.#models?.models.find((model) => model.name === name)?.pull;
    if (kept && isUnderWay(kept)) await new Promise((done) => setTimeout(done, FOLLOW_AGAIN_MS));
    this.#followed.delete(name);
    await this.#readModels();
    // The list is read after the end and contains the result; text that is already shown is kept.
    if (kept && !isUnderWay(kept)) this.#report(name, kept);
    this.served();
  }

  async #read(name: string, body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.getReader();
    const words = new TextDecoder();
    const events = new SseReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const { event, data } of events.push(words.decode(value, { stream: true }))) {
        const pull = event === 'pull' ? pullFrom(JSON.parse(data)) : null;
        if (pull) this.#report(name, pull);
      }
    }
  }

  /** The response; null if there is none or the request was refused, in which case `fault` states why. */
  async #ask(path: string, method: string, sent?: object): Promise<unknown> {
    try {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const headers = { ...authorization(loadKey()), ...(sent && { 'content-type': 'application/json' }) };
      const content = sent ? { body: JSON.stringify(sent) } : {};
      const answer = await fetch(new URL(path, document.baseURI), { method, headers, cache: 'no-store', signal, ...content });
      if (answer.status === 204) return {};
      const body: unknown = await answer.json();
      if (answer.ok) return body;
      this.#fault = (body as { error?: { message?: string } } | null)?.error?.message ?? `The hub answered ${answer.status}.`;
    } catch {
      this.#fault = 'The hub does not answer.';
    }
    this.#changed();
    return null;
  }

  #report(name: string, pull: NonNullable<ReturnType<typeof pullFrom>>): void {
    if (this.#models) this.#models = withPull(this.#models, name, pull);
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
