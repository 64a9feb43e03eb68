// The package as it is published: what is in it, how large it is, and that a program finds its types.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, it } from 'vitest';

/** Of the module that every page loads, and of what that imports; in bytes after gzip. 200 are the notices on the model, 120 the microphone, the link and the words while they begin again. */
const MAX_MODULE_BYTES = 15_870;
/** Of all that a conversation by WebSocket loads: the worklets come with the first one. */
const MAX_CONVERSATION_BYTES = 18_400;
/** Of what calls by WebRTC load in addition. */
const MAX_WEBRTC_BYTES = 2_000;
/** Of `<antiphon-voice>` on top of the module: 5,000, and 2,500 to read an answer's markdown and draw it. */
const MAX_ELEMENT_BYTES = 7_500;
/** Of what a hub serves for one script tag: all of the above but the worklets, in one file; 2,100 are the element's markdown. */
const MAX_SCRIPT_BYTES = 24_700;

const sdk = fileURLToPath(new URL('..', import.meta.url));
const web = join(sdk, '..');
const folder = mkdtempSync(join(tmpdir(), 'antiphon-package-'));
const installed = join(folder, 'node_modules/@antiphon/client');
let packed: { path: string }[];

beforeAll(() => {
  const output = execFileSync('npm', ['pack', '--json', '--pack-destination', folder], { cwd: sdk, encoding: 'utf8' });
  const [{ filename, files }] = JSON.parse(output.slice(output.indexOf('[\n'))) as [{ filename: string; files: { path: string }[] }];
  packed = files;
  mkdirSync(installed, { recursive: true });
  execFileSync('tar', ['-xzf', join(folder, filename), '-C', installed, '--strip-components=1']);
}, 60_000);
afterAll(() => rmSync(folder, { recursive: true }));

const read = (file: string) => readFileSync(join(installed, 'dist', file), 'utf8');
const compressed = (file: string) => gzipSync(read(file), { level: 9 }).length;

it('holds what is built, its licence and its description, and no sources', () => {
  const paths = packed.map(({ path }) => path);
  for (const needed of ['package.json', 'README.md', 'dist/index.js', 'dist/index.d.ts', 'dist/element.js', 'dist/element/index.d.ts', 'dist/worklets.js', 'dist/LICENSE']) expect(paths).toContain(needed);
  expect(paths.filter((path) => !path.startsWith('dist/'))).toEqual(['README.md', 'package.json']);
  expect(paths.filter((path) => path.endsWith('.ts') && !path.endsWith('.d.ts'))).toEqual([]);
});

/** What a page loads that imports this file: it, and what it imports at once. */
function loaded(file: string): string[] {
  const found = new Set([file]);
  for (const name of found) for (const [, path] of read(name).matchAll(/(?:from|import)\s*["'`]\.\/([^"'`]+)["'`]/g)) found.add(path!);
  return [...found];
}

it('is small', () => {
  const module = loaded('index.js').reduce((sum, file) => sum + compressed(file), 0);
  expect(module).toBeLessThan(MAX_MODULE_BYTES);
  expect(module + compressed('bundled.js')).toBeLessThan(MAX_CONVERSATION_BYTES);
  expect(compressed('webrtc.js')).toBeLessThan(MAX_WEBRTC_BYTES);
  const shared = new Set(loaded('index.js'));
  const element = loaded('element.js').filter((file) => !shared.has(file));
  // What it shares with `answer.js` counts.
  expect(element.length).toBeGreaterThan(1);
  expect(element.reduce((sum, file) => sum + compressed(file), 0)).toBeLessThan(MAX_ELEMENT_BYTES);
});

it('is one small classic script for a page that has nothing else', () => {
  const out = join(folder, 'script');
  execFileSync(join(web, 'node_modules/.bin/vite'), ['build', '--config', join(sdk, 'vite.config.ts'), '--mode', 'script', '--outDir', out], { stdio: 'pipe' });
  const script = readFileSync(join(out, 'antiphon-voice.js'), 'utf8');
  expect(gzipSync(script, { level: 9 }).length).toBeLessThan(MAX_SCRIPT_BYTES);
  expect(script).not.toMatch(/\bimport\s*\(|\bimport\s*["'{*]|import\.meta|\beval\(/);
  expect(readdirSync(out)).toContain('worklets.js');
}, 60_000);

it('imports nothing but its own files', () => {
  const scripts = readdirSync(join(installed, 'dist')).filter((file) => file.endsWith('.js'));
  const imported = scripts.flatMap((file) => [...read(file).matchAll(/(?:from|import\()\s*["'`]([^"'`]+)["'`]/g)].map(([, path]) => path));
  expect(imported.length).toBeGreaterThan(0);
  expect(imported.filter((path) => !path?.startsWith('./'))).toEqual([]);
  expect(JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'))).not.toHaveProperty('dependencies');
});

it('is imported where there is no DOM, and exports its own names only', () => {
  const names = (entry: string) =>
    execFileSync(process.execPath, ['--input-type=module', '-e', `console.log(Object.keys(await import('${entry}')).join())`], { cwd: folder, encoding: 'utf8' }).trim();
  expect(names('@antiphon/client/element')).toBe('VoiceElement');
  expect(names('@antiphon/client/answer')).toBe('answerOf');
  const exported = [...readFileSync(join(sdk, 'src/index.ts'), 'utf8').matchAll(/^export \{([^}]+)\}/gm)].flatMap(([, list]) => list!.split(',').map((name) => name.trim()));
  expect(names('@antiphon/client').split(',')).toEqual(exported.filter((name) => !name.startsWith('type ')).sort());
});

it.each(['bundler', 'nodenext'])('has types that a program finds (%s)', (moduleResolution) => {
  const module = moduleResolution === 'nodenext' ? 'nodenext' : 'esnext';
  const compilerOptions = { strict: true, noEmit: true, target: 'es2022', lib: ['es2023', 'dom'], types: [], module, moduleResolution };
  const program = `import { Conversation, type Tool, type WireEvent } from '@antiphon/client';
    import { VoiceElement } from '@antiphon/client/element';
    const tool: Tool = { name: 'a', description: '', parameters: {}, call: ({ city }) => String(city) };
    const conversation = new Conversation({ hub: 'https://hub.example', tools: [tool] });
    conversation.onEvent((event: WireEvent) => event.bytes.toFixed());
    const texts: string[] = conversation.state.captions.map(({ text }) => text);
    // @ts-expect-error a codec that there is not
    new Conversation({ codec: 'mp3' });
    // @ts-expect-error not any: a state has no such field
    void conversation.state.nothing;
    void texts;
    const voice: VoiceElement = document.createElement('antiphon-voice');
    voice.addEventListener('turn', ({ detail }) => detail.reply.trim());
    // @ts-expect-error an event that there is not
    voice.addEventListener('turn', ({ detail }) => detail.nothing);`;
  writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
  writeFileSync(join(folder, 'program.ts'), program);
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['program.ts'] }));
  execFileSync(join(web, 'node_modules/.bin/tsc'), ['-p', folder], { stdio: 'pipe' });
});

it('is all that the pages take of it', () => {
  const sources = readdirSync(join(web, 'src'), { recursive: true, encoding: 'utf8' }).filter((file) => /\.tsx?$/.test(file));
  expect(sources.length).toBeGreaterThan(20);
  expect(sources.filter((file) => readFileSync(join(web, 'src', file), 'utf8').includes('sdk/'))).toEqual([]);
});
