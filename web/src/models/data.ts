// Parses and validates the hub's model list, and formats it for display. Pure functions.

export interface PassedOver {
  model: string;
  why: string;
  /** Whether it is too slow for the hub's machine; otherwise it cannot be loaded. */
  slow: boolean;
}

/** The engine that serves a stage. */
export interface Stage {
  stage: string;
  engine: string;
  /** The registry's model used by the engine, with its precision; null if the engine needs none. */
  model: string | null;
  /** How long a conversation waits for it on the hub's machine, in milliseconds; null if that was not measured. */
  waitMs: number | null;
  /** The same where two wait at once. */
  bothMs: number;
  passedOver: PassedOver[];
  /** A better model that is not installed. */
  offer: string | null;
}

export interface Variant {
  precision: string;
  state: 'absent' | 'partly' | 'whole' | 'damaged';
  aboutBytes: number;
  uncheckedFiles: number;
}

/** State of a download. */
export type Pull =
  | { state: 'pulling'; phase: string; bytes: number; totalBytes: number }
  | { state: 'loading' }
  | { state: 'done'; serves: boolean; message: string }
  | { state: 'failed'; message: string };

export interface Model {
  name: string;
  stage: string;
  title: string;
  note: string;
  licence: string;
  languages: string[];
  serves: boolean;
  /** What the model needs besides its files and is missing at the hub, with instructions. */
  lacks: string | null;
  variants: Variant[];
  pull: Pull | null;
}

export interface Models {
  mayChange: boolean;
  stages: Stage[];
  models: Model[];
  /** Names of the models to begin with. */
  recommended: string[];
}

/** A language model server on the hub's machine. */
export interface LlmServer {
  port: number;
  name: string;
  models: string[];
  /** Why no model of it can be used, and what to do. */
  problem: string | null;
}

/** The language model that serves, and the servers that could. */
export interface LlmServers {
  active: {
    engine: string;
    model: string | null;
    baseUrl: string | null;
    /** Whether it was connected while the hub runs, and does not outlast it. */
    connected: boolean;
    /** The lines of the configuration that keep it. */
    settings: string | null;
  };
  servers: LlmServer[];
}

type Fields = Record<string, unknown>;

const fields = (value: unknown): Fields => (typeof value === 'object' && value !== null ? (value as Fields) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const textOrNull = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);
const count = (value: unknown): number => (typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : 0);

/** Null if the body is not a valid response of `/api/models`. */
export function modelsFrom(body: unknown): Models | null {
  const { may_change, stages, models, recommended } = fields(body);
  if (typeof may_change !== 'boolean' || !Array.isArray(stages)) return null;
  return { mayChange: may_change, stages: stages.map(stageFrom), models: list(models).map(modelFrom), recommended: list(recommended).map(text) };
}

/** Null if the body is not a valid response of `/api/llm/servers`. `servers`: those of an answer that names none. */
export function llmServersFrom(body: unknown, servers: LlmServer[] = []): LlmServers | null {
  const { active, servers: sent } = fields(body);
  const { engine, model, base_url, connected, settings } = fields(active);
  if (text(engine) === '') return null;
  return {
    active: { engine: text(engine), model: textOrNull(model), baseUrl: textOrNull(base_url), connected: connected === true, settings: textOrNull(settings) },
    servers: Array.isArray(sent) ? sent.map(llmServerFrom) : servers,
  };
}

function llmServerFrom(body: unknown): LlmServer {
  const { port, name, models, problem } = fields(body);
  return { port: count(port), name: text(name), models: list(models).map(text), problem: textOrNull(problem) };
}

/** The first model that could answer where none does; null if one does, or none is found. */
export function firstModel({ active, servers }: LlmServers): { server: LlmServer; model: string } | null {
  const server = servers.find(({ models, problem }) => models.length > 0 && problem === null);
  const model = server?.models[0];
  return active.model === null && server && model !== undefined ? { server, model } : null;
}

/** The recommended models that are not on the hub's disk and could run there. */
export function missingOf({ models, recommended }: Models): Model[] {
  return models.filter((model) => recommended.includes(model.name) && !isHere(model) && model.lacks === null);
}

