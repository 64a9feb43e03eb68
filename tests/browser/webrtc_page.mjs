// The page of the WebRTC tests: OpenAI's agents SDK, unchanged, bundled by `webrtc.test.mjs`. Tests drive it by `window.call`.

import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { z } from 'zod';

const QUIET = 0.01;
const EVERY_MS = 20;

const call = {
  /** Server events, in order: type, and the whole event. */
  events: [],
  errors: [],
  toolCalls: [],
  connectedAfterMs: null,
  callId: null,
  /** Time with an audible answer, and the level now. */
  audibleMs: 0,
  level: 0,

  /** `interruptAfterMs`: of audible answer. */
  async connect({ url, key, instructions, tcpOnly = false, interruptAfterMs = Infinity }) {
    const audioElement = document.createElement('audio');
    audioElement.autoplay = true;
    document.body.append(audioElement);
    const transport = new OpenAIRealtimeWebRTC({ baseUrl: url, audioElement, changePeerConnection: tcpOnly ? withoutUdp : undefined });
    const clock = tool({
      name: 'get_time',
      description: 'Tells the time.',
      parameters: z.object({}),
      execute: async () => {
        this.toolCalls.push('get_time');
        return 'ten past four';
      },
    });
    const agent = new RealtimeAgent({ name: 'Clock', instructions: instructions ?? 'Be brief.', tools: [clock] });
    this.session = new RealtimeSession(agent, { transport, model: 'antiphon' });
    this.session.on('transport_event', (event) => this.events.push(event));
    this.session.on('error', (error) => this.errors.push(JSON.stringify(error?.error ?? String(error))));
    const begin = performance.now();
    await this.session.connect({ apiKey: key });
    this.connectedAfterMs = performance.now() - begin;
    this.callId = transport.callId;
    this.peer = transport.connectionState.peerConnection;
    this.measure(audioElement, interruptAfterMs);
  },

  measure(audioElement, interruptAfterMs) {
    const context = new AudioContext();
    const analyser = context.createAnalyser();
    analyser.fftSize = 1024;
    const samples = new Float32Array(analyser.fftSize);
    let source = null;
    setInterval(() => {
      if (source === null) {
        if (!audioElement.srcObject) return;
        source = context.createMediaStreamSource(audioElement.srcObject);
        source.connect(analyser);
      }
      analyser.getFloatTimeDomainData(samples);
      this.level = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
      if (this.level <= QUIET) return;
      this.audibleMs += EVERY_MS;
      if (this.audibleMs < interruptAfterMs) return;
      interruptAfterMs = Infinity;
      this.session.interrupt();
    }, EVERY_MS);
  },

  async statistics() {
    const report = {};
    for (const entry of (await this.peer.getStats()).values()) {
      if (entry.type === 'inbound-rtp' || entry.type === 'outbound-rtp') report[entry.type] = entry;
      if (entry.type === 'candidate-pair' && entry.nominated) report.pair = entry;
      if (entry.type === 'local-candidate' || entry.type === 'remote-candidate') (report[entry.type] ??= []).push(entry);
    }
    return report;
  },
};

/** A network that lets no UDP through: the hub's UDP addresses are not learnt. */
function withoutUdp(peer) {
  const setRemote = peer.setRemoteDescription.bind(peer);
  peer.setRemoteDescription = (answer) => setRemote({ ...answer, sdp: answer.sdp.replace(/a=candidate:\S+ \d+ udp .*\r\n/gi, '') });
  return peer;
}

window.call = call;
