// Entry point of the page: one store, one conversation, one view.

import { render } from 'preact';
import './style/page.css';
import './style/stage.css';
import './style/captions.css';
import './style/engines.css';
import { Conversation } from './session/conversation';
import { Store } from './session/store';
import { exposeHooks } from './hooks';
import { App } from './view/App';

const store = new Store();
const conversation = new Conversation(store);
exposeHooks(store, conversation);

const root = document.getElementById('app');
if (!root) throw new Error('index.html has no #app');
render(<App store={store} conversation={conversation} />, root);
void conversation.look();
