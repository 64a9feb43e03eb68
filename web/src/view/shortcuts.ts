// Global keyboard shortcuts, inactive in fields and on buttons, which have their own keys.

import type { Conversation } from '@antiphon/client';
import { useEffect } from 'preact/hooks';
import type { PressToTalk } from '../session/press';

/** `press`: the user holds the space bar to talk; null: it starts and stops the conversation. */
export function useShortcuts(conversation: Conversation, press: PressToTalk | null, open: (what: 'settings' | 'inspector') => void): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      // A sheet has its own keys.
      if (document.querySelector('dialog[open]')) return;
      const target = event.target instanceof Element ? event.target : null;
      const isTyped = Boolean(target?.closest('input, textarea, select'));
      if (press && event.key === ' ' && event.repeat && !isTyped) return event.preventDefault();
      if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'Escape') return conversation.hush();
      if (isTyped) return;
      if (event.key === ',') return open('settings');
      if (event.key === 'i' || event.key === 'I') return open('inspector');
      if (!press && (event.key === 'm' || event.key === 'M')) return conversation.mute();
      const takesSpace = target?.closest('button, summary, a, [role=button]');
      // The button that began the conversation still has the focus: there Enter ends it.
      if (press && event.key === ' ' && conversation.state.microphone === 'on' && (!takesSpace || takesSpace.id === 'talk')) {
        event.preventDefault();
        return press.press();
      }
      if ((event.key === ' ' || event.key === 'Enter') && !takesSpace) {
        event.preventDefault();
        void conversation.talk();
      }
    };
    const onUp = (event: KeyboardEvent) => {
      if (event.key !== ' ' || !press?.held) return;
      // Nor is it a click on the button that has the focus.
      event.preventDefault();
      press.release();
    };
    // A page that loses the keyboard does not see the key go up.
    const onBlur = () => press?.release();
    document.addEventListener('keydown', onKey);
    document.addEventListener('keyup', onUp);
    window.addEventListener('blur', onBlur);
    return () => {
      document.removeEventListener('keydown', onKey);
      document.removeEventListener('keyup', onUp);
      window.removeEventListener('blur', onBlur);
    };
  }, [conversation, press, open]);
}
