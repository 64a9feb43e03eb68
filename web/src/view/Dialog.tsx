// A modal sheet: the browser keeps the focus inside, Escape and a click beside it close it, and the focus returns.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

interface Props {
  id: string;
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}

export function Dialog({ id, title, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const isBeside = useRef(false);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog
      ref={dialog}
      id={id}
      class="panel"
      aria-labelledby={`${id}-title`}
      onClose={onClose}
      // A press that is dragged out of the sheet or into it, as for a selection, is no click beside it.
      onPointerDown={(event) => (isBeside.current = event.target === dialog.current)}
      onPointerUp={(event) => (isBeside.current &&= event.target === dialog.current)}
      onClick={(event) => isBeside.current && event.target === dialog.current && dialog.current?.close()}
    >
      <div class="panel-inner">
        <header class="panel-head">
          <h2 id={`${id}-title`}>{title}</h2>
          <button type="button" class="close" aria-label="Close" onClick={() => dialog.current?.close()}>
            ×
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
