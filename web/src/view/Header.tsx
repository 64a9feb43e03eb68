// The page's name, and what opens the sheets.

import type { ComponentChildren } from 'preact';
import { BracesIcon, GearIcon, ListIcon, Mark, PlusIcon } from './icons';

interface Props {
  /** Whether there is a conversation that a new one would end. */
  canRenew: boolean;
  onNew: () => void;
  onConversations: () => void;
  inspects: boolean;
  onInspector: () => void;
  onSettings: () => void;
}

export function Header({ canRenew, onNew, onConversations, inspects, onInspector, onSettings }: Props) {
  return (
    <header class="header">
      <h1 class="name">
        <Mark /> Antiphon
      </h1>
      <div class="choices">
        <Tool id="new" name="New" title="New conversation" disabled={!canRenew} onClick={onNew}>
          <PlusIcon />
        </Tool>
        <Tool id="conversations-open" name="Conversation" title="Save, copy, earlier conversations" opens onClick={onConversations}>
          <ListIcon />
        </Tool>
        <Tool id="inspector-open" name="Inspector" title="Every event of this session (I)" expanded={inspects} onClick={onInspector}>
          <BracesIcon />
        </Tool>
        <Tool id="settings-open" name="Settings" title="Settings (,)" opens onClick={onSettings}>
          <GearIcon />
        </Tool>
      </div>
    </header>
  );
}

interface ToolProps {
  id: string;
  name: string;
  title: string;
  /** It opens a sheet. */
  opens?: boolean;
  /** It shows and hides something beside it. */
  expanded?: boolean;
  disabled?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}

function Tool({ id, name, title, opens = false, expanded, disabled = false, onClick, children }: ToolProps) {
  return (
    <button id={id} type="button" class="tool" aria-haspopup={opens ? 'dialog' : undefined} aria-expanded={expanded} title={title} disabled={disabled} onClick={onClick}>
      {children}
      <span class="tool-name">{name}</span>
    </button>
  );
}
