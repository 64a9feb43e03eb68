// A reporter for `node --test`: how long each test took, as `.ci/test` reads it: seconds, tab, suite, tab, name. `run.mjs` uses it.

import { basename } from 'node:path';

export default async function* durations(events) {
  for await (const { type, data } of events) {
    if ((type !== 'test:pass' && type !== 'test:fail') || data.nesting > 0) continue;
    yield `${(data.details.duration_ms / 1000).toFixed(3)}\tbrowser ${basename(data.file ?? '')}\t${data.name.replaceAll('\n', ' ')}\n`;
  }
}
