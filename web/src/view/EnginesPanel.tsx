// The engine of each stage, and for the operator a better model that one click installs. Loaded when it is opened.

import type { Conversation } from '@antiphon/client';
import { useEffect, useState } from 'preact/hooks';
import { type Model, type Models, type Pull, type Stage, isHere, isUnderWay, modelsOf, share, size, pullStatus, unchecked } from '../models/data';
import { type ModelKeeper, modelKeeperOf } from '../models/keeper';
import { LanguageModels, Recommended } from './LanguageModels';
import { voiceKeeperOf } from '../voices/keeper';
import { Dialog } from './Dialog';
import { Voices } from './Voices';

/** Stages in order of the benefit of a better model. */
const STAGES: { stage: string; does: string; plain: string }[] = [
  { stage: 'stt', does: 'Transcribes', plain: 'Converts your speech to text' },
  { stage: 'tts', does: 'Speaks', plain: 'The voice of the answers' },
  { stage: 'vad', does: 'Hears speech', plain: 'Separates speech from noise' },
  { stage: 'turn', does: 'Takes turns', plain: 'Detects when you have finished' },
];

/** Engines that need no model. */
const NEED_NONE = ['earshot', 'silence', 'flite'];

interface Props {
  conversation: Conversation;
  onClose: () => void;
}

export default function EnginesPanel({ conversation, onClose }: Props) {
  const keeper = modelKeeperOf(conversation);
  const [, draw] = useState(0);
  useEffect(() => {
    const stop = keeper.subscribe(() => draw((n) => n + 1));
    void keeper.look();
    return stop;
  }, [keeper]);
  const { models, fault } = keeper;
  return (
    <Dialog id="engines-panel" title="Engines" onClose={onClose}>
      {fault && (
        <p class="panel-fault" role="alert">
          {fault}
        </p>
      )}
      {models === null && fault === null && <p class="panel-note">Loading …</p>}
      {models && <Recommended models={models} keeper={keeper} />}
      {keeper.llm && <LanguageModels llm={keeper.llm} keeper={keeper} />}
      {models && STAGES.map(({ stage, does, plain }) => <StageRow key={stage} models={models} name={stage} does={does} plain={plain} keeper={keeper} />)}
      <Voices keeper={voiceKeeperOf(conversation)} />
      {models && !models.mayChange && (
        <p class="panel-note">
          The operator can add better engines: here, on its own machine or with an admin key, or by{' '}
          <code>antiphon models pull</code>.
        </p>
      )}
    </Dialog>
  );
}

