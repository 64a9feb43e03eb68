// The inspector in the voice chat: the events of the page's own session, beside the conversation. Loaded when it is first
// opened; its log begins with the recent messages, and goes on while it is closed.

import type { Conversation, WireEvent } from '@antiphon/client';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { RecentEvents } from '../../session/recent_events';
import { EventLog } from '../data/log';
import { Workbench } from './Workbench';

interface Props {
  conversation: Conversation;
  recent: RecentEvents;
  /** Whether the session takes events. */
  isOpen: boolean;
  onClose: () => void;
}

const logs = new WeakMap<RecentEvents, EventLog>();

function logOf(recent: RecentEvents): EventLog {
  const known = logs.get(recent);
  if (known) return known;
  const log = new EventLog();
  const add = ({ direction, text, bytes, atMs }: WireEvent) => log.message(direction, text ?? { byteLength: bytes }, performance.timeOrigin + atMs);
  recent.take().forEach(add);
  recent.listener = add;
  logs.set(recent, log);
  return log;
}

export default function Drawer({ conversation, recent, isOpen, onClose }: Props) {
  const log = useMemo(() => logOf(recent), [recent]);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current?.focus();
    return () => before instanceof HTMLElement && before.focus();
  }, []);
  return (
    <aside
      ref={box}
      id="inspector"
      class="drawer"
      aria-label="Inspector"
      tabIndex={-1}
      onKeyDown={(event) => {
        // The page's keys are the conversation's; here they are not.
        event.stopPropagation();
        if (event.key === 'Escape') onClose();
      }}
    >
      <div class="drawer-head">
        <h2>Inspector</h2>
        <button type="button" class="close" aria-label="Close the inspector" onClick={onClose}>
          ×
        </button>
      </div>
      <div class="drawer-body">
        <Workbench
          log={log}
          url={new URL('v1/realtime', document.baseURI).href.replace(/^http/, 'ws')}
          isOpen={isOpen}
          onSend={(event) => {
            if (isOpen) conversation.send(event);
            return isOpen;
          }}
        />
      </div>
    </aside>
  );
}
