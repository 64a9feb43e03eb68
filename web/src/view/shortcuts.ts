// Global keyboard shortcuts, inactive in fields and on buttons, which have their own keys.

import type { Conversation } from '@antiphon/client';
import { useEffect } from 'preact/hooks';

export function useShortcuts(conversation: Conversation): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'Escape') return conversation.hush();
      const target = event.target instanceof Element ? event.target : null;
      if (target?.closest('input, textarea, select')) return;
      if (event.key === 'm' || event.key === 'M') return conversation.mute();
      const takesSpace = target?.closest('button, summary, a, [role=button]');
      if ((event.key === ' ' || event.key === 'Enter') && !takesSpace) {
        event.preventDefault();
        void conversation.talk();
      }
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [conversation]);
}
