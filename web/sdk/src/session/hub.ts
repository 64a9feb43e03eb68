// The hub's HTTP API: readiness and voices. `base` is the hub's address and ends with a slash; the hub may be served
// below any path.

import type { Voice } from '../state/model.js';
import { authorization } from './key.js';

const TIMEOUT_MS = 4_000;

/** What `/readyz` answered: `engines` and `remote` name the engines, `webrtc` says whether calls are taken. Not checked. */
export type HubStatus = Record<string, unknown>;

/** Whether a hub takes conversations. */
export type Readiness =
  | { kind: 'ready' | 'loading'; hub: HubStatus }
  | { kind: 'full'; sessions: number; hub: HubStatus }
  /** `origin`: it answers, and pages of this origin may not connect (`server.allowed_origins`). */
  | { kind: 'unreachable' | 'origin' };

/** The address that others are relative to: of the hub, or of the page if there is none. */
export function baseOf(hub: string | URL | undefined): string {
  const base = new URL(hub ?? document.baseURI, document.baseURI);
  // What is after the last slash of a page's address is its file; a hub's address has none.
  if (hub !== undefined && !base.pathname.endsWith('/')) base.pathname += '/';
  base.search = base.hash = '';
  return base.href;
}

/**
 * Address of the extension socket; `codec` is `opus` or `pcm16`. The session can be resumed later with a ticket, which
 * is sent as a subprotocol because addresses are logged.
 */
export function socketUrl(codec: string, base: string): string {
  const url = new URL('v1/realtime', base);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  url.search = `?audio=${codec}&resume=1`;
  return url.href;
}

/** Address that takes offers of calls by WebRTC whose data channel carries the extensions, too. */
export function callUrl(base: string): string {
  return new URL('v1/realtime/calls?audio=opus', base).href;
}

/** Browsers do not expose why a WebSocket was refused, so readiness is queried before and after. */
export async function readiness(base: string): Promise<Readiness> {
  const url = new URL('readyz', base);
  try {
    const answer = await fetch(url, { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) });
    return readinessFrom(answer.status, await answer.json());
  } catch {
    const isForeign = url.origin !== globalThis.location?.origin && (await import('./foreign.js').then((foreign) => foreign.isRefused(base, TIMEOUT_MS), () => false));
    return { kind: isForeign ? 'origin' : 'unreachable' };
  }
}

export function readinessFrom(status: number, body: unknown): Readiness {
  if (typeof body !== 'object' || body === null) return { kind: 'unreachable' };
  const hub = body as HubStatus;
  const { ready, sessions, max_sessions, load } = hub;
  // What answers is no hub.
  if (typeof ready !== 'boolean') return { kind: 'unreachable' };
  const isOverloaded = fieldsOf(load)['level'] === 'no_sessions';
  if (typeof sessions === 'number' && typeof max_sessions === 'number' && (sessions >= max_sessions || isOverloaded)) {
    return { kind: 'full', sessions, hub };
  }
  return { kind: status === 200 && ready ? 'ready' : 'loading', hub };
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

/** Empty if the hub does not list its voices. `refused`: the hub requires a key, or a different one. */
export async function voices(base: string, key: string | null): Promise<{ voices: Voice[]; refused: boolean }> {
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await fetch(new URL('v1/audio/voices', base), { headers: authorization(key), signal });
    return { voices: answer.ok ? voicesFrom(await answer.json()) : [], refused: answer.status === 401 };
  } catch {
    return { voices: [], refused: false };
  }
}

export function voicesFrom(body: unknown): Voice[] {
  const list = fieldsOf(body)['voices'];
  return (Array.isArray(list) ? list : []).flatMap((entry) => {
    const { id, name, language } = fieldsOf(entry);
    if (typeof id !== 'string' || id === '') return [];
    return [{ id, name: typeof name === 'string' && name ? name : id, language: typeof language === 'string' ? language : null }];
  });
}
