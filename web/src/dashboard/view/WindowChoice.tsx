// Selects the time window of the percentiles.

const MINUTE_MS = 60_000;
export const DEFAULT_WINDOW_MS = 15 * MINUTE_MS;

const WINDOWS: [number, string][] = [
  [MINUTE_MS, '1 minute'],
  [5 * MINUTE_MS, '5 minutes'],
  [DEFAULT_WINDOW_MS, '15 minutes'],
  [60 * MINUTE_MS, '1 hour'],
  [24 * 60 * MINUTE_MS, '1 day'],
];

export const windowName = (windowMs: number) => WINDOWS.find(([ms]) => ms === windowMs)?.[1] ?? `${Math.round(windowMs / MINUTE_MS)} minutes`;

export function WindowChoice({ windowMs, onWindow }: { windowMs: number; onWindow: (windowMs: number) => void }) {
  return (
    <label class="choice">
      <span class="choice-name">Window</span>
      <select id="window" aria-label="Window of the percentiles" value={String(windowMs)} onChange={(event) => onWindow(Number(event.currentTarget.value))}>
        {WINDOWS.map(([ms, name]) => (
          <option key={ms} value={String(ms)}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
