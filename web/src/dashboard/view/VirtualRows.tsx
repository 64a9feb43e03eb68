// A virtual list: only visible rows are in the document, because a thousand rows would block the page at each update.
// All rows have the same height, except for one expanded row. The page itself scrolls, so the list follows the window.

import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';

/** Rows rendered beyond each edge, so that scrolling shows no gaps and the keyboard can reach the next row. */
const OVERSCAN = 12;
/** Row height before the first row is measured. */
const ASSUMED_ROW_PX = 42;

export interface Slice {
  first: number;
  /** Index after the last rendered row. */
  end: number;
  /** Height of the omitted rows above, in px. */
  abovePx: number;
  belowPx: number;
}

/**
 * Selects which of `n` rows to render if the window shows the list from `fromPx` to `toPx`. Row `open` is `extraPx`
 * higher than the others; -1 for none.
 */
export function sliceOf(n: number, rowPx: number, open: number, extraPx: number, fromPx: number, toPx: number): Slice {
  const topOf = (row: number) => row * rowPx + (open >= 0 && row > open ? extraPx : 0);
  const rowAt = (px: number) => {
    if (open < 0 || px < topOf(open)) return Math.floor(px / rowPx);
    return px < topOf(open + 1) ? open : Math.floor((px - extraPx) / rowPx);
  };
  const within = (row: number) => Math.max(0, Math.min(n, row));
  const first = within(rowAt(Math.max(0, fromPx)) - OVERSCAN);
  // A list below the window still renders its first rows, so that the keyboard can reach them.
  const end = Math.max(first, within(rowAt(Math.max(0, toPx)) + 1 + OVERSCAN));
  return { first, end, abovePx: topOf(first), belowPx: Math.max(0, topOf(n) - topOf(end)) };
}

interface Props<T> {
  items: readonly T[];
  /** Index of the expanded row; -1 for none. */
  open: number;
  /** Index of a row named by the page's address, which is scrolled to once; -1 for none. */
  linked: number;
  class: string;
  /** Renders an `li` with the class `turn`; its first child is the row, and the rest is its expanded part. */
  row: (item: T, index: number) => ComponentChildren;
}

export function VirtualRows<T>({ items, open, linked, class: name, row }: Props<T>) {
  const list = useRef<HTMLOListElement>(null);
  const isShown = useRef(false);
  const [view, setView] = useState({ fromPx: 0, toPx: 0, rowPx: ASSUMED_ROW_PX, extraPx: 0 });
  useLayoutEffect(() => {
    let frame = 0;
    const measure = () => {
      frame = 0;
      const box = list.current;
      if (!box) return;
      const top = box.getBoundingClientRect().top;
      const drawn = [...box.children] as HTMLElement[];
      const closed = drawn.find((item) => item.children.length === 1);
      const opened = drawn.find((item) => item.children.length > 1);
      setView((before) => {
        const rowPx = closed?.getBoundingClientRect().height ?? before.rowPx;
        const extraPx = opened ? opened.getBoundingClientRect().height - rowPx : before.extraPx;
        const next = { fromPx: -top, toPx: window.innerHeight - top, rowPx, extraPx };
        const isSame = (Object.keys(next) as (keyof typeof next)[]).every((key) => Math.abs(next[key] - before[key]) < 1);
        return isSame ? before : next;
      });
    };
    const later = () => {
      frame ||= requestAnimationFrame(measure);
    };
    measure();
    window.addEventListener('scroll', later, { passive: true });
    window.addEventListener('resize', later);
    const sizes = new ResizeObserver(later);
    if (list.current) sizes.observe(list.current);
    return () => {
      cancelAnimationFrame(frame);
      window.removeEventListener('scroll', later);
      window.removeEventListener('resize', later);
      sizes.disconnect();
    };
  }, [items.length, open]);
  useLayoutEffect(() => {
    if (linked < 0 || isShown.current || !list.current) return;
    isShown.current = true;
    const top = list.current.getBoundingClientRect().top + linked * view.rowPx;
    if (top > window.innerHeight * 0.8) window.scrollBy({ top: top - window.innerHeight / 3 });
  }, [linked >= 0]);
  const { first, end, abovePx, belowPx } = sliceOf(items.length, view.rowPx, open, view.extraPx, view.fromPx, view.toPx);
  return (
    <ol class={name} ref={list} style={{ paddingTop: `${abovePx}px`, paddingBottom: `${belowPx}px` }}>
      {items.slice(first, end).map((item, i) => row(item, first + i))}
    </ol>
  );
}
