// Entry point of the page: one conversation, one view.

import { render } from 'preact';
import './style/page.css';
import './style/stage.css';
import './style/captions.css';
import './style/engines.css';
import { Conversation } from '@antiphon/client';
import worklets from '@antiphon/client/worklets.js?worker&url';
import { captionsOf } from './conversations/data';
import { ConversationKeeper } from './conversations/keeper';
import { loadKey } from './session/key';
import { RecentEvents } from './session/recent_events';
import { codecAsked, devicesOf, loadSettings, sessionOf, sharedFrom, transportAsked } from './session/settings';
import { exposeHooks } from './hooks';
import { App } from './view/App';
import { applyLook } from './view/look';

const own = loadSettings();
// The address comes first, for this visit; the key leaves it.
const shared = sharedFrom(location.hash);
const settings = { ...own, ...shared };
applyLook(settings);
const keeper = new ConversationKeeper(settings.keepsConversations);
const past = await keeper.restore();
const conversation = new Conversation({
  key: loadKey(),
  codec: codecAsked(location.search),
  transport: transportAsked(location.search) ?? settings.transport,
  session: sessionOf(settings),
  devices: devicesOf(settings),
  captions: past ? captionsOf(past).captions : [],
  worklets,
});
keeper.follow(conversation, past);
const recent = new RecentEvents(conversation);
exposeHooks(conversation);

const root = document.getElementById('app');
if (!root) throw new Error('index.html has no #app');
render(<App conversation={conversation} own={own} shared={shared} conversations={keeper} recent={recent} />, root);
void conversation.look();
