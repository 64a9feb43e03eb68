// Says what is in the way and offers the next step.

import type { Notice } from '../state/model';

interface Props {
  notice: Notice | null;
  onAction: () => void;
  onClose: () => void;
}

export function NoticeBar({ notice, onAction, onClose }: Props) {
  return (
    <div class="notice-place" role="alert">
      {notice && (
        <div id="notice" class={`notice ${notice.tone}`} data-kind={notice.kind}>
          <p>
            <strong>{notice.title}.</strong> {notice.text}
          </p>
          <div class="notice-actions">
            {notice.action && (
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
