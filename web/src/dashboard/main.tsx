// Entry point of the dashboard: one feed from the hub, one view.

import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import '../style/page.css';
import './style/figures.css';
import './style/layout.css';
import './style/turns.css';
import './style/cluster.css';
import { Feed } from './feed';
import { Dashboard } from './view/Dashboard';

const feed = new Feed();
const root = document.getElementById('app');
if (!root) throw new Error('dashboard.html has no #app');
render(<Dashboard feed={feed} />, root);
feed.start();
