// The markdown of answers, by the place of its pieces in the text.
import { describe, expect, it } from 'vitest';
import { type Piece, blocksOf } from '../src/state/markdown.js';

const styleOf = ({ strong, em, code, href }: Piece) => [strong && 'strong', em && 'em', code && 'code', href && `-> ${href}`].filter(Boolean).join(' ');
/** Each block as its kind and its lines; a styled piece is in brackets. */
const drawn = (text: string) =>
  blocksOf(text).map(({ kind, number, lines, isNested }) => [
    `${kind}${number || ''}${isNested ? ' nested' : ''}`,
    ...lines.map((line) => line.map((piece) => (styleOf(piece) ? `[${styleOf(piece)}: ${text.slice(piece.from, piece.to)}]` : text.slice(piece.from, piece.to))).join('')),
  ]);

describe('answers', () => {
  it('have paragraphs and line breaks', () => {
    expect(drawn('One.\nTwo.\n\nThree.')).toEqual([['text', 'One.', 'Two.'], ['text', 'Three.']]);
    expect(drawn('  plain  ')).toEqual([['text', 'plain  ']]);
    expect(drawn('')).toEqual([]);
  });

  it('have emphasis, code and links', () => {
    expect(drawn('a **b** *c* _d_ `e*f*` __g__ **h *i***')).toEqual([['text', 'a [strong: b] [em: c] [em: d] [code: e*f*] [strong: g] [strong: h ][strong em: i]']]);
    expect(drawn('see [the page](https://a.example/x_y) or https://b.example/c_d_e.')).toEqual([
      ['text', 'see [-> https://a.example/x_y: the page] or [-> https://b.example/c_d_e: https://b.example/c_d_e].'],
    ]);
    expect(drawn('[mail](mailto:a@b.example)')).toEqual([['text', '[-> mailto:a@b.example: mail]']]);
  });

  it('leave alone what is no markdown', () => {
    for (const text of ['2 * 3 * 4', 'snake_case_name', '5 - 3', 'a ** b', '*', '**', '`', 'x < y > z', '<b>no</b>']) expect(drawn(text)).toEqual([['text', text]]);
  });

  it.each(['javascript:alert(1)', 'data:text/html,x', 'JAVASCRIPT:x', '//evil.example', 'vbscript:x', 'file:///etc/passwd', '/here'])('open no %s', (address) => {
    expect(blocksOf(`[click](${address})`).flatMap(({ lines }) => lines.flat()).every(({ href }) => href === undefined)).toBe(true);
  });

  it('have lists, headings and code', () => {
    expect(drawn('## Milk\n- one **b**\n- two\n  - deep\n\n1. first\n2) second\nmore of it\n```js\nlet *a* = 1;\n\nb\n```\nend')).toEqual([
      ['heading', 'Milk'], ['item', 'one [strong: b]'], ['item', 'two'], ['item nested', 'deep'], ['numbered1', 'first'], ['numbered2', 'second', 'more of it'],
      ['code', '[code: let *a* = 1;]', '[code: ]', '[code: b]'], ['text', 'end'],
    ]);
  });

  it('fold away what the model thought', () => {
    expect(drawn('<think>Hm.\nYes.</think>\nNoon.')).toEqual([['thought', '<think>Hm.\nYes.</think>'], ['text', 'Noon.']]);
    expect(drawn('Hm.</think>Noon.')).toEqual([['thought', 'Hm.</think>'], ['text', 'Noon.']]);
    expect(drawn('Well. <think>Hm')).toEqual([['text', 'Well. '], ['thought', '<think>Hm']]);
    expect(drawn('a <thinking>b</thinking> c <think>d</think>')).toEqual([['text', 'a '], ['thought', '<thinking>b</thinking>'], ['text', 'c '], ['thought', '<think>d</think>']]);
  });

  it('are taken apart however they are written', () => {
    for (const text of ['*'.repeat(20_000), '[('.repeat(10_000), '_a'.repeat(10_000), '**a '.repeat(5_000), '`'.repeat(20_001), '<think>'.repeat(3_000), 'https://'.repeat(3_000)]) {
      const pieces = blocksOf(text).flatMap(({ lines }) => lines.flat());
      expect(pieces.every(({ from, to }, i) => from < to && from >= (pieces[i - 1]?.to ?? 0))).toBe(true);
    }
  });
});
