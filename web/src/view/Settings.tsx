// The settings sheet: devices, voice, turn-taking, display. Loaded when it is opened. A change applies at once and is kept
// in the browser; what a session cannot change opens a new one, which knows the conversation.

import type { Conversation, State } from '@antiphon/client';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type MicrophoneCheck, checkMicrophone } from '../session/microphone_check';
import { MAX_INSTRUCTIONS_BYTES, SPEEDS, type Settings, bytesOf, defaultSettings, fragmentOf } from '../session/settings';
import { type VoiceKeeper, voiceKeeperOf } from '../voices/keeper';
import { Meter } from './Meter';
import { Dialog } from './Dialog';
import '../style/settings.css';

interface Props {
  conversation: Conversation;
  state: State;
  settings: Settings;
  onChange: (change: Partial<Settings>) => void;
  onClose: () => void;
}

/** Languages that recognizers and voices commonly know, where the hub does not say which its own knows. */
const LANGUAGES = ['ar', 'cs', 'da', 'de', 'el', 'en', 'es', 'fi', 'fr', 'he', 'hi', 'hu', 'id', 'it', 'ja', 'ko', 'nl', 'no', 'pl', 'pt', 'ro', 'ru', 'sv', 'th', 'tr', 'uk', 'vi', 'zh'];
const LANGUAGE_NAMES = new Intl.DisplayNames(['en'], { type: 'language' });

type Choices<T> = readonly (readonly [T, string])[];
const EAGERNESS: Choices<Settings['eagerness']> = [[null, 'Hub’s choice'], ['auto', 'Balanced'], ['high', 'Quick'], ['low', 'Patient']];
const EAGERNESS_WORDS: Record<NonNullable<Settings['eagerness']>, string> = {
  auto: 'Waits 0.2 to 4 s after your last word, by what you said, how your voice fell, and how long you usually pause.',
  medium: 'Waits 0.2 to 4 s after your last word, by what you said, how your voice fell, and how long you usually pause.',
  high: 'Answers as soon as a pause may be the end: 0.1 to 2 s. It may cut in while you think.',
  low: 'Waits longer while you think: 0.3 to 8 s.',
};
const BACKCHANNELS: Choices<boolean | null> = [[null, 'Hub’s choice'], [true, 'Let the answer go on'], [false, 'Stop the answer']];
const NOISE: Choices<Settings['noiseReduction']> = [[null, 'Hub’s choice'], ['off', 'Off'], ['near_field', 'Headset or phone'], ['far_field', 'Microphone in the room']];
const SIZES: Choices<Settings['captionSize']> = [['small', 'Small'], ['normal', 'Normal'], ['large', 'Large'], ['largest', 'Largest']];
const THEMES: Choices<Settings['theme']> = [['system', 'System'], ['light', 'Light'], ['dark', 'Dark']];

