// The page: the speaker on one side, the captions on the other.

import { useEffect, useMemo, useState } from 'preact/hooks';
import { ModelKeeper } from '../models/keeper';
import type { Conversation } from '../session/conversation';
import type { Store } from '../session/store';
import type { State } from '../state/model';
import { VoiceKeeper } from '../voices/keeper';
import { Captions } from './Captions';
import { Composer } from './Composer';
import { EnginesPanel } from './EnginesPanel';
import { Footer } from './Footer';
import { Header } from './Header';
import { NoticeBar } from './NoticeBar';
import { Stage } from './Stage';
import { useShortcuts } from './shortcuts';

interface Props {
  store: Store;
  conversation: Conversation;
}

export function App({ store, conversation }: Props) {
  const state = useStore(store);
  const [settings, setSettings] = useState(conversation.settings);
  const [showEngines, setShowEngines] = useState(false);
  const keeper = useMemo(() => new ModelKeeper(() => void conversation.look()), [conversation]);
  const voiceKeeper = useMemo(() => new VoiceKeeper(() => void conversation.look()), [conversation]);
  useShortcuts(conversation);
  return (
    <div class={`page ${state.captions.length > 0 ? 'has-captions' : ''}`}>
      <Header
        state={state}
        voice={settings.voice}
        showTimings={settings.showTimings}
        transport={conversation.chosenTransport}
        onVoice={(voice) => {
          conversation.chooseVoice(voice);
          setSettings(conversation.settings);
        }}
        onTransport={(transport) => {
          conversation.chooseTransport(transport);
          setSettings(conversation.settings);
        }}
        onTimings={(showTimings) => {
          conversation.keep({ showTimings });
          setSettings(conversation.settings);
        }}
      />
      <main class="main">
        <Stage state={state} conversation={conversation} />
        <section class="talk" aria-label="Conversation">
          <NoticeBar notice={state.notice} onAction={() => conversation.retry()} onKey={(key) => conversation.useKey(key)} onClose={() => store.dispatch({ kind: 'notice', notice: null })} />
          <Captions captions={state.captions} live={state.link === 'live'} showTimings={settings.showTimings} onExample={(text) => void conversation.type(text)} />
          <Composer onSend={(text) => void conversation.type(text)} />
        </section>
      </main>
      <Footer engines={state.engines} carrier={conversation.carrier} onEngines={() => setShowEngines(true)} />
      {showEngines && <EnginesPanel keeper={keeper} voices={voiceKeeper} onClose={() => setShowEngines(false)} />}
    </div>
  );
}

/** Draws at most once per animation frame, however many events arrive. */
function useStore(store: Store): State {
  const [state, setState] = useState(store.state);
  useEffect(() => {
    let frame = 0;
    const draw = () => {
      frame = 0;
      setState(store.state);
    };
    const stop = store.subscribe(() => {
      // A hidden page has no animation frames, but its title and captions are still updated.
      if (document.hidden) setState(store.state);
      else frame ||= requestAnimationFrame(draw);
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [store]);
  return state;
}
