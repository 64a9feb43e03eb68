// The engines of the hub, as the footer shows them.

import type { HubStatus } from '@antiphon/client';

export interface Engines {
  vad?: string;
  stt?: string;
  llm?: string;
  tts?: string;
  /** For engines that are servers: the requested model and the address, if the hub reports them. */
  remote?: Partial<Record<'stt' | 'llm' | 'tts', { model: string | null; address: string | null }>>;
}

/** Null before the hub has answered. */
export function enginesFrom(hub: HubStatus | null): Engines | null {
  if (hub === null) return null;
  const { engines, remote } = hub;
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
