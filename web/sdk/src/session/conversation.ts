// A conversation with a hub: connects connection, microphone, loudspeaker and state, and carries out what its user asks
// for. Decisions belong to the reducer and to `effects.ts`. It draws nothing, stores nothing, and reads no address but the
// hub's.

import { type Codec, bestCodec } from '../audio/codec.js';
import type { PlaybackReport } from '../audio/messages.js';
import { MicrophoneError } from '../audio/microphone.js';
import { Speaker } from '../audio/speaker.js';
import * as wire from '../protocol/events.js';
import type { Frame } from '../protocol/frame.js';
import { effectsOf, isWanted } from '../state/effects.js';
import { history } from '../state/history.js';
import type { Caption, State } from '../state/model.js';
import { type Problem, isAboutLink, obstacleOf } from '../state/problem.js';
import { TurnClock } from '../state/turn_clock.js';
import { MAX_ATTEMPTS, backoffMs } from './backoff.js';
import { Closed, Connection } from './connection.js';
import { baseOf, callUrl, readiness, socketUrl, voices } from './hub.js';
import { authorization, isKey, protocols } from './key.js';
import type { Levels } from './levels.js';
import type { Line, LineHandlers } from './line.js';
import { HubClock, capturedMs, heardMs } from './hub_clock.js';
import type { Outbox } from './outbox.js';
import { type PlayedAt, ReplyAudio } from './reply_audio.js';
import type { RemoteReply, RemoteReplyHandlers } from './remote_reply.js';
import { Resumption } from './resumption.js';
import { Sound } from './sound.js';
import { Store } from './store.js';
import { Tap, type WireEvent } from './tap.js';
import { type Tool, ToolCalls, type ToolLimit } from './tool_calls.js';
import { UserAudio } from './user_audio.js';
import type { WakeLock } from './wake_lock.js';

/** A WebSocket resumes after a loss and is quicker; WebRTC suits networks that lose packets. */
export type Transport = 'websocket' | 'webrtc';

/** A key, or what gets one for each connection: a short-lived one from the page's own server. */
export type Key = string | null | (() => string | null | Promise<string | null>);

/** Audio devices, as `navigator.mediaDevices.enumerateDevices` names them; null: the browser's choice. */
export interface Devices {
  microphone?: string | null;
  /** Where the browser lets a page choose (`AudioContext.setSinkId`). */
  loudspeaker?: string | null;
  /** Of the replies, 0 to 1. */
  volume?: number;
}

/** The audio graph of a conversation, to be listened to. Nodes change with the devices and the transport. */
export interface AudioGraph {
  context: AudioContext;
  microphone: AudioNode | null;
  reply: AudioNode | null;
}

export interface ConversationOptions {
  /** Address of the hub, below any path; default: the page's own. */
  hub?: string | URL;
  key?: Key;
  /** Default: `websocket`. WebRTC is used where the hub takes such calls, else the WebSocket. */
  transport?: Transport;
  /** Codec of the WebSocket; default: Opus where the browser has it, else PCM16. */
  codec?: Codec | null;
  session?: wire.SessionSettings;
  devices?: Devices;
  /** An earlier conversation, which is shown, and which the first session knows. */
  captions?: readonly Caption[];
  /** Functions that the model may call. */
  tools?: readonly Tool[];
  /** Responses in a row that may call functions, after which the model is asked without them; default 8. */
  maxToolRounds?: number;
  /**
   * Address of `worklets.js` of this package, for pages whose Content-Security-Policy forbids `blob:` scripts. Default:
   * a blob of the same code.
   */
  worklets?: string | URL;
}

/** Polling interval of a hub that is loading its engines. */
const LOADING_POLL_MS = 700;
/** A key must be there within this time. */
const KEY_TIMEOUT_MS = 8_000;
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

/** What the conversation goes back to with its session. */
interface Checkpoint {
  /** Number of the message that announced it. */
  number: number;
  state: State;
  utterance: Utterance | null;
  unconfirmed: readonly { id: string; text: string }[];
  nReplyFrames: number;
}