function StageRow({ models, name, does, plain, keeper }: { models: Models; name: string; does: string; plain: string; keeper: ModelKeeper }) {
  const stage = models.stages.find((one) => one.stage === name);
  if (!stage) return null;
  const serving = models.models.find(({ serves, stage: of }) => serves && of === name);
  const offered = models.models.find((model) => model.name === stage.offer);
  // A completed download removes the offer, but its result is still shown.
  const shown = offered ?? models.models.find((model) => model.stage === name && model.pull !== null);
  // If the offer is the only model, it is already shown above.
  const others = modelsOf(models, name).filter((model, _, all) => all.length > 1 || model.name !== shown?.name || isHere(model));
  return (
    <section class="engine-stage" data-stage={name}>
      <div class="engine-stage-head">
        <h3>{does}</h3>
        <p class="engine-stage-plain">{plain}</p>
      </div>
      <p class="engine-stage-now">
        <b>{serving?.title ?? stage.engine}</b>
        <span>{serving ? stage.model : nowNote(stage.engine)}</span>
      </p>
      {stage.waitMs !== null && <p class="engine-stage-plain">{waitNote(stage)}</p>}
      <PassedOver stage={stage} />
      {shown && (models.mayChange || shown.pull) && <Offer model={shown} mayChange={models.mayChange} keeper={keeper} />}
      {others.length > 0 && (
        <details class="engine-stage-more">
          <summary>
            {others.length === 1 ? 'One model' : `All ${others.length} models`}
          </summary>
          <ul>
            {others.map((model) => (
              <ModelRow key={model.name} model={model} isShownAbove={model.name === shown?.name} mayChange={models.mayChange} keeper={keeper} />
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

/** What stands beside an engine that runs no model of the list. */
function nowNote(engine: string): string {
  if (engine === 'cluster') return 'workers serve this stage';
  return NEED_NONE.includes(engine) ? 'needs no model' : '';
}

/** How fast the model is on the hub's machine. */
function waitNote({ stage, waitMs, bothMs }: Stage): string {
  return `${stage === 'tts' ? 'First sound' : 'Transcript'} after ${waitMs} ms on the hub’s machine, ${bothMs} ms where two wait at once`;
}

function PassedOver({ stage }: { stage: Stage }) {
  if (stage.passedOver.length === 0) return null;
  return (
    <ul class="passed-over">
      {stage.passedOver.map(({ model, why, slow }) => (
        <li key={model}>
          <b>{model}</b> is here and {slow ? 'too slow for the hub’s machine' : 'cannot be used'}: {why}
        </li>
      ))}
    </ul>
  );
}

function Offer({ model, mayChange, keeper }: { model: Model; mayChange: boolean; keeper: ModelKeeper }) {
  const { pull } = model;
  return (
    <div class={`offer ${pull?.state ?? ''}`}>
      <div class="offer-text">
        <p>
          <b>{model.title}</b> <span class="offer-size">{size(model.variants[0]?.aboutBytes ?? 0)}</span>
        </p>
        <p class="offer-note">
          {[model.note, `Licence: ${model.licence}.`, unchecked(model)].filter(Boolean).join(' ')}
        </p>
        {model.lacks && <p class="offer-lacks">{model.lacks}</p>}
      </div>
      {mayChange && !model.lacks && !isUnderWay(pull) && (!isHere(model) || pull?.state === 'failed') && (
        <button type="button" class="pill get" onClick={() => void keeper.pull(model.name)}>
          {pull?.state === 'failed' ? 'Try again' : 'Get it'}
        </button>
      )}
      {mayChange && pull?.state === 'pulling' && (
        <button type="button" class="pill" aria-label={`Cancel ${model.title}`} onClick={() => void keeper.cancel(model.name)}>
          Cancel
        </button>
      )}
      {pull && <PullState pull={pull} name={model.title} />}
    </div>
  );
}

function PullState({ pull, name }: { pull: Pull; name: string }) {
  const part = share(pull);
  return (
    <div class="pull">
      {isUnderWay(pull) && (
        <>
          <progress aria-label={`Getting ${name}`} max={1} {...(part === null ? {} : { value: part })}>
            {part === null ? '' : `${Math.round(part * 100)} %`}
          </progress>
          <p class={`pull-status ${pull.state}`}>{pullStatus(pull)}</p>
        </>
      )}
      {/* How it ended is announced; each megabyte is not. */}
      <div aria-live="polite">{!isUnderWay(pull) && <p class={`pull-status ${pull.state}`}>{pullStatus(pull)}</p>}</div>
    </div>
  );
}

interface RowProps {
  model: Model;
  /** Whether the result of its download is already shown above the list. */
  isShownAbove: boolean;
  mayChange: boolean;
  keeper: ModelKeeper;
}

function ModelRow({ model, isShownAbove, mayChange, keeper }: RowProps) {
  const here = isHere(model);
  const state = model.serves ? 'serves' : here ? 'here' : size(model.variants[0]?.aboutBytes ?? 0);
  return (
    <li class="model" data-model={model.name}>
      <span class="model-title" title={[`${model.name}.`, model.note, `Licence: ${model.licence}.`, unchecked(model), model.lacks].filter(Boolean).join(' ')}>
        {model.title}
      </span>
      <span class={`model-state ${model.serves ? 'serves' : ''}`}>{isUnderWay(model.pull) && model.pull ? pullStatus(model.pull) : state}</span>
      {mayChange && !model.serves && !isUnderWay(model.pull) && (
        <button
          type="button"
          class="link"
          aria-label={`${here ? 'Remove' : 'Get'} ${model.title}`}
          onClick={() => void (here ? keeper.remove(model.name) : keeper.pull(model.name))}
        >
          {here ? 'Remove' : 'Get'}
        </button>
      )}
      {mayChange && !isShownAbove && model.pull?.state === 'pulling' && (
        <button type="button" class="link" aria-label={`Cancel ${model.title}`} onClick={() => void keeper.cancel(model.name)}>
          Cancel
        </button>
      )}
      {model.pull && !isUnderWay(model.pull) && !isShownAbove && (
        <p class={`pull-status ${model.pull.state}`} aria-live="polite">
          {pullStatus(model.pull)}
        </p>
      )}
    </li>
  );
}
