// The hub's cluster, as `/api/state` returns it: the connection, hubs, workers and what happened to
// requests. Parsing only; nothing here judges.

import { json, list, number, text } from './json';

export interface Hub {
  id: string;
  name: string;
  build: string;
  /** It is the hub that this dashboard is of. */
  isThis: boolean;
  isDraining: boolean;
  sessions: number;
  maxSessions: number;
  upMs: number;
  /** Its clock less this hub's. */
  clockOffsetMs: number;
}

export interface WorkerStage {
  stage: string;
  model: string;
  /** It gets the requests that no worker with the model of the stage takes. */
  isFallback: boolean;
  slots: number;
  inFlight: number;
  /** Estimated wait of a request that arrives now. */
  waitMs: number;
}

export interface Worker {
  id: string;
  name: string;
  build: string;
  isDraining: boolean;
  /** Why this hub does not use it; null: it does. */
  refused: string | null;
  upMs: number;
  /** Time since it was heard. */
  silentMs: number;
  clockOffsetMs: number;
  stages: WorkerStage[];
}

/** The model of a stage that has one for all workers. */
export interface StageModel {
  stage: string;
  model: string;
  /** The model for requests that no worker with `model` takes; null: none. */
  fallback: string | null;
  /** A worker with `model` takes requests. */
  isServed: boolean;
  /** A worker with `fallback` does. */
  isFallbackServed: boolean;
}

export interface Lost {
  id: string;
  name: string;
  agoMs: number;
  why: string;
}

export interface Cluster {
  /** To NATS. */
  isConnected: boolean;
  /** For how long it has been, or has not been. */
  sinceMs: number;
  server: string;
  serverVersion: string;
  hubs: Hub[];
  workers: Worker[];
  stageModels: StageModel[];
  /** The last one first. */
  lost: Lost[];
  counts: Record<string, number>;
}

const COUNTS = ['attempts', 'retried', 'busy', 'failed', 'away'];

/** The cluster of a state; null where it has none. */
export function clusterFrom(state: unknown): Cluster | null {
  const body = json(state)['cluster'];
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return null;
  const it = json(body);
  return {
    isConnected: it['connected'] === true,
    sinceMs: number(it['since_ms']) ?? 0,
    server: text(it['server']) ?? '',
    serverVersion: text(it['server_version']) ?? '',
    hubs: list(it['hubs']).map((hub) => ({
      id: text(hub['id']) ?? '',
      name: text(hub['name']) ?? 'unnamed',
      build: text(hub['build']) ?? '',
      isThis: hub['is_this'] === true,
      isDraining: hub['draining'] === true,
      sessions: number(hub['sessions']) ?? 0,
      maxSessions: number(hub['max_sessions']) ?? 0,
      upMs: number(hub['up_ms']) ?? 0,
      clockOffsetMs: number(hub['clock_offset_ms']) ?? 0,
    })),
    workers: list(it['workers']).map((worker) => ({
      id: text(worker['id']) ?? '',
      name: text(worker['name']) ?? 'unnamed',
      build: text(worker['build']) ?? '',
      isDraining: worker['draining'] === true,
      refused: text(worker['refused']),
      upMs: number(worker['up_ms']) ?? 0,
      silentMs: number(worker['silent_ms']) ?? 0,
      clockOffsetMs: number(worker['clock_offset_ms']) ?? 0,
      stages: list(worker['stages']).map((stage) => ({
        stage: text(stage['stage']) ?? 'unknown',
        model: (text(stage['model']) || text(stage['engine'])) ?? '',
        isFallback: stage['is_fallback'] === true,
        slots: number(stage['slots']) ?? 0,
        inFlight: number(stage['in_flight']) ?? 0,
        waitMs: number(stage['wait_ms']) ?? 0,
      })),
    })),
    stageModels: list(it['stage_models']).map((stage) => ({
      stage: text(stage['stage']) ?? 'unknown',
      model: text(stage['model']) ?? '',
      fallback: text(stage['fallback']),
      isServed: stage['is_served'] === true,
      isFallbackServed: stage['is_fallback_served'] === true,
    })),
    lost: list(it['lost']).map((lost) => ({
      id: text(lost['id']) ?? '',
      name: text(lost['name']) ?? 'unnamed',
      agoMs: number(lost['ago_ms']) ?? 0,
      why: text(lost['why']) ?? '',
    })),
    counts: Object.fromEntries(COUNTS.flatMap((name) => (number(it[name]) === null ? [] : [[name, number(it[name]) ?? 0]]))),
  };
}
