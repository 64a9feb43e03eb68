// An answer: its markdown as elements, word by word while it is spoken, and struck out from where the user stopped listening.

import type { ComponentChild } from 'preact';
import { useMemo } from 'preact/hooks';
import { type Block, type Piece, blocksOf } from '../state/markdown';

interface Props {
  text: string;
  /** Characters that were spoken. */
  revealed: number;
  /** Whether words are still being revealed: they fade in. */
  fresh: boolean;
  /** Why the rest was not spoken; null where it is still to come, or nothing is left. */
  unspoken: string | null;
}

export function Answer({ text, revealed, fresh, unspoken }: Props) {
  const blocks = useMemo(() => blocksOf(text), [text]);
  const end = unspoken === null ? revealed : text.length;
  const shown = blocks.filter(({ kind, lines }) => kind === 'thought' || (lines[0]?.[0]?.from ?? end) < end);
  const drawn = (block: Block) => <Lines block={block} text={text} revealed={revealed} end={end} fresh={fresh} unspoken={unspoken} />;
  const [only] = shown;
  // Most answers are one paragraph.
  if (shown.length === 1 && only?.kind === 'text') return drawn(only);
  return (
    <div class="answer">
      {grouped(shown).map((group, i) => {
        const [block] = group;
        if (block === undefined) return null;
        switch (block.kind) {
          case 'item':
            return <ul key={i}>{group.map((item, n) => <li key={n} class={item.isNested ? 'nested' : ''}>{drawn(item)}</li>)}</ul>;
          case 'numbered':
            return <ol key={i}>{group.map((item, n) => <li key={n} value={item.number} class={item.isNested ? 'nested' : ''}>{drawn(item)}</li>)}</ol>;
          case 'code':
            return <pre key={i} tabIndex={0}>{drawn(block)}</pre>;
          case 'thought':
            return (
              <details key={i} class="thought">
                <summary>What the model thought</summary>
                {thoughtOf(text, block)}
              </details>
            );
          default:
            return <p key={i} class={block.kind}>{drawn(block)}</p>;
        }
      })}
    </div>
  );
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

function thoughtOf(text: string, { lines }: Block): string {
  const [piece] = lines[0] ?? [];
  return piece ? text.slice(piece.from, piece.to).replaceAll(/<\/?think(?:ing)?>/gi, '').trim() : '';
}

interface LinesProps extends Props {
  block: Block;
  /** Nothing is shown from here on. */
  end: number;
}

/** What was spoken of the block's lines, then the rest. */
function Lines({ block, text, revealed, end, fresh, unspoken }: LinesProps) {
  const drawn = (from: number, to: number, isFresh: boolean) =>
    block.lines.flatMap((line, i) => {
      const pieces = line.filter((piece) => piece.from < to && piece.to > from);
      const [first] = line;
      const breaks = i > 0 && first !== undefined && first.from >= from && first.from < to;
      return [
        ...(breaks ? [<br key={`br${i}`} />] : []),
        ...pieces.map((piece) => <Styled key={piece.from} piece={piece}>{words(text.slice(Math.max(piece.from, from), Math.min(piece.to, to)), isFresh)}</Styled>),
      ];
    });
  const rest = unspoken === null ? [] : drawn(revealed, end, false);
  return (
    <>
      <span class="spoken">{drawn(0, revealed, fresh)}</span>
      {rest.length > 0 && (
        <span class="unspoken" title={`Not spoken: ${unspoken}`}>
          {rest}
        </span>
      )}
    </>
  );
}

function Styled({ piece, children }: { piece: Piece; children: ComponentChild }) {
  let drawn = children;
  if (piece.code) drawn = <code>{drawn}</code>;
  if (piece.em) drawn = <em>{drawn}</em>;
  if (piece.strong) drawn = <strong>{drawn}</strong>;
  if (piece.href !== undefined) drawn = <a href={piece.href} target="_blank" rel="noopener noreferrer">{drawn}</a>;
  return <>{drawn}</>;
}

/** Words fade in one by one while they are spoken; afterwards they are plain text. */
function words(text: string, isFresh: boolean): ComponentChild {
  if (!isFresh) return text;
  return (text.match(/\s*\S+\s*|\s+/g) ?? []).map((word, i) => (
    <span key={i} class="word">
      {word}
    </span>
  ));
}
