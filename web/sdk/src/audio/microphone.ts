// The user's microphone: permission, capture worklet and teardown. One exists during a spoken
// conversation. Opening it can fail in ways the user can fix; `MicrophoneError` names them.

import { CAPTURE, type CaptureOptions, type CapturedFrame, type ToCapture } from './messages.js';

/** `absent`: the chosen one is not there. */
export type MicrophoneFault = 'insecure' | 'missing' | 'absent' | 'refused' | 'busy' | 'unsupported';

export class MicrophoneError extends Error {
  constructor(
    readonly fault: MicrophoneFault,
    cause?: unknown,
  ) {
    super(fault, { cause });
  }
}

export interface MicrophoneOptions {
  /** Address of `worklets.ts`, bundled. */
  worklets: string;
  /** Sampling rate of the frames, as required by the encoder. */
  toHz: number;
  frame: (frame: CapturedFrame) => void;
  /** Id of the device; null: the browser's choice. */
  device: string | null;
  /** The device was disconnected while in use. */
  lost: () => void;
}

export class Microphone {
  readonly #stream: MediaStream;
  /** The device in the audio graph. */
  readonly source: MediaStreamAudioSourceNode;
  readonly #node: AudioWorkletNode;

  /** Requests the device first, because nothing else works without its permission. */
  static async open(context: AudioContext, options: MicrophoneOptions): Promise<Microphone> {
    const stream = await askForStream(options.device);
    try {
      await context.audioWorklet.addModule(options.worklets);
      return new Microphone(context, stream, options);
    } catch (cause) {
      for (const track of stream.getTracks()) track.stop();
      throw cause;
    }
  }

  private constructor(context: AudioContext, stream: MediaStream, options: MicrophoneOptions) {
    this.#stream = stream;
    this.source = context.createMediaStreamSource(stream);
    const processorOptions: CaptureOptions = { toHz: options.toHz };
    this.#node = new AudioWorkletNode(context, CAPTURE, { numberOfInputs: 1, numberOfOutputs: 1, processorOptions });
    this.#node.port.onmessage = (message: MessageEvent<CapturedFrame>) => options.frame(message.data);
    // Its output is silent; browsers only run nodes that are connected to the destination.
    this.source.connect(this.#node).connect(context.destination);
    for (const track of stream.getAudioTracks()) track.addEventListener('ended', options.lost);
  }

  /** The device's track, for a transport that sends it as it is. */
  get track(): MediaStreamTrack | null {
    return this.#stream.getAudioTracks()[0] ?? null;
  }

  mute(muted: boolean): void {
    if (this.track) this.track.enabled = !muted;
    this.#post({ kind: 'mute', muted });
  }

  close(): void {
    this.#node.port.onmessage = null;
    this.#post({ kind: 'stop' });
    this.source.disconnect();
    this.#node.disconnect();
    for (const track of this.#stream.getTracks()) track.stop();
  }

  #post(message: ToCapture): void {
    this.#node.port.postMessage(message);
  }
}

async function askForStream(device: string | null): Promise<MediaStream> {
  if (!window.isSecureContext) throw new MicrophoneError('insecure');
  if (!navigator.mediaDevices?.getUserMedia) throw new MicrophoneError('unsupported');
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1, ...(device && { deviceId: { exact: device } }) },
    });
  } catch (cause) {
    throw new MicrophoneError(faultOf(cause), cause);
  }
}

function faultOf(cause: unknown): MicrophoneFault {
  switch (cause instanceof DOMException ? cause.name : '') {
    case 'NotAllowedError':
    case 'SecurityError':
      return 'refused';
    case 'NotFoundError':
      return 'missing';
    case 'OverconstrainedError':
      return 'absent';
    default:
      return 'busy';
  }
}
