// Draws an answer into a part of the element's shadow root: `voice.ts` calls it on each change of a caption. It keeps every node
// that stays as it was: screen readers announce what is created again, and a folded-out thought stays open.

import type { AnswerChild, AnswerElement } from '../state/answer.js';

/** What each element was made from, its children aside. */
const made = new WeakMap<ChildNode, string>();

/** Makes these the children of `parent`, in place. */
export function patch(parent: Element, children: readonly AnswerChild[]): void {
  for (const [i, child] of children.entries()) {
    const present = parent.childNodes[i];
    const node = typeof child === 'string' ? textNode(child, present) : elementNode(child, present);
    if (present === undefined) parent.append(node);
    else if (present !== node) present.replaceWith(node);
  }
  while (parent.childNodes.length > children.length) parent.lastChild?.remove();
}

function textNode(text: string, present: ChildNode | undefined): ChildNode {
  if (!(present instanceof Text)) return new Text(text);
  if (present.data !== text) present.data = text;
  return present;
}

function elementNode({ tag, attributes, children }: AnswerElement, present: ChildNode | undefined): ChildNode {
  const kind = JSON.stringify([tag, attributes]);
  let node = present as HTMLElement;
  if (present === undefined || made.get(present) !== kind) {
    node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    // What a page can give a style of its own.
    if (attributes['class'] === 'unspoken') node.part = 'unspoken';
    made.set(node, kind);
  }
  patch(node, children);
  return node;
}
