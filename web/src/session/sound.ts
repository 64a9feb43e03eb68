// Statistics of the loudspeaker: the current level of the response, and how much was played. The
// conversation keeps one for the lifetime of the page, even if the loudspeaker is reopened; the test hooks read it.

import type { PlaybackReport } from '../audio/messages';
import { AUDIBLE } from '../audio/queue';
import { levels } from './levels';

export class Sound {
  /** Samples above the audibility threshold, and all samples passed to the device. */
  audibleSamples = 0;
  renderedSamples = 0;
  /** When audible sound was last played, in ms of the page's clock. */
  lastAudibleMs = 0;

  take(report: PlaybackReport): void {
    levels.reply = report.peak;
    this.audibleSamples = report.audibleSamples;
    this.renderedSamples = report.renderedSamples;
    if (report.peak > AUDIBLE) this.lastAudibleMs = performance.now();
  }
}
