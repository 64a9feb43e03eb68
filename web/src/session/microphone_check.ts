// The level of a microphone beside no conversation: the settings show it.

export interface MicrophoneCheck {
  /** Of the latest samples, 0 to 1. */
  peak: () => number;
  stop: () => void;
}

/** Opens a microphone only to show its level. Rejects where there is none, and where `signal` ends the wait for the user's consent. */
export async function checkMicrophone(device: string | null, signal: AbortSignal): Promise<MicrophoneCheck> {
  // Made at once, while the browser still counts the click.
  const context = new AudioContext();
  let stream: MediaStream | null = null;
  const stop = () => {
    for (const track of stream?.getTracks() ?? []) track.stop();
    void context.close();
  };
  try {
    stream = await navigator.mediaDevices.getUserMedia({ audio: device === null ? true : { deviceId: { exact: device } } });
    signal.throwIfAborted();
    const analyser = context.createAnalyser();
    const samples = new Float32Array(analyser.fftSize);
    context.createMediaStreamSource(stream).connect(analyser);
    const peak = () => {
      analyser.getFloatTimeDomainData(samples);
      return samples.reduce((most, sample) => Math.max(most, Math.abs(sample)), 0);
    };
    return { peak, stop };
  } catch (cause) {
    stop();
    throw cause;
  }
}
