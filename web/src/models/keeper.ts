// Asks the hub for its models, has one pulled, and follows the pull to its end. Draws nothing.

import { SseReader } from '../dashboard/data/sse';
import { authorization, loadKey } from '../session/key';
import { type Models, isUnderWay, modelsFrom, pullFrom, withPull } from './data';

const ANSWER_MS = 8_000;

export class ModelKeeper {
  #models: Models | null = null;
  #fault: string | null = null;
  #listeners = new Set<() => void>();
  #followed = new Set<string>();

  /** `served`: called when a model has come to serve, or has gone. */
  constructor(private readonly served: () => void) {}

  get models(): Models | null {
    return this.#models;
  }

  /** What went wrong with the last thing that was asked for. */
  get fault(): string | null {
    return this.#fault;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Reads what there is, and follows the pulls that somebody began. */
  async look(): Promise<void> {
    const answer = await this.#ask('api/models', 'GET');
    if (answer === null) return;
    this.#models = modelsFrom(answer) ?? this.#models;
    this.#changed();
    for (const { name, pull } of this.#models?.models ?? []) if (isUnderWay(pull)) void this.#follow(name);
  }

  async pull(name: string): Promise<void> {
    this.#fault = null;
    const pull = pullFrom(await this.#ask(`api/models/${encodeURIComponent(name)}/pull`, 'POST'));
    if (pull === null) return;
    this.#tell(name, pull);
    await this.#follow(name);
  }

  async remove(name: string): Promise<void> {
    this.#fault = null;
    if ((await this.#ask(`api/models/${encodeURIComponent(name)}`, 'DELETE')) !== null) await this.look();
  }

  /** To the pull's end, also over a line that breaks: then what stands is read anew. */
  async #follow(name: string): Promise<void> {
    if (this.#followed.has(name)) return;
    this.#followed.add(name);
    try {
      const url = new URL(`api/models/${encodeURIComponent(name)}/pull`, document.baseURI);
      const answer = await fetch(url, { headers: authorization(loadKey()), cache: 'no-store' });
      if (answer.ok && answer.body !== null) await this.#read(name, answer.body);
    } catch {
      // The line broke. The pull goes on at the hub, and the next look shows it.
    } finally {
      this.#followed.delete(name);
    }
    const kept = this.#models?.models.find((model) => model.name === name)?.pull;
    await this.look();
    // The list is read after the end: it has it too, and words that were shown stay.
    if (kept && !isUnderWay(kept)) this.#tell(name, kept);
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
        if (pull) this.#tell(name, pull);
      }
    }
  }

  /** The answer; null where there is none or it is a refusal, which `fault` then says. */
  async #ask(path: string, method: string): Promise<unknown> {
    try {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const answer = await fetch(new URL(path, document.baseURI), { method, headers: authorization(loadKey()), cache: 'no-store', signal });
      const body: unknown = await answer.json();
      if (answer.ok) return body;
      this.#fault = (body as { error?: { message?: string } } | null)?.error?.message ?? `The hub answered ${answer.status}.`;
    } catch {
      this.#fault = 'The hub does not answer.';
    }
    this.#changed();
    return null;
  }

  #tell(name: string, pull: NonNullable<ReturnType<typeof pullFrom>>): void {
    if (this.#models) this.#models = withPull(this.#models, name, pull);
    this.#changed();
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }
}
