// Statistics of the loudspeaker: the current level of the response, and how much was played. The
// conversation keeps one, even if the loudspeaker is reopened.

import type { PlaybackReport } from '../audio/messages.js';
import { AUDIBLE } from '../audio/queue.js';
import type { Levels } from './levels.js';

export class Sound {
  /** Samples above the audibility threshold, and all samples passed to the device. */
  audibleSamples = 0;
  renderedSamples = 0;
  /** When audible sound was last played, in ms of the page's clock. */
  lastAudibleMs = 0;
  /** The counters of the worklet at its last report. */
  #worklet = { audible: 0, rendered: 0 };

  /** `levels`: its `reply` is kept up to date. */
  constructor(private readonly levels: Levels) {}

  take(report: PlaybackReport): void {
    this.levels.reply = report.peak;
    this.audibleSamples += Math.max(0, report.audibleSamples - this.#worklet.audible);
    this.renderedSamples += Math.max(0, report.renderedSamples - this.#worklet.rendered);
    this.#worklet = { audible: report.audibleSamples, rendered: report.renderedSamples };
    if (report.peak > AUDIBLE) this.lastAudibleMs = performance.now();
  }

  /** The same of sound that the browser plays itself: a peak, and the samples since the last one. */
  measured(peak: number, nSamples: number): void {
    this.levels.reply = peak;
    this.renderedSamples += nSamples;
    if (peak <= AUDIBLE) return;
    this.audibleSamples += nSamples;
    this.lastAudibleMs = performance.now();
  }
}
