// Settings that persist between visits, in localStorage. Without storage (private windows) the
// defaults apply each time.

import type { Codec, Transport } from '@antiphon/client';

const KEY = 'antiphon.settings';

export interface Settings {
  /** Null selects the hub's default. */
  voice: string | null;
  showTimings: boolean;
  transport: Transport;
}

export const defaultSettings: Settings = { voice: null, showTimings: true, transport: 'websocket' };

/** Missing or invalid values become defaults. */
export function settingsFrom(text: string | null): Settings {
  let value: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(text ?? '{}');
    if (typeof parsed === 'object' && parsed !== null) value = parsed as Record<string, unknown>;
  } catch {
    return defaultSettings;
  }
  const { voice, showTimings, transport } = value;
  return {
    voice: typeof voice === 'string' ? voice : defaultSettings.voice,
    showTimings: typeof showTimings === 'boolean' ? showTimings : defaultSettings.showTimings,
    transport: transport === 'webrtc' ? transport : defaultSettings.transport,
  };
}

export function loadSettings(): Settings {
  try {
    return settingsFrom(localStorage.getItem(KEY));
  } catch {
    // Storage is disabled.
    return defaultSettings;
  }
}

/** `?audio=opus` or `?audio=pcm16` in the page's address; null selects the best supported codec. */
export function codecAsked(search: string): Codec | null {
  const asked = new URLSearchParams(search).get('audio');
  return asked === 'opus' || asked === 'pcm16' ? asked : null;
}

/** `?transport=webrtc` or `?transport=websocket` in the page's address; null leaves the choice to the settings. */
export function transportAsked(search: string): Transport | null {
  const asked = new URLSearchParams(search).get('transport');
  return asked === 'webrtc' || asked === 'websocket' ? asked : null;
}

export function saveSettings(settings: Settings): void {
  try {
    localStorage.setItem(KEY, JSON.stringify(settings));
  } catch {
    // Storage is disabled or full: the choice applies to this visit.
  }
}
