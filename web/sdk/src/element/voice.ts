// `<antiphon-voice>`: a conversation with a hub as an element of any page. It draws a `Conversation` into a shadow root:
// talk button, captions, notices, a field to type in. It decides nothing about the conversation, stores nothing, and takes
// a key as a property only, since attributes are part of a page's source.

import {
  type Caption, type Key, type Phase, type Problem, type ReplyCaption, type SessionSettings, type Tool, type Transport, type Voice,
  Conversation, followSoundStart, lastingId, parts, phaseOf,
} from '../index.js';
import { answerOf } from '../answer.js';
import { patch } from './answer.js';
import { STYLE } from './style.js';
import { NO_SOUND_YET, STATUS, isRetriable, wordsOf } from './words.js';

/** A line of the conversation. */
export interface CaptionDetail {
  id: string;
  role: 'user' | 'assistant';
  /** Of a reply, what was spoken so far. */
  text: string;
  /** It does not change any more. */
  final: boolean;
}

/** A reply that has ended, and what it replied to. */
export interface TurnDetail {
  user: string;
  /** What was spoken of it. */
  reply: string;
  status: Exclude<ReplyCaption['status'], 'coming'>;
  /** From the end of the user's speech to the first sound; null if there was none. */
  latencyMs: number | null;
}

/** Events of the element. They do not bubble, as those of media elements do not. */
export interface VoiceEvents {
  /** The hub answered and takes conversations. */
  ready: CustomEvent<{ voices: Voice[] }>;
  caption: CustomEvent<CaptionDetail>;
  turn: CustomEvent<TurnDetail>;
  /** `message`: the words that the element shows. */
  error: CustomEvent<{ problem: Problem; message: string }>;
}

/** What a build of the element brings along; the package's brings nothing. */
export interface Surroundings {
  /** The hub where the attribute `src` is missing. */
  hub?: string;
  /** Address of the worklets, relative to the hub. Default: a blob of the same code. */
  worklets?: string;
}

const MICROPHONE = 'M9 6a3 3 0 0 1 6 0v5a3 3 0 0 1-6 0zM5.5 11.5a6.5 6.5 0 0 0 13 0M12 18v3';
const STOP = 'M8 8h8v8H8z';
/** Lines that are shown; the conversation has all of them. */
const MAX_LINES = 50;

/** Where a page is rendered on a server there is no DOM: the module can be imported there, and defines nothing. */
const Base = (globalThis.HTMLElement ?? class {}) as typeof HTMLElement;

export class VoiceElement extends Base {
  static readonly observedAttributes = ['src', 'transport', 'voice', 'language', 'instructions', 'label'];
  /** Set before the element is defined. */
  static surroundings: Surroundings = {};
  /** There is one microphone: the element that talks. */
  static #talking: VoiceElement | null = null;

  #conversation: Conversation | null = null;
  #key: Key = null;
  #tools: readonly Tool[] = [];
  #isReady = false;
  #problem: Problem | null = null;
  /** Whether the browser keeps back the sound of this session. */
  #isSilent = false;
  /** Ends what follows that; null without a session. */
  #endSound: (() => void) | null = null;
  /** What `caption` events have said; the keys of these three are lasting ids. */
  readonly #said = new Map<string, string>();
  readonly #ended = new Set<string>();
  readonly #lines = new Map<string, HTMLElement>();
  /** The captions as they were drawn last. */
  readonly #drawn = new WeakMap<HTMLElement, Caption>();
  #frame = 0;
  readonly #panel = make('section', 'panel');
  readonly #talk = make('button', 'talk');
  readonly #icon = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  readonly #status = make('p', 'status');
  readonly #mute = make('button', 'small', 'mute');
  readonly #hush = make('button', 'small', 'stop');
  readonly #captions = make('div', 'captions');
  readonly #notice = make('p', 'notice');
  readonly #words = make('span', 'notice-text');
  readonly #retry = make('button', 'small', 'retry');
  readonly #text = make('input', 'text');