export default function SettingsSheet({ conversation, state, settings, onChange, onClose }: Props) {
  const { pushToTalk, eagerness } = settings;
  const automatic: Choices<string> = state.hub?.['detects_language'] || settings.language === 'auto' ? [['auto', 'Automatic']] : [];
  const languages = languagesOf(state.hub?.['languages'], settings.language);
  return (
    <Dialog id="settings" title="Settings" onClose={onClose}>
      <Group title="Sound">
        <Microphone conversation={conversation} state={state} chosen={settings.microphone} onChange={(microphone) => onChange({ microphone })} />
        <Loudspeaker conversation={conversation} settings={settings} onChange={onChange} />
        <Choice id="noise" name="Noise reduction" choices={NOISE} value={settings.noiseReduction} onChange={(noiseReduction) => onChange({ noiseReduction })} />
      </Group>
      <Group title="Voice">
        <Voice state={state} settings={settings} keeper={voiceKeeperOf(conversation)} onChange={onChange} />
        <Speed speed={settings.speed} onChange={(speed) => onChange({ speed })} />
        <Choice
          id="language"
          name="You speak"
          choices={[[null, 'Hub’s choice'], ...automatic, ...languages.map((code) => [code, LANGUAGE_NAMES.of(code) ?? code] as const)]}
          value={settings.language}
          onChange={(language) => onChange({ language })}
        />
        <Instructions text={settings.instructions ?? ''} onChange={(instructions) => onChange({ instructions })} />
      </Group>
      <Group title="Turns">
        <Check id="push-to-talk" name="Push to talk" checked={pushToTalk} onChange={(on) => onChange({ pushToTalk: on })}>
          Hold the button or the space bar while you speak; letting go asks.
        </Check>
        {!pushToTalk && (
          <>
            <Choice id="eagerness" name="Answers come" choices={EAGERNESS} value={eagerness === 'medium' ? 'auto' : eagerness} onChange={(to) => onChange({ eagerness: to })}>
              {eagerness && EAGERNESS_WORDS[eagerness]}
            </Choice>
            <Choice id="backchannels" name="“Uh-huh” and “right”" choices={BACKCHANNELS} value={settings.ignoreBackchannels} onChange={(ignoreBackchannels) => onChange({ ignoreBackchannels })}>
              {settings.ignoreBackchannels && '“Stop”, “no” and questions still stop it, a little later.'}
            </Choice>
          </>
        )}
        <Check id="typing" name="Answer what I type in text" checked={settings.answersTypingInText} onChange={(answersTypingInText) => onChange({ answersTypingInText })}>
          Without sound. What you say is answered aloud.
        </Check>
      </Group>
      <Group title="Display">
        <Choice id="theme" name="Theme" choices={THEMES} value={settings.theme} onChange={(theme) => onChange({ theme })} />
        <Choice id="caption-size" name="Captions" choices={SIZES} value={settings.captionSize} onChange={(captionSize) => onChange({ captionSize })} />
        <Check id="announces" name="Announce to screen readers" checked={settings.announces} onChange={(announces) => onChange({ announces })}>
          Off: captions and status are not read aloud over the answer.
        </Check>
        <Check id="timings" name="Timings below answers" checked={settings.showTimings} onChange={(showTimings) => onChange({ showTimings })} />
        {state.hub?.['webrtc'] === true && (
          <Choice
            id="transport"
            name="Connection"
            choices={[['websocket', 'WebSocket'], ['webrtc', 'WebRTC']]}
            value={conversation.chosenTransport}
            onChange={(transport) => onChange({ transport })}
          >
            {conversation.chosenTransport === 'webrtc' ? 'Suits networks that lose packets.' : 'Quicker, and resumes after a loss.'}
          </Choice>
        )}
      </Group>
      <Foot settings={settings} onReset={() => onChange(defaultSettings)} />
    </Dialog>
  );
}

/** What the hub's recognizer knows, where the hub says so, and in any case what is chosen. */
function languagesOf(known: unknown, chosen: string | null): string[] {
  const offered = Array.isArray(known) ? known.filter((code): code is string => typeof code === 'string' && /^[a-z]{2,3}$/.test(code)) : LANGUAGES;
  const name = (code: string) => LANGUAGE_NAMES.of(code) ?? code;
  const all = new Set([...offered, ...(chosen !== null && chosen !== 'auto' ? [chosen] : [])]);
  return [...all].sort((a, b) => name(a).localeCompare(name(b), 'en'));
}

function Group({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <section class="settings-group" aria-label={title}>
      <h3>{title}</h3>
      {children}
    </section>
  );
}

interface ChoiceProps<T> {
  id: string;
  name: string;
  choices: Choices<T>;
  value: T;
  onChange: (value: T) => void;
  children?: ComponentChildren;
}

function Choice<T extends string | boolean | null>({ id, name, choices, value, onChange, children }: ChoiceProps<T>) {
  return (
    <div class="setting">
      <label for={id}>{name}</label>
      <select
        id={id}
        value={String(value)}
        aria-describedby={children ? `${id}-hint` : undefined}
        onChange={(event) => {
          const found = choices.find(([one]) => String(one) === event.currentTarget.value);
          if (found) onChange(found[0]);
        }}
      >
        {choices.map(([one, words]) => (
          <option key={String(one)} value={String(one)}>
            {words}
          </option>
        ))}
      </select>
      {children && <Hint id={id}>{children}</Hint>}
    </div>
  );
}

interface CheckProps {
  id: string;
  name: string;
  checked: boolean;
  onChange: (checked: boolean) => void;
  children?: ComponentChildren;
}

function Check({ id, name, checked, onChange, children }: CheckProps) {
  return (
    <div class="setting check">
      <label for={id}>{name}</label>
      <input id={id} type="checkbox" checked={checked} aria-describedby={children ? `${id}-hint` : undefined} onChange={(event) => onChange(event.currentTarget.checked)} />
      {children && <Hint id={id}>{children}</Hint>}
    </div>
  );
}

const Hint = ({ id, children }: { id: string; children: ComponentChildren }) => (
  <p class="hint" id={`${id}-hint`}>
    {children}
  </p>
);

