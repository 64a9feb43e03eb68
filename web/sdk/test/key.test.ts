// The hub's key: what can be sent, and how it travels.
import { describe, expect, it } from 'vitest';
import { authorization, isKey, protocols } from '../src/session/key';

describe('the key', () => {
  it('consists of characters of a subprotocol', () => {
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
