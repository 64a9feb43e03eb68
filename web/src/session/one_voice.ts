// Of several tabs with this page, one talks: two open microphones would hear each other's answers. The tab that begins last
// has it; the others stop, keep their conversation, and say so.

import type { Conversation } from '@antiphon/client';

const CHANNEL = 'antiphon.talking';

/** `taken`: another tab talks now, and this one has stopped. */
export function oneVoice(conversation: Pick<Conversation, 'state' | 'subscribe' | 'stop'>, taken: () => void): void {
  // Without the channel (private windows of some browsers) each tab is on its own.
  if (typeof BroadcastChannel === 'undefined') return;
  const channel = new BroadcastChannel(CHANNEL);
  let was = conversation.state.microphone;
  channel.onmessage = () => {
    if (conversation.state.microphone === 'off') return;
    conversation.stop();
    taken();
  };
  conversation.subscribe(() => {
    const { microphone } = conversation.state;
    if (microphone === 'on' && was !== 'on') channel.postMessage(null);
    was = microphone;
  });
}
