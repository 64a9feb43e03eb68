// The chosen loudspeaker while it is not there: the browser's own plays until it is back. Browsers say when devices change;
// some go silent instead of playing on another one.

import type { Conversation } from '@antiphon/client';

/** Follows this choice until what it returns is called. `gone`: whether the loudspeaker is away. */
export function followLoudspeaker(conversation: Pick<Conversation, 'useDevices'>, chosen: string | null, gone: (isGone: boolean) => void): () => void {
  const { mediaDevices } = navigator;
  if (chosen === null || !mediaDevices) return () => {};
  let isGone = false;
  let isOver = false;
  const look = async () => {
    const outputs = (await mediaDevices.enumerateDevices()).filter(({ kind, deviceId }) => kind === 'audiooutput' && deviceId !== '');
    // A page that may not use the microphone sees no names, and one without loudspeakers has none to play on.
    if (isOver || outputs.length === 0) return;
    const isAway = outputs.every(({ deviceId }) => deviceId !== chosen);
    if (isAway === isGone) return;
    isGone = isAway;
    gone(isGone);
    await conversation.useDevices({ loudspeaker: isGone ? null : chosen });
  };
  const onChange = () => void look();
  mediaDevices.addEventListener('devicechange', onChange);
  onChange();
  return () => {
    isOver = true;
    mediaDevices.removeEventListener('devicechange', onChange);
  };
}
