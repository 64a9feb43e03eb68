// Current levels of both sides, to be read in each animation frame. Plain mutable numbers: fifty changes per second in the
// state would redraw a page at each.

export interface Levels {
  /** Peak of the last 20 ms, 0 to 1. */
  microphone: number;
  reply: number;
}
