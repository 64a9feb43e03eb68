// Entry point of the inspector's page: one log, one connection, one view.

import { render } from 'preact';
import '../style/page.css';
import './style.css';
import { EventLog } from './data/log';
import { Inspector } from './view/Inspector';

const root = document.getElementById('app');
if (!root) throw new Error('inspector.html has no #app');
render(<Inspector log={new EventLog()} />, root);
