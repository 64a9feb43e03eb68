// On the page before the first words, where the offline assistant answers: what it knows, and a language model of the hub's
// machine that one click connects. Captions show it. It looks for models once the hub has admitted the page.

import type { Conversation } from '@antiphon/client';
import { Later } from './Later';
import { OFFLINE } from './offline';

interface Props {
  conversation: Conversation;
  /** Whether the hub has admitted this page. */
  isAdmitted: boolean;
  onEngines: () => void;
}

export function OfflineNote({ conversation, isAdmitted, onEngines }: Props) {
  return (
    <div id="offline-note" class="offline-note">
      <p>
        The offline assistant answers. It knows {OFFLINE}.{' '}
        <button type="button" class="link" onClick={onEngines}>
          Connect a language model
        </button>{' '}
        to talk about anything.
      </p>
      {isAdmitted && <Later load={loadFound} onFault={stayWithout} props={{ conversation }} />}
    </div>
  );
}

/** On a hub without a recognizer, which can be written to. */
export function NoRecognizerNote({ onEngines }: Pick<Props, 'onEngines'>) {
  return (
    <p class="offline-note">
      This hub hears nobody yet: it has no speech recognizer.{' '}
      <button type="button" class="link" onClick={onEngines}>
        Get one
      </button>{' '}
      or write below.
    </p>
  );
}

const loadFound = () => import('./FoundModel');
/** The panel of the engines offers the same, and says where it does not load. */
const stayWithout = () => undefined;
