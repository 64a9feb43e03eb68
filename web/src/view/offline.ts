/** What the offline assistant understands. */
export const OFFLINE = 'date and time, arithmetic, counting, what it is to repeat, and a story';
