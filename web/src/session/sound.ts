// What the loudspeaker did: how loud the reply is now, and how much has sounded. The conversation
// keeps one for the page's life, also when the loudspeaker is opened anew; the test hooks read it.

import type { PlaybackReport } from '../audio/messages';
import { AUDIBLE } from '../audio/queue';
import { levels } from './levels';

export class Sound {
  /** Samples at 24 kHz above silence, and all that were given to the device. */
  audibleSamples = 0;
  renderedSamples = 0;
  /** When something audible was played last, in ms of the page's clock. */
  lastAudibleMs = 0;

  take(report: PlaybackReport): void {
    levels.reply = report.peak;
    this.audibleSamples = report.audibleSamples;
    this.renderedSamples = report.renderedSamples;
    if (report.peak > AUDIBLE) this.lastAudibleMs = performance.now();
  }
}
