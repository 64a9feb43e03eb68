// The page: the speaker on one side, the captions on the other.

import { type Conversation, type State, followSoundStart } from '@antiphon/client';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { ConversationKeeper } from '../conversations/keeper';
import { followLoudspeaker } from '../session/loudspeaker';
import { oneVoice } from '../session/one_voice';
import { PressToTalk } from '../session/press';
import type { RecentEvents } from '../session/recent_events';
import { type Settings, devicesOf, saveSettings, sessionOf } from '../session/settings';
import { saveKey } from '../session/key';
import { enginesFrom } from '../state/engines';
import { NOT_KEPT, NOT_LOADED, NOT_STORED, NO_CALL, NO_SOUND_YET, type Notice, TALKS_ELSEWHERE, modelNoticeOf, noticeOf, sharedNotice } from '../state/plain';
import { Captions } from './Captions';
import { Composer } from './Composer';
import { Footer } from './Footer';
import { Header } from './Header';
import { Later } from './Later';
import { NoticeBar } from './NoticeBar';
import { NoRecognizerNote, OfflineNote } from './OfflineNote';
import { Stage } from './Stage';
import { applyLook } from './look';
import { useShortcuts } from './shortcuts';

interface Props {
  conversation: Conversation;
  /** Those of earlier visits. */
  own: Settings;
  /** Those of the address, which come first until the user changes them. */
  shared: Partial<Settings>;
  conversations: ConversationKeeper;
  /** For the inspector. */
  recent: RecentEvents;
}

type Sheet = 'engines' | 'settings' | 'conversations' | null;

export function App({ conversation, own, shared, conversations, recent }: Props) {
  const state = useConversation(conversation);
  // Changes may come faster than the page is drawn: each begins with the one before.
  const kept = useRef<Kept>({ own, shared });
  const [, draw] = useState(0);
  const settings = { ...kept.current.own, ...kept.current.shared };
  const [sheet, setSheet] = useState<Sheet>(null);
  const [inspects, setInspects] = useState(false);
  const [notice, setNotice] = useState<Notice | null>(() => sharedNotice(shared));
  const isLarge = useLargeScreen();
  const press = useMemo(() => (settings.pushToTalk ? new PressToTalk(conversation) : null), [conversation, settings.pushToTalk]);
  useEffect(() => {
    if (press && state.microphone === 'on') press.rest();
    return () => press?.letGo();
  }, [press, state.microphone]);
  useEffect(() => () => press?.end(), [press]);
  const change = (change: Partial<Settings>) => {
    const { own, shared } = (kept.current = changed(kept.current, change));
    draw((n) => n + 1);
    const isKept = saveSettings(own);
    // Sound that the browser has not started stays away.
    setNotice((now) => (!isKept ? NOT_KEPT : now === NO_SOUND_YET ? now : null));
    applyLook({ ...own, ...shared });
    apply(conversation, change);
    if (change.keepsConversations !== undefined) conversations.keeps = change.keepsConversations;
  };
  useEffect(() => conversations.subscribe(() => conversations.fault && setNotice(NOT_STORED)), [conversations]);
  const open = useCallback((what: 'settings' | 'inspector') => (what === 'settings' ? setSheet(what) : setInspects((is) => !is)), []);
  useShortcuts(conversation, press, open);
  const isNotConnected = state.problem?.kind === 'gave-up' || state.problem?.kind === 'refused';
  const problem = isNotConnected && conversation.transport === 'webrtc' ? NO_CALL : noticeOf(state.problem);
  const shownNotice = problem ?? modelNoticeOf(state.modelNotice) ?? notice;
  useEffect(() => oneVoice(conversation, () => setNotice(TALKS_ELSEWHERE)), [conversation]);
  useEffect(() => followLoudspeaker(conversation, settings.loudspeaker, (isGone) => setNotice(isGone ? noticeOf({ kind: 'loudspeaker' }) : null)), [conversation, settings.loudspeaker]);
  useEffect(() => {
    if (state.link !== 'live') return;
    return followSoundStart(conversation.audio?.context, (isMissing) => setNotice((now) => (isMissing && conversation.state.link === 'live' ? NO_SOUND_YET : now === NO_SOUND_YET ? null : now)));
  }, [conversation, state.link]);
  // It is over once the user talks here again.
  useEffect(() => {
    if (state.microphone === 'on') setNotice((now) => (now === TALKS_ELSEWHERE ? null : now));
  }, [state.microphone]);
  const close = () => setSheet(null);
  const type = (text: string) => void conversation.type(text, { silent: settings.answersTypingInText });
  const act = (action: Notice['action'] | undefined) => {
    if (action === 'sound') return void conversation.audio?.context.resume();
    if (action === 'websocket') change({ transport: 'websocket' });
    conversation.retry();
  };
  const onFault = () => {
    close();
    setNotice(NOT_LOADED);
  };
  const engines = enginesFrom(state.hub);
  const openEngines = () => setSheet('engines');
  return (
    <>
      <div class={`page ${state.captions.length > 0 ? 'has-captions' : ''}`}>
        <Header
          canRenew={state.captions.length > 0}
          onNew={() => void conversations.renew()}
          onConversations={() => setSheet('conversations')}
          inspects={inspects}
          onInspector={() => setInspects(!inspects)}
          onSettings={() => setSheet('settings')}
        />
        <main class="main">
          <Stage state={state} conversation={conversation} press={press} announces={settings.announces} />
          <section class="talk" aria-label="Conversation">
            <NoticeBar
              notice={shownNotice}
              onAction={() => act(shownNotice?.action)}
              onKey={(key) => {
                saveKey(key);
                conversation.useKey(key);
              }}
              onClose={() => (problem || state.modelNotice ? conversation.dismiss() : setNotice(null))}
            />
            <Captions
              captions={state.captions}
              nSessions={state.nSessions}
              live={state.link === 'live'}
              showTimings={settings.showTimings}
              announces={settings.announces}
              nOlder={conversations.nOlder}
              offline={
                <>
                  {engines?.stt === 'none' && <NoRecognizerNote onEngines={openEngines} />}
                  {engines?.llm === 'assistant' && (
                    // Voices are listed to those whom the hub admits.
                    <OfflineNote conversation={conversation} isAdmitted={state.voices.length > 0 || state.link === 'live'} onEngines={openEngines} />
                  )}
                </>
              }
              onExample={type}
            />
            <Composer onSend={type} />
          </section>
          {isLarge && !inspects && settings.showTimings && <Later load={loadRibbon} onFault={onFault} props={{ conversation, state }} />}
        </main>
        <Footer engines={engines} carrier={carrierOf(conversation)} onEngines={openEngines} />
        {sheet === 'engines' && <Later load={loadEngines} onFault={onFault} props={{ conversation, onClose: close }} />}
        {sheet === 'conversations' && (
          <Later load={loadConversations} onFault={onFault} props={{ keeper: conversations, onKeeps: (keepsConversations) => change({ keepsConversations }), onClose: close }} />
        )}
        {sheet === 'settings' && (
          <Later
            load={loadSettingsSheet}
            onFault={onFault}
            props={{ conversation, state, settings, onChange: change, onClose: close }}
          />
        )}
      </div>
      {inspects && (
        <Later
          load={loadInspector}
          onFault={() => {
            setInspects(false);
            setNotice(NOT_LOADED);
          }}
          props={{ conversation, recent, isOpen: state.link === 'live', onClose: () => setInspects(false) }}
        />
      )}
    </>
  );
}

