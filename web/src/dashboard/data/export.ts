// Turns as files: CSV with one line a turn, for spreadsheets, and JSON with the hub's records. Pure functions.

import { lengthOf } from './percentiles';
import { STAGES, type Turn } from './turn';
import { enginesOf } from './query';

const COLUMNS: [string, (turn: Turn) => string | number | null][] = [
  ['turn', ({ id }) => id],
  ['session', ({ sessionId }) => sessionId],
  ['number', ({ number }) => number],
  ['started_at', ({ startedAt }) => new Date(startedAt).toISOString()],
  ['kind', ({ kind }) => kind],
  ['status', ({ status }) => status],
  ['barged_in', ({ bargedIn }) => String(bargedIn)],
  ['voice_to_voice_ms', ({ voiceToVoiceMs }) => voiceToVoiceMs],
  // Parts of a stage are added up, also those of typed turns, which are in no percentile.
  ...STAGES.map((stage): [string, (turn: Turn) => number | null] => [
    `${stage}_ms`,
    ({ parts }) => (parts.length === 0 ? null : rounded(parts.filter((part) => part.stage === stage).reduce((sum, part) => sum + lengthOf(part), 0))),
  ]),
  ['wasted_ms', ({ wastedMs }) => wastedMs],
  ['transport', ({ transport }) => transport],
  ['hub', ({ hub }) => hub],
  ['engines', (turn) => enginesOf(turn).join('; ')],
  ['error', ({ error }) => error],
  ['transcript', ({ transcript }) => transcript],
  ['language', ({ language }) => language],
  ['filler', ({ filler }) => filler?.text ?? null],
  ['reply', ({ reply }) => reply],
  ['heard', ({ heard }) => heard],
];

/** To a microsecond, as the hub rounds. */
const rounded = (ms: number) => Math.round(ms * 1_000) / 1_000;

/** RFC 4180, with a header. */
export function csvOf(turns: readonly Turn[]): string {
  const lines = turns.map((turn) => COLUMNS.map(([, value]) => cell(value(turn))).join(','));
  return [COLUMNS.map(([name]) => name).join(','), ...lines].map((line) => `${line}\r\n`).join('');
}

/** Text that a spreadsheet would take for a formula is prefixed with an apostrophe: turns hold words from outside. */
function cell(value: string | number | null): string {
  if (typeof value === 'number') return String(value);
  const text = /^[=+\-@\t\r]/.test(value ?? '') ? `'${value}` : (value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** The records as `/api/turns` lists them. */
export function jsonOf(turns: readonly Turn[]): string {
  return `${JSON.stringify({ turns: turns.map(({ record }) => record) }, null, 2)}\n`;
}