export class Conversation {
  readonly #store = new Store();
  readonly #base: string;
  /** Address of the worklets' module; null: that of the package. */
  #worklets: string | null;
  readonly #tap = new Tap();
  readonly #tools: readonly Tool[];
  readonly #calls: ToolCalls;
  /** From the first time that the microphone is on. */
  #wakeLock: Promise<WakeLock | null> | null = null;
  /** Ends the listeners on the page. */
  readonly #closed = new AbortController();
  readonly levels: Levels = { microphone: 0, reply: 0 };
  readonly sound = new Sound(this.levels);
  readonly #devices: Devices;
  #session: wire.SessionSettings;
  #codec: Codec | null;
  #key: Key;
  #chosen: Transport;
  #context: AudioContext | null = null;
  #speaker: Speaker | null = null;
  #connection: Line | null = null;
  #user: UserAudio | null = null;
  #reply: ReplyAudio | null = null;
  /** In the place of `#reply` in a call by WebRTC. */
  #remote: RemoteReply | null = null;
  #clock = new TurnClock();
  readonly #hubClock = new HubClock((event) => this.#connection?.send(event), () => this.#microphoneMs(), () => this.#connection?.giveUp());
  #wantsMicrophone = false;
  /** Typed messages waiting for the connection. */
  #pending: { id: string; text: string }[] = [];
  /** The last question was typed, and is answered in text. */
  #isSilent = false;
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
  /** Looks so far: what an older one finds is ignored, such as that a key is missing that was set since. */
  #nLooks = 0;
  /** Incremented at each start and stop: results of older asynchronous work are ignored. */
  #epoch = 0;

  constructor(options: ConversationOptions = {}) {
    this.#base = baseOf(options.hub);
    this.#worklets = options.worklets === undefined ? null : String(options.worklets);
    this.#session = { ...options.session };
    this.#codec = options.codec ?? null;
    this.#key = options.key ?? null;
    this.#chosen = options.transport ?? 'websocket';
    this.#devices = { ...options.devices };
    this.#tools = options.tools ?? [];
    if (options.captions) this.#store.dispatch({ kind: 'captions', captions: options.captions });
    const limited = (limit: ToolLimit) => this.#report({ kind: 'tools', limit });
    this.#calls = new ToolCalls(this.#tools, (event) => this.send(event), () => this.#isSilent, limited, options.maxToolRounds);
    const { signal } = this.#closed;
    window.addEventListener('online', () => this.#isLost() && this.retry(), { signal });
    window.addEventListener('pagehide', () => this.stop(), { signal });
    this.#store.subscribe(() => this.#keepAwake());
  }

  #keepAwake(): void {
    if (this.state.microphone === 'on') {
      this.#wakeLock ??= import('./wake_lock.js').then(({ WakeLock }) => new WakeLock(this.#closed.signal)).catch(() => null);
    }
    void this.#wakeLock?.then((lock) => lock?.want(this.state.microphone === 'on'));
  }

  /** What the conversation knows now; a new object at each change. */
  get state(): State {
    return this.#store.state;
  }

  /** Calls back after each change of `state`. Returns what ends it. */
  subscribe(listener: () => void): () => void {
    return this.#store.subscribe(listener);
  }

  /** Calls back at each message to and from the hub, before it is acted upon. Returns what ends it. */
  onEvent(listener: (event: WireEvent) => void): () => void {
    return this.#tap.listen(listener);
  }

  /** Sends an event of the protocol as it is. Without a session it is dropped; while one is being resumed it waits. */
  send(event: object): void {
    this.#connection?.send(event);
  }

