// The orb, drawn on a canvas in each animation frame: the user's voice as a cool ring of strokes, the
// response as a warm body that swells, both driven by their real levels. Colours come from the style
// sheet. With reduced motion it is static and only its size follows the levels.

import type { Levels, Phase } from '@antiphon/client';

const N_STROKES = 96;
const N_POINTS = 120;
/** Levels rise immediately and fall with this half-life, like audio meters. */
const FALL_HALF_LIFE_S = 0.09;
/** Frame rate while nothing but the idle animation moves, which saves a phone's battery. */
const CALM_PER_S = 15;
/** Colours are read again this often, so that a change between light and dark takes effect. */
const COLOURS_EVERY_S = 1;

/** The strength of each part in a phase; the drawing interpolates between phases. */
interface Mood {
  /** Two lights that circle in the body while the page waits for the user to begin. */
  rest: number;
  you: number;
  hub: number;
  think: number;
  calm: number;
}

const MOODS: Record<Phase, Mood> = {
  idle: { rest: 1, you: 0, hub: 0, think: 0, calm: 1 },
  connecting: { rest: 0.4, you: 0, hub: 0, think: 0.55, calm: 0.4 },
  reconnecting: { rest: 0, you: 0, hub: 0, think: 0.35, calm: 0.2 },
  ready: { rest: 0.8, you: 0, hub: 0, think: 0, calm: 1 },
  listening: { rest: 0, you: 0.8, hub: 0, think: 0, calm: 0.6 },
  muted: { rest: 0, you: 0.12, hub: 0, think: 0, calm: 0.2 },
  hearing: { rest: 0, you: 1, hub: 0, think: 0, calm: 0.6 },
  thinking: { rest: 0, you: 0.2, hub: 0.25, think: 1, calm: 0.7 },
  speaking: { rest: 0, you: 0.15, hub: 1, think: 0, calm: 0.8 },
};

interface Colours {
  you: string;
  hub: string;
  rest: string;
}

export class Orb {
  phase: Phase = 'idle';
  readonly #canvas: HTMLCanvasElement;
  readonly #levels: Levels;
  readonly #reduced = matchMedia('(prefers-reduced-motion: reduce)');
  #mood: Mood = { ...MOODS.idle };
  #colours: Colours = { you: '#58c4c0', hub: '#f0b35a', rest: '#888888' };
  #coloursS = -1;
  #microphone = 0;
  #reply = 0;
  #turn = 0;
  #lastS = 0;
  #frame = 0;

  constructor(canvas: HTMLCanvasElement, levels: Levels) {
    this.#canvas = canvas;
    this.#levels = levels;
    this.#frame = requestAnimationFrame(this.#draw);
  }

