// Icons of the page, inline: nothing is fetched.

const line = { fill: 'none', stroke: 'currentColor', 'stroke-width': 1.8, 'stroke-linecap': 'round', 'stroke-linejoin': 'round' } as const;

/** The logo: five strokes, two voices around a centre. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
      <g fill="none" stroke-width="2" stroke-linecap="round">
        <path class="mark-you" d="M3.5 10v4M7.5 7v10" />
        <path class="mark-mid" d="M12 3.5v17" />
        <path class="mark-hub" d="M16.5 7v10M20.5 10v4" />
      </g>
    </svg>
  );
}

export function MicrophoneIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <rect x="9" y="3" width="6" height="11" rx="3" />
      <path d="M5.5 11.5a6.5 6.5 0 0 0 13 0M12 18v3" />
    </svg>
  );
}

export function MutedIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <path d="M15 9.5V6a3 3 0 0 0-6 0v5a3 3 0 0 0 4.5 2.6M5.5 11.5a6.5 6.5 0 0 0 10.4 5.2M18.5 11.5a6.6 6.6 0 0 1-.6 2.7M12 18v3M4 3.5l16 17" />
    </svg>
  );
}

export function StopIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <rect x="6.5" y="6.5" width="11" height="11" rx="2.5" fill="currentColor" />
    </svg>
  );
}

export function SendIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <path d="M12 19V5M6 11l6-6 6 6" />
    </svg>
  );
}

export function GearIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <path d="M4 7h9M17 7h3M4 17h3M11 17h9" />
      <circle cx="15" cy="7" r="2.2" />
      <circle cx="9" cy="17" r="2.2" />
    </svg>
  );
}

export function PlusIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <path d="M12 5v14M5 12h14" />
    </svg>
  );
}

export function ListIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <path d="M4 5.5h16v10H11l-4.5 4v-4H4zM8 9h8M8 12h5" />
    </svg>
  );
}

export function BracesIcon() {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" {...line}>
      <path d="M9 4.5H8A2.5 2.5 0 0 0 5.5 7v2.5L4 12l1.5 2.5V17A2.5 2.5 0 0 0 8 19.5h1M15 4.5h1A2.5 2.5 0 0 1 18.5 7v2.5L20 12l-1.5 2.5V17a2.5 2.5 0 0 1-2.5 2.5h-1" />
    </svg>
  );
}