/** Devices of a kind; empty names until the page may use the microphone. */
function useDevices(kind: MediaDeviceKind): [MediaDeviceInfo[], () => void] {
  const [devices, setDevices] = useState<MediaDeviceInfo[]>([]);
  const look = () => {
    void navigator.mediaDevices?.enumerateDevices().then((all) => {
      // `default` and `communications` are names of others in the list; no id: the page may not know them yet.
      setDevices(all.filter((device) => device.kind === kind && !['', 'default', 'communications'].includes(device.deviceId)));
    });
  };
  useEffect(() => {
    look();
    navigator.mediaDevices?.addEventListener('devicechange', look);
    return () => navigator.mediaDevices?.removeEventListener('devicechange', look);
  }, [kind]);
  return [devices, look];
}

function deviceChoices(devices: MediaDeviceInfo[], chosen: string | null): Choices<string | null> {
  const known = devices.map(({ deviceId, label }, i) => [deviceId, label || `Device ${i + 1}`] as const);
  const isGone = chosen !== null && devices.every(({ deviceId }) => deviceId !== chosen);
  return [[null, 'Browser’s choice'], ...known, ...(isGone ? [[chosen, 'Not connected'] as const] : [])];
}

interface MicrophoneProps {
  conversation: Conversation;
  state: State;
  chosen: string | null;
  onChange: (id: string | null) => void;
}

function Microphone({ conversation, state, chosen, onChange }: MicrophoneProps) {
  const [devices, look] = useDevices('audioinput');
  const [test, setTest] = useState<MicrophoneCheck | null>(null);
  const asked = useRef<AbortController | null>(null);
  const [fault, setFault] = useState('');
  const isOn = state.microphone === 'on';
  const start = async () => {
    asked.current?.abort();
    const { signal } = (asked.current = new AbortController());
    setFault('');
    try {
      setTest(await checkMicrophone(chosen, signal));
      look();
    } catch {
      if (!signal.aborted) setFault('The microphone could not be opened: allow it for this page, or choose another one.');
    }
  };
  // A device is not kept open behind a closed sheet, behind another choice, or beside a conversation, nor is one that the browser
  // allows only then.
  useEffect(() => () => test?.stop(), [test]);
  useEffect(() => {
    setTest(null);
    return () => asked.current?.abort();
  }, [chosen, isOn]);
  return (
    <div class="setting">
      <label for="microphone">Microphone</label>
      <select id="microphone" value={String(chosen)} onChange={(event) => onChange(event.currentTarget.value === 'null' ? null : event.currentTarget.value)}>
        {deviceChoices(devices, chosen).map(([id, name]) => (
          <option key={id} value={String(id)}>
            {name}
          </option>
        ))}
      </select>
      <div class="setting-more">
        <Meter name="Level of the microphone" peak={isOn ? () => conversation.levels.microphone : (test?.peak ?? null)} />
        {!isOn && (
          <button type="button" class={`pill ${test ? 'active' : ''}`} id="test-microphone" onClick={() => (test ? setTest(null) : void start())}>
            {test ? 'Stop' : 'Test'}
          </button>
        )}
      </div>
      {(fault !== '' || (devices.length === 0 && test === null && !isOn)) && (
        <p class="hint" role="status">
          {fault || 'Names of devices appear once the page may use the microphone: press Test.'}
        </p>
      )}
    </div>
  );
}

const MAY_CHOOSE_LOUDSPEAKER = typeof AudioContext !== 'undefined' && 'setSinkId' in AudioContext.prototype;

function Loudspeaker({ conversation, settings, onChange }: Pick<Props, 'conversation' | 'settings' | 'onChange'>) {
  const [devices] = useDevices('audiooutput');
  const { loudspeaker, volume } = settings;
  return (
    <div class="setting">
      <label for={MAY_CHOOSE_LOUDSPEAKER ? 'loudspeaker' : 'volume'}>Loudspeaker</label>
      {MAY_CHOOSE_LOUDSPEAKER ? (
        <select id="loudspeaker" value={String(loudspeaker)} onChange={(event) => onChange({ loudspeaker: event.currentTarget.value === 'null' ? null : event.currentTarget.value })}>
          {deviceChoices(devices, loudspeaker).map(([id, name]) => (
            <option key={id} value={String(id)}>
              {name}
            </option>
          ))}
        </select>
      ) : (
        <span class="setting-fixed">The system’s</span>
      )}
      <div class="setting-more">
        <Meter name="Level of the answers" peak={() => conversation.levels.reply} />
        <input
          id="volume"
          type="range"
          min={0}
          max={1}
          step={0.05}
          value={volume}
          aria-label="Volume of the answers"
          aria-valuetext={`${Math.round(volume * 100)} %`}
          onInput={(event) => onChange({ volume: event.currentTarget.valueAsNumber })}
        />
      </div>
    </div>
  );
}