  close(): void {
    cancelAnimationFrame(this.#frame);
  }

  #draw = (nowMs: number): void => {
    this.#frame = requestAnimationFrame(this.#draw);
    const nowS = nowMs / 1000;
    if (this.#isCalm() && nowS - this.#lastS < 1 / CALM_PER_S) return;
    const passedS = Math.min(0.1, nowS - this.#lastS);
    this.#lastS = nowS;
    this.#follow(nowS, passedS);
    const context = this.#canvas.getContext('2d');
    if (!context) return;
    const size = this.#fit();
    const half = size / 2;
    context.setTransform(1, 0, 0, 1, half, half);
    context.clearRect(-half, -half, size, size);
    const timeS = this.#reduced.matches ? 0 : nowS;
    const radius = half * 0.56;
    this.#glow(context, half);
    this.#body(context, radius, timeS);
    this.#lights(context, radius, timeS);
    this.#strokes(context, radius, half, timeS);
    this.#arc(context, radius);
  };

  #isCalm(): boolean {
    const target = MOODS[this.phase];
    const settled = Object.entries(target).every(([key, value]) => Math.abs(this.#mood[key as keyof Mood] - value) < 0.02);
    const loudest = Math.max(this.#microphone, this.#reply, shaped(this.#levels.microphone), shaped(this.#levels.reply));
    return settled && target.think === 0 && loudest < 0.05;
  }

  /** Moves moods and levels towards their targets. */
  #follow(nowS: number, passedS: number): void {
    const target = MOODS[this.phase];
    const glide = 1 - Math.exp(-passedS * 7);
    for (const key of ['rest', 'you', 'hub', 'think', 'calm'] as const) this.#mood[key] += (target[key] - this.#mood[key]) * glide;
    const fall = 0.5 ** (passedS / FALL_HALF_LIFE_S);
    this.#microphone = Math.max(shaped(this.#levels.microphone), this.#microphone * fall);
    this.#reply = Math.max(shaped(this.#levels.reply), this.#reply * fall);
    if (!this.#reduced.matches) this.#turn += passedS * (0.25 + this.#mood.think * 3.2);
    if (nowS - this.#coloursS > COLOURS_EVERY_S) {
      this.#coloursS = nowS;
      const style = getComputedStyle(this.#canvas);
      const colour = (name: string) => style.getPropertyValue(name).trim();
      this.#colours = { you: colour('--orb-you'), hub: colour('--orb-hub'), rest: colour('--orb-rest') };
    }
  }

  /** Matches the bitmap to the screen's resolution; returns its side in pixels. */
  #fit(): number {
    const size = Math.round(this.#canvas.clientWidth * Math.min(2, devicePixelRatio));
    if (this.#canvas.width !== size) this.#canvas.width = this.#canvas.height = size;
    return size;
  }

  #glow(context: CanvasRenderingContext2D, half: number): void {
    const { you, hub, think } = this.#mood;
    const light = context.createRadialGradient(0, 0, half * 0.2, 0, 0, half);
    const warm = hub * (0.35 + this.#reply * 0.6) + think * 0.12;
    const cool = you * (0.1 + this.#microphone * 0.5);
    const colour = warm >= cool ? this.#colours.hub : this.#colours.you;
    light.addColorStop(0, colour);
    light.addColorStop(0.55, `${colour}44`);
    // The same colour with zero alpha: a gradient towards plain `transparent` would turn grey.
    light.addColorStop(1, `${colour}00`);
    context.globalAlpha = Math.min(0.5, 0.05 + Math.max(warm, cool) * 0.5);
    context.fillStyle = light;
    context.fillRect(-half, -half, half * 2, half * 2);
    context.globalAlpha = 1;
  }

  /** Three uneven discs on top of each other that rotate against each other. */
  #body(context: CanvasRenderingContext2D, radius: number, timeS: number): void {
    const { hub, think, calm } = this.#mood;
    const swell = hub * this.#reply;
    for (let layer = 0; layer < 3; layer++) {
      const breath = 1 + 0.025 * calm * Math.sin(timeS * 1.3 + layer);
      const size = radius * breath * (0.86 + layer * 0.07 + swell * (0.06 + layer * 0.05));
      const uneven = 0.012 + think * 0.03 + swell * 0.09;
      context.beginPath();
      for (let i = 0; i <= N_POINTS; i++) {
        const angle = (i / N_POINTS) * Math.PI * 2;
        const wave = wobble(angle, timeS * (0.7 + swell) + layer * 2.1) * uneven;
        const r = size * (1 + wave);
        context.lineTo(Math.cos(angle) * r, Math.sin(angle) * r);
      }
      context.closePath();
      const fill = context.createRadialGradient(-size * 0.3, -size * 0.4, 0, 0, 0, size * 1.1);
      fill.addColorStop(0, mix(this.#colours.rest, this.#colours.hub, Math.min(1, hub * 0.9 + think * 0.3)));
      fill.addColorStop(1, mix(this.#colours.rest, this.#colours.hub, Math.min(1, hub * 0.35)));
      context.globalAlpha = [0.9, 0.28, 0.14][layer] ?? 0;
      context.fillStyle = fill;
      context.fill();
    }
    context.globalAlpha = 1;
  }

  /** One of each side, opposite each other. */
  #lights(context: CanvasRenderingContext2D, radius: number, timeS: number): void {
    [this.#colours.you, this.#colours.hub].forEach((colour, i) => {
      const angle = timeS * 0.6 + (i + 0.7) * Math.PI;
      const [x, y] = [Math.cos(angle) * radius * 0.55, Math.sin(angle) * radius * 0.55];
      const light = context.createRadialGradient(x, y, 0, x, y, radius * 0.9);
      light.addColorStop(0, `${colour}aa`);
      light.addColorStop(1, `${colour}00`);
      context.globalAlpha = this.#mood.rest * (0.7 + 0.2 * Math.sin(timeS * 1.3 + i * 2));
      context.fillStyle = light;
      context.beginPath();
      context.arc(0, 0, radius * 0.85, 0, 7);
      context.fill();
    });
    context.globalAlpha = 1;
  }

  /** The user's voice: strokes around the body, longer at higher levels. Without it they are what tells listening from rest. */
  #strokes(context: CanvasRenderingContext2D, radius: number, half: number, timeS: number): void {
    const { you } = this.#mood;
    const from = radius * 1.2;
    const room = half * 0.97 - from;
    context.strokeStyle = this.#colours.you;
    context.lineCap = 'round';
    context.lineWidth = Math.max(1.5, half * 0.011);
    for (let i = 0; i < N_STROKES; i++) {
      const angle = (i / N_STROKES) * Math.PI * 2 - Math.PI / 2;
      const grain = 0.5 + 0.5 * wobble(angle * 3, timeS * 2.4);
      // A slow wave runs around while the hub listens.
      const wave = 0.5 + 0.5 * Math.sin(angle * 4 - timeS * 2);
      const length = room * (0.03 + you * (0.14 * wave + this.#microphone * (0.25 + 0.75 * grain)));
      context.globalAlpha = Math.min(1, you * (0.35 + 0.25 * wave + 0.6 * this.#microphone));
      context.beginPath();
      context.moveTo(Math.cos(angle) * from, Math.sin(angle) * from);
      context.lineTo(Math.cos(angle) * (from + length), Math.sin(angle) * (from + length));
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  /** Thinking: two short rotating arcs, one in each colour. */
  #arc(context: CanvasRenderingContext2D, radius: number): void {
    const { think } = this.#mood;
    if (think < 0.02) return;
    context.lineWidth = radius * 0.028;
    context.lineCap = 'round';
    context.globalAlpha = Math.min(1, think);
    [this.#colours.hub, this.#colours.you].forEach((colour, i) => {
      const from = this.#turn + i * Math.PI;
      context.strokeStyle = colour;
      context.beginPath();
      context.arc(0, 0, radius * 1.1, from, from + 0.9);
      context.stroke();
    });
    context.globalAlpha = 1;
  }
}

/** Maps peaks to a perceptual range: -50 dBFS is 0, -6 dBFS is 1. */
function shaped(peak: number): number {
  return Math.max(0, Math.min(1, (20 * Math.log10(Math.max(peak, 1e-6)) + 50) / 44));
}

/** A smooth closed wave in [-1, 1] without a visible period. */
function wobble(angle: number, timeS: number): number {
  return (Math.sin(angle * 2 + timeS * 1.1) + Math.sin(angle * 3 - timeS * 1.7) + Math.sin(angle * 5 + timeS * 0.9)) / 3;
}

/** Interpolates between two `#rrggbb` colours. */
function mix(from: string, to: string, part: number): string {
  const channel = (colour: string, i: number) => Number.parseInt(colour.slice(1 + i * 2, 3 + i * 2), 16) || 0;
  const blend = (i: number) => Math.round(channel(from, i) + (channel(to, i) - channel(from, i)) * part);
  return `rgb(${blend(0)}, ${blend(1)}, ${blend(2)})`;
}
