// What a user sets: one versioned record in localStorage, and an address that carries what can be shared. Without storage
// (private windows) the defaults apply each time. Pure functions, but for those that load and save.

import type { Codec, Devices, SessionSettings, Transport } from '@antiphon/client';

const KEY = 'antiphon.settings';
const VERSION = 1;
/** Longest instructions that a hub takes, in bytes of UTF-8 (`MAX_INSTRUCTIONS_BYTES` of its protocol). */
export const MAX_INSTRUCTIONS_BYTES = 256 * 1024;
/** Instructions beyond this are left out of an address: browsers and chats cut long ones. */
const MAX_SHARED_CHARS = 2_000;
/** Range of the speed in the protocol. */
export const SPEEDS = { min: 0.25, max: 1.5, step: 0.05 };

/** Null leaves the choice to the hub, or to the browser. */
export interface Settings {
  microphone: string | null;
  loudspeaker: string | null;
  /** Of the replies, 0 to 1. */
  volume: number;
  voice: string | null;
  speed: number | null;
  /** ISO 639-1, or `auto`: the one that is heard. */
  language: string | null;
  instructions: string | null;
  /** The user holds a key while talking; the hub detects no turns. */
  pushToTalk: boolean;
  eagerness: 'low' | 'medium' | 'high' | 'auto' | null;
  ignoreBackchannels: boolean | null;
  /** What was typed is answered in text. */
  answersTypingInText: boolean;
  noiseReduction: 'near_field' | 'far_field' | 'off' | null;
  transport: Transport;
  captionSize: 'small' | 'normal' | 'large' | 'largest';
  theme: 'system' | 'light' | 'dark';
  /** Conversations are kept in the browser. */
  keepsConversations: boolean;
  /** Captions and status are announced to screen readers. */
  announces: boolean;
  showTimings: boolean;
}

export const defaultSettings: Settings = {
  microphone: null,
  loudspeaker: null,
  volume: 1,
  voice: null,
  speed: null,
  language: null,
  instructions: null,
  pushToTalk: false,
  eagerness: null,
  ignoreBackchannels: null,
  answersTypingInText: false,
  noiseReduction: null,
  transport: 'websocket',
  captionSize: 'normal',
  theme: 'system',
  keepsConversations: true,
  announces: true,
  showTimings: true,
};

type Check = (value: unknown) => boolean;
const oneOf = (...values: unknown[]): Check => (value) => values.includes(value);
const within = (min: number, max: number): Check => (value) => typeof value === 'number' && value >= min && value <= max;
const text = (max: number): Check => (value) => typeof value === 'string' && value !== '' && value.length <= max;
const or = (check: Check): Check => (value) => value === null || check(value);

const CHECKS: Record<keyof Settings, Check> = {
  microphone: or(text(256)),
  loudspeaker: or(text(256)),
  volume: within(0, 1),
  voice: or(text(256)),
  speed: or(within(SPEEDS.min, SPEEDS.max)),
  language: or((value) => typeof value === 'string' && /^[a-z]{2,4}$/.test(value)),
  instructions: or((value) => typeof value === 'string' && value !== '' && bytesOf(value) <= MAX_INSTRUCTIONS_BYTES),
  pushToTalk: oneOf(true, false),
  eagerness: oneOf(null, 'low', 'medium', 'high', 'auto'),
  ignoreBackchannels: oneOf(null, true, false),
  answersTypingInText: oneOf(true, false),
  noiseReduction: oneOf(null, 'near_field', 'far_field', 'off'),
  transport: oneOf('websocket', 'webrtc'),
  captionSize: oneOf('small', 'normal', 'large', 'largest'),
  theme: oneOf('system', 'light', 'dark'),
  keepsConversations: oneOf(true, false),
  announces: oneOf(true, false),
  showTimings: oneOf(true, false),
};

/** In an address: not the devices, which are those of one machine, how loud they are, and what is kept on it. */
const SHARED: readonly (keyof Settings)[] = [
  'voice', 'speed', 'language', 'instructions', 'pushToTalk', 'eagerness', 'ignoreBackchannels', 'answersTypingInText',
  'noiseReduction', 'transport', 'captionSize', 'theme', 'announces', 'showTimings',
];

/** Length of a text in UTF-8. */
export function bytesOf(text: string): number {
  return new TextEncoder().encode(text).length;
}

/** What of a record is valid; the rest is left out. */
function valid(record: Record<string, unknown>, keys: readonly string[]): Partial<Settings> {
  const found = keys.filter((key) => Object.hasOwn(record, key) && CHECKS[key as keyof Settings](record[key]));
  return Object.fromEntries(found.map((key) => [key, record[key]]));
}

/** Missing or invalid values become defaults, all of them in a record of another version. */
export function settingsFrom(stored: string | null): Settings {
  let record: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(stored ?? '{}');
    if (typeof parsed === 'object' && parsed !== null) record = parsed as Record<string, unknown>;
  } catch {
    // Not a record: the defaults.
  }
  return { ...defaultSettings, ...(record['version'] === VERSION && valid(record, Object.keys(CHECKS))) };
}

/** The settings of an address's fragment, which browsers do not send to servers. */
export function sharedFrom(hash: string): Partial<Settings> {
  const asked = [...new URLSearchParams(hash.replace(/^#/, ''))].map(([key, value]): [string, unknown] => {
    if (value === 'true' || value === 'false') return [key, value === 'true'];
    return [key, key === 'speed' ? Number(value) : value];
  });
  return valid(Object.fromEntries(asked), SHARED);
}

/** The fragment that carries what differs from the defaults; `left`: what does not fit into an address. */
export function fragmentOf(settings: Settings): { fragment: string; left: (keyof Settings)[] } {
  const changed = SHARED.filter((key) => settings[key] !== defaultSettings[key]);
  const isLeft = (key: keyof Settings) => key === 'instructions' && (settings.instructions?.length ?? 0) > MAX_SHARED_CHARS;
  const fragment = new URLSearchParams(changed.filter((key) => !isLeft(key)).map((key) => [key, String(settings[key])]));
  return { fragment: fragment.toString(), left: changed.filter(isLeft) };
}

export function loadSettings(): Settings {
  try {
    return settingsFrom(localStorage.getItem(KEY));
  } catch {
    // Storage is disabled.
    return defaultSettings;
  }
}

/** Whether they were stored: storage may be disabled or full, and the choice applies to this visit. */
export function saveSettings(settings: Settings): boolean {
  try {
    localStorage.setItem(KEY, JSON.stringify({ version: VERSION, ...settings }));
    return true;
  } catch {
    return false;
  }
}

/** What of a change concerns the session. */
export function sessionOf(change: Partial<Settings>): SessionSettings {
  const { voice, speed, language, instructions, pushToTalk, eagerness, ignoreBackchannels, noiseReduction } = change;
  const all = { voice, speed, language, instructions, manual: pushToTalk, eagerness, ignoreBackchannels, noiseReduction };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
}

/** What of a change concerns the devices. */
export function devicesOf(change: Partial<Settings>): Devices {
  const { microphone, loudspeaker, volume } = change;
  return Object.fromEntries(Object.entries({ microphone, loudspeaker, volume }).filter(([, value]) => value !== undefined));
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
