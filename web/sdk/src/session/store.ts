// Holds the state, which the session changes and the view draws.

import { type Action, reduce } from '../state/reduce.js';
import { initialState, type State } from '../state/model.js';

export class Store {
  #state = initialState;
  #listeners = new Set<() => void>();

  get state(): State {
    return this.#state;
  }

  dispatch(action: Action): void {
    const next = reduce(this.#state, action);
    if (next === this.#state) return;
    this.#state = next;
    for (const listener of this.#listeners) listener();
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
