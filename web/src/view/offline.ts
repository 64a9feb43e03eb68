/** What the offline assistant understands. */
export const OFFLINE = 'date and time, arithmetic, units, spelling, counting, stories and jokes';
