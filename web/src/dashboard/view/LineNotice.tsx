// Status of the feed: a word in the header, and instructions if there is a problem.

import { useEffect, useState } from 'preact/hooks';
import { KeyForm } from '../../view/NoticeBar';
import type { Line } from '../data/book';
import { clock } from '../data/words';
import { BUSY, LIMITED } from '../feed';

const WORDS: Record<Line['kind'], string> = {
  connecting: 'Connecting',
  live: 'Live',
  gone: 'Disconnected',
  key: 'Key needed',
  unfit: 'Not available',
};

export function LineState({ line }: { line: Line }) {
  return (
    <span class={`line-state ${line.kind}`} id="line" role="status">
      <i class="line-dot" />
      {WORDS[line.kind]}
    </span>
  );
}

interface Props {
  line: Line;
  onRetry: () => void;
  onKey: (key: string) => void;
}

export function LineNotice({ line, onRetry, onKey }: Props) {
  return (
    <div class="notice-place" role="alert">
      {line.kind === 'key' && (
        <div id="notice" class="notice warning" data-kind="key">
          <p>
            <strong>{line.refused ? 'The hub refused this key.' : 'This hub wants a key.'}</strong>{' '}
            {line.refused ? 'It may have been mistyped or revoked.' : 'Ask the operator for it; it is stored in this tab only.'}
          </p>
          <div class="notice-actions">
            <KeyForm onKey={onKey} />
          </div>
        </div>
      )}
      {line.kind === 'gone' && (
        <div id="notice" class="notice warning" data-kind="gone">
          <p>
            <strong>The hub is gone since {clock(line.since)}.</strong> The data shown is from before. <Countdown until={line.retryAt} />
          </p>
          <div class="notice-actions">
            <button type="button" class="pill" onClick={onRetry}>
              Try now
            </button>
          </div>
        </div>
      )}
      {line.kind === 'unfit' && (
        <div id="notice" class="notice warning" data-kind="unfit">
          <p>
            {line.status === BUSY ? (
              <>
                <strong>This hub serves its maximum number of dashboards.</strong> It tries again from time to time; close another one to make room.
              </>
            ) : line.status === LIMITED ? (
              <>
                <strong>The hub takes no more requests from here now.</strong> The limit of the key or of this address is reached. It tries again from time to time.
              </>
            ) : (
              <>
                <strong>The hub does not provide its turns here.</strong> It answered <code>/api/turns</code> with {line.status}.
              </>
            )}
          </p>
        </div>
      )}
    </div>
  );
}

/** Hidden from screen readers, because an alert that changes every second would be read out every second. */
function Countdown({ until }: { until: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 250);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.ceil((until - now) / 1000);
  return <span aria-hidden="true">{seconds > 0 ? `Trying again in ${seconds} s.` : 'Trying now.'}</span>;
}
