// Live captions: the user's words as they are recognised, the response's words as they are spoken.

import { type Caption, type ReplyCaption, type UserCaption, lastingId } from '@antiphon/client';
import type { ComponentChild } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Answer } from './Answer';
import { Latency } from './Latency';

const EXAMPLES = ['What time is it?', 'What is twelve times seven?', 'Tell me a story', 'What can you do?'];
/** Within this distance of the end, the list scrolls along. */
const FOLLOW_PX = 80;

interface Props {
  captions: Caption[];
  nSessions: number;
  /** Whether the hub is connected and typed text is being sent. */
  live: boolean;
  showTimings: boolean;
  /** Lines before these captions, which only the saved conversation has. */
  nOlder: number;
  /** To screen readers. */
  announces: boolean;
  /** Where the offline assistant answers, which understands little: the words on it. */
  offline: ComponentChild;
  onExample: (text: string) => void;
}

export function Captions({ captions, nSessions, live, showTimings, announces, nOlder, offline, onExample }: Props) {
  const list = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  useLayoutEffect(() => {
    if (follows.current && list.current) list.current.scrollTop = list.current.scrollHeight;
  }, [captions]);
  if (captions.length === 0) return <Invitation offline={offline} onExample={onExample} />;
  return (
    <div
      id="captions"
      class="captions"
      role="log"
      aria-live={announces ? 'polite' : 'off'}
      aria-label="Captions"
      tabIndex={0}
      ref={list}
      onScroll={({ currentTarget: box }) => {
        follows.current = box.scrollHeight - box.scrollTop - box.clientHeight < FOLLOW_PX;
      }}
    >
      <ol>
        {nOlder > 0 && <li class="older">{nOlder} earlier lines are not shown; a saved conversation has them.</li>}
        {captions.map((caption) =>
          caption.role === 'user' ? (
            <UserLine key={lastingId(caption, nSessions)} caption={caption} live={live} />
          ) : (
            <ReplyLine key={lastingId(caption, nSessions)} caption={caption} showTimings={showTimings} />
          ),
        )}
      </ol>
    </div>
  );
}

const FAULT_WORDS: Record<NonNullable<UserCaption['fault']>, string> = {
  unclear: 'could not make that out',
  failed: 'not transcribed',
  unsent: '',
};

/** Labels of a response that ended early. */
const ENDED: Partial<Record<ReplyCaption['status'], string>> = {
  cut: 'interrupted',
  lost: 'connection lost',
  failed: 'broke off',
};

function UserLine({ caption, live }: { caption: UserCaption; live: boolean }) {
  return (
    <li class={`line user ${caption.final ? 'final' : 'partial'}`} data-id={caption.id} aria-busy={!caption.final}>
      <span class="who">You</span>
      <div class="words" dir="auto">
        {caption.text || (!caption.draft && caption.fault && FAULT_WORDS[caption.fault] && <em class="unclear">{FAULT_WORDS[caption.fault]}</em>)}
        {caption.draft && (
          <span class="draft" aria-hidden="true">
            {caption.draft}
          </span>
        )}
        {!caption.final && <Dots />}
        {caption.fault === 'unsent' && !live && <span class="tag">not sent</span>}
      </div>
    </li>
  );
}

function ReplyLine({ caption, showTimings }: { caption: ReplyCaption; showTimings: boolean }) {
  const { text, revealed, status } = caption;
  const label = ENDED[status];
  const isEmpty = status === 'done' && text.trim() === '';
  return (
    <li class={`line reply ${status}`} data-id={caption.id} aria-busy={status === 'coming'}>
      <span class="who">Antiphon</span>
      <div class="words" dir="auto">
        <Answer text={text} revealed={revealed} status={status} />
        {status === 'coming' && text.slice(0, revealed).trim() === '' && <Dots />}
        {isEmpty && <em class="unclear">an answer without words</em>}
        {label && <span class="tag">{label}</span>}
        {showTimings && <Latency caption={caption} />}
      </div>
    </li>
  );
}

function Dots() {
  return (
    <span class="dots" aria-hidden="true">
      <i />
      <i />
      <i />
    </span>
  );
}

function Invitation({ offline, onExample }: Pick<Props, 'offline' | 'onExample'>) {
  return (
    <div class="invitation">
      <p class="invitation-lead">You call, it responds.</p>
      <p class="invitation-more">Press the orb and ask something aloud; speak over the answer whenever you like. Or begin with one of these:</p>
      <ul class="examples">
        {EXAMPLES.map((text) => (
          <li key={text}>
            <button type="button" class="example" onClick={() => onExample(text)}>
              {text}
            </button>
          </li>
        ))}
      </ul>
      {offline}
    </div>
  );
}
