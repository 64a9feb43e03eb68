// The page's name, and what opens the sheets.

import type { ComponentChildren } from 'preact';
import { GearIcon, Mark } from './icons';

interface Props {
  onSettings: () => void;
}

export function Header({ onSettings }: Props) {
  return (
    <header class="header">
      <h1 class="name">
        <Mark /> Antiphon
      </h1>
      <div class="choices">
        <Tool id="settings-open" name="Settings" onClick={onSettings}>
          <GearIcon />
        </Tool>
      </div>
    </header>
  );
}

function Tool({ id, name, onClick, children }: { id: string; name: string; onClick: () => void; children: ComponentChildren }) {
  return (
    <button id={id} type="button" class="tool" aria-haspopup="dialog" title={name} aria-label={name} onClick={onClick}>
      {children}
      <span class="tool-name" aria-hidden="true">
        {name}
      </span>
    </button>
  );
}
