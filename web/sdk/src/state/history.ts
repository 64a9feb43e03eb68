// The conversation so far, as sent to a new session after a reconnection or a change of voice. Pure
// functions.

import type { Caption } from './model.js';

/** Maximum number of messages restored, newest first. */
const MAX_MESSAGES = 24;

export interface PastMessage {
  id: string;
  role: 'user' | 'assistant';
  text: string;
}

/** `waiting`: ids of typed messages that will be sent anyway. Ids are new, because the hub may reuse its own. */
export function history(captions: Caption[], waiting: ReadonlySet<string>, nSessions: number): PastMessage[] {
  return captions
    .filter((caption) => !waiting.has(caption.id) && !(caption.role === 'user' && caption.fault === 'unsent'))
    .map((caption) => ({ role: caption.role, text: saidText(caption).trim() }))
    .filter(({ text }) => text !== '')
    .slice(-MAX_MESSAGES)
    .map((message, i) => ({ ...message, id: `past_${nSessions}_${i}` }));
}

/** A response counts as far as it was heard. */
function saidText(caption: Caption): string {
  return caption.role === 'user' ? caption.text : caption.text.slice(0, caption.revealed);
}
