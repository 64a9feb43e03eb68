// The hub's key: where the page takes it from.
import { afterEach, describe, expect, it, vi } from 'vitest';
import { keyFrom, loadKey, saveKey } from '../src/session/key';

afterEach(() => void vi.unstubAllGlobals());

describe('the key', () => {
  it('is taken from the fragment, if it can be sent', () => {
    expect(keyFrom('#key=sk-abc_123')).toBe('sk-abc_123');
    expect(keyFrom('#x=1&key=%20a.b%20')).toBe('a.b');
    for (const hash of ['', '#', '#key=', '#key=a%20b', '#key=a%2Cb', '#other=1']) expect(keyFrom(hash)).toBeNull();
  });

  it('is kept until the page is closed where storage is disabled', () => {
    const disabled = (): never => {
      throw new Error('SecurityError');
    };
    vi.stubGlobal('location', { hash: '' });
    vi.stubGlobal('sessionStorage', { getItem: disabled, setItem: disabled });
    expect(loadKey()).toBeNull();
    saveKey('sk-abc');
    expect(loadKey()).toBe('sk-abc');
  });
});
