// Reveals the text of a response in time with its audio, and splits it when it was interrupted. While it
// plays, the position in the text is estimated from the playhead and the speaking rate: the learnt rate
// while the response is incomplete, its own rate afterwards. Where it was stopped, the hub says which words
// were heard: it knows which audio belongs to which words, and its history has the same ones.

import type { ReplyCaption } from './model.js';

/** Number of characters spoken so far, rounded to the end of a word. */
export function revealedChars(reply: ReplyCaption, charsPerSecond: number): number {
  const { text } = reply;
  if (reply.playedMs <= 0) return reply.revealed;
  // Text and audio of a response that is stopped end, too, and the audio that came is a part of it.
  const isWhole = reply.whole && reply.audioDone && reply.receivedMs > 0;
  const reached = isWhole
    ? (reply.playedMs / reply.receivedMs) * text.length
    : (reply.playedMs / 1000) * charsPerSecond;
  return Math.max(reply.revealed, wordEnd(text, reached));
}

/** Number of characters of a reply that was stopped after these words. */
export function heardChars({ text }: ReplyCaption, words: string): number {
  return text.startsWith(words) ? words.length : wordEnd(text, words.length - 1);
}

/** The learnt rate after a response that was played completely: the mean of old and new, within a plausible range. */
export function learnRate(charsPerSecond: number, reply: ReplyCaption): number {
  if (reply.playedMs < 500 || reply.text.length < 8) return charsPerSecond;
  const own = reply.text.length / (reply.playedMs / 1000);
  return Math.min(30, Math.max(6, (charsPerSecond + own) / 2));
}

/** A word is revealed once its first half was reached: returns the end of the word that contains `at`. */
function wordEnd(text: string, at: number): number {
  let end = 0;
  for (const word of text.matchAll(/\S+\s*/g)) {
    if (word.index > at) break;
    end = word.index + word[0].length;
  }
  return end;
}

/** The spoken part and the rest; the rest is shown only if the response was interrupted, dimmed. */
export function parts(reply: ReplyCaption): { spoken: string; unspoken: string } {
  return { spoken: reply.text.slice(0, reply.revealed), unspoken: reply.text.slice(reply.revealed) };
}
