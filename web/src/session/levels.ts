// Current levels of both sides, read by the orb in each animation frame. Plain mutable numbers: fifty
// changes per second in the store would redraw the whole page.

export interface Levels {
  /** Peak of the last 20 ms, 0 to 1. */
  microphone: number;
  reply: number;
}

export const levels: Levels = { microphone: 0, reply: 0 };
