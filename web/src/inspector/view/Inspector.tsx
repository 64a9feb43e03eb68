// The inspector's page: a connection of its own, and the workbench.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { duration } from '../../dashboard/data/words';
import { Mark } from '../../view/icons';
import { addressFrom, protocolsOf } from '../data/address';
import type { EventLog } from '../data/log';
import { SILENT, Talk, type TalkState } from '../talk';
import { Wire, type WireState } from '../wire';
import { Workbench } from './Workbench';

export function Inspector({ log }: { log: EventLog }) {
  const [state, setState] = useState<WireState>('off');
  const [talking, setTalking] = useState(SILENT);
  const { wire, talk } = useMemo(() => {
    const talk = new Talk((event) => wire.send(event), setTalking);
    const wire: Wire = new Wire(log, setState, (event) => talk.received(event));
    return { wire, talk };
  }, [log]);
  const [url, setUrl] = useState('');
  useEffect(() => () => wire.close(), [wire]);
  useEffect(() => {
    if (state === 'open') return () => talk.closed();
  }, [state, talk]);
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
        <TalkBar talking={talking} isOpen={state === 'open'} onToggle={() => void talk.toggle()} />
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

const TALK_WORDS: Record<TalkState['phase'], string> = { off: 'Talk', asking: 'Give up', on: 'Stop talking' };

/** The microphone: what the server hears, and how much of its answers was played. */
function TalkBar({ talking, isOpen, onToggle }: { talking: TalkState; isOpen: boolean; onToggle: () => void }) {
  const { phase, fault, playedMs } = talking;
  return (
    <section class="card talk" aria-label="Microphone">
      <button type="button" class={`pill ${phase === 'on' ? 'active' : ''}`} id="talk" disabled={!isOpen} onClick={onToggle}>
        {TALK_WORDS[phase]}
      </button>
      {fault === null && (
        <p class="quiet" id="talk-state">
          {phase === 'on' ? `The microphone is on, and answers are played: ${duration(playedMs)} so far.` : 'Sends your voice to the server and plays its answers.'}
        </p>
      )}
      <div role="alert">{fault !== null && <p class="talk-fault">{fault}</p>}</div>
    </section>
  );
}
