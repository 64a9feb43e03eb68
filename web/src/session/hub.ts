// The hub's HTTP API: readiness and voices. Addresses are relative to the page, so that it works
// below any path.

import type { Engines, Voice } from '../state/model';
import { authorization } from './key';

const TIMEOUT_MS = 4_000;

export type Readiness =
  | { kind: 'ready'; engines: Engines; webrtc: boolean }
  | { kind: 'full'; sessions: number; engines: Engines; webrtc: boolean }
  | { kind: 'loading'; engines: Engines; webrtc: boolean }
  | { kind: 'unreachable' };

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

/** Address that takes offers of calls by WebRTC. */
export function callUrl(base: string): string {
  return new URL('v1/realtime/calls', base).href;
}

/** Browsers do not expose why a WebSocket was refused, so readiness is queried before and after. */
export async function readiness(): Promise<Readiness> {
  try {
    const answer = await fetch(new URL('readyz', document.baseURI), { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT_MS) });
    return readinessFrom(answer.status, await answer.json());
  } catch {
    return { kind: 'unreachable' };
  }
}

export function readinessFrom(status: number, body: unknown): Readiness {
  if (typeof body !== 'object' || body === null) return { kind: 'unreachable' };
  const { ready, sessions, max_sessions, engines, remote, load, webrtc: offered } = body as Record<string, unknown>;
  const named = enginesFrom(engines, remote);
  const webrtc = offered === true;
  const isOverloaded = fieldsOf(load)['level'] === 'no_sessions';
  if (typeof sessions === 'number' && typeof max_sessions === 'number' && (sessions >= max_sessions || isOverloaded)) {
    return { kind: 'full', sessions, engines: named, webrtc };
  }
  return { kind: status === 200 && ready === true ? 'ready' : 'loading', engines: named, webrtc };
}

function enginesFrom(engines: unknown, remote: unknown): Engines {
  const named = fieldsOf(engines);
  const text = (value: unknown) => (typeof value === 'string' && value !== '' ? value : null);
  const found: Engines = {};
  for (const stage of ['vad', 'stt', 'llm', 'tts'] as const) {
    const name = text(named[stage]);
    if (name === null) continue;
    found[stage] = name;
    const { model, address } = fieldsOf(fieldsOf(remote)[stage]);
    if (stage !== 'vad' && (text(model) ?? text(address)) !== null) {
      found.remote = { ...found.remote, [stage]: { model: text(model), address: text(address) } };
    }
  }
  return found;
}

function fieldsOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

/** Empty if the hub does not list its voices. `refused`: the hub requires a key, or a different one. */
export async function voices(key: string | null): Promise<{ voices: Voice[]; refused: boolean }> {
  try {
    const signal = AbortSignal.timeout(TIMEOUT_MS);
    const answer = await fetch(new URL('v1/audio/voices', document.baseURI), { headers: authorization(key), signal });
    return { voices: answer.ok ? voicesFrom(await answer.json()).voices : [], refused: answer.status === 401 };
  } catch {
    return { voices: [], refused: false };
  }
}

export function voicesFrom(body: unknown): { voices: Voice[]; default: string | null } {
  const { voices: list, default: chosen } = (body ?? {}) as Record<string, unknown>;
  const entries = Array.isArray(list) ? (list as Record<string, unknown>[]) : [];
  return {
    voices: entries.flatMap((entry) => {
      const { id, name, language } = entry ?? {};
      if (typeof id !== 'string' || id === '') return [];
      return [{ id, name: typeof name === 'string' && name ? name : id, language: typeof language === 'string' ? language : null }];
    }),
    default: typeof chosen === 'string' ? chosen : null,
  };
}
