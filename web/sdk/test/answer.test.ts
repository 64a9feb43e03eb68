// What an answer is drawn as, on the page and in the element.
import { describe, expect, it } from 'vitest';
import { type AnswerChild, answerOf } from '../src/answer';
import type { ReplyCaption } from '../src/state/model';

/** Elements as a line of text. */
const written = (child: AnswerChild): string => {
  if (typeof child === 'string') return child;
  const { tag, attributes, children } = child;
  const names = Object.entries(attributes).map(([name, value]) => ` ${name}=${value}`);
  return `<${tag}${names.join('')}>${children.map(written).join('')}</${tag}>`;
};
const answer = (text: string, revealed = text.length, status: ReplyCaption['status'] = 'done') =>
  answerOf({ text, revealed, status }).map(written).join('');

describe('an answer', () => {
  it('of one paragraph is its words, and nothing where there are none', () => {
    expect(answer('It is **noon**.')).toBe('<span class=spoken>It is <strong>noon</strong>.</span>');
    expect(answer('One.\nTwo.')).toBe('<span class=spoken>One.<br></br>Two.</span>');
    expect(answer('')).toBe('');
    expect(answer('It is noon.', 0, 'coming')).toBe('');
  });

  it('has lists, code, headings and links that are safe to open', () => {
    expect(answer('# Tea\n- `cup`\n  - [water](https://a.example)\n\n2. [no](javascript:x)\n```\nlet a;\n```')).toBe(
      '<div class=answer><p class=heading><span class=spoken>Tea</span></p>' +
        '<ul><li><span class=spoken><code>cup</code></span></li>' +
        '<li class=nested><span class=spoken><a href=https://a.example target=_blank rel=noopener noreferrer>water</a></span></li></ul>' +
        '<ol><li value=2><span class=spoken>[no](javascript:x)</span></li></ol>' +
        '<pre tabindex=0><span class=spoken><code>let a;</code></span></pre></div>',
    );
  });

  it('shows as much as was spoken, and where it ended early the rest with the reason', () => {
    expect(answer('- one\n- two', 5, 'coming')).toBe('<div class=answer><ul><li><span class=spoken>one</span></li></ul></div>');
    expect(answer('It is **noon now**.', 12, 'coming')).toBe('<span class=spoken>It is <strong>noon</strong></span>');
    const why = { cut: 'you interrupted', lost: 'the connection was lost', failed: 'the answer broke off' } as const;
    for (const status of ['cut', 'lost', 'failed'] as const) {
      expect(answer('It is noon.', 5, status)).toBe(`<span class=spoken>It is</span><span class=unspoken title=Not spoken: ${why[status]}> noon.</span>`);
      expect(answer('It is noon.', 11, status)).toBe('<span class=spoken>It is noon.</span>');
    }
  });

  it('folds away what the model thought, without its tags', () => {
    expect(answer('<think>Hm.</think>Noon.', 0, 'coming')).toBe('<div class=answer><details class=thought><summary>What the model thought</summary>Hm.</details></div>');
  });

  it('is never HTML of its own', () => {
    expect(answerOf({ text: '<b onclick=x>no</b>', revealed: 19, status: 'done' })).toEqual([{ tag: 'span', attributes: { class: 'spoken' }, children: ['<b onclick=x>no</b>'] }]);
  });
});
