// A JSON value as a tree that expands; the first levels are open.

import { useState } from 'preact/hooks';

/** Characters of a text shown before it is expanded. */
const MAX_TEXT = 400;
const OPEN_LEVELS = 2;

export function Json({ value, name, level = 0 }: { value: unknown; name?: string; level?: number }) {
  const [isOpen, setOpen] = useState(level < OPEN_LEVELS);
  if (typeof value !== 'object' || value === null) {
    return (
      <div class="json-line">
        <Name name={name} />
        <Leaf value={value} />
      </div>
    );
  }
  const entries = Object.entries(value);
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}'];
  return (
    <details class="json" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <Name name={name} />
        <span class="json-mark">{isOpen ? open : `${open} ${entries.length} ${close}`}</span>
      </summary>
      {isOpen && (
        <>
          <div class="json-inside">
            {entries.map(([key, one]) => (
              <Json key={key} value={one} name={key} level={level + 1} />
            ))}
          </div>
          <span class="json-mark">{close}</span>
        </>
      )}
    </details>
  );
}

const Name = ({ name }: { name: string | undefined }) => (name === undefined ? null : <span class="json-name">{name}: </span>);

function Leaf({ value }: { value: unknown }) {
  const [isWhole, setWhole] = useState(false);
  const text = JSON.stringify(value) ?? 'null';
  const isLong = text.length > MAX_TEXT && !isWhole;
  return (
    <>
      <span class={`json-${typeof value}`}>{isLong ? `${text.slice(0, MAX_TEXT)}…` : text}</span>
      {isLong && (
        <button type="button" class="link" onClick={() => setWhole(true)}>
          all {text.length} characters
        </button>
      )}
    </>
  );
}
