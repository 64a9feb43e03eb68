// The hub's key: where the page takes it from.
import { describe, expect, it } from 'vitest';
import { keyFrom } from '../src/session/key';

describe('the key', () => {
  it('is taken from the fragment, if it can be sent', () => {
    expect(keyFrom('#key=sk-abc_123')).toBe('sk-abc_123');
    expect(keyFrom('#x=1&key=%20a.b%20')).toBe('a.b');
    for (const hash of ['', '#', '#key=', '#key=a%20b', '#key=a%2Cb', '#other=1']) expect(keyFrom(hash)).toBeNull();
  });
});
