// An answer as elements: its markdown, the words that were spoken, and the rest struck out where it ended early. The page and
// `<antiphon-voice>` both draw it, each with its own means (`web/src/view/Answer.tsx`, `element/answer.ts`). It makes no HTML and
// touches no DOM, and an address that a browser must not open is text. Pure functions.

import { type Block, type Piece, blocksOf } from './markdown.js';
import type { ReplyCaption } from './model.js';

/** An element to be made. Text is a string among its children. */
export interface AnswerElement {
  tag: 'a' | 'br' | 'code' | 'details' | 'div' | 'em' | 'li' | 'ol' | 'p' | 'pre' | 'span' | 'strong' | 'summary' | 'ul';
  attributes: Readonly<Record<string, string>>;
  children: readonly AnswerChild[];
}

export type AnswerChild = AnswerElement | string;

/** Why the rest of an answer was not spoken; of other answers the rest is still to come, or nothing is left. */
const ENDED: Partial<Record<ReplyCaption['status'], string>> = {
  cut: 'you interrupted',
  lost: 'the connection was lost',
  failed: 'the answer broke off',
};

/**
 * The elements of a reply. Spoken words are in `span.spoken`, the others in `span.unspoken`, whose title says why. Several blocks,
 * or one that is no paragraph, are in `div.answer`. Empty where nothing is to be shown.
 */
export function answerOf({ text, revealed, status }: Pick<ReplyCaption, 'text' | 'revealed' | 'status'>): AnswerElement[] {
  const why = revealed < text.length ? ENDED[status] : undefined;
  const extent: Extent = { text, revealed, why, end: why === undefined ? revealed : text.length };
  const shown = blocksOf(text).filter(({ kind, lines }) => kind === 'thought' || (lines[0]?.[0]?.from ?? extent.end) < extent.end);
  const [only] = shown;
  if (only === undefined) return [];
  // Most answers are one paragraph.
  if (shown.length === 1 && only.kind === 'text') return words(only, extent);
  return [element('div', { class: 'answer' }, grouped(shown).map((group) => groupOf(group, extent)))];
}

/** How far a text is shown. */
interface Extent {
  text: string;
  /** Characters that were spoken. */
  revealed: number;
  /** Nothing is shown from here on. */
  end: number;
  why: string | undefined;
}

function element(tag: AnswerElement['tag'], attributes: AnswerElement['attributes'], children: readonly AnswerChild[]): AnswerElement {
  return { tag, attributes, children };
}

/** Items of a list that follow each other. */
function grouped(blocks: Block[]): Block[][] {
  const groups: Block[][] = [];
  for (const block of blocks) {
    const last = groups.at(-1);
    const isList = block.kind === 'item' || block.kind === 'numbered';
    if (isList && last?.[0]?.kind === block.kind) last.push(block);
    else groups.push([block]);
  }
  return groups;
}

function groupOf(group: Block[], extent: Extent): AnswerElement {
  const [block] = group as [Block];
  const nested = ({ isNested }: Block): Record<string, string> => (isNested ? { class: 'nested' } : {});
  switch (block.kind) {
    case 'item':
      return element('ul', {}, group.map((item) => element('li', nested(item), words(item, extent))));
    case 'numbered':
      return element('ol', {}, group.map((item) => element('li', { value: String(item.number), ...nested(item) }, words(item, extent))));
    case 'code':
      // It scrolls, also by keyboard.
      return element('pre', { tabindex: '0' }, words(block, extent));
    case 'thought':
      return element('details', { class: 'thought' }, [element('summary', {}, ['What the model thought']), thoughtOf(extent.text, block)]);
    default:
      return element('p', { class: block.kind }, words(block, extent));
  }
}

function thoughtOf(text: string, { lines }: Block): string {
  const [piece] = lines[0] ?? [];
  return piece ? text.slice(piece.from, piece.to).replaceAll(/<\/?think(?:ing)?>/gi, '').trim() : '';
}

/** What was spoken of the block's lines, then the rest. */
function words(block: Block, { text, revealed, why }: Extent): AnswerElement[] {
  const spoken = element('span', { class: 'spoken' }, lines(block, text, 0, revealed));
  const rest = why === undefined ? [] : lines(block, text, revealed, text.length);
  return rest.length === 0 ? [spoken] : [spoken, element('span', { class: 'unspoken', title: `Not spoken: ${why}` }, rest)];
}

/** The characters of a block from one place to another. */
function lines(block: Block, text: string, from: number, to: number): AnswerChild[] {
  return block.lines.flatMap((line, i) => {
    const [first] = line;
    const breaks = i > 0 && first !== undefined && first.from >= from && first.from < to;
    const pieces = line.filter((piece) => piece.from < to && piece.to > from);
    const drawn = pieces.map((piece) => styled(piece, text.slice(Math.max(piece.from, from), Math.min(piece.to, to))));
    return breaks ? [element('br', {}, []), ...drawn] : drawn;
  });
}

function styled({ code, em, strong, href }: Piece, text: string): AnswerChild {
  let drawn: AnswerChild = text;
  if (code) drawn = element('code', {}, [drawn]);
  if (em) drawn = element('em', {}, [drawn]);
  if (strong) drawn = element('strong', {}, [drawn]);
  if (href !== undefined) drawn = element('a', { href, target: '_blank', rel: 'noopener noreferrer' }, [drawn]);
  return drawn;
}