  constructor() {
    super();
    const root = this.attachShadow({ mode: 'open' });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    this.#build();
    root.append(this.#panel);
    root.addEventListener('keydown', (event) => (event as KeyboardEvent).key === 'Escape' && this.#conversation?.hush());
  }

  /** The conversation, for what the element has no method of; null while the element is in no page. */
  get conversation(): Conversation | null {
    return this.#conversation;
  }

  /** A key of the hub, or a function that gets a short-lived one for each connection. Never an attribute. */
  get key(): Key {
    return this.#key;
  }
  set key(key: Key) {
    this.#key = key;
    this.#conversation?.useKey(key);
  }

  /** Functions that the model may call. A change begins a new conversation. */
  get tools(): readonly Tool[] {
    return this.#tools;
  }
  set tools(tools: readonly Tool[]) {
    this.#tools = tools;
    this.#renew();
  }

  /** In one word, what the attribute `phase` says. */
  get phase(): Phase {
    return this.#conversation ? phaseOf(this.#conversation.state) : 'idle';
  }

  /**
   * Starts talking, or stops. Call it in the handler of a click or a key only: browsers start audio in no other place. Another
   * element of the page that talks is stopped.
   */
  async talk(): Promise<void> {
    const other = VoiceElement.#talking;
    if (other !== null && other !== this) other.stop();
    VoiceElement.#talking = this;
    await this.#conversation?.talk();
  }

  /** Ends the session; the captions stay. */
  stop(): void {
    this.#conversation?.stop();
  }

  /** Sends a typed message. */
  async send(text: string): Promise<void> {
    await this.#conversation?.type(text);
  }

  override focus(options?: FocusOptions): void {
    this.#talk.focus(options);
  }

  connectedCallback(): void {
    // Set before the element was defined.
    for (const name of ['key', 'tools'] as const) {
      if (!Object.hasOwn(this, name)) continue;
      const value = this[name];
      delete (this as Partial<this>)[name];
      Object.assign(this, { [name]: value });
    }
    if (this.#conversation === null) this.#open();
  }

  disconnectedCallback(): void {
    // An element that is moved is disconnected and connected in one task.
    queueMicrotask(() => this.isConnected || this.#close());
  }

  attributeChangedCallback(name: string, before: string | null, value: string | null): void {
    if (before === value) return;
    if (name === 'label') this.#panel.ariaLabel = value ?? 'Voice assistant';
    else if (name === 'src' || name === 'transport') this.#renew();
    else this.#conversation?.update({ [name]: value });
  }

  #renew(): void {
    if (this.#conversation === null) return;
    this.#close();
    this.#open();
  }

  #open(): void {
    const { hub: usual, worklets } = VoiceElement.surroundings;
    const src = this.getAttribute('src') ?? usual;
    const hub = src === undefined ? undefined : new URL(src.endsWith('/') ? src : `${src}/`, document.baseURI);
    const session: SessionSettings = {};
    for (const name of ['voice', 'language', 'instructions'] as const) {
      const value = this.getAttribute(name);
      if (value !== null) session[name] = value;
    }
    const transport: Transport = this.getAttribute('transport') === 'webrtc' ? 'webrtc' : 'websocket';
    const file = worklets === undefined ? {} : { worklets: new URL(worklets, hub ?? document.baseURI) };
    const conversation = new Conversation({ ...(hub && { hub }), key: this.#key, transport, session, tools: this.#tools, ...file });
    this.#conversation = conversation;
    conversation.subscribe(() => this.#changed(conversation));
    this.#draw(conversation);
    // The scripts of a page that set a key run in the same task as what creates the element, or while the page is read.
    const look = () => void (this.#conversation === conversation && conversation.look());
    if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', look, { once: true });
    else queueMicrotask(look);
  }

  #close(): void {
    this.#conversation?.close();
    this.#conversation = null;
    this.#endSound?.();
    this.#endSound = null;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#isReady = false;
    this.#problem = null;
    for (const line of this.#lines.values()) line.remove();
    for (const kept of [this.#lines, this.#said, this.#ended]) kept.clear();
    if (VoiceElement.#talking === this) VoiceElement.#talking = null;
  }

  #build(): void {
    const bar = make('div', 'bar');
    const icon = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    for (const [name, value] of Object.entries({ viewBox: '0 0 24 24', fill: 'none', stroke: 'currentColor', 'stroke-width': '1.8', 'stroke-linecap': 'round' })) {
      icon.setAttribute(name, value);
    }
    icon.append(this.#icon);
    icon.ariaHidden = 'true';
    this.#talk.append(icon);
    this.#status.role = 'status';
    this.#hush.textContent = 'Stop answer';
    this.#panel.ariaLabel = this.getAttribute('label') ?? 'Voice assistant';
    this.#captions.role = 'log';
    this.#captions.ariaLabel = 'Captions';
    this.#captions.tabIndex = 0;
    this.#notice.role = 'alert';
    this.#notice.append(this.#words, ' ', this.#retry);
    bar.append(this.#talk, this.#status, this.#mute, this.#hush);
    const composer = make('form', 'composer');
    const send = make('button', 'send');
    send.type = 'submit';
    send.textContent = 'Send';
    this.#text.autocomplete = 'off';
    this.#text.dir = 'auto';
    this.#text.placeholder = this.#text.ariaLabel = 'Type a message';
    composer.append(this.#text, send);
    this.#panel.append(bar, this.#captions, this.#notice, composer);
    for (const button of [this.#talk, this.#mute, this.#hush, this.#retry]) button.type = 'button';
    this.#talk.onclick = () => void this.talk();
    this.#mute.onclick = () => this.#conversation?.mute();
    this.#hush.onclick = () => this.#conversation?.hush();
    this.#retry.onclick = () => {
      if (this.#problem === null && this.#isSilent) void this.#conversation?.audio?.context.resume();
      else this.#conversation?.retry();
    };
    composer.onsubmit = (event) => {
      event.preventDefault();
      const text = this.#text.value.trim();
      this.#text.value = '';
      if (text !== '') void this.send(text);
    };
  }

  #changed(conversation: Conversation): void {
    if (conversation !== this.#conversation) return;
    this.#followSound(conversation);
    this.#notify(conversation);
    this.#draw(conversation);
  }

  #followSound(conversation: Conversation): void {
    const isLive = conversation.state.link === 'live';
    if (isLive === (this.#endSound !== null)) return;
    const end = this.#endSound;
    this.#endSound = isLive
      ? followSoundStart(conversation.audio?.context, (isMissing) => {
          if (this.#isSilent === isMissing) return;
          this.#isSilent = isMissing;
          this.#draw(conversation);
        })
      : null;
    end?.();
  }

  #notify({ state }: Conversation): void {
    // Voices are listed to those whom the hub admits.
    if (!this.#isReady && state.problem === null && (state.voices.length > 0 || state.link === 'live')) {
      this.#isReady = true;
      this.#dispatch('ready', { voices: state.voices });
    }
    const ids = new Set(state.captions.map((caption) => lastingId(caption, state.nSessions)));
    for (const kept of [this.#said, this.#ended]) {
      for (const id of kept.keys()) if (!ids.has(id)) kept.delete(id);
    }
    let user = '';
    for (const caption of state.captions) {
      const id = lastingId(caption, state.nSessions);
      const detail = detailOf(caption);
      const said = JSON.stringify([detail.text, detail.final]);
      if (detail.text !== '' && this.#said.get(id) !== said) {
        this.#said.set(id, said);
        this.#dispatch('caption', detail);
      }
      if (caption.role === 'user') user = caption.text;
      else if (caption.status !== 'coming' && !this.#ended.has(id)) {
        this.#ended.add(id);
        this.#dispatch('turn', { user, reply: detail.text, status: caption.status, latencyMs: caption.latencyMs });
      }
    }
    if (state.problem !== this.#problem && state.problem !== null) {
      this.#dispatch('error', { problem: state.problem, message: wordsOf(state.problem) });
    }
    this.#problem = state.problem;
  }

  #dispatch<K extends keyof VoiceEvents>(name: K, detail: VoiceEvents[K]['detail']): void {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #draw({ state }: Conversation): void {
    const phase = phaseOf(state);
    const isTalking = state.microphone !== 'off' || phase === 'reconnecting';
    if (this.getAttribute('phase') !== phase) this.setAttribute('phase', phase);
    this.#talk.ariaLabel = isTalking ? 'Stop the conversation' : 'Start talking';
    this.#icon.setAttribute('d', isTalking ? STOP : MICROPHONE);
    setText(this.#status, STATUS[phase]);
    this.#mute.hidden = state.microphone !== 'on';
    this.#mute.classList.toggle('on', state.muted);
    setText(this.#mute, state.muted ? 'Unmute' : 'Mute');
    this.#hush.hidden = state.playback === 'idle' && state.responseId === null;
    this.#drawCaptions(state.captions, state.nSessions);
    const { problem, modelNotice } = state;
    this.#notice.hidden = problem === null && !this.#isSilent && modelNotice === null;
    setText(this.#words, problem ? wordsOf(problem) : this.#isSilent ? NO_SOUND_YET : (modelNotice?.message ?? ''));
    this.#retry.hidden = problem ? !isRetriable(problem) : !this.#isSilent;
    setText(this.#retry, problem ? 'Try again' : 'Start sound');
    if (state.link === 'live' && this.#frame === 0) this.#follow();
  }

  #drawCaptions(captions: readonly Caption[], nSessions: number): void {
    const box = this.#captions;
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    const shown = captions.slice(-MAX_LINES);
    const ids = new Set(shown.map((caption) => lastingId(caption, nSessions)));
    for (const [id, line] of this.#lines) {
      if (ids.has(id)) continue;
      line.remove();
      this.#lines.delete(id);
    }
    for (const caption of shown) {
      const id = lastingId(caption, nSessions);
      const line = this.#lines.get(id) ?? newLine(caption);
      if (this.#drawn.get(line) === caption) continue;
      this.#drawn.set(line, caption);
      const { final } = detailOf(caption);
      const children = caption.role === 'user' ? [caption.text + caption.draft].filter(Boolean) : answerOf(caption);
      const words = line.lastElementChild;
      const wordless = !final ? '…' : caption.role === 'user' ? '(nothing understood)' : '(no words)';
      if (words) patch(words, children.length > 0 ? children : [wordless]);
      line.ariaBusy = String(!final);
      if (!this.#lines.has(id)) box.append(line);
      this.#lines.set(id, line);
    }
    box.hidden = shown.length === 0;
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  }

  /** The glow of the button follows the louder side in each animation frame of a session. */
  #follow(): void {
    const conversation = this.#conversation;
    const isLive = conversation?.state.link === 'live';
    const { microphone, reply } = conversation?.levels ?? { microphone: 0, reply: 0 };
    this.#talk.style.setProperty('--level', isLive ? Math.max(microphone, reply).toFixed(2) : '0');
    this.#frame = isLive ? requestAnimationFrame(() => this.#follow()) : 0;
  }
}

/** An element of a class; it is also a part, of the same name unless there is another. */
function make<K extends keyof HTMLElementTagNameMap>(tag: K, name: string, part = name): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  element.className = name;
  element.part = part;
  return element;
}

function newLine({ role }: Caption): HTMLElement {
  const line = make('div', role === 'user' ? 'line user' : 'line reply', role === 'user' ? 'line user' : 'line reply');
  const who = make('span', 'who');
  who.textContent = role === 'user' ? 'You: ' : 'Assistant: ';
  const words = make('div', 'words');
  words.dir = 'auto';
  line.append(who, words);
  return line;
}

/** Screen readers announce a text that is set again. */
function setText(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

function detailOf(caption: Caption): CaptionDetail {
  const { id, role } = caption;
  if (caption.role === 'user') return { id, role, text: caption.text, final: caption.final };
  return { id, role, text: parts(caption).spoken, final: caption.status !== 'coming' };
}

// Listeners of the element's own events know their details.
export interface VoiceElement {
  addEventListener<K extends keyof VoiceEvents>(
    type: K,
    listener: (this: VoiceElement, event: VoiceEvents[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(type: string, listener: EventListenerOrEventListenerObject, options?: boolean | AddEventListenerOptions): void;
}

declare global {
  interface HTMLElementTagNameMap {
    'antiphon-voice': VoiceElement;
  }
}
