// The page of rtvi.test.mjs: pipecat's client, unchanged, with its WebSocket and small-webrtc transports. The test drives it by
// `window.bot`.

import { PipecatClient, RTVIEvent } from '@pipecat-ai/client-js';
import { SmallWebRTCTransport, WavMediaManager as CallMediaManager } from '@pipecat-ai/small-webrtc-transport';
import { WavMediaManager, WebSocketTransport } from '@pipecat-ai/websocket-transport';

const seen = { events: [], states: [], errors: [], calls: [], bytes: 0, loudest: 0, audibleMs: 0 };

/** Counts the reply's sound on its way to the player. */
class CountingManager extends WavMediaManager {
  bufferBotAudio(data, id) {
    const samples = new Int16Array(data.buffer ?? data);
    seen.bytes += samples.length * 2;
    seen.loudest = Math.max(seen.loudest, ...samples.map(Math.abs));
    return super.bufferBotAudio(data, id);
  }
}

window.bot = {
  seen,
  connect(wsUrl, token) {
    const transport = new WebSocketTransport({ mediaManager: new CountingManager(), recorderSampleRate: 24_000 });
    return begin(transport, (client) => client.connect({ wsUrl, ...(token ? { token } : {}) }));
  },
  /** By WebRTC: with an offer to `offer`, or by `start`. */
  call({ offer, start, token }) {
    const headers = new Headers(token ? { authorization: `Bearer ${token}` } : {});
    // The default media manager loads a script from the internet.
    const transport = new SmallWebRTCTransport({ mediaManager: new CallMediaManager() });
    return begin(transport, (client) => (start ? client.startBotAndConnect({ endpoint: start, headers }) : client.connect({ webrtcRequestParams: { endpoint: offer, headers } })));
  },
};

async function begin(transport, connect) {
  const client = new PipecatClient({
    transport,
    enableMic: true,
    enableCam: false,
    callbacks: {
      onTransportStateChanged: (state) => seen.states.push(state),
      onTrackStarted: (track, participant) => !participant?.local && track.kind === 'audio' && listen(track),
    },
  });
  for (const event of Object.values(RTVIEvent)) {
    if (!/AudioLevel$|TransportState/.test(event)) client.on(event, (data) => seen.events.push({ type: event, data: plain(data) }));
  }
  client.on(RTVIEvent.Error, (message) => seen.errors.push(message.data));
  client.registerFunctionCallHandler('get_colour', async ({ functionName, arguments: given }) => {
    seen.calls.push({ functionName, given });
    return { colour: 'green' };
  });
  Object.assign(window.bot, { client, transport });
  const begun = performance.now();
  const ready = await connect(client);
  seen.connectedAfterMs = performance.now() - begun;
  return ready;
}

/** Plays a track, and measures how long it is audible. */
function listen(track) {
  const stream = new MediaStream([track]);
  const element = Object.assign(document.createElement('audio'), { autoplay: true, srcObject: stream });
  document.body.append(element);
  const context = new AudioContext();
  const analyser = context.createAnalyser();
  context.createMediaStreamSource(stream).connect(analyser);
  const samples = new Float32Array(analyser.fftSize);
  setInterval(() => {
    analyser.getFloatTimeDomainData(samples);
    if (samples.some((sample) => Math.abs(sample) > 0.01)) seen.audibleMs += 20;
  }, 20);
}

/** What a test can be given: tracks and participants cannot. */
function plain(data) {
  try {
    return JSON.parse(JSON.stringify(data ?? null));
  } catch {
    return null;
  }
}
