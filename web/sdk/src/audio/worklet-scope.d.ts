// Declarations of names that exist only inside an AudioWorklet and are missing from the DOM library.

declare abstract class AudioWorkletProcessor {
  readonly port: MessagePort;
  constructor(options?: AudioWorkletNodeOptions);
  abstract process(inputs: Float32Array[][], outputs: Float32Array[][], parameters: Record<string, Float32Array>): boolean;
}
declare function registerProcessor(name: string, processor: new (options: AudioWorkletNodeOptions) => AudioWorkletProcessor): void;
/** Sampling rate of the context, in Hz. */
declare const sampleRate: number;
/** Time of the first sample of the block being processed, in seconds. */
declare const currentTime: number;
/** Index of the first sample of the block being processed. */
declare const currentFrame: number;
