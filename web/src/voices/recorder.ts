// Records a reference recording with the microphone as it is: what browsers do to calls (removing echo and noise, levelling)
// changes a voice. Stops by itself at a length.

export type RecorderFault = 'refused' | 'unsupported';

export class Recorder {
  readonly #stream: MediaStream;
  readonly #recorder: MediaRecorder;
  readonly #begun = performance.now();
  readonly #timer: number;
  /** The recording, once it is stopped. */
  readonly done: Promise<Blob>;

  /** `signal`: the user has left before the browser let the page record. */
  static async start(longestMs: number, signal: AbortSignal): Promise<Recorder | RecorderFault> {
    if (!window.isSecureContext || !navigator.mediaDevices?.getUserMedia || !('MediaRecorder' in window)) return 'unsupported';
    try {
      const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: 1 };
      const stream = await navigator.mediaDevices.getUserMedia({ audio });
      if (!signal.aborted) return new Recorder(stream, longestMs);
      for (const track of stream.getTracks()) track.stop();
      return 'refused';
    } catch {
      return 'refused';
    }
  }

  private constructor(stream: MediaStream, longestMs: number) {
    this.#stream = stream;
    this.#recorder = new MediaRecorder(stream, { audioBitsPerSecond: 128_000 });
    const pieces: Blob[] = [];
    this.#recorder.addEventListener('dataavailable', ({ data }) => pieces.push(data));
    this.done = new Promise((done) => this.#recorder.addEventListener('stop', () => done(new Blob(pieces, { type: this.#recorder.mimeType }))));
    this.#timer = window.setTimeout(() => this.stop(), longestMs);
    this.#recorder.start();
  }

  get elapsedMs(): number {
    return performance.now() - this.#begun;
  }

  stop(): void {
    window.clearTimeout(this.#timer);
    if (this.#recorder.state !== 'inactive') this.#recorder.stop();
    for (const track of this.#stream.getTracks()) track.stop();
  }
}
