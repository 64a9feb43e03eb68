// Shows a problem and offers the next step.

import { isKey } from '@antiphon/client';
import { useLayoutEffect, useState } from 'preact/hooks';
import type { Notice } from '../state/plain';

const ACTIONS: Partial<Record<string, string>> = { reconnect: 'Connect again', sound: 'Start sound', websocket: 'Use a WebSocket' };

interface Props {
  notice: Notice | null;
  onAction: () => void;
  onKey: (key: string) => void;
  onClose: () => void;
}

export function NoticeBar({ notice, onAction, onKey, onClose }: Props) {
  return (
    <div class="notice-place" role="alert">
      {notice && (
        <div id="notice" class={`notice ${notice.tone}`} data-kind={notice.kind}>
          <p>
            <strong>{notice.title}.</strong> <NoticeText notice={notice} />
          </p>
          <div class="notice-actions">
            {notice.action === 'key' && <KeyForm onKey={onKey} />}
            {notice.action && notice.action !== 'key' && (
              <button type="button" class="pill" onClick={onAction}>
                {ACTIONS[notice.action] ?? 'Try again'}
              </button>
            )}
            <button type="button" class="close" aria-label="Close this message" onClick={onClose}>
              ×
            </button>
          </div>
        </div>
      )}
    </div>
  );
}

/**
 * Counts down the seconds, on a monotonic clock. Screen readers read them once; afterwards the number is hidden from
 * the alert.
 */
function NoticeText({ notice }: { notice: Notice }) {
  const { text, untilMs } = notice;
  const [leftMs, setLeftMs] = useState(0);
  // Before it is drawn: it never shows, or says, the end of a wait that begins.
  useLayoutEffect(() => {
    if (untilMs === undefined) return;
    const endMs = performance.now() + untilMs - Date.now();
    const tick = () => setLeftMs(endMs - performance.now());
    tick();
    const timer = setInterval(tick, 1_000);
    return () => clearInterval(timer);
  }, [untilMs]);
  const [before, after] = text.split('{s}');
  if (untilMs === undefined || after === undefined) return <>{text}</>;
  return (
    <>
      {before}
      <span class="countdown" aria-live="off">
        {Math.max(0, Math.ceil(leftMs / 1_000))}
      </span>
      {after}
    </>
  );
}

export function KeyForm({ onKey }: { onKey: (key: string) => void }) {
  const [key, setKey] = useState('');
  return (
    <form
      class="key-form"
      onSubmit={(event) => {
        event.preventDefault();
        if (isKey(key.trim())) onKey(key.trim());
      }}
    >
      <input
        id="key"
        type="password"
        value={key}
        autoComplete="off"
        aria-label="Key of the hub"
        placeholder="Key"
        onInput={(event) => setKey(event.currentTarget.value)}
      />
      <button type="submit" class="pill" disabled={!isKey(key.trim())}>
        Use it
      </button>
    </form>
  );
}
