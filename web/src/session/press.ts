// Push to talk: the microphone is open while a key is held, and its release ends the turn. The hub detects no turns then
// (`manual` of the session).

import type { Conversation } from '@antiphon/client';

/** The microphone stays open for this long after the release: most people let go before their last sound ends. */
const TAIL_MS = 200;

export class PressToTalk {
  readonly #conversation: Conversation;
  #held = false;
  #timer = 0;

  constructor(conversation: Conversation) {
    this.#conversation = conversation;
  }

  get held(): boolean {
    return this.#held;
  }

  /** Opens the microphone; an answer that sounds ends. Without a microphone it does nothing. */
  press(): void {
    if (this.#held || this.#conversation.state.microphone !== 'on') return;
    // Pressed again within the tail: the same turn goes on.
    const goesOn = this.#timer !== 0;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#held = true;
    if (goesOn) return;
    this.#conversation.hush();
    this.#conversation.send({ type: 'input_audio_buffer.clear' });
    this.#mute(false);
  }

  /** Ends the turn, and asks for the answer. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    this.#timer = window.setTimeout(() => {
      this.#timer = 0;
      this.#mute(true);
      this.#conversation.send({ type: 'input_audio_buffer.commit' });
      this.#conversation.send({ type: 'response.create' });
    }, TAIL_MS);
  }

  /** Closes the microphone without a turn: at the start of a conversation, and when the mode is chosen. */
  rest(): void {
    if (!this.#held && this.#timer === 0) this.#mute(true);
  }

  /** Another microphone, or none: nothing is held. */
  letGo(): void {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#held = false;
  }

  /** Opens it for good, also one that is being opened: the hub detects turns again. */
  end(): void {
    this.letGo();
    this.#mute(false);
  }

  #mute(muted: boolean): void {
    const { microphone, muted: isMuted } = this.#conversation.state;
    // The next one is opened as the one before was left.
    if (microphone !== 'off' && isMuted !== muted) this.#conversation.mute();
  }
}
