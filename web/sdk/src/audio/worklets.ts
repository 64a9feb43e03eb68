// What runs on the audio thread, in one module: the microphone's processor and the loudspeaker's.

import './capture.worklet.js';
import './playback.worklet.js';
