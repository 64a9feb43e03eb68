// The language model: what answers, the servers on the hub's machine with their models, and what to do where there is none.

import { useState } from 'preact/hooks';
import { type LlmServers, type Models, isUnderWay, missingOf, size, pullStatus } from '../models/data';
import type { ModelKeeper } from '../models/keeper';
import { OFFLINE } from './offline';

export function LanguageModels({ llm, keeper }: { llm: LlmServers; keeper: ModelKeeper }) {
  const [busy, setBusy] = useState(false);
  const doing = (work: Promise<void>) => {
    setBusy(true);
    void work.finally(() => setBusy(false));
  };
  const { active, servers } = llm;
  return (
    <section class="engine-stage" data-stage="llm">
      <div class="engine-stage-head">
        <h3>Answers</h3>
        <p class="engine-stage-plain">Writes what is said</p>
      </div>
      <p class="engine-stage-now">
        <b>{active.model ?? 'Offline assistant'}</b>
        <span>{active.baseUrl ?? 'needs no model'}</span>
      </p>
      {active.model === null && <p class="panel-note">It knows {OFFLINE}, and nothing else.</p>}
      {servers.map((server) => (
        <div key={server.port} class="llm-server" data-port={server.port}>
          <p class="engine-stage-plain">
            {server.name} on the hub’s machine, port {server.port}
          </p>
          {server.problem && <p class="offer-lacks">{server.problem}</p>}
          <ul>
            {server.models.map((model) => {
              const answers = active.model === model && active.baseUrl?.includes(`:${server.port}/`) === true;
              return (
                <li key={model} class="model">
                  <span class="model-title">{model}</span>
                  <span class={`model-state ${answers ? 'serves' : ''}`}>{answers ? 'answers' : ''}</span>
                  {!answers && (
                    <button type="button" class="link" disabled={busy} aria-label={`Connect ${model}`} onClick={() => doing(keeper.connectLlm(server.port, model))}>
                      Connect
                    </button>
                  )}
                </li>
              );
            })}
          </ul>
        </div>
      ))}
      {servers.length === 0 && active.model === null && (
        <p class="panel-note">
          No language model server runs on the hub's machine. Start Ollama, llama.cpp, LM Studio or vLLM there; with Ollama: <code>ollama pull llama3.2</code>.
        </p>
      )}
      {active.connected && (
        <div class="llm-kept" role="status">
          <p>It answers from the next conversation on, until the hub restarts.</p>
          {active.settings && (
            <details class="engine-stage-more">
              <summary>To keep it, write this into the configuration</summary>
              <pre>{active.settings}</pre>
            </details>
          )}
        </div>
      )}
      <p class="llm-acts">
        <button type="button" class="link" disabled={busy} onClick={() => doing(keeper.lookForLlm())}>
          Look again
        </button>
        {active.connected && (
          <button type="button" class="link" disabled={busy} onClick={() => doing(keeper.disconnectLlm())}>
            Disconnect
          </button>
        )}
      </p>
    </section>
  );
}

/** One click for better ears and a better voice, while they are missing. */
export function Recommended({ models, keeper }: { models: Models; keeper: ModelKeeper }) {
  const missing = missingOf(models);
  const { failures, isGettingAll } = keeper;
  const isOffered = models.mayChange && (missing.length >= 2 || isGettingAll || failures.length > 0);
  if (!isOffered) return null;
  const bytes = missing.reduce((sum, { variants }) => sum + (variants[0]?.aboutBytes ?? 0), 0);
  const current = models.models.find(({ pull }) => isUnderWay(pull));
  return (
    <div id="recommended" class="offer">
      <div class="offer-text">
        <p>
          <b>Good ears and a good voice</b> <span class="offer-size">{size(bytes)}</span>
        </p>
        <p class="offer-note">{missing.map(({ title, licence }) => `${title} (${licence})`).join(', ')}. Any machine runs them.</p>
      </div>
      {current === undefined && !isGettingAll && missing.length > 0 && (
        <button type="button" class="pill get" onClick={() => void keeper.pullRecommended()}>
          {failures.length > 0 ? 'Try again' : 'Get all'}
        </button>
      )}
      {current && (
        <button type="button" class="pill" onClick={() => void keeper.cancel(current.name)}>
          Cancel
        </button>
      )}
      <div class="pull">
        {isGettingAll && current?.pull && (
          <p class="pull-status">
            {current.title}: {pullStatus(current.pull)}
          </p>
        )}
        <div aria-live="polite">
          {failures.map(({ title, message }) => (
            <p key={title} class="pull-status failed">
              {title}: {message}
            </p>
          ))}
        </div>
      </div>
    </div>
  );
}
