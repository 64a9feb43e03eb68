// What the element says of problems.
import { expect, it } from 'vitest';
import { isRetriable, wordsOf } from '../src/element/words.js';

it('says of a hub that takes no conversations what is known, not why', () => {
  // It may be overloaded long before it is full, and not ready long after its engines are loaded.
  expect(wordsOf({ kind: 'full', sessions: 3 })).toBe('There is no room for this conversation now. Try again in a moment.');
  expect(wordsOf({ kind: 'loading' })).toBe('The assistant is not ready. This continues by itself.');
});

it('says of a connection that never was that it was not taken, and not that it was lost', () => {
  expect(wordsOf({ kind: 'refused' })).toBe('The assistant did not take the connection. Try again in a moment.');
  expect(isRetriable({ kind: 'refused' })).toBe(true);
});
