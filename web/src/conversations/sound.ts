// The sound of a conversation, both sides, in memory: the latest part of it, bounded by bytes and time. Nothing of it leaves the
// page but by a download.

import type { AudioGraph } from '@antiphon/client';
import worklet from './sound.worklet.ts?worker&url';
import { SOUND, type SoundBlock } from './sound_block';

/** 11 minutes if both sides made sound all the time; a side's silence takes nothing. */
export const MAX_BYTES = 64 << 20;
/** 2 h. Silence takes nothing here, and as much as sound in a file. */
export const MAX_BLOCKS = 72_000;

export class KeptSound {
  #blocks: SoundBlock[] = [];
  #bytes = 0;
  /** Samples that were dropped from the start. */
  #nDropped = 0;
  #nSamples = 0;
  #rateHz = 24_000;
  #keeps = true;
  #node: { node: AudioWorkletNode; merger: ChannelMergerNode; context: AudioContext } | null = null;
  #sides: [AudioNode | null, AudioNode | null] = [null, null];
  #asked: AudioContext | null = null;

  /** Listens to this graph from now on; to be called whenever it may have changed. */
  follow(graph: AudioGraph | null): void {
    if (graph === null) return;
    if (this.#asked !== graph.context) {
      this.#asked = graph.context;
      void this.#open(graph.context);
    }
    if (this.#node?.context !== graph.context) return;
    [graph.microphone, graph.reply].forEach((side, i) => {
      const before = this.#sides[i];
      if (side === before) return;
      // A node that is gone has no connections any more.
      try {
        if (before && this.#node) before.disconnect(this.#node.merger);
      } catch {
        // It was disconnected with its device.
      }
      if (this.#node) side?.connect(this.#node.merger, 0, i);
      this.#sides[i] = side;
    });
  }

  /** Length of the conversation's sound so far; it goes on while a conversation is open. */
  get endMs(): number {
    return (this.#nSamples / this.#rateHz) * 1_000;
  }

  /** Where the kept part begins. */
  get startMs(): number {
    return (this.#nDropped / this.#rateHz) * 1_000;
  }

  get isEmpty(): boolean {
    return this.#blocks.length === 0;
  }

  /** Whether sound is kept; if not, only its length is counted. */
  set keeps(keeps: boolean) {
    this.#keeps = keeps;
    if (!keeps) this.#drop(this.#blocks.length);
  }

  /** Begins another conversation, of which so much sound is over. */
  begin(fromMs: number): void {
    this.#blocks = [];
    this.#bytes = 0;
    this.#nDropped = this.#nSamples = Math.round((fromMs / 1_000) * this.#rateHz);
  }

  push(block: SoundBlock): void {
    this.#blocks.push(block);
    this.#bytes += sizeOf(block);
    this.#nSamples += block.nSamples;
    if (!this.#keeps) return this.#drop(1);
    let gone = Math.max(0, this.#blocks.length - MAX_BLOCKS);
    let over = this.#bytes - MAX_BYTES - this.#blocks.slice(0, gone).reduce((sum, block) => sum + sizeOf(block), 0);
    for (; over > 0 && gone < this.#blocks.length - 1; gone += 1) over -= sizeOf(this.#blocks[gone]);
    this.#drop(gone);
  }

  /** PCM16, two channels: you left, Antiphon right. */
  wav(): Blob {
    const nSamples = this.#nSamples - this.#nDropped;
    const parts: ArrayBuffer[] = [wavHead(nSamples, this.#rateHz)];
    for (const { nSamples: length, sides } of this.#blocks) {
      const samples = new Int16Array(2 * length);
      sides.forEach((side, channel) => side?.forEach((sample, i) => (samples[2 * i + channel] = sample)));
      parts.push(samples.buffer);
    }
    return new Blob(parts, { type: 'audio/wav' });
  }

  async #open(context: AudioContext): Promise<void> {
    try {
      await context.audioWorklet.addModule(worklet);
    } catch (cause) {
      // The conversation goes on without a recording.
      return reportError(cause);
    }
    const merger = context.createChannelMerger(2);
    const node = new AudioWorkletNode(context, SOUND, { channelCount: 2, channelCountMode: 'explicit' });
    this.#rateHz = context.sampleRate / 2;
    node.port.onmessage = ({ data }: MessageEvent<SoundBlock>) => this.push(data);
    // Its output is silent; browsers only run nodes that are connected to the destination.
    merger.connect(node).connect(context.destination);
    this.#node = { node, merger, context };
    this.#sides = [null, null];
  }

  #drop(n: number): void {
    for (const block of this.#blocks.splice(0, n)) {
      this.#bytes -= sizeOf(block);
      this.#nDropped += block.nSamples;
    }
  }
}

function sizeOf(block: SoundBlock | undefined): number {
  return (block?.sides ?? []).reduce((sum, side) => sum + (side?.byteLength ?? 0), 0);
}

function wavHead(nSamples: number, rateHz: number): ArrayBuffer {
  const bytes = nSamples * 4;
  const view = new DataView(new ArrayBuffer(44));
  const text = (at: number, words: string) => [...words].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, 36 + bytes, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 2, true);
  view.setUint32(24, rateHz, true);
  view.setUint32(28, rateHz * 4, true);
  view.setUint16(32, 4, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, bytes, true);
  return view.buffer;
}
