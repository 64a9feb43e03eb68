// What a new session is told of the conversation so far, so that a reconnection or another voice
// does not make the hub forget. Pure.

import type { Caption } from './model';

/** The newest messages that are brought back. */
const MAX_MESSAGES = 24;

export interface PastMessage {
  id: string;
  role: 'user' | 'assistant';
  text: string;
}

/** `waiting`: ids of typed messages that will be sent anyway. Ids are new, since the hub's own may come again. */
export function history(captions: Caption[], waiting: ReadonlySet<string>, nSessions: number): PastMessage[] {
  return captions
    .filter((caption) => !waiting.has(caption.id) && !(caption.role === 'user' && caption.fault === 'unsent'))
    .map((caption) => ({ role: caption.role, text: saidText(caption).trim() }))
    .filter(({ text }) => text !== '')
    .slice(-MAX_MESSAGES)
    .map((message, i) => ({ ...message, id: `past_${nSessions}_${i}` }));
}

/** A reply counts as far as it was heard. */
function saidText(caption: Caption): string {
  return caption.role === 'user' ? caption.text : caption.text.slice(0, caption.revealed);
}
