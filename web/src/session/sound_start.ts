// Notices that the browser does not start the page's sound, and the microphone with it: it wants a click first, or (Firefox) has
// no loudspeaker.

import type { Conversation } from '@antiphon/client';

/** Sound starts within this of a session, or the browser does not start it by itself. */
const STARTS_MS = 3_000;

/** Reports in a session whether sound is missing, and when it has come. Returns what ends it. */
export function followSoundStart(conversation: Conversation, report: (isMissing: boolean) => void): () => void {
  const context = conversation.audio?.context;
  const look = () => report(context?.state === 'suspended' && conversation.state.link === 'live');
  const timer = setTimeout(look, STARTS_MS);
  context?.addEventListener('statechange', look);
  return () => {
    clearTimeout(timer);
    context?.removeEventListener('statechange', look);
    report(false);
  };
}
