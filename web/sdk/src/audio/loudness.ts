// Finds when the user was last loud. Stores the microphone's peaks, one per render quantum (2.7 ms
// at 48 kHz), and searches a span of the context's clock. The result is the start of the displayed
// latency, as in the hub's benchmarks: the last sample above 5 % of the utterance's peak.

const LOUD_PART = 0.05;
/** Peaks below this are silence, whatever the utterance's peak (-60 dBFS). */
const SILENCE = 0.001;
/** The longest utterance of a hub is 30 s; older peaks are dropped. */
const MEMORY_S = 40;

interface Peak {
  /** End of the quantum on the context's clock, in seconds. */
  atS: number;
  peak: number;
}

export class LoudTracker {
  #peaks: Peak[] = [];

  /** `peaks` are consecutive quanta of `quantumS` seconds; the last one ends at `endS`. */
  push(peaks: ArrayLike<number>, quantumS: number, endS: number): void {
    for (let i = 0; i < peaks.length; i++) {
      this.#peaks.push({ atS: endS - (peaks.length - 1 - i) * quantumS, peak: peaks[i] ?? 0 });
    }
    const oldest = endS - MEMORY_S;
    if ((this.#peaks[0]?.atS ?? oldest) < oldest - 1) this.#peaks = this.#peaks.filter((p) => p.atS >= oldest);
  }

  /** End of the last loud quantum between the two times, or null if all quanta were silent. */
  lastLoud(fromS: number, toS: number): number | null {
    const within = this.#peaks.filter((p) => p.atS > fromS && p.atS <= toS);
    const highest = within.reduce((most, p) => Math.max(most, p.peak), 0);
    const threshold = Math.max(SILENCE, highest * LOUD_PART);
    return within.findLast((p) => p.peak > threshold)?.atS ?? null;
  }
}
