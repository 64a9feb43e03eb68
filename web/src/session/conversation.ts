// The conversation: implements the actions of the buttons and connects connection, microphone,
// loudspeaker and state. One exists for the lifetime of the page. Decisions belong to the reducer and
// to `effects.ts`; this file carries them out.

import { type Codec, bestCodec } from '../audio/codec';
import type { PlaybackReport } from '../audio/messages';
import { MicrophoneError } from '../audio/microphone';
import { Speaker } from '../audio/speaker';
import * as wire from '../protocol/events';
import type { Frame } from '../protocol/frame';
import { effectsOf, isWanted } from '../state/effects';
import { history } from '../state/history';
import { TurnClock } from '../state/latency';
import type { Notice, State } from '../state/model';
import * as plain from '../state/plain';
import { MAX_ATTEMPTS, backoffMs } from './backoff';
import { Call } from './call';
import { Closed, Connection } from './connection';
import { callUrl, readiness, socketUrl, voices } from './hub';
import { authorization, loadKey, protocols, saveKey } from './key';
import type { Line, LineHandlers } from './line';
import { HubClock, capturedMs, heardMs } from './hub_clock';
import type { Outbox } from './outbox';
import { type PlayedAt, ReplyAudio } from './reply_audio';
import { RemoteReply } from './remote_reply';
import { Resumption } from './resumption';
import { type Transport, codecAsked, loadSettings, saveSettings, transportAsked } from './settings';
import { Sound } from './sound';
import type { Store } from './store';
import { UserAudio } from './user_audio';

/** Polling interval of a hub that is loading its engines. */
const LOADING_POLL_MS = 700;
/** A lost connection is shown to the user after this time: a handover from hub to hub is shorter. */
const SHOW_LOSS_AFTER_MS = 1_000;
/** Checkpoints that a session may go back to. */
const MAX_CHECKPOINTS = 2;

/** The user's latest turn, kept in case the recognizer fails. */
interface Utterance {
  itemId: string;
  startMs: number;
  endMs: number | null;
}

/** What the page goes back to with its session. */
interface Checkpoint {
  /** Number of the message that announced it. */
  number: number;
  state: State;
  utterance: Utterance | null;
  unconfirmed: readonly { id: string; text: string }[];
  nReplyFrames: number;
}

export class Conversation {
  readonly #store: Store;
  settings = loadSettings();
  readonly sound = new Sound();
  codec: Codec | null = codecAsked(location.search);
  #key = loadKey();
  #context: AudioContext | null = null;
  #speaker: Speaker | null = null;
  #connection: Line | null = null;
  #user: UserAudio | null = null;
  #reply: ReplyAudio | null = null;
  /** In the place of `#reply` in a call by WebRTC. */
  #remote: RemoteReply | null = null;
  #transportAsked = transportAsked(location.search);
  #clock = new TurnClock();
  readonly #hubClock = new HubClock((event) => this.#connection?.send(event), () => this.#microphoneMs());
  #wantsMicrophone = false;
  /** Typed messages waiting for the connection. */
  #pending: { id: string; text: string }[] = [];
  /** Messages sent but not confirmed by the hub; they are sent again in a new session. */
  #unconfirmed: { id: string; text: string }[] = [];
  /** Position of the user's latest turn in the microphone stream, in ms of this connection. */
  #utterance: Utterance | null = null;
  #attempt = 0;
  #resumption = new Resumption();
  /** The last two of this session. */
  #checkpoints: Checkpoint[] = [];
  #nReplyFrames = 0;
  #wasLive = false;
  /** The hub discarded the old session: the user is notified once a new one has started. */
  #replacesSession = false;
  #retryTimer = 0;
  #lossTimer = 0;
  #lookTimer = 0;
  /** Incremented at each start and stop: results of older asynchronous work are ignored. */
  #epoch = 0;

