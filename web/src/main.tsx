// Entry point of the page: one conversation, one view.

import { render } from 'preact';
import './style/page.css';
import './style/stage.css';
import './style/captions.css';
import './style/engines.css';
import './style/fonts.css';
import { Conversation } from '@antiphon/client';
import worklets from '@antiphon/client/worklets.js?worker&url';
import { loadKey } from './session/key';
import { codecAsked, loadSettings, transportAsked } from './session/settings';
import { exposeHooks } from './hooks';
import { App } from './view/App';

const settings = loadSettings();
const conversation = new Conversation({
  key: loadKey(),
  codec: codecAsked(location.search),
  // The page's address comes first.
  transport: transportAsked(location.search) ?? settings.transport,
  session: { voice: settings.voice },
  worklets,
});
exposeHooks(conversation);

const root = document.getElementById('app');
if (!root) throw new Error('index.html has no #app');
render(<App conversation={conversation} initial={settings} />, root);
void conversation.look();