const loadRibbon = () => import('./Ribbon');
const loadInspector = () => import('../inspector/view/Drawer');
const loadEngines = () => import('./EnginesPanel');
const loadConversations = () => import('./Conversations');
const loadSettingsSheet = () => import('./Settings');

interface Kept {
  own: Settings;
  shared: Partial<Settings>;
}

/** A change is the user's own from then on; the address keeps the rest of what it brought. */
function changed({ own, shared }: Kept, change: Partial<Settings>): Kept {
  const rest = Object.fromEntries(Object.entries(shared).filter(([key]) => !Object.hasOwn(change, key)));
  if (Object.keys(shared).length > 0) history.replaceState(null, '', location.pathname + location.search);
  return { own: { ...own, ...change }, shared: rest };
}

/** Takes a change to the conversation: devices and settings at once, where the session can. */
function apply(conversation: Conversation, change: Partial<Settings>): void {
  const [devices, session] = [devicesOf(change), sessionOf(change)];
  if (Object.keys(devices).length > 0) void conversation.useDevices(devices);
  if (Object.keys(session).length > 0) conversation.update(session);
  if (change.transport && change.transport !== conversation.chosenTransport) conversation.chooseTransport(change.transport);
}

/** Whether there is room for a third column; style/page.css has the same condition. */
function useLargeScreen(): boolean {
  const query = useMemo(() => matchMedia('(min-width: 100rem) and (min-height: 45rem)'), []);
  const [isLarge, set] = useState(query.matches);
  useEffect(() => {
    query.onchange = () => set(query.matches);
  }, [query]);
  return isLarge;
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
    // What happened between the first drawing and this effect.
    draw();
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
