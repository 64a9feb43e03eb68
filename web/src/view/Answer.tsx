// An answer: its markdown as elements, word by word while it is spoken, and struck out from where the user stopped listening.
// What is drawn is the client package's decision (`answerOf`), as in `<antiphon-voice>`; here are the words that fade in.

import type { ReplyCaption } from '@antiphon/client';
import { type AnswerChild, type AnswerElement, answerOf } from '@antiphon/client/answer';
import { type ComponentChild, h } from 'preact';
import { useMemo } from 'preact/hooks';

export function Answer({ text, revealed, status }: Pick<ReplyCaption, 'text' | 'revealed' | 'status'>) {
  const elements = useMemo(() => answerOf({ text, revealed, status }), [text, revealed, status]);
  return <>{elements.map((element) => drawn(element, status === 'coming'))}</>;
}

function drawn(child: AnswerChild, isFresh: boolean): ComponentChild {
  if (typeof child === 'string') return isFresh ? words(child) : child;
  // What a model thought is not spoken: it comes as a whole.
  const fades = isFresh && child.attributes['class'] !== 'thought';
  return made(child, child.children.map((part) => drawn(part, fades)));
}

function made({ tag, attributes }: AnswerElement, children: ComponentChild[]): ComponentChild {
  return h(tag, attributes, ...children);
}

/** Words fade in one by one while they are spoken; afterwards they are plain text. */
function words(text: string): ComponentChild {
  return (text.match(/\s*\S+\s*|\s+/g) ?? []).map((word, i) => (
    <span key={i} class="word">
      {word}
    </span>
  ));
}
