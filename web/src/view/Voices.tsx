// Custom voices in the engines panel: play, remove, add. Shown where the engine clones voices.

import { useEffect, useRef, useState } from 'preact/hooks';
import { type CustomVoice, type Draft, type Limits, STATEMENT, missing, seconds } from '../voices/data';
import type { VoiceKeeper } from '../voices/keeper';
import { Recorder } from '../voices/recorder';

const EMPTY: Draft = { name: '', recording: null, transcript: '', language: '', consent: false };
/** A recording is stopped here, also where the engine would take a longer one. */
const LONGEST_MS = 30_000;

export function Voices({ keeper }: { keeper: VoiceKeeper }) {
  const [, draw] = useState(0);
  useEffect(() => {
    const stop = keeper.subscribe(() => draw((n) => n + 1));
    void keeper.look();
    return () => {
      stop();
      keeper.stop();
    };
  }, [keeper]);
  const { library } = keeper;
  if (library === null) return null;
  return (
    <section class="engine-stage" id="voices" aria-labelledby="voices-title">
      <div class="engine-stage-head">
        <h3 id="voices-title">Voices</h3>
        <p class="engine-stage-plain">Cloned from recordings</p>
      </div>
      {library.voices.length > 0 && (
        <ul class="voices">
          {library.voices.map((voice) => (
            <VoiceRow key={voice.id} voice={voice} keeper={keeper} />
          ))}
        </ul>
      )}
      <div aria-live="polite">
        {keeper.notice && <p class="pull-status done">{keeper.notice}</p>}
        {keeper.fault && <p class="pull-status failed">{keeper.fault}</p>}
      </div>
      <details class="engine-stage-more">
        <summary>Add a voice</summary>
        <NewVoice limits={library.limits} keeper={keeper} />
      </details>
    </section>
  );
}

function VoiceRow({ voice, keeper }: { voice: CustomVoice; keeper: VoiceKeeper }) {
  const [asks, setAsks] = useState(false);
  const isPlaying = keeper.playing === voice.id;
  return (
    <li class="voice" data-voice={voice.id}>
      <span class="model-title" title={voice.note ?? undefined}>
        {voice.name}
      </span>
      <span class="model-state">{[voice.language, seconds(voice.recordingMs)].filter(Boolean).join(' · ')}</span>
      <button type="button" class="link" aria-label={`${isPlaying ? 'Stop' : 'Play'} a sample of ${voice.name}`} onClick={() => void keeper.play(voice.id)}>
        {isPlaying ? 'Stop' : 'Play'}
      </button>
      {voice.removable ? (
        <button
          type="button"
          class={`link ${asks ? 'warns' : ''}`}
          aria-label={asks ? `Really remove ${voice.name}` : `Remove ${voice.name}`}
          onBlur={() => setAsks(false)}
          onClick={() => (asks ? void keeper.remove(voice) : setAsks(true))}
        >
          {asks ? 'Really?' : 'Remove'}
        </button>
      ) : (
        <span class="model-state">the hub's</span>
      )}
    </li>
  );
}

