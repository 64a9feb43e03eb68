// Text input: type, and hear the response.

import { useState } from 'preact/hooks';
import { SendIcon } from './icons';

/** Longest message: a tenth of the hub's limit of an event, in characters. */
const MAX_CHARS = 100_000;

export function Composer({ onSend }: { onSend: (text: string) => void }) {
  const [text, setText] = useState('');
  const isTooLong = text.length > MAX_CHARS;
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        const trimmed = text.trim();
        if (trimmed === '' || isTooLong) return;
        onSend(trimmed);
        setText('');
      }}
    >
      <input
        id="text"
        type="text"
        value={text}
        dir="auto"
        autoComplete="off"
        enterKeyHint="send"
        aria-label="Type instead of talking"
        placeholder="Or type here"
        aria-invalid={isTooLong}
        aria-describedby={isTooLong ? 'too-long' : undefined}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      {isTooLong && (
        <span id="too-long" class="too-long" role="alert">
          {text.length.toLocaleString('en')} characters: at most {MAX_CHARS.toLocaleString('en')}
        </span>
      )}
      <button id="send" type="submit" class="send" aria-label="Send" disabled={text.trim() === '' || isTooLong}>
        <SendIcon />
      </button>
    </form>
  );
}
