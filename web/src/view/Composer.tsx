// Text input: type, and hear the response.

import { useState } from 'preact/hooks';
import { SendIcon } from './icons';

/** Longest message; far below the hub's limit. */
const MAX_CHARS = 2_000;

export function Composer({ onSend }: { onSend: (text: string) => void }) {
  const [text, setText] = useState('');
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        const trimmed = text.trim();
        if (trimmed === '') return;
        onSend(trimmed);
        setText('');
      }}
    >
      <input
        id="text"
        type="text"
        value={text}
        maxLength={MAX_CHARS}
        autoComplete="off"
        enterKeyHint="send"
        aria-label="Type instead of talking"
        placeholder="Or type here"
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <button id="send" type="submit" class="send" aria-label="Send" disabled={text.trim() === ''}>
        <SendIcon />
      </button>
    </form>
  );
}
