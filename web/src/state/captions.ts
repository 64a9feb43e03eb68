// How a reply's words are revealed in time with its sound, and how it is divided when it was cut.
// The protocol carries no word times, so the place in the text follows from the playhead and the
// speaking rate: the learnt one while the reply still grows, its own once all of it is in.

import type { ReplyCaption } from './model';

/** Characters of the text that were spoken by now, at a word's end. */
export function revealedChars(reply: ReplyCaption, charsPerSecond: number): number {
  const { text } = reply;
  if (reply.playedMs <= 0) return reply.revealed;
  const whole = reply.textDone && reply.audioDone && reply.receivedMs > 0;
  const reached = whole
    ? (reply.playedMs / reply.receivedMs) * text.length
    : (reply.playedMs / 1000) * charsPerSecond;
  return Math.max(reply.revealed, wordEnd(text, reached));
}

/** The learnt rate after a reply that played whole: half old, half new, within what voices do. */
export function learnRate(charsPerSecond: number, reply: ReplyCaption): number {
  if (reply.playedMs < 500 || reply.text.length < 8) return charsPerSecond;
  const own = reply.text.length / (reply.playedMs / 1000);
  return Math.min(30, Math.max(6, (charsPerSecond + own) / 2));
}

/** A word is shown when its first half was reached: the end of the word in which `at` lies. */
function wordEnd(text: string, at: number): number {
  let end = 0;
  for (const word of text.matchAll(/\S+\s*/g)) {
    if (word.index > at) break;
    end = word.index + word[0].length;
  }
  return end;
}

/** The spoken part and the rest; the rest is shown only when it was cut, dimmed. */
export function parts(reply: ReplyCaption): { spoken: string; unspoken: string } {
  return { spoken: reply.text.slice(0, reply.revealed), unspoken: reply.text.slice(reply.revealed) };
}
