// A level as a bar, from -60 dBFS to 0. It is drawn in each animation frame without a change of state.

import { useEffect, useRef } from 'preact/hooks';

const FLOOR_DB = 60;

/** `peak`: the current one, 0 to 1; null: there is nothing to measure. */
export function Meter({ name, peak }: { name: string; peak: (() => number) | null }) {
  const bar = useRef<HTMLElement>(null);
  const read = useRef(peak);
  read.current = peak;
  useEffect(() => {
    let shown = 0;
    const draw = () => {
      frame = requestAnimationFrame(draw);
      const level = Math.max(0, Math.min(1, 1 + (20 * Math.log10(Math.max(1e-6, read.current?.() ?? 0))) / FLOOR_DB));
      // As audio meters do: up at once, down slowly.
      shown = Math.max(level, shown - 0.03);
      if (bar.current) bar.current.style.transform = `scaleX(${shown.toFixed(3)})`;
    };
    let frame = requestAnimationFrame(draw);
    return () => cancelAnimationFrame(frame);
  }, []);
  return (
    <span class="meter" role="img" aria-label={name}>
      <i ref={bar} />
    </span>
  );
}
