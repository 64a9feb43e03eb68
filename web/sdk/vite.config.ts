// How the package is built: `dist/index.js`, `dist/answer.js`, `dist/element.js` on top of both, and beside them what is loaded when it is needed:
// `bundled.js`, the worklets as a blob, which any bundler and any page can load, `webrtc.js` and what is rarely needed. `worklets.js` is the same code
// as a file, for pages that forbid blobs.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { type BuildOptions, type LibraryOptions, type Plugin, type Rollup, build, defineConfig } from 'vite';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The worklets, bundled and minified. */
async function bundledWorklets(): Promise<string> {
  const lib: LibraryOptions = { entry: here('src/audio/worklets.ts'), formats: ['es'] };
  const options: BuildOptions = { write: false, target: 'es2022', lib, rolldownOptions: { output: { minify: true } } };
  const [bundle] = (await build({ configFile: false, logLevel: 'warn', build: options })) as Rollup.RollupOutput[];
  if (bundle?.output.length !== 1) throw new Error('the worklets are not one file');
  return bundle.output[0].code;
}

/**
 * Where the source has the address of the worklets' file, the package has that of a blob with the same code, and the hub's
 * script none: its element names the file.
 */
function worklets(hasBlob: boolean): Plugin {
  const id = '\0worklets';
  return {
    name: 'worklets',
    enforce: 'pre',
    resolveId: (source) => (source.endsWith('worklets.ts?worker&url') ? id : null),
    async load(wanted) {
      if (wanted !== id) return null;
      const source = await bundledWorklets();
      this.emitFile({ type: 'asset', fileName: 'worklets.js', source });
      this.emitFile({ type: 'asset', fileName: 'LICENSE', source: await readFile(here('../../LICENSE')) });
      if (!hasBlob) return 'export default null;';
      return `export default /* @__PURE__ */ URL.createObjectURL(new Blob([${JSON.stringify(source)}], { type: 'text/javascript' }));`;
    },
  };
}

// `vite build`: the package. `vite build --mode script`: what a hub serves under `/sdk/`, one classic script and the worklets.
export default defineConfig(({ mode }) => {
  const isScript = mode === 'script';
  const lib: LibraryOptions = isScript
    ? { entry: here('src/element/script.ts'), name: 'antiphonVoice', formats: ['iife'], fileName: () => 'antiphon-voice.js' }
    : { entry: { index: here('src/index.ts'), answer: here('src/answer.ts'), element: here('src/element/index.ts') }, formats: ['es'] };
  return {
    root: here('.'),
    plugins: [worklets(!isScript)],
    build: {
      target: 'es2022',
      outDir: isScript ? here('../dist/sdk') : 'dist',
      emptyOutDir: true,
      lib,
      // The files loaded later share code with the first one; that is a file of its own, so that the package exports its own
      // names only. Vite keeps the white space of libraries; `output.minify` does not.
      rolldownOptions: {
        preserveEntrySignatures: 'strict',
        output: { minify: true, chunkFileNames: '[name].js', ...(isScript && { codeSplitting: false }) },
      },
    },
  };
});
