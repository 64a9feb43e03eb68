// A language model that serves on the hub's machine, and a button that connects it. Loaded where the offline assistant answers;
// shown to operators only, as others may not connect one.

import type { Conversation } from '@antiphon/client';
import { useEffect, useState } from 'preact/hooks';
import { firstModel } from '../models/data';
import { modelKeeperOf } from '../models/keeper';

export default function FoundModel({ conversation }: { conversation: Conversation }) {
  const keeper = modelKeeperOf(conversation);
  const [, draw] = useState(0);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    const stop = keeper.subscribe(() => draw((n) => n + 1));
    void keeper.look();
    return stop;
  }, [keeper]);
  const found = keeper.llm && firstModel(keeper.llm);
  if (!found) return null;
  const { server, model } = found;
  const connect = async () => {
    setBusy(true);
    await keeper.connectLlm(server.port, model);
    setBusy(false);
    // A session that has begun without a word has the offline assistant; the next one has the model.
    if (keeper.fault === null && conversation.state.link !== 'off' && conversation.state.captions.length === 0) conversation.renew();
  };
  return (
    <div id="found-model" class="offer">
      <div class="offer-text">
        <p>
          <b>{model}</b>
        </p>
        <p class="offer-note">{server.name} on the hub’s machine serves it.</p>
      </div>
      <button type="button" class="pill get" disabled={busy} aria-label={`Connect ${model}`} onClick={() => void connect()}>
        {busy ? 'Connecting …' : 'Connect'}
      </button>
      {keeper.fault && (
        <p class="offer-lacks" role="alert">
          {keeper.fault}
        </p>
      )}
    </div>
  );
}
