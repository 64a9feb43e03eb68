// The latest messages of the page's connections, so that an inspector that is opened later shows how a session began.
// Audio is left out.

import type { Conversation, WireEvent } from '@antiphon/client';

const MAX_EVENTS = 1_000;
const MAX_BYTES = 2 << 20;

export class RecentEvents {
  #events: WireEvent[] = [];
  #bytes = 0;
  #listener: ((event: WireEvent) => void) | null = null;

  constructor(conversation: Pick<Conversation, 'onEvent'>) {
    conversation.onEvent((event) => (this.#listener ?? this.#keep)(event));
  }

  /** Hands over what there is; from now on the next messages go to the listener, audio too, and none are kept here. */
  take(): readonly WireEvent[] {
    const events = this.#events;
    this.#events = [];
    this.#bytes = 0;
    return events;
  }

  set listener(listener: (event: WireEvent) => void) {
    this.#listener = listener;
  }

  readonly #keep = (event: WireEvent): void => {
    if (event.text === null) return;
    this.#events.push(event);
    this.#bytes += event.bytes;
    while (this.#events.length > MAX_EVENTS || (this.#bytes > MAX_BYTES && this.#events.length > 1)) this.#bytes -= this.#events.shift()?.bytes ?? 0;
  };
}
