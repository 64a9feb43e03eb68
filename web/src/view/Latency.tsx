// The latency of a turn, with a bar for its stages.

import type { ReplyCaption } from '@antiphon/client';
import { LABELS, segments, shownLatency } from '../state/latency';

const ms = (value: number) => `${Math.round(value)} ms`;

export function Latency({ caption }: { caption: ReplyCaption }) {
  const total = shownLatency(caption.marks, caption.latencyMs);
  if (total === null) return null;
  const stages = segments(caption.marks, caption.latencyMs, caption.hops);
  const sum = stages.reduce((all, { ms: part }) => all + part, 0);
  return (
    <details class="latency">
      <summary aria-label={`First sound after ${ms(total)}; details`}>
        <span class="latency-total">{ms(total)}</span>
        {sum > 0 && (
          <svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
            {stages.map(({ key, ms: part }, i) => {
              const before = stages.slice(0, i).reduce((all, stage) => all + stage.ms, 0);
              return <rect key={i} class={`stage-${key}`} x={(before / sum) * 100} width={(part / sum) * 100} height="4" />;
            })}
          </svg>
        )}
      </summary>
      <dl class="stages">
        {stages.map(({ key, ms: part }, i) => (
          <div key={i}>
            <dt>
              <i class={`dot stage-${key}`} />
              {LABELS[key]}
            </dt>
            <dd>{ms(part)}</dd>
          </div>
        ))}
        <div class="stages-sum">
          <dt>{caption.latencyMs === null ? 'until the first audio was sent' : 'your last sound to the first of the answer'}</dt>
          <dd>{ms(total)}</dd>
        </div>
      </dl>
      {/* A separate tab, so that the conversation continues; `opener` passes this tab's key to it. */}
      <a class="latency-more" href={`dashboard#${caption.responseId}`} target="_blank" rel="opener">
        this turn in the dashboard
      </a>
    </details>
  );
}
