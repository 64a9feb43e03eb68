// The list of events: only rows in sight are in the document. It follows the newest while it is scrolled to its end, and
// the arrow keys move the choice.

import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { bytes, duration } from '../../dashboard/data/words';
import { sliceOf } from '../../dashboard/view/VirtualRows';
import type { Entry } from '../data/log';

/** Height of a row, which style.css sets. */
const ROW_PX = 30;
/** Within this distance of the end, the list follows. */
const FOLLOW_PX = 40;

interface Props {
  entries: readonly Entry[];
  /** Number of the chosen entry. */
  chosen: number | null;
  isFollowing: boolean;
  onChoose: (n: number) => void;
}

export function EventList({ entries, chosen, isFollowing, onChoose }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const [view, setView] = useState({ fromPx: 0, toPx: 600 });
  const look = () => {
    const list = box.current;
    if (!list) return;
    isAtEnd.current = list.scrollHeight - list.scrollTop - list.clientHeight < FOLLOW_PX;
    setView({ fromPx: list.scrollTop, toPx: list.scrollTop + list.clientHeight });
  };
  useLayoutEffect(() => {
    const list = box.current;
    if (list && isFollowing && isAtEnd.current) list.scrollTop = list.scrollHeight;
    look();
  }, [entries, isFollowing]);
  useLayoutEffect(() => {
    const sizes = new ResizeObserver(look);
    if (box.current) sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);
  const place = entries.findIndex(({ n }) => n === chosen);
  const move = (to: number) => {
    const index = Math.max(0, Math.min(entries.length - 1, to));
    const entry = entries[index];
    const list = box.current;
    if (!entry || !list) return;
    onChoose(entry.n);
    list.scrollTop = Math.max(Math.min(list.scrollTop, index * ROW_PX), (index + 1) * ROW_PX - list.clientHeight);
  };
  const onKey = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowDown: place + 1, ArrowUp: place < 0 ? entries.length - 1 : place - 1, Home: 0, End: entries.length - 1, PageDown: place + 10, PageUp: place - 10 };
    const to = steps[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  };
  const { first, end, abovePx, belowPx } = sliceOf(entries.length, ROW_PX, -1, 0, view.fromPx, view.toPx);
  const rows = entries.slice(first, end);
  const isDrawn = rows.some(({ n }) => n === chosen);
  return (
    <div
      ref={box}
      id="events"
      class="event-list"
      role="listbox"
      aria-label="Events"
      tabIndex={0}
      aria-activedescendant={isDrawn ? `event-${chosen}` : undefined}
      onScroll={look}
      onKeyDown={onKey}
    >
      <div role="presentation" style={{ paddingTop: `${abovePx}px`, paddingBottom: `${belowPx}px` }}>
        {rows.map((entry, i) => (
          <div
            key={entry.n}
            id={`event-${entry.n}`}
            class={`event ${entry.direction} ${entry.type === 'error' ? 'bad' : ''}`}
            role="option"
            aria-selected={entry.n === chosen}
            aria-posinset={first + i + 1}
            aria-setsize={entries.length}
            onClick={() => onChoose(entry.n)}
          >
            <span class="event-at">{time(entry.at)}</span>
            <span class="event-way" aria-label={entry.direction === 'note' ? 'connection' : entry.direction}>
              {entry.direction === 'sent' ? '↑' : entry.direction === 'received' ? '↓' : '·'}
            </span>
            <span class="event-type">{entry.type}</span>
            <span class="event-size">{entry.audioMs !== null ? duration(entry.audioMs) : entry.bytes > 0 ? bytes(entry.bytes) : ''}</span>
          </div>
        ))}
      </div>
    </div>
  );
}

/** To the millisecond, since events come close together. */
export function time(at: number): string {
  const date = new Date(at);
  const two = (n: number) => String(n).padStart(2, '0');
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, '0')}`;
}
