// The markdown of a language model's answer, as blocks of pieces that know their place in the text: what is spoken and what was
// not heard is told by that place. Emphasis, code, links, lists, headings and line breaks; what else there is stays as it was
// written. Nothing of it is ever HTML: `view/Answer.tsx` makes elements of it. Pure functions.

export interface Piece {
  /** Its characters in the text. */
  from: number;
  to: number;
  strong?: boolean;
  em?: boolean;
  code?: boolean;
  /** An address that is safe to open. */
  href?: string;
}

/** `thought`: what a model wrote to itself. Lines of a block follow each other; of a list each item is one. */
export type BlockKind = 'text' | 'item' | 'numbered' | 'heading' | 'code' | 'thought';

export interface Block {
  kind: BlockKind;
  /** Of a numbered item. */
  number: number;
  /** An item of a list within a list. */
  isNested: boolean;
  lines: Piece[][];
}

/** Deeper emphasis is not taken apart. */
const MAX_DEPTH = 4;
const FENCE = /^\s*(?:```|~~~)/;
const HEADING = /^\s{0,3}#{1,6}\s+/;
const ITEM = /^(\s*)(?:[-*+•]|(\d{1,3})[.)])\s+/;
const THOUGHT_ENDS = /<\/think(?:ing)?>/i;
const THOUGHT = /<think(?:ing)?>/i;
const INLINE = new RegExp(
  [
    '`([^`]{1,1000})`',
    '\\[([^\\]\\n]{1,400})\\]\\(([^()\\s]{1,2000})\\)',
    '\\*\\*(?=\\S)(.{1,1000}?)(?<=\\S)\\*\\*(?!\\*)',
    '__(?=\\S)(.{1,1000}?)(?<=\\S)__(?!\\w)',
    '\\*(?=[^\\s*])([^*]{1,1000}?)(?<=\\S)\\*',
    '(?<![\\w_])_(?=[^\\s_])([^_]{1,1000}?)(?<=\\S)_(?!\\w)',
    '(https?:\\/\\/[^\\s<>"`]{1,2000}[^\\s<>"`.,;:!?\')\\]*_])',
  ].join('|'),
  'g',
);

export function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  for (const { isThought, to } of sections(text)) {
    if (isThought) add(blocks, 'thought', [{ from: at, to }]);
    else section(text, at, to, blocks);
    at = to;
  }
  return blocks;
}

/** Where thoughts are: between their tags, and before an end that had no beginning. */
function sections(text: string): { isThought: boolean; to: number }[] {
  const found: { isThought: boolean; to: number }[] = [];
  let at = 0;
  while (at < text.length) {
    const rest = text.slice(at);
    const [begin, end] = [THOUGHT.exec(rest), THOUGHT_ENDS.exec(rest)];
    if (begin === null && end === null) break;
    const isOpen = begin === null || (end !== null && end.index < begin.index);
    if (!isOpen && begin.index > 0) found.push({ isThought: false, to: at + begin.index });
    const to = end === null ? text.length : at + end.index + end[0].length;
    found.push({ isThought: true, to });
    at = to;
  }
  if (at < text.length) found.push({ isThought: false, to: text.length });
  return found;
}

function section(text: string, from: number, to: number, blocks: Block[]): void {
  let isCode = false;
  let mayContinue = false;
  for (let at = from; at < to; ) {
    const next = text.indexOf('\n', at);
    const end = next === -1 || next > to ? to : next;
    const line = text.slice(at, end);
    const item = ITEM.exec(line);
    const heading = HEADING.exec(line);
    if (FENCE.test(line)) {
      isCode = !isCode;
      if (isCode) add(blocks, 'code');
      mayContinue = false;
    } else if (isCode) blocks.at(-1)?.lines.push([{ from: at, to: end, code: true }]);
    else if (line.trim() === '') mayContinue = false;
    else if (item) {
      const block = add(blocks, item[2] === undefined ? 'item' : 'numbered', inline(text, at + item[0].length, end));
      block.number = Number(item[2] ?? 0);
      block.isNested = (item[1]?.length ?? 0) > 1;
      mayContinue = true;
    } else if (heading) {
      add(blocks, 'heading', inline(text, at + heading[0].length, end));
      mayContinue = false;
    } else {
      const start = at + line.length - line.trimStart().length;
      const last = blocks.at(-1);
      if (mayContinue && last) last.lines.push(inline(text, start, end));
      else add(blocks, 'text', inline(text, start, end));
      mayContinue = true;
    }
    at = end + 1;
  }
}

function add(blocks: Block[], kind: BlockKind, line?: Piece[]): Block {
  const block: Block = { kind, number: 0, isNested: false, lines: line ? [line] : [] };
  blocks.push(block);
  return block;
}

function inline(text: string, from: number, to: number, style: Omit<Piece, 'from' | 'to'> = {}, depth = 0): Piece[] {
  const pieces: Piece[] = [];
  let at = from;
  const plain = (until: number) => {
    if (until > at) pieces.push({ from: at, to: until, ...style });
  };
  const matches = depth < MAX_DEPTH ? text.slice(from, to).matchAll(INLINE) : [];
  for (const match of matches) {
    const [all, code, label, address, strong, strongToo, em, emToo, url] = match;
    const start = from + match.index;
    const within = code ?? label ?? strong ?? strongToo ?? em ?? emToo ?? url ?? '';
    // Behind the opening marks.
    const open = start + all.indexOf(within);
    const href = safe(address ?? url);
    // A link that may not be opened stays as it was written.
    if ((address ?? url) !== undefined && href === null) continue;
    plain(start);
    if (code !== undefined) pieces.push({ from: open, to: open + code.length, ...style, code: true });
    else {
      const more = href !== null ? { href } : strong !== undefined || strongToo !== undefined ? { strong: true } : { em: true };
      pieces.push(...inline(text, open, open + within.length, { ...style, ...more }, url === undefined ? depth + 1 : MAX_DEPTH));
    }
    at = start + all.length;
  }
  plain(to);
  return pieces;
}

/** The address, where a browser may open it; null otherwise. */
function safe(address: string | undefined): string | null {
  if (address === undefined || !/^(?:https?:\/\/|mailto:)/i.test(address)) return null;
  return URL.canParse(address) ? address : null;
}