function stageFrom(body: unknown): Stage {
  const { stage, engine, model, measured, passed_over, offer } = fields(body);
  const { wait_ms, both_ms } = fields(measured);
  return {
    stage: text(stage),
    engine: text(engine),
    model: textOrNull(model),
    waitMs: typeof wait_ms === 'number' ? count(wait_ms) : null,
    bothMs: count(both_ms),
    passedOver: list(passed_over).map(passedOverFrom),
    offer: textOrNull(offer),
  };
}

function passedOverFrom(body: unknown): PassedOver {
  const { model, why, slow } = fields(body);
  return { model: text(model), why: text(why), slow: slow === true };
}

function modelFrom(body: unknown): Model {
  const { name, stage, title, note, licence, languages, serves, lacks, variants, pull } = fields(body);
  return {
    name: text(name),
    stage: text(stage),
    title: text(title) || text(name),
    note: text(note),
    licence: text(licence),
    languages: list(languages).map(text),
    serves: serves === true,
    lacks: textOrNull(lacks),
    variants: list(variants).map(variantFrom),
    pull: pullFrom(pull),
  };
}

function variantFrom(body: unknown): Variant {
  const { precision, state, about_bytes, unchecked_files } = fields(body);
  const known = (['partly', 'whole', 'damaged'] as const).find((one) => one === state) ?? 'absent';
  return { precision: text(precision), state: known, aboutBytes: count(about_bytes), uncheckedFiles: count(unchecked_files) };
}

/** Null if the body is not a valid download state. */
export function pullFrom(body: unknown): Pull | null {
  const { state, phase, bytes, total_bytes, serves, message } = fields(body);
  if (state === 'pulling') return { state, phase: text(phase), bytes: count(bytes), totalBytes: count(total_bytes) };
  if (state === 'loading') return { state };
  if (state === 'done') return { state, serves: serves === true, message: text(message) };
  if (state === 'failed') return { state, message: text(message) };
  return null;
}

export function isUnderWay(pull: Pull | null): boolean {
  return pull?.state === 'pulling' || pull?.state === 'loading';
}

/** Progress from 0 to 1; null while it is unknown. */
export function share(pull: Pull): number | null {
  if (pull.state === 'loading') return 1;
  if (pull.state !== 'pulling' || pull.totalBytes === 0) return null;
  return Math.min(1, pull.bytes / pull.totalBytes);
}

/** The state of a download, for display. */
export function pullStatus(pull: Pull): string {
  switch (pull.state) {
    case 'pulling':
      if (pull.phase === 'checking') return 'Checking what came …';
      return pull.bytes === 0 ? 'Asking for it …' : `${size(pull.bytes)} of ${size(pull.totalBytes)}`;
    case 'loading':
      return 'Here. Loading it …';
    default:
      return pull.message;
  }
}

/** Size in megabytes (10^6 bytes). */
export function size(bytes: number): string {
  const mb = bytes / 1e6;
  if (mb >= 1000) return `${(mb / 1000).toFixed(1)} GB`;
  return mb >= 10 ? `${Math.round(mb)} MB` : `${mb.toFixed(1)} MB`;
}

/** Whether it is on the hub's disk, in any precision. */
export function isHere(model: Model): boolean {
  return model.variants.some(({ state }) => state === 'whole');
}

/** A warning shown before the download if the model's files have no published checksum. */
export function unchecked(model: Model): string | null {
  return (model.variants[0]?.uncheckedFiles ?? 0) > 0 ? 'Not all of its files have a published checksum.' : null;
}

/** The models of a stage: installed ones first, otherwise in the hub's order. */
export function modelsOf(models: Models, stage: string): Model[] {
  const of = models.models.filter((model) => model.stage === stage);
  return [...of.filter(isHere), ...of.filter((model) => !isHere(model))];
}

/** The list with an updated download state of one model. */
export function withPull(models: Models, name: string, pull: Pull): Models {
  return { ...models, models: models.models.map((model) => (model.name === name ? { ...model, pull } : model)) };
}
