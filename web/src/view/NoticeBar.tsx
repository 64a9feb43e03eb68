// Says what is in the way and offers the next step.

import { useState } from 'preact/hooks';
import { isKey } from '../session/key';
import type { Notice } from '../state/model';

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
            <strong>{notice.title}.</strong> {notice.text}
          </p>
          <div class="notice-actions">
            {notice.action === 'key' && <KeyForm onKey={onKey} />}
            {(notice.action === 'retry' || notice.action === 'reconnect') && (
              <button type="button" class="pill" onClick={onAction}>
                {notice.action === 'reconnect' ? 'Reconnect now' : 'Try again'}
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
