// Keeps the screen on while the microphone is: a phone that locks its screen ends the conversation. Browsers that cannot, or
// will not because the battery is low, lock as ever. They release it with a hidden page, and it is taken again.

export class WakeLock {
  #wanted = false;
  #lock: WakeLockSentinel | null = null;
  #isAsking = false;

  /** `signal` ends it. */
  constructor(signal: AbortSignal) {
    document.addEventListener('visibilitychange', () => void this.#hold(), { signal });
  }

  want(wanted: boolean): void {
    if (wanted === this.#wanted) return;
    this.#wanted = wanted;
    void this.#hold();
  }

  async #hold(): Promise<void> {
    if (this.#isAsking) return;
    if (this.#wanted && (this.#lock?.released ?? true) && document.visibilityState === 'visible') {
      this.#isAsking = true;
      this.#lock = (await navigator.wakeLock?.request('screen').catch(() => null)) ?? null;
      this.#isAsking = false;
    }
    if (!this.#wanted) void this.#lock?.release();
  }
}
