// `/sdk/antiphon-voice.js` of a hub, for one script tag in any page: defines `<antiphon-voice>`, whose hub is the one that
// the script came from unless `src` names another. The worklets come from the element's hub as a file, so that a page's
// Content-Security-Policy names the hub and needs no `blob:`.

import { VoiceElement } from './voice.js';

// Known only while the script is run, and only to a classic script.
const script = document.currentScript instanceof HTMLScriptElement ? document.currentScript.src : '';
VoiceElement.surroundings = { worklets: 'sdk/worklets.js', ...(script !== '' && { hub: new URL('..', script).href }) };
if (!customElements.get('antiphon-voice')) customElements.define('antiphon-voice', VoiceElement);
