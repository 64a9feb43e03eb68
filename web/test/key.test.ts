// The hub's key: where the page takes it from, and how it travels.
import { describe, expect, it } from 'vitest';
import { authorization, isKey, keyFrom, protocols } from '../src/session/key';

describe('the key', () => {
  it('is taken from the fragment, if it can be sent', () => {
    expect(keyFrom('#key=sk-abc_123')).toBe('sk-abc_123');
    expect(keyFrom('#x=1&key=%20a.b%20')).toBe('a.b');
    for (const hash of ['', '#', '#key=', '#key=a%20b', '#key=a%2Cb', '#other=1']) expect(keyFrom(hash)).toBeNull();
    expect([isKey('sk-1'), isKey(''), isKey('a,b'), isKey('é')]).toEqual([true, false, false, false]);
  });

  it('travels by subprotocol and by header, and not at all where there is none', () => {
    expect(protocols(null, { key: 'rk_1', nReceived: 7 })).toEqual(['realtime', 'antiphon-resume.rk_1.7']);
    expect(protocols('k1', { key: 'rk_1', nReceived: 0 })).toEqual(['realtime', 'openai-insecure-api-key.k1', 'antiphon-resume.rk_1.0']);
    expect(protocols('k1')).toEqual(['realtime', 'openai-insecure-api-key.k1']);
    expect(authorization('k1')).toEqual({ Authorization: 'Bearer k1' });
    expect([protocols(null), authorization(null)]).toEqual([[], {}]);
  });
});
