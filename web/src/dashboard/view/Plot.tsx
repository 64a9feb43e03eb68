// A uPlot chart: created once per theme, updated with new data, as large as its container.

import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { clock } from '../data/words';

/** Looks up the page's colours for the canvas. */
export type Ink = (name: string) => string;

interface Props {
  data: uPlot.AlignedData;
  /** Must be the same function for the lifetime of the chart. */
  options: (ink: Ink) => Omit<uPlot.Options, 'width' | 'height'>;
  label: string;
}

const DARK = '(prefers-color-scheme: dark)';

export function Plot({ data, options, label }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const box = place.current;
    if (!box) return;
    const make = () => {
      plot.current?.destroy();
      const style = getComputedStyle(document.documentElement);
      const ink: Ink = (name) => style.getPropertyValue(`--${name}`).trim();
      plot.current = new uPlot({ ...options(ink), ...sizeOf(box) }, latest.current, box);
    };
    make();
    const theme = matchMedia(DARK);
    theme.addEventListener('change', make);
    const resized = new ResizeObserver(() => plot.current?.setSize(sizeOf(box)));
    resized.observe(box);
    return () => {
      theme.removeEventListener('change', make);
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [options]);

  useEffect(() => plot.current?.setData(data), [data]);

  return <div ref={place} class="plot" role="img" aria-label={label} />;
}

const sizeOf = (box: HTMLElement) => ({ width: box.clientWidth, height: box.clientHeight });

/** Labels of a time axis: with seconds if the range is short. */
export const times = (_: uPlot, splits: number[]) => {
  const within = (splits.at(-1) ?? 0) - (splits[0] ?? 0);
  return splits.map((at) => clock(at * 1000).slice(0, within < 300 ? 8 : 5));
};
