// `@antiphon/client/element`: defines `<antiphon-voice>`.

import { VoiceElement } from './voice.js';

export { VoiceElement };
export type { CaptionDetail, TurnDetail, VoiceEvents } from './voice.js';

// With two copies of the package in one page, the first one defines the element.
if (globalThis.customElements && !customElements.get('antiphon-voice')) customElements.define('antiphon-voice', VoiceElement);
