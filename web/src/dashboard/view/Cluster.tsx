// The hub's cluster: its connection to NATS, the hubs, the workers with their load, those that were
// lost, and what became of requests.

import type { Cluster as ClusterData, Hub, Lost, Worker, WorkerStage } from '../data/cluster';
import { CLUSTER_COUNTS, age, clockNote, duration, linkWords, modelWarning, workerWarnings } from '../data/words';

/** The hub keeps more of them. */
const LOST_SHOWN = 5;

export function Cluster({ cluster }: { cluster: ClusterData }) {
  return (
    <section class="card area-cluster" id="cluster" aria-label="Cluster">
      <h2>Cluster</h2>
      <p class={cluster.isConnected ? 'quiet' : 'member-warning'} id="cluster-link">
        {linkWords(cluster)}
      </p>
      <div class="cluster">
        <div class="box" id="hubs">
          <h3>Hubs</h3>
          <ul class="members">
            {cluster.hubs.map((hub) => (
              <HubItem key={hub.id} hub={hub} />
            ))}
          </ul>
        </div>
        <div class="box" id="workers">
          <h3>Workers</h3>
          {cluster.stageModels.map(modelWarning).map(
            (warning) =>
              warning !== null && (
                <p key={warning} class="member-warning">
                  {warning}
                </p>
              ),
          )}
          {cluster.workers.length === 0 ? (
            <p class="quiet">
              There are no workers. Start one on any machine: <code>antiphon worker --stage stt,tts</code>
            </p>
          ) : (
            <ul class="members">
              {cluster.workers.map((worker) => (
                <WorkerItem key={worker.id} worker={worker} />
              ))}
            </ul>
          )}
        </div>
        <div class="box cluster-past">
          <Counts counts={cluster.counts} />
          <LostWorkers lost={cluster.lost} />
        </div>
      </div>
    </section>
  );
}

function HubItem({ hub }: { hub: Hub }) {
  const warning = clockNote(hub.clockOffsetMs);
  return (
    <li class="member" data-hub={hub.name}>
      <p class="member-head">
        <b>{hub.name}</b>
        {hub.isThis && <span class="badge hub">this one</span>}
        {hub.isDraining && <span class="badge">draining</span>}
      </p>
      <p class="member-load">
        <Load used={hub.sessions} of={hub.maxSessions} what="sessions" />
      </p>
      <p class="quiet">
        {hub.build}, up {age(hub.upMs)}
      </p>
      {warning !== null && <p class="member-warning">{warning}</p>}
    </li>
  );
}

function WorkerItem({ worker }: { worker: Worker }) {
  return (
    <li class="member" data-worker={worker.name}>
      <p class="member-head">
        <b>{worker.name}</b>
        {worker.isDraining && <span class="badge">draining</span>}
        {worker.refused !== null && <span class="badge bad">not used</span>}
      </p>
      {worker.stages.map((stage) => (
        <Stage key={stage.stage} stage={stage} />
      ))}
      <p class="quiet">
        {worker.build}, up {age(worker.upMs)}
      </p>
      {workerWarnings(worker).map((warning) => (
        <p key={warning} class="member-warning">
          {warning}
        </p>
      ))}
    </li>
  );
}

function Stage({ stage: { stage, model, isFallback, slots, inFlight, waitMs } }: { stage: WorkerStage }) {
  return (
    <p class="member-load">
      <span class="member-stage">
        {stage} {model !== '' && <span class="quiet">{model}</span>} {isFallback && <span class="badge">fallback</span>}
      </span>
      <Load used={inFlight} of={slots} what="slots in use" />
      {waitMs > 0 && <span class="quiet">wait {duration(waitMs)}</span>}
    </p>
  );
}

/** More may be under way than there are slots: the others wait. */
function Load({ used, of, what }: { used: number; of: number; what: string }) {
  return (
    <span class="load">
      <meter min={0} max={Math.max(1, of)} high={of * 0.8} value={Math.min(used, of)} aria-label={`${used} of ${of} ${what}`} />
      <span>
        {used} of {of} {what}
      </span>
    </span>
  );
}

function Counts({ counts }: { counts: Record<string, number> }) {
  return (
    <div id="cluster-counts">
      <h3>Requests of this hub</h3>
      <dl class="facts">
        {Object.entries(counts).map(([name, n]) => (
          <div key={name} class={n > 0 && (name === 'failed' || name === 'away') ? 'bad' : ''}>
            <dt>{CLUSTER_COUNTS[name] ?? name}</dt>
            <dd>{n}</dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function LostWorkers({ lost }: { lost: readonly Lost[] }) {
  if (lost.length === 0) return null;
  return (
    <div id="lost">
      <h3>Lost workers</h3>
      <dl class="facts">
        {lost.slice(0, LOST_SHOWN).map(({ id, name, agoMs, why }) => (
          <div key={`${id} ${agoMs}`}>
            <dt>
              {name}, {age(agoMs)} ago
            </dt>
            <dd>{why}</dd>
          </div>
        ))}
      </dl>
      {lost.length > LOST_SHOWN && <p class="quiet">and {lost.length - LOST_SHOWN} before</p>}
    </div>
  );
}
