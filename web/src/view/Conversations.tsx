// The conversation's sheet: a copy, files, a new one, earlier ones, and the switch that keeps nothing.

import { useEffect, useState } from 'preact/hooks';
import { type Kept, jsonOf, plainOf, srtOf, titleOf } from '../conversations/data';
import type { ConversationKeeper } from '../conversations/keeper';
import { Dialog } from './Dialog';
import '../style/settings.css';

interface Props {
  keeper: ConversationKeeper;
  onKeeps: (keeps: boolean) => void;
  onClose: () => void;
}

export default function Conversations({ keeper, onKeeps, onClose }: Props) {
  const [, draw] = useState(0);
  const [outcome, setOutcome] = useState('');
  useEffect(() => keeper.subscribe(() => draw((n) => n + 1)), [keeper]);
  const { current, sound, recent } = keeper;
  const isEmpty = current.lines.length === 0;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(plainOf(current));
      setOutcome('Copied.');
    } catch {
      setOutcome('The browser does not let this page copy.');
    }
  };
  const save = (ending: string, content: Blob | string) => {
    download(`antiphon-${fileStamp(current.startedAt)}.${ending}`, content);
    setOutcome(`Saved as ${ending.toUpperCase()}.`);
  };
  return (
    <Dialog id="conversations" title="Conversation" onClose={onClose}>
      <section class="settings-group" aria-label="This conversation">
        <div class="sheet-tools">
          <button type="button" class="pill" id="renew" disabled={isEmpty} onClick={() => void keeper.renew().then(onClose)}>
            New conversation
          </button>
          <button type="button" class="pill" id="copy" disabled={isEmpty} onClick={() => void copy()}>
            Copy
          </button>
        </div>
        <div class="sheet-tools">
          <span class="hint">Save as</span>
          <button type="button" class="pill" id="save-txt" disabled={isEmpty} onClick={() => save('txt', plainOf(current))}>
            Text
          </button>
          <button type="button" class="pill" id="save-json" disabled={isEmpty} onClick={() => save('json', jsonOf(current))}>
            JSON
          </button>
          <button type="button" class="pill" id="save-srt" disabled={current.lines.every(({ endMs }) => endMs === 0)} onClick={() => save('srt', srtOf(current))}>
            Subtitles
          </button>
          <button type="button" class="pill" id="save-wav" disabled={isEmpty || sound.isEmpty} onClick={() => save('wav', sound.wav())}>
            Sound
          </button>
        </div>
        <p class="hint" role="status">
          {outcome || (!isEmpty && !sound.isEmpty ? 'Sound: WAV, you on the left, Antiphon on the right.' : keeper.keeps ? 'There is no sound yet.' : 'No sound is kept.')}
          {!isEmpty && !sound.isEmpty && sound.startMs > 0 && ` It begins at ${clock(sound.startMs)}: what was said before is not in memory any more.`}
        </p>
      </section>
      <section class="settings-group" aria-label="Earlier conversations">
        <h3>Earlier</h3>
        {recent.length === 0 && <p class="hint">{keeper.keeps ? 'None yet.' : 'Nothing is kept.'}</p>}
        <ul class="recent">
          {recent.map((kept) => (
            <Row key={kept.id} kept={kept} onOpen={() => void keeper.open(kept).then(onClose)} onRemove={() => keeper.remove(kept.id)} />
          ))}
        </ul>
        <div class="setting check">
          <label for="keeps">Keep conversations</label>
          <input id="keeps" type="checkbox" checked={keeper.keeps} aria-describedby="keeps-hint" onChange={(event) => onKeeps(event.currentTarget.checked)} />
          <p class="hint" id="keeps-hint">
            {keeper.keeps
              ? 'The words of 20 stay in this browser, and survive a reload. Off: keep nothing, and delete what was kept.'
              : 'Nothing is kept: a reload forgets the conversation, and no sound is recorded.'}
          </p>
        </div>
      </section>
    </Dialog>
  );
}

function Row({ kept, onOpen, onRemove }: { kept: Kept; onOpen: () => void; onRemove: () => void }) {
  const title = titleOf(kept);
  return (
    <li>
      <button type="button" class="link" onClick={onOpen}>
        {title}
      </button>
      <span class="hint">{new Date(kept.changedAt).toLocaleString([], { dateStyle: 'short', timeStyle: 'short' })}</span>
      <button type="button" class="close" aria-label={`Delete “${title}”`} onClick={onRemove}>
        ×
      </button>
    </li>
  );
}

function download(name: string, content: Blob | string): void {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: 'text/plain;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  // The browser has begun by then.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

const clock = (ms: number) => `${Math.floor(ms / 60_000)}:${String(Math.floor((ms / 1_000) % 60)).padStart(2, '0')}`;

/** 2026-01-31-1405, of the user's clock. */
function fileStamp(at: number): string {
  const date = new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString();
  return `${date.slice(0, 10)}-${date.slice(11, 16).replace(':', '')}`;
}