function NewVoice({ limits, keeper }: { limits: Limits; keeper: VoiceKeeper }) {
  const [draft, setDraft] = useState(EMPTY);
  const [asked, setAsked] = useState(false);
  const file = useRef<HTMLInputElement>(null);
  const change = (part: Partial<Draft>) => setDraft((draft) => ({ ...draft, ...part }));
  const lacks = missing(draft, limits);
  const isSending = keeper.sent !== null;

  async function send(event: Event): Promise<void> {
    event.preventDefault();
    setAsked(true);
    if (lacks !== null || isSending || !(await keeper.add(draft))) return;
    setDraft(EMPTY);
    setAsked(false);
    if (file.current) file.current.value = '';
  }

  return (
    <form class="voice-form" onSubmit={(event) => void send(event)} noValidate>
      <p class="panel-note">
        10 to 15 seconds of one person who speaks in a quiet room: no music, no echo. {seconds(limits.minMs)} to {seconds(limits.maxMs)} are possible.
      </p>
      <div class="voice-recording">
        <Microphone
          longestMs={Math.min(LONGEST_MS, limits.maxMs)}
          onRecorded={(recording) => {
            if (file.current) file.current.value = '';
            change({ recording });
          }}
        />
        <label>
          <span>or a file</span>
          <input ref={file} type="file" name="audio_sample" accept="audio/*,video/webm,.wav,.mp3,.flac,.ogg,.m4a" onChange={(event) => change({ recording: event.currentTarget.files?.[0] ?? null })} />
        </label>
      </div>
      <label>
        <span>Name</span>
        <input type="text" name="name" maxLength={64} autoComplete="off" value={draft.name} onInput={(event) => change({ name: event.currentTarget.value })} />
      </label>
      {limits.languages.length > 1 && (
        <label>
          <span>Language</span>
          <select name="language" value={draft.language || limits.languages[0]} onChange={(event) => change({ language: event.currentTarget.value })}>
            {limits.languages.map((language) => (
              <option key={language} value={language}>
                {language === 'auto' ? 'each text in its own language' : language}
              </option>
            ))}
          </select>
        </label>
      )}
      <label>
        <span>{limits.needsWords ? 'Words of the recording' : 'Words of the recording, if you know them'}</span>
        <textarea name="ref_text" rows={2} maxLength={2000} value={draft.transcript} onInput={(event) => change({ transcript: event.currentTarget.value })} />
      </label>
      <label class="voice-consent">
        <input type="checkbox" name="consent" checked={draft.consent} onChange={(event) => change({ consent: event.currentTarget.checked })} />
        <span>{STATEMENT}</span>
      </label>
      <div class="voice-send">
        <button type="submit" class="pill get" disabled={isSending}>
          Add the voice
        </button>
        <p role="status">{asked && !isSending && lacks}</p>
      </div>
      {keeper.sent !== null && <Progress sent={keeper.sent} />}
    </form>
  );
}

function Progress({ sent }: { sent: number }) {
  const isMaking = sent >= 1;
  return (
    <div class="pull">
      <progress aria-label="Adding the voice" max={1} {...(isMaking ? {} : { value: sent })} />
      <p class="pull-status">{isMaking ? 'The engine makes a voice of it …' : `${Math.round(sent * 100)} % sent`}</p>
    </div>
  );
}

function Microphone({ longestMs, onRecorded }: { longestMs: number; onRecorded: (recording: Blob) => void }) {
  const [recorder, setRecorder] = useState<Recorder | null>(null);
  const [status, setStatus] = useState('');
  const [left] = useState(() => new AbortController());
  const isAsked = useRef(false);
  useEffect(() => () => left.abort(), [left]);
  useEffect(() => {
    if (recorder === null) return;
    const timer = setInterval(() => setStatus(seconds(Math.floor(recorder.elapsedMs / 1000) * 1000)), 250);
    return () => {
      clearInterval(timer);
      recorder.stop();
    };
  }, [recorder]);

  async function start(): Promise<void> {
    // Another press while the browser asks: one recording begins.
    if (isAsked.current) return;
    isAsked.current = true;
    setStatus('');
    const started = await Recorder.start(longestMs, left.signal);
    isAsked.current = false;
    if (typeof started === 'string') return setStatus(started === 'refused' ? 'The microphone is not available.' : 'This browser cannot record here.');
    setRecorder(started);
    const recording = await started.done;
    setRecorder(null);
    setStatus(`Recorded ${seconds(Math.round(started.elapsedMs / 100) * 100)}`);
    onRecorded(recording);
  }

  return (
    <div class="voice-microphone">
      <button type="button" class={`pill ${recorder ? 'active' : ''}`} onClick={() => (recorder ? recorder.stop() : void start())}>
        {recorder ? 'Stop' : 'Record'}
      </button>
      {/* Not announced: a screen reader that reads the seconds would be recorded. */}
      {recorder && <span class="recorded-for">{status}</span>}
      <span role="status">{recorder === null && status}</span>
    </div>
  );
}