function Voice({ state, settings, keeper, onChange }: { state: State; settings: Settings; keeper: VoiceKeeper; onChange: Props['onChange'] }) {
  const [, draw] = useState(0);
  useEffect(() => {
    const stop = keeper.subscribe(() => draw((n) => n + 1));
    return () => {
      stop();
      keeper.stop();
    };
  }, [keeper]);
  const known = state.voices.some(({ id }) => id === settings.voice);
  const voice = known ? settings.voice : null;
  const isPlaying = keeper.playing !== null;
  const { speed, loudspeaker, volume } = settings;
  return (
    <div class="setting">
      <label for="voice">Voice</label>
      <select id="voice" value={voice ?? ''} onChange={(event) => onChange({ voice: event.currentTarget.value || null })}>
        <option value="">Hub’s choice</option>
        {state.voices.map(({ id, name, language }) => (
          <option key={id} value={id}>
            {language ? `${name} (${language})` : name}
          </option>
        ))}
      </select>
      <div class="setting-more">
        <button type="button" class="pill" id="hear" onClick={() => (isPlaying ? keeper.stop() : void keeper.play(voice, { speed, loudspeaker, volume }))}>
          {isPlaying ? 'Stop' : 'Hear it'}
        </button>
        <span class="hint" role="status">
          {keeper.fault ?? (state.link === 'live' && state.audioMade ? 'It has spoken: another voice begins a new session, which knows the conversation.' : '')}
        </span>
      </div>
    </div>
  );
}

function Speed({ speed, onChange }: { speed: number | null; onChange: (speed: number | null) => void }) {
  const shown = speed ?? 1;
  return (
    <div class="setting">
      <label for="speed">Speed</label>
      <div class="setting-range">
        <input
          id="speed"
          type="range"
          {...SPEEDS}
          value={shown}
          aria-valuetext={`${shown} times`}
          onChange={(event) => onChange(event.currentTarget.valueAsNumber)}
        />
        <output for="speed">{speed === null ? 'the hub’s' : `× ${shown}`}</output>
      </div>
    </div>
  );
}

function Instructions({ text, onChange }: { text: string; onChange: (text: string | null) => void }) {
  const [draft, setDraft] = useState(text);
  useEffect(() => setDraft(text), [text]);
  const bytes = bytesOf(draft);
  const isTooLong = bytes > MAX_INSTRUCTIONS_BYTES;
  const isFresh = draft !== text;
  return (
    <div class="setting wide">
      <label for="instructions">Instructions</label>
      <textarea
        id="instructions"
        rows={3}
        value={draft}
        placeholder="The hub’s own. For example: Answer in one sentence."
        aria-describedby="instructions-hint"
        aria-invalid={isTooLong}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onChange={() => !isTooLong && isFresh && onChange(draft.trim() === '' ? null : draft)}
      />
      <p class={`hint ${isTooLong ? 'warns' : ''}`} id="instructions-hint" role={isTooLong ? 'alert' : undefined}>
        {isTooLong
          ? `These are ${kib(bytes)} KiB; the hub takes ${kib(MAX_INSTRUCTIONS_BYTES)}. Nothing was sent or saved: shorten them.`
          : 'What the assistant is, and how it is to answer.'}
      </p>
    </div>
  );
}

const kib = (bytes: number) => Math.ceil(bytes / 1_024).toLocaleString('en');

function Foot({ settings, onReset }: { settings: Settings; onReset: () => void }) {
  const [copied, setCopied] = useState('');
  const share = async () => {
    const { fragment, left } = fragmentOf(settings);
    const url = new URL(location.href);
    url.hash = fragment;
    try {
      await navigator.clipboard.writeText(url.href);
      setCopied(left.length > 0 ? 'Copied, without the instructions: they are too long for an address.' : 'Copied. Devices stay here.');
    } catch {
      setCopied('The browser does not let this page copy.');
    }
  };
  return (
    <footer class="settings-foot">
      <button type="button" class="pill" id="share" onClick={() => void share()}>
        Copy as an address
      </button>
      <button type="button" class="pill" id="reset" onClick={onReset}>
        Reset all
      </button>
      <p class="hint" role="status">
        {copied || 'Kept in this browser. Changes apply at once; “the hub’s choice” begins a new session, which knows the conversation.'}
      </p>
    </footer>
  );
}
