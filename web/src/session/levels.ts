// How loud the two sides are now, read by the orb at each animation frame. Plain mutable numbers:
// at fifty changes a second they would only make the store redraw everything.

export interface Levels {
  /** Peak of the last 20 ms, 0 to 1. */
  microphone: number;
  reply: number;
}

export const levels: Levels = { microphone: 0, reply: 0 };