  /** Loads the engines and voices without opening a session. */
  async look(): Promise<void> {
    const look = ++this.#nLooks;
    const [state, offered] = await Promise.all([readiness(this.#base), this.#voices()]);
    if (look !== this.#nLooks) return;
    if ('hub' in state) this.#store.dispatch({ kind: 'hub', hub: state.hub });
    const isOff = this.state.link === 'off' && !this.#closed.signal.aborted;
    // First: voices without a problem are those of a hub that takes conversations.
    if (isOff) this.#report(offered.refused ? { kind: 'key', wrong: this.#key !== null } : obstacleOf(state));
    this.#store.dispatch({ kind: 'voices', voices: offered.voices });
    if (!isOff) return;
    clearTimeout(this.#lookTimer);
    if (state.kind === 'loading' && !offered.refused) this.#lookTimer = window.setTimeout(() => void this.look(), LOADING_POLL_MS);
  }

  /** Takes this key from now on, and retries what was refused without it. */
  useKey(key: Key): void {
    this.#key = key;
    this.#report(null);
    void this.look();
    // An attempt that is under way takes the key by itself.
    if (this.#pending.length > 0 && (this.state.link === 'off' || this.#isLost())) this.retry();
  }

  /** Removes the current problem from the state; where there is none, the notice on the language model. */
  dismiss(): void {
    this.#store.dispatch({ kind: 'dismissed' });
  }

  /**
   * Starts talking, and stops: what the one button of a page does. Call it in the handler of a click or a key, because browsers
   * start audio in no other place. Resolves when the microphone is open, or a `problem` says why it is not.
   */
  async talk(): Promise<void> {
    if (this.#wantsMicrophone || this.state.link === 'waiting' || this.state.link === 'resuming') return this.stop();
    this.#wantsMicrophone = true;
    this.#report(null);
    this.#wake();
    if (this.state.link === 'live') return void (await this.#openMicrophone(this.#epoch));
    if (this.state.link === 'off') return this.#start();
  }

  /** Ends the session; the captions stay. */
  stop(): void {
    this.#epoch++;
    this.#calls.stop();
    clearTimeout(this.#retryTimer);
    this.#wantsMicrophone = false;
    this.#wasLive = false;
    this.#replacesSession = false;
    this.#pending = [];
    this.#disconnect();
    this.#closeMicrophone();
    this.#store.dispatch({ kind: 'link', link: 'off' });
    if (isAboutLink(this.state.problem)) this.#report(null);
    void this.#context?.suspend();
  }

  /** Ends the session and releases the audio devices, for good. */
  close(): void {
    this.stop();
    this.#closed.abort();
    clearTimeout(this.#lookTimer);
    void this.#context?.close();
    this.#context = null;
  }

  /** Mutes the microphone, or ends that. */
  mute(): void {
    if (this.state.microphone === 'off') return;
    const muted = !this.state.muted;
    this.#user?.mute(muted);
    this.#store.dispatch({ kind: 'mute', muted });
  }

  /** Stops the current response and keeps the conversation. */
  hush(): void {
    const { playback, responseId } = this.state;
    if (playback === 'idle' && responseId === null) return;
    if (responseId !== null) this.#connection?.send(wire.responseCancel());
    this.#connection?.send(wire.outputClear());
    this.#reply?.flush();
    this.#store.dispatch({ kind: 'stopped' });
  }

  /** Sends a typed message; starts a session if there is none, and interrupts an answer. A silent answer is text. */
  async type(text: string, { silent = false } = {}): Promise<void> {
    this.#isSilent = silent;
    const id = `item_${crypto.getRandomValues(new Uint32Array(2)).join('')}`;
    this.#wake();
    if (this.state.playback !== 'idle' || this.state.responseId !== null) this.hush();
    this.#store.dispatch({ kind: 'typed', id, text });
    this.#pending.push({ id, text });
    if (this.state.link === 'live') this.#sendPending();
    else if (this.state.link === 'off') await this.#start();
    else if (this.#isLost()) this.retry();
  }

  #isLost(): boolean {
    return this.state.link === 'waiting' || this.#isResuming();
  }

  /** The connection is lost and the session kept; after a second the link says so as well. */
  #isResuming(): boolean {
    return this.#resumption.outbox !== null;
  }

  /** It is connected, or is being resumed: its outbox keeps what is sent meanwhile. */
  #hasSession(): boolean {
    return this.state.link === 'live' || this.state.link === 'resuming';
  }

  /**
   * Changes what sessions are asked for. What a session cannot change, its voice once it has spoken, and a return to the
   * operator's value (null), opens a new session with the same conversation.
   */
  update(change: wire.SessionSettings): void {
    this.#session = { ...this.#session, ...change };
    if (!this.#hasSession()) return;
    const isBeyondSession = Object.values(change).includes(null) || (change.voice !== undefined && this.state.audioMade);
    if (isBeyondSession) this.#reopen();
    else this.#sendSettings();
  }

  /** Uses these devices from now on, also while talking. */
  async useDevices(change: Devices): Promise<void> {
    Object.assign(this.#devices, change);
    if (change.microphone !== undefined && this.#user) {
      this.#leaveMicrophone();
      await this.#openMicrophone(this.#epoch);
    }
    await this.#useLoudspeaker();
  }

  /** Null until a conversation has started. */
  get audio(): AudioGraph | null {
    const reply = (this.#remote ?? this.#speaker)?.source ?? null;
    return this.#context && { context: this.#context, microphone: this.#user?.source ?? null, reply };
  }

  /** Goes on with another conversation, or a new one; a session that is open makes room for one that knows these captions. */
  renew(captions: readonly Caption[] = []): void {
    this.#pending = [];
    this.#unconfirmed = [];
    this.#report(null);
    this.#closeReply();
    this.#store.dispatch({ kind: 'captions', captions });
    if (this.state.link !== 'off') this.#reopen();
  }

  /** The codec of the WebSocket; null until a conversation has started. */
  get codec(): Codec | null {
    return this.#codec;
  }

  /** What was asked for. */
  get chosenTransport(): Transport {
    return this.#chosen;
  }

  /** How the next session is reached. */
  get transport(): Transport {
    // Without sound there is nothing to carry.
    return this.#chosen === 'webrtc' && this.state.hub?.['webrtc'] === true && this.#context ? 'webrtc' : 'websocket';
  }

  chooseTransport(transport: Transport): void {
    this.#chosen = transport;
    if (!this.#hasSession()) return;
    // The microphone is opened again for the other transport.
    this.#leaveMicrophone();
    this.#reopen();
  }

  /** Does what the current problem offers: sends the recording again, or connects now instead of later. */
  retry(): void {
    if (this.state.problem?.kind === 'transcription' && this.state.link === 'live') return void this.#repeat();
    clearTimeout(this.#retryTimer);
    this.#wake();
    if (this.#isResuming()) void this.#takeUp(this.#epoch);
    else if (this.state.link === 'waiting') void this.#connect(this.#epoch);
    else if (this.#pending.length > 0 && this.state.link === 'off') void this.#start();
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
    const state = await readiness(this.#base);
    if (epoch !== this.#epoch) return;
    if ('hub' in state) this.#store.dispatch({ kind: 'hub', hub: state.hub });
    const obstacle = obstacleOf(state);
    if (state.kind === 'loading') {
      this.#report(obstacle);
      this.#retryTimer = window.setTimeout(() => void this.#connect(epoch), LOADING_POLL_MS);
      return;
    }
    if (obstacle) return this.#failed(obstacle);

    this.#codec ??= await bestCodec();
    if (!(await this.#openSpeaker(epoch))) return;
    if (this.#wantsMicrophone && !this.#user && !(await this.#openMicrophone(epoch))) return;
    const key = await this.#currentKey();
    const webrtc = this.transport === 'webrtc' ? await import('./webrtc.js').catch(() => null) : undefined;
    if (epoch !== this.#epoch) return;
    if (key === undefined) return this.#keyNeeded();
    if (webrtc === null) return this.#failed({ kind: 'unreachable' });
    this.#store.dispatch({ kind: 'link', link: 'connecting' });
    this.#disconnect();
    this.#checkpoints = [];
    this.#nReplyFrames = 0;
    this.#calls.stop();
    if (this.#context && webrtc) {
      const remote = (this.#remote = new webrtc.RemoteReply(this.#context, this.#remoteHandlers()));
      void this.#useLoudspeaker();
      const options = { url: callUrl(this.#base), headers: authorization(key), microphone: this.#user?.track ?? null };
      this.#connection = new webrtc.Call(options, { ...this.#handlers(epoch), reply: (stream) => remote.play(stream) });
      return;
    }
    if (this.#speaker) this.#reply = this.#replyAudio(this.#speaker, this.#codec);
    this.#connection = this.#open(epoch, key, this.#codec, null);
  }

  #open(epoch: number, key: string | null, codec: Codec, resumes: Outbox | null): Connection {
    const url = socketUrl(codec, this.#base);
    const handlers = {
      ...this.#handlers(epoch),
      audio: (frame: Frame) => this.#audio(frame),
      resumed: (backTo: number | null) => this.#resumed(backTo),
    };
    return new Connection(url, protocols(key, resumes), handlers, resumes);
  }

  #handlers(epoch: number): LineHandlers {
    return {
      wire: this.#tap.message,
      event: (event) => this.#event(event),
      unreadable: (message) => this.#report({ kind: 'unreadable', message }),
      lost: (opened, code) => void this.#lost(epoch, opened, code),
    };
  }

  /** A key for a connection; undefined if there is none that can be sent. */
  async #currentKey(): Promise<string | null | undefined> {
    if (typeof this.#key !== 'function') return this.#key;
    const get = this.#key;
    let timer = 0;
    const late = new Promise<undefined>((resolve) => (timer = window.setTimeout(() => resolve(undefined), KEY_TIMEOUT_MS)));
    try {
      const key = await Promise.race([get(), late]);
      return typeof key === 'string' && !isKey(key) ? undefined : key;
    } catch (cause) {
      reportError(cause);
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }

  async #voices(): ReturnType<typeof voices> {
    const key = await this.#currentKey();
    return key === undefined ? { voices: [], refused: true } : voices(this.#base, key);
  }

  /** Tries to resume the session of the lost connection until the hub has discarded it. */
  async #takeUp(epoch: number): Promise<void> {
    const key = await this.#currentKey();
    const { outbox } = this.#resumption;
    if (epoch !== this.#epoch || this.#codec === null || outbox === null) return;
    if (key === undefined) return this.#keyNeeded();
    // A connection that hangs is abandoned. The hub may have taken it, and keeps the session.
    this.#connection?.close(Closed.gaveUp);
    this.#connection = this.#open(epoch, key, this.#codec, outbox);
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
    else if (this.state.playback === 'held' && state.playback !== 'held') this.#reply?.perform({ kind: 'resume' });
    this.#nReplyFrames = nReplyFrames;
    this.#utterance = utterance && { ...utterance };
    this.#clock = new TurnClock();
    this.#store.dispatch({ kind: 'back', past: state, silent });
    this.#calls.back(number);
    const pending = new Set(this.#pending.map(({ id }) => id));
    const open = new Set(unconfirmed.map(({ id }) => id));
    const unsent = this.state.captions.filter((caption) => caption.role === 'user' && caption.fault === 'unsent' && !pending.has(caption.id));
    this.#unconfirmed = [...unconfirmed, ...unsent.filter(({ id }) => !open.has(id)).map(({ id, text }) => ({ id, text }))];
  }

  /** Returns false if the conversation was stopped meanwhile. A page without sound continues with text. */
  async #openSpeaker(epoch: number): Promise<boolean> {
    if (this.#context && !this.#speaker) {
      try {
        this.#worklets ??= (await import('../audio/bundled.js')).default;
        this.#speaker = await Speaker.open(this.#context, this.#worklets, (report) => this.#playback(report));
        void this.#useLoudspeaker();
      } catch (cause) {
        if (epoch !== this.#epoch) return false;
        reportError(cause);
        this.stop();
        this.#report({ kind: 'audio-blocked' });
        return false;
      }
    }
    if (!this.#context && this.state.problem === null) this.#report({ kind: 'no-sound' });
    return epoch === this.#epoch;
  }

  async #useLoudspeaker(): Promise<void> {
    const { loudspeaker, volume = 1 } = this.#devices;
    if (this.#speaker) this.#speaker.volume = volume;
    const id = loudspeaker ?? '';
    const context = this.#context as (AudioContext & { sinkId?: string; setSinkId?: (id: string) => Promise<void> }) | null;
    try {
      await this.#remote?.use(id, volume);
      if (context && context.sinkId !== id) await context.setSinkId?.(id);
    } catch {
      this.#report({ kind: 'loudspeaker' });
    }
  }

  /** Returns false if there is no microphone; a conversation that needs it then does not start. */
  async #openMicrophone(epoch: number): Promise<boolean> {
    this.#store.dispatch({ kind: 'microphone', microphone: 'asking' });
    const { microphone: device = null } = this.#devices;
    const isAnotherChosen = () => device !== (this.#devices.microphone ?? null);
    try {
      if (!this.#context) throw new MicrophoneError(window.isSecureContext ? 'unsupported' : 'insecure');
      this.#codec ??= await bestCodec();
      // A track needs no encoder here.
      const codec = this.transport === 'webrtc' ? 'pcm16' : this.#codec;
      const user = await UserAudio.open(this.#context, {
        // The loudspeaker comes first.
        worklets: this.#worklets ?? '',
        codec,
        device,
        levels: this.levels,
        payload: (payload) => this.#sendAudio(payload),
        lost: () => this.#microphoneLost(),
        failed: () => this.#withoutOpus(),
      });
      if (epoch !== this.#epoch) return user.close(), false;
      // The browser was asked twice: the connection was lost before the user had answered.
      if (this.#user) return user.close(), true;
      if (isAnotherChosen()) return user.close(), this.#openMicrophone(epoch);
      this.#user = user;
      user.mute(this.state.muted);
      this.#connection?.useMicrophone(user.track);
      this.#store.dispatch({ kind: 'microphone', microphone: 'on' });
      return true;
    } catch (cause) {
      if (epoch !== this.#epoch) return false;
      if (this.#user) return true;
      if (isAnotherChosen()) return this.#openMicrophone(epoch);
      this.#wantsMicrophone = false;
      this.#store.dispatch({ kind: 'microphone', microphone: 'off' });
      // One that is connected, or will be again, goes on without.
      if (this.state.link === 'checking') this.#store.dispatch({ kind: 'link', link: 'off' });
      this.#report({ kind: 'microphone', fault: cause instanceof MicrophoneError ? cause.fault : 'busy' });
      return false;
    }
  }

  /** While the connection is lost, the session's outbox keeps the frames. */
  #sendAudio(payload: Uint8Array): void {
    if (this.#hasSession()) this.#connection?.sendAudio(payload);
  }

  #event(event: wire.ServerEvent): void {
    // The speaker first: a stop must not wait until the page is drawn.
    for (const effect of effectsOf(this.state, event)) this.#reply?.perform(effect);
    this.#remote?.take(event);
    this.#hubClock.take(event);
    if (event.type === 'session.created') this.#begin();
    this.#follow(event);
    if (this.#context) this.#clock.heard(event, this.#context.currentTime, this.#user?.streamStartS(this.#connection?.nFrames ?? 0) ?? null);
    if (this.#calls.take(event, this.#connection?.nReceived ?? 0)) return;
    if (event.type === 'error' && event.error.code === 'cannot_update_voice') return this.#reopen();
    this.#store.dispatch({ kind: 'server', event });
    if (event.type === 'antiphon.session.checkpoint') this.#mark();
  }

  #mark(): void {
    this.#checkpoints.push({
      number: this.#connection?.nReceived ?? 0,
      state: this.state,
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
        this.#isSilent = false;
        this.#utterance = { itemId: event.item_id, startMs: event.audio_start_ms, endMs: null };
        return;
      case 'input_audio_buffer.speech_stopped':
        if (this.#utterance?.itemId === event.item_id) this.#utterance.endMs = event.audio_end_ms;
        return;
    }
  }

  /** Sends the utterance again as a recording after the recognizer failed; without one the user must repeat it. */
  async #repeat(): Promise<void> {
    this.#report(null);
    const last = this.#utterance;
    const epoch = this.#epoch;
    const audio = last && (await this.#user?.recording(last.startMs, last.endMs, this.#connection?.nFrames ?? 0));
    if (!last || !audio || epoch !== this.#epoch || this.#utterance !== last) return;
    this.#utterance = null;
    this.#connection?.send(wire.deleteItem(last.itemId));
    this.#connection?.send(wire.audioItem(audio));
    this.#connection?.send(wire.responseCreate(false));
    this.#store.dispatch({ kind: 'sent' });
  }

  /** A session has started: sends its settings, the conversation so far, and waiting messages. */
  #begin(): void {
    this.#sendSettings();
    // In a call the hub itself knows what was heard.
    if (!this.#remote) this.#hubClock.begin();
    this.#pending.unshift(...this.#unconfirmed.splice(0));
    const waiting = new Set(this.#pending.map(({ id }) => id));
    for (const { id, role, text } of history(this.state.captions, waiting, this.state.nSessions)) {
      this.#connection?.send(wire.messageItem(id, role, text));
    }
    this.#attempt = 0;
    this.#wasLive = true;
    this.#store.dispatch({ kind: 'link', link: 'live' });
    if (this.#replacesSession) this.#report({ kind: 'session-replaced' });
    this.#replacesSession = false;
    this.#sendPending();
    // The talk button may have been pressed while a typed conversation was being connected.
    if (this.#wantsMicrophone && !this.#user) void this.#openMicrophone(this.#epoch);
  }

  #sendSettings(): void {
    const { voice } = this.#session;
    const isOffered = this.state.voices.length === 0 || this.state.voices.some(({ id }) => id === voice);
    const settings = isOffered ? this.#session : { ...this.#session, voice: null };
    this.#connection?.send(wire.sessionUpdate(settings, this.#speaker !== null, this.#tools));
  }

  #sendPending(): void {
    const messages = this.#pending.splice(0);
    if (messages.length === 0) return;
    for (const { id, text } of messages) this.#connection?.send(wire.messageItem(id, 'user', text));
    this.#unconfirmed.push(...messages);
    this.#connection?.send(wire.responseCreate(this.#isSilent));
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

  #remoteHandlers(): RemoteReplyHandlers {
    return {
      measured: (peak, nSamples) => this.sound.measured(peak, nSamples),
      playing: (itemId, playedMs) => {
        this.#store.dispatch({ kind: 'received', itemId, endMs: 0 });
        this.#store.dispatch({ kind: 'playback', state: 'playing', itemId, playedMs, finished: [] });
      },
      sounded: (itemId, atS) => this.#sounded(itemId, atS),
      ended: (finished) => this.#store.dispatch({ kind: 'playback', state: 'empty', itemId: null, playedMs: 0, finished }),
    };
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
    if (isWanted(this.state, frame.itemId)) this.#reply?.frame(frame);
  }

  #playback(report: PlaybackReport): void {
    // The worklet is silent in a call.
    if (this.#remote) return;
    this.sound.take(report);
    this.#reply?.report(report);
    for (const { itemId, atS } of report.firstSoundTimes) this.#sounded(itemId, atS);
    const { state, itemId, finished, playedSamples } = report;
    if (state === 'empty' && this.state.playback === 'idle' && finished.length === 0) return;
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
    const why = opened ? null : obstacleOf(await readiness(this.#base));
    if (epoch === this.#epoch) this.#failed(why);
  }

  /**
   * Keeps the current response, which continues with the resumed session. The lost connection stays until then: its
   * outbox takes what is sent meanwhile. A short loss is not shown.
   */
  #resume(epoch: number): void {
    this.#hubClock.stop();
    if (this.#lossTimer === 0) this.#lossTimer = window.setTimeout(() => this.#showLoss(), SHOW_LOSS_AFTER_MS);
    this.#retryTimer = window.setTimeout(() => void this.#takeUp(epoch), this.#resumption.delayMs(Math.random()));
  }

  #lossIsOver(): void {
    clearTimeout(this.#lossTimer);
    this.#lossTimer = 0;
  }

  #showLoss(): void {
    this.#store.dispatch({ kind: 'link', link: 'resuming' });
    this.#report({ kind: 'resuming', untilMs: this.#resumption.untilMs - performance.now() + Date.now() });
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
    this.#report({ kind: 'key', wrong: this.#key !== null });
  }

  /** A first attempt that fails is reported; an interrupted conversation is reconnected. */
  #failed(why: Problem | null): void {
    if (!this.#wasLive || this.#attempt >= MAX_ATTEMPTS) {
      const pending = this.#pending;
      const kind = this.#wasLive ? 'gave-up' : 'refused';
      this.stop();
      this.#pending = pending;
      return this.#report(why ?? { kind });
    }
    const delayMs = backoffMs(this.#attempt++, Math.random());
    this.#store.dispatch({ kind: 'link', link: 'waiting' });
    this.#report({ kind: 'reconnecting', why, untilMs: Date.now() + delayMs });
    const epoch = this.#epoch;
    this.#retryTimer = window.setTimeout(() => void this.#connect(epoch), delayMs);
  }

  /** Opens a new session with the same conversation, for settings that cannot change within a session. */
  #reopen(): void {
    clearTimeout(this.#retryTimer);
    this.#disconnect();
    this.#store.dispatch({ kind: 'stopped' });
    this.#store.dispatch({ kind: 'link', link: 'connecting' });
    void this.#connect(++this.#epoch);
  }

  #withoutOpus(): void {
    if (this.#codec === 'pcm16') return;
    this.#codec = 'pcm16';
    this.#leaveMicrophone();
    this.#report({ kind: 'opus-failed' });
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

  /** Lets go of the device, before it or another one is opened. */
  #leaveMicrophone(): void {
    this.#user?.close();
    this.#user = null;
  }

  #closeMicrophone(): void {
    this.#leaveMicrophone();
    this.#store.dispatch({ kind: 'microphone', microphone: 'off' });
  }

  #microphoneLost(): void {
    this.#wantsMicrophone = false;
    this.#closeMicrophone();
    this.#report({ kind: 'microphone', fault: 'lost' });
  }

  #report(problem: Problem | null): void {
    this.#store.dispatch({ kind: 'problem', problem });
  }
}