  constructor(store: Store) {
    this.#store = store;
    window.addEventListener('online', () => this.#isLost() && this.retry());
    window.addEventListener('pagehide', () => this.stop());
  }

  /** Loads the engines and voices without opening a session. */
  async look(): Promise<void> {
    const [state, offered] = await Promise.all([readiness(), voices(this.#key)]);
    if (state.kind !== 'unreachable') this.#store.dispatch({ kind: 'hub', engines: state.engines, webrtc: state.webrtc });
    this.#store.dispatch({ kind: 'hub', voices: offered.voices });
    if (this.#store.state.link !== 'off') return;
    this.#notice(offered.refused ? plain.keyNeeded(this.#key !== null) : plain.notReady(state));
    clearTimeout(this.#lookTimer);
    if (state.kind === 'loading' && !offered.refused) this.#lookTimer = window.setTimeout(() => void this.look(), LOADING_POLL_MS);
  }

  /** Stores a typed key and retries what was refused without it. */
  useKey(key: string): void {
    this.#key = key;
    saveKey(key);
    this.#notice(null);
    void this.look();
    if (this.#pending.length > 0) this.retry();
  }

  /** Handles the main button. */
  async talk(): Promise<void> {
    if (this.#wantsMicrophone || this.#store.state.link === 'waiting' || this.#store.state.link === 'resuming') return this.stop();
    this.#wantsMicrophone = true;
    this.#notice(null);
    this.#wake();
    if (this.#store.state.link === 'live') return void (await this.#openMicrophone(this.#epoch));
    if (this.#store.state.link === 'off') return this.#start();
  }

  stop(): void {
    this.#epoch++;
    clearTimeout(this.#retryTimer);
    this.#wantsMicrophone = false;
    this.#wasLive = false;
    this.#replacesSession = false;
    this.#pending = [];
    this.#disconnect();
    this.#closeMicrophone();
    this.#store.dispatch({ kind: 'link', link: 'off' });
    if (this.#store.state.notice?.kind === 'link') this.#notice(null);
    void this.#context?.suspend();
  }

  mute(): void {
    if (!this.#user) return;
    const muted = !this.#store.state.muted;
    this.#user.mute(muted);
    this.#store.dispatch({ kind: 'mute', muted });
  }

  /** Stops the current response and keeps the conversation. */
  hush(): void {
    const { playback, responseId } = this.#store.state;
    if (playback === 'idle' && responseId === null) return;
    if (responseId !== null) this.#connection?.send(wire.responseCancel());
    this.#connection?.send(wire.outputClear());
    this.#reply?.flush();
    this.#store.dispatch({ kind: 'stopped' });
  }

  async type(text: string): Promise<void> {
    const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join('')}`;
    this.#wake();
    if (this.#store.state.playback !== 'idle' || this.#store.state.responseId !== null) this.hush();
    this.#store.dispatch({ kind: 'typed', id, text });
    this.#pending.push({ id, text });
    if (this.#store.state.link === 'live') this.#sendPending();
    else if (this.#store.state.link === 'off') await this.#start();
    else if (this.#isLost()) this.retry();
  }

  #isLost(): boolean {
    return this.#store.state.link === 'waiting' || this.#isResuming();
  }

  /** The connection is lost and the session kept; after a second the link says so as well. */
  #isResuming(): boolean {
    return this.#resumption.outbox !== null;
  }

  chooseVoice(voice: string | null): void {
    this.keep({ voice });
    if (this.#store.state.link !== 'live') return;
    if (this.#store.state.audioMade || voice === null) this.#reopen();
    else this.#connection?.send(wire.sessionUpdate(this.#wish()));
  }

  /** The user's choice; the page's address comes first. */
  get chosenTransport(): Transport {
    return this.#transportAsked ?? this.settings.transport;
  }

  /** What carries the audio, once a conversation has started. */
  get carrier(): string | null {
    return this.codec !== null && this.transport === 'webrtc' ? 'webrtc' : this.codec;
  }

  /** How the next session is reached. */
  get transport(): Transport {
    const chosen = this.chosenTransport;
    // Without sound there is nothing to carry.
    return chosen === 'webrtc' && this.#store.state.webrtc && this.#context ? 'webrtc' : 'websocket';
  }

  chooseTransport(transport: Transport): void {
    // The choice replaces that of the address.
    this.#transportAsked = null;
    this.keep({ transport });
    if (this.#store.state.link !== 'live') return;
    // The microphone is opened anew for the other transport.
    this.#user?.close();
    this.#user = null;
    this.#reopen();
  }

  keep(change: Partial<Conversation['settings']>): void {
    this.settings = { ...this.settings, ...change };
    saveSettings(this.settings);
  }

  /** Handles the notice's button: retries immediately instead of waiting. */
  retry(): void {
    if (this.#store.state.notice?.action === 'repeat' && this.#store.state.link === 'live') return this.#repeat();
    clearTimeout(this.#retryTimer);
    this.#wake();
    if (this.#isResuming()) this.#takeUp(this.#epoch);
    else if (this.#store.state.link === 'waiting') void this.#connect(this.#epoch);
    else if (this.#pending.length > 0 && this.#store.state.link === 'off') void this.#start();
    else void this.talk();
  }

  async #start(): Promise<void> {
    this.#attempt = 0;
    await this.#connect(++this.#epoch);
  }

  /** Browsers allow audio to start only in response to a click or a key, so each of their handlers calls this first. */
  #wake(): void {
    if (!window.isSecureContext || typeof AudioWorkletNode === 'undefined') return;
    this.#context ??= new AudioContext({ latencyHint: 'interactive' });
    void this.#context.resume();
  }

  async #connect(epoch: number): Promise<void> {
    this.#store.dispatch({ kind: 'link', link: 'checking' });
    const state = await readiness();
    if (epoch !== this.#epoch) return;
    if (state.kind !== 'unreachable') this.#store.dispatch({ kind: 'hub', engines: state.engines, webrtc: state.webrtc });
    const obstacle = plain.notReady(state);
    if (state.kind === 'loading') {
      this.#notice(obstacle);
      this.#retryTimer = window.setTimeout(() => void this.#connect(epoch), LOADING_POLL_MS);
      return;
    }
    if (obstacle) return this.#failed(obstacle);

    this.codec ??= await bestCodec();
    if (!(await this.#openSpeaker(epoch))) return;
    if (this.#wantsMicrophone && !this.#user && !(await this.#openMicrophone(epoch))) return;
    if (epoch !== this.#epoch) return;
    this.#store.dispatch({ kind: 'link', link: 'connecting' });
    this.#disconnect();
    this.#checkpoints = [];
    this.#nReplyFrames = 0;
    if (this.#context && this.transport === 'webrtc') {
      this.#remote = this.#remoteReply(this.#context);
      this.#connection = this.#call(epoch);
      return;
    }
    if (this.#speaker) this.#reply = this.#replyAudio(this.#speaker, this.codec);
    this.#connection = this.#open(epoch, this.codec, null);
  }

  #open(epoch: number, codec: Codec, resumes: Outbox | null): Connection {
    const url = socketUrl(codec, document.baseURI);
    const handlers = {
      ...this.#handlers(epoch),
      audio: (frame: Frame) => this.#audio(frame),
      resumed: (backTo: number | null) => this.#resumed(backTo),
    };
    return new Connection(url, protocols(this.#key, resumes), handlers, resumes);
  }

  #call(epoch: number): Call {
    const options = { url: callUrl(document.baseURI), headers: authorization(this.#key), microphone: this.#user?.track ?? null };
    return new Call(options, { ...this.#handlers(epoch), reply: (stream) => this.#remote?.play(stream) });
  }

  #handlers(epoch: number): LineHandlers {
    return {
      event: (event) => this.#event(event),
      unreadable: (message) => this.#notice(plain.hubReported(`It sent something this page cannot read: ${message}.`)),
      lost: (opened, code) => void this.#lost(epoch, opened, code),
    };
  }

  /** Tries to resume the session of the lost connection until the hub has discarded it. */
  #takeUp(epoch: number): void {
    const { outbox } = this.#resumption;
    if (epoch !== this.#epoch || this.codec === null || outbox === null) return;
    // A connection that hangs is abandoned.
    this.#connection?.close();
    this.#connection = this.#open(epoch, this.codec, outbox);
  }

  #resumed(backTo: number | null): void {
    this.#resumption.over();
    this.#lossIsOver();
    if (backTo !== null) this.#goBack(backTo);
    this.#hubClock.begin();
    this.#store.dispatch({ kind: 'link', link: 'live' });
    this.#sendPending();
  }

  /** Restores what the page knew at a checkpoint; what the hub sent since is void. */
  #goBack(number: number): void {
    this.#checkpoints = this.#checkpoints.filter((checkpoint) => checkpoint.number === number);
    const [checkpoint] = this.#checkpoints;
    if (!checkpoint) return;
    const { state, utterance, unconfirmed, nReplyFrames } = checkpoint;
    const silent = this.#nReplyFrames !== nReplyFrames;
    if (silent) this.#reply?.discard();
    else if (this.#store.state.playback === 'held' && state.playback !== 'held') this.#reply?.perform({ kind: 'resume' });
    this.#nReplyFrames = nReplyFrames;
    this.#utterance = utterance && { ...utterance };
    this.#clock = new TurnClock();
    this.#store.dispatch({ kind: 'back', past: state, silent });
    const pending = new Set(this.#pending.map(({ id }) => id));
    const open = new Set(unconfirmed.map(({ id }) => id));
    const unsent = this.#store.state.captions.filter((caption) => caption.role === 'user' && caption.fault === 'unsent' && !pending.has(caption.id));
    this.#unconfirmed = [...unconfirmed, ...unsent.filter(({ id }) => !open.has(id)).map(({ id, text }) => ({ id, text }))];
  }

  /** Returns false if the conversation was stopped meanwhile. A page without sound continues with text. */
  async #openSpeaker(epoch: number): Promise<boolean> {
    if (this.#context && !this.#speaker) {
      this.#speaker = await Speaker.open(this.#context, (report) => this.#playback(report));
    }
    if (!this.#context && this.#store.state.notice === null) this.#notice(plain.noSound);
    return epoch === this.#epoch;
  }

  /** Returns false if there is no microphone; a conversation that needs it then does not start. */
  async #openMicrophone(epoch: number): Promise<boolean> {
    this.#store.dispatch({ kind: 'microphone', microphone: 'asking' });
    try {
      if (!this.#context) throw new MicrophoneError(window.isSecureContext ? 'unsupported' : 'insecure');
      this.codec ??= await bestCodec();
      // A track needs no encoder here.
      const codec = this.transport === 'webrtc' ? 'pcm16' : this.codec;
      const user = await UserAudio.open(this.#context, codec, {
        payload: (payload) => this.#sendAudio(payload),
        lost: () => this.#microphoneLost(),
        failed: () => this.#withoutOpus(),
      });
      if (epoch !== this.#epoch) return user.close(), false;
      this.#user = user;
      this.#connection?.useMicrophone(user.track);
      this.#store.dispatch({ kind: 'microphone', microphone: 'on' });
      return true;
    } catch (cause) {
      if (epoch !== this.#epoch) return false;
      this.#wantsMicrophone = false;
      this.#store.dispatch({ kind: 'microphone', microphone: 'off' });
      if (this.#store.state.link !== 'live') this.#store.dispatch({ kind: 'link', link: 'off' });
      this.#notice(plain.microphoneFault(cause instanceof MicrophoneError ? cause.fault : 'busy'));
      return false;
    }
  }

  /** While the connection is lost, the session's outbox keeps the frames. */
  #sendAudio(payload: Uint8Array): void {
    const { link } = this.#store.state;
    if (link === 'live' || link === 'resuming') this.#connection?.sendAudio(payload);
  }

  #event(event: wire.ServerEvent): void {
    // The speaker first: a stop must not wait until the page is drawn.
    for (const effect of effectsOf(this.#store.state, event)) this.#reply?.perform(effect);
    this.#remote?.take(event);
    this.#hubClock.take(event);
    if (event.type === 'session.created') this.#begin();
    this.#follow(event);
    if (this.#context) this.#clock.heard(event, this.#context.currentTime, this.#user?.streamStartS(this.#connection?.nFrames ?? 0) ?? null);
    if (event.type === 'error' && event.error.code === 'cannot_update_voice') return this.#reopen();
    this.#store.dispatch({ kind: 'server', event });
    if (event.type === 'antiphon.session.checkpoint') this.#mark();
  }

  #mark(): void {
    this.#checkpoints.push({
      number: this.#connection?.nReceived ?? 0,
      state: this.#store.state,
      utterance: this.#utterance && { ...this.#utterance },
      unconfirmed: [...this.#unconfirmed],
      nReplyFrames: this.#nReplyFrames,
    });
    if (this.#checkpoints.length > MAX_CHECKPOINTS) this.#checkpoints.shift();
  }

  /** Keeps what is needed after a failure: unconfirmed messages, and the position of the user's last utterance. */
  #follow(event: wire.ServerEvent): void {
    switch (event.type) {
      case 'conversation.item.added':
        this.#unconfirmed = this.#unconfirmed.filter(({ id }) => id !== event.item.id);
        return;
      case 'input_audio_buffer.speech_started':
        this.#utterance = { itemId: event.item_id, startMs: event.audio_start_ms, endMs: null };
        return;
      case 'input_audio_buffer.speech_stopped':
        if (this.#utterance?.itemId === event.item_id) this.#utterance.endMs = event.audio_end_ms;
        return;
    }
  }

  /** Sends the utterance again as a recording after the recognizer failed; without one the user must repeat it. */
  #repeat(): void {
    this.#notice(null);
    const last = this.#utterance;
    const audio = last && this.#user?.recording(last.startMs, last.endMs, this.#connection?.nFrames ?? 0);
    if (!last || !audio) return;
    this.#utterance = null;
    this.#connection?.send(wire.deleteItem(last.itemId));
    this.#connection?.send(wire.audioItem(audio));
    this.#connection?.send(wire.responseCreate());
    this.#store.dispatch({ kind: 'sent' });
  }

  /** A session has started: sends its settings, the conversation so far, and waiting messages. */
  #begin(): void {
    this.#connection?.send(wire.sessionUpdate(this.#wish()));
    // In a call the hub itself knows what was heard.
    if (!this.#remote) this.#hubClock.begin();
    this.#pending.unshift(...this.#unconfirmed.splice(0));
    const waiting = new Set(this.#pending.map(({ id }) => id));
    for (const { id, role, text } of history(this.#store.state.captions, waiting, this.#store.state.nSessions)) {
      this.#connection?.send(wire.messageItem(id, role, text));
    }
    this.#attempt = 0;
    this.#wasLive = true;
    this.#store.dispatch({ kind: 'link', link: 'live' });
    if (this.#replacesSession) this.#notice(plain.sessionGone);
    this.#replacesSession = false;
    this.#sendPending();
    // The talk button may have been pressed while a typed conversation was being connected.
    if (this.#wantsMicrophone && !this.#user) void this.#openMicrophone(this.#epoch);
  }

  #wish(): wire.SessionWish {
    const known = this.#store.state.voices.some((voice) => voice.id === this.settings.voice);
    return { voice: known ? this.settings.voice : null, sound: this.#speaker !== null };
  }

  #sendPending(): void {
    const messages = this.#pending.splice(0);
    if (messages.length === 0) return;
    for (const { id, text } of messages) this.#connection?.send(wire.messageItem(id, 'user', text));
    this.#unconfirmed.push(...messages);
    this.#connection?.send(wire.responseCreate());
    this.#store.dispatch({ kind: 'sent' });
    if (this.#context) this.#clock.typed(this.#context.currentTime);
  }

  #replyAudio(speaker: Speaker, codec: Codec): ReplyAudio {
    return new ReplyAudio(speaker, codec, {
      played: (report) => this.#tellPlayed(report),
      received: (itemId, endMs) => this.#store.dispatch({ kind: 'received', itemId, endMs }),
      failed: () => this.#withoutOpus(),
      undecided: () => this.hush(),
    });
  }

  #remoteReply(context: AudioContext): RemoteReply {
    return new RemoteReply(context, {
      measured: (peak, nSamples) => this.sound.measured(peak, nSamples),
      playing: (itemId, playedMs) => {
        this.#store.dispatch({ kind: 'received', itemId, endMs: 0 });
        this.#store.dispatch({ kind: 'playback', state: 'playing', itemId, playedMs, finished: [] });
      },
      sounded: (itemId, atS) => this.#sounded(itemId, atS),
      ended: (finished) => this.#store.dispatch({ kind: 'playback', state: 'empty', itemId: null, playedMs: 0, finished }),
    });
  }

  #sounded(itemId: string, atS: number): void {
    const ms = this.#clock.sounded(atS, (span) => this.#user?.lastLoud(span) ?? null);
    if (ms !== null) this.#store.dispatch({ kind: 'latency', itemId, ms });
  }

  #tellPlayed({ atS, firstSoundS, ...report }: PlayedAt): void {
    const context = this.#context;
    if (!context) return;
    const ms = (s: number) => heardMs(context, s, performance.now());
    this.#connection?.send(wire.played({ ...report, atMs: ms(atS), firstSoundMs: firstSoundS === null ? null : ms(firstSoundS) }));
  }

  #microphoneMs(): number | null {
    const startS = this.#user?.streamStartS(this.#connection?.nFrames ?? 0) ?? null;
    return startS === null || !this.#context ? null : capturedMs(this.#context, startS, performance.now());
  }

  #audio(frame: Frame): void {
    this.#nReplyFrames++;
    if (isWanted(this.#store.state, frame.itemId)) this.#reply?.frame(frame);
  }

  #playback(report: PlaybackReport): void {
    // The loudspeaker of the page is silent in a call.
    if (this.#remote) return;
    this.sound.take(report);
    this.#reply?.report(report);
    for (const { itemId, atS } of report.firstSoundTimes) this.#sounded(itemId, atS);
    const { state, itemId, finished, playedSamples } = report;
    if (state === 'empty' && this.#store.state.playback === 'idle' && finished.length === 0) return;
    this.#store.dispatch({ kind: 'playback', state, itemId, playedMs: playedSamples / 24, finished });
  }

  async #lost(epoch: number, opened: boolean, code: number): Promise<void> {
    if (epoch !== this.#epoch) return;
    if (this.#resumption.lost(this.#connection?.resumable ?? null, { opened, code }, performance.now())) return this.#resume(epoch);
    this.#resumption.over();
    this.#lossIsOver();
    this.#connection = null;
    this.#closeReply();
    if (code === Closed.badKey) return this.#keyNeeded();
    if (code === Closed.noSession && this.#wasLive) return this.#startOver(epoch);
    // The reason for a refusal is available only from /readyz.
    const why = opened ? null : plain.notReady(await readiness());
    if (epoch === this.#epoch) this.#failed(why ?? plain.gaveUp);
  }

  /**
   * Keeps the current response, which continues with the resumed session. The lost connection stays until then: its
   * outbox takes what is sent meanwhile. A short loss is not shown.
   */
  #resume(epoch: number): void {
    this.#hubClock.stop();
    if (this.#lossTimer === 0) this.#lossTimer = window.setTimeout(() => this.#showLoss(), SHOW_LOSS_AFTER_MS);
    this.#retryTimer = window.setTimeout(() => this.#takeUp(epoch), this.#resumption.delayMs(Math.random()));
  }

  #lossIsOver(): void {
    clearTimeout(this.#lossTimer);
    this.#lossTimer = 0;
  }

  #showLoss(): void {
    this.#store.dispatch({ kind: 'link', link: 'resuming' });
    this.#notice(plain.resuming(this.#resumption.untilMs - performance.now() + Date.now()));
  }

  /** The hub is reachable but has discarded the session: starts a new one with the conversation so far. */
  async #startOver(epoch: number): Promise<void> {
    this.#store.dispatch({ kind: 'link', link: 'waiting' });
    this.#replacesSession = true;
    await this.#connect(epoch);
  }

  #keyNeeded(): void {
    const pending = this.#pending;
    this.stop();
    this.#pending = pending;
    this.#notice(plain.keyNeeded(this.#key !== null));
  }

  /** A first attempt that fails is reported; an interrupted conversation is reconnected. */
  #failed(notice: Notice): void {
    if (!this.#wasLive || this.#attempt >= MAX_ATTEMPTS) {
      const pending = this.#pending;
      this.stop();
      this.#pending = pending;
      return this.#notice(notice);
    }
    const delayMs = backoffMs(this.#attempt++, Math.random());
    this.#store.dispatch({ kind: 'link', link: 'waiting' });
    this.#notice(plain.reconnecting(notice === plain.gaveUp ? null : notice, Date.now() + delayMs));
    const epoch = this.#epoch;
    this.#retryTimer = window.setTimeout(() => void this.#connect(epoch), delayMs);
  }

  /** Opens a new session with the same conversation, for settings that cannot change within a session. */
  #reopen(): void {
    this.#disconnect();
    this.#store.dispatch({ kind: 'stopped' });
    this.#store.dispatch({ kind: 'link', link: 'connecting' });
    void this.#connect(++this.#epoch);
  }

  #withoutOpus(): void {
    if (this.codec === 'pcm16') return;
    this.codec = 'pcm16';
    this.#closeMicrophone();
    this.#notice(plain.opusFailed);
    this.#reopen();
  }

  #disconnect(): void {
    this.#hubClock.stop();
    this.#lossIsOver();
    this.#resumption.over();
    this.#connection?.close();
    this.#connection = null;
    this.#closeReply();
  }

  #closeReply(): void {
    this.#reply?.close();
    this.#reply = null;
    this.#remote?.close();
    this.#remote = null;
  }

  #closeMicrophone(): void {
    this.#user?.close();
    this.#user = null;
    this.#store.dispatch({ kind: 'microphone', microphone: 'off' });
  }

  #microphoneLost(): void {
    this.#wantsMicrophone = false;
    this.#closeMicrophone();
    this.#notice(plain.microphoneLost);
  }

  #notice(notice: Notice | null): void {
    this.#store.dispatch({ kind: 'notice', notice });
  }
}
