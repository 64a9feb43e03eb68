// A reporter for `node --test`: the files in which a test failed, one a line. `run.mjs` uses it.

export default async function* failedFiles(events) {
  for await (const { type, data } of events) if (type === 'test:fail' && data.file) yield `${data.file}\n`;
}
