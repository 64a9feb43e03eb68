// The inspector's page: a connection of its own, and the workbench.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { Mark } from '../../view/icons';
import { addressFrom, protocolsOf } from '../data/address';
import type { EventLog } from '../data/log';
import { Wire, type WireState } from '../wire';
import { Workbench } from './Workbench';

export function Inspector({ log }: { log: EventLog }) {
  const [state, setState] = useState<WireState>('off');
  const wire = useMemo(() => new Wire(log, setState), [log]);
  const [url, setUrl] = useState('');
  useEffect(() => () => wire.close(), [wire]);
  return (
    <div class="inspector" data-state={state}>
      <header class="header">
        <h1 class="name">
          <Mark /> Antiphon <span class="name-what">inspector</span>
        </h1>
        <nav class="choices" aria-label="Pages">
          <a class="pill" href="./">
            Voice chat
          </a>
          <a class="pill" href="dashboard">
            Latency
          </a>
        </nav>
      </header>
      <main class="inspector-main">
        <Connect
          state={state}
          onOpen={(address, protocols) => {
            setUrl(address);
            wire.open(address, protocols);
          }}
          onClose={() => wire.close()}
        />
        <Workbench log={log} url={url} isOpen={state === 'open'} onSend={(event) => wire.send(event)} />
      </main>
    </div>
  );
}

function Connect({ state, onOpen, onClose }: { state: WireState; onOpen: (url: string, protocols: string[]) => void; onClose: () => void }) {
  const [text, setText] = useState(() => new URL('v1/realtime', document.baseURI).href.replace(/^http/, 'ws'));
  const [model, setModel] = useState('');
  const [key, setKey] = useState('');
  const [why, setWhy] = useState<string | null>(null);
  const connect = (event: Event) => {
    event.preventDefault();
    if (state !== 'off') return onClose();
    const address = addressFrom(text, model);
    const protocols = protocolsOf(key);
    if (address.kind === 'unfit') return setWhy(address.why);
    if (protocols === null) return setWhy('The key has characters that a browser cannot send.');
    setWhy(null);
    onOpen(address.url, protocols);
  };
  return (
    <form class="card connect" onSubmit={connect}>
      <label class="field wide">
        <span>Server</span>
        <input id="address" inputMode="url" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Model</span>
        <input id="model" placeholder="the server's own" spellcheck={false} value={model} onInput={(event) => setModel(event.currentTarget.value)} />
      </label>
      <label class="field">
        <span>Key</span>
        <input id="api-key" type="password" autocomplete="off" placeholder="none" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <button type="submit" class="pill primary" id="connect">
        {state === 'off' ? 'Connect' : state === 'connecting' ? 'Give up' : 'Disconnect'}
      </button>
      <p class="connect-note quiet" role="status">
        {why ?? 'The key stays in this page’s memory. Prefer a short-lived one (ek_…).'}
      </p>
    </form>
  );
}
