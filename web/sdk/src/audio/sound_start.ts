// Notices that the browser does not start the page's sound, and the microphone with it: it wants a click first, or (Firefox) has
// no loudspeaker. The chat page and `<antiphon-voice>` say so; a click on what they show calls `AudioContext.resume`.

/** Sound starts within this of a session, or the browser does not start it by itself. */
const STARTS_MS = 3_000;

/**
 * Call it when `link` becomes `live`, with the context of `Conversation.audio`. Reports that sound is missing, and that it has
 * come; returns what ends it, with a last report that nothing is missing any more.
 */
export function followSoundStart(context: AudioContext | undefined, report: (isMissing: boolean) => void): () => void {
  const look = () => report(context?.state === 'suspended');
  const timer = setTimeout(look, STARTS_MS);
  context?.addEventListener('statechange', look);
  return () => {
    clearTimeout(timer);
    context?.removeEventListener('statechange', look);
    report(false);
  };
}
