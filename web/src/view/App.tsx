// The page: the speaker on one side, the captions on the other.

import type { Conversation, State } from '@antiphon/client';
import { useEffect, useMemo, useState } from 'preact/hooks';
import { ModelKeeper } from '../models/keeper';
import { type Settings, saveSettings } from '../session/settings';
import { saveKey } from '../session/key';
import { enginesFrom } from '../state/engines';
import { noticeOf } from '../state/plain';
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
  conversation: Conversation;
  /** Those of earlier visits. */
  initial: Settings;
}

export function App({ conversation, initial }: Props) {
  const state = useConversation(conversation);
  const [settings, setSettings] = useState(initial);
  const keep = (change: Partial<Settings>) => {
    const next = { ...settings, ...change };
    saveSettings(next);
    setSettings(next);
  };
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
          keep({ voice });
          conversation.update({ voice });
        }}
        onTransport={(transport) => {
          keep({ transport });
          conversation.chooseTransport(transport);
        }}
        onTimings={(showTimings) => keep({ showTimings })}
      />
      <main class="main">
        <Stage state={state} conversation={conversation} />
        <section class="talk" aria-label="Conversation">
          <NoticeBar
            notice={noticeOf(state.problem)}
            onAction={() => conversation.retry()}
            onKey={(key) => {
              saveKey(key);
              conversation.useKey(key);
            }}
            onClose={() => conversation.dismiss()}
          />
          <Captions
            captions={state.captions}
            live={state.link === 'live'}
            showTimings={settings.showTimings}
            isOffline={enginesFrom(state.hub)?.llm === 'assistant'}
            onExample={(text) => void conversation.type(text)}
            onEngines={() => setShowEngines(true)}
          />
          <Composer onSend={(text) => void conversation.type(text)} />
        </section>
      </main>
      <Footer engines={enginesFrom(state.hub)} carrier={carrierOf(conversation)} onEngines={() => setShowEngines(true)} />
      {showEngines && <EnginesPanel keeper={keeper} voices={voiceKeeper} onClose={() => setShowEngines(false)} />}
    </div>
  );
}

/** Draws at most once per animation frame, however many events arrive. */
function useConversation(conversation: Conversation): State {
  const [state, setState] = useState(conversation.state);
  useEffect(() => {
    let frame = 0;
    const draw = () => {
      frame = 0;
      setState(conversation.state);
    };
    const stop = conversation.subscribe(() => {
      // A hidden page has no animation frames, but its title and captions are still updated.
      if (document.hidden) setState(conversation.state);
      else frame ||= requestAnimationFrame(draw);
    });
    return () => {
      stop();
      cancelAnimationFrame(frame);
    };
  }, [conversation]);
  return state;
}

/** What carries the audio, once a conversation has started. */
function carrierOf({ codec, transport }: Conversation): string | null {
  return codec !== null && transport === 'webrtc' ? 'webrtc' : codec;
}
