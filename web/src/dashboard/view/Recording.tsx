// The sound of a turn, the user left and the reply right, where the hub records sessions. It is fetched on request, because
// the request may need a key that an audio element cannot send.

import { useEffect, useState } from 'preact/hooks';
import type { Turn } from '../data/turn';

type Sound = { kind: 'none' } | { kind: 'loading' } | { kind: 'here'; address: string } | { kind: 'failed'; why: string };

export function Recording({ turn, ask }: { turn: Turn; ask: (path: string) => Promise<Response> }) {
  const [sound, setSound] = useState<Sound>({ kind: 'none' });
  useEffect(() => {
    if (sound.kind !== 'here') return;
    return () => URL.revokeObjectURL(sound.address);
  }, [sound]);
  const load = async () => {
    setSound({ kind: 'loading' });
    try {
      const answer = await ask(`api/turns/${encodeURIComponent(turn.id)}/audio`);
      if (answer.ok) setSound({ kind: 'here', address: URL.createObjectURL(await answer.blob()) });
      else setSound({ kind: 'failed', why: REFUSED[answer.status] ?? `The hub answered with ${answer.status}.` });
    } catch {
      setSound({ kind: 'failed', why: 'The hub did not answer.' });
    }
  };
  return (
    <>
      {sound.kind === 'here' ? (
        <audio controls autoplay src={sound.address} aria-label="The user on the left, the reply on the right" />
      ) : (
        <button type="button" class="pill" disabled={sound.kind === 'loading'} onClick={() => void load()}>
          Play what was said
        </button>
      )}
      {sound.kind === 'failed' && (
        <p class="detail-error" role="alert">
          {sound.why}
        </p>
      )}
    </>
  );
}

const REFUSED: Record<number, string> = {
  401: 'The hub wants an admin key for recordings.',
  403: 'Only an admin key may hear recordings.',
  404: 'The recording is no longer there.',
};
