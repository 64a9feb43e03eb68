// How the package is built: `dist/index.js`, one module without imports, in which the worklets are a blob, so that any
// bundler and any page can load it; and `dist/worklets.js`, the worklets as a file, for pages that forbid blobs.
import { fileURLToPath } from 'node:url';
import { type Plugin, type Rollup, build, defineConfig } from 'vite';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** The worklets, bundled and minified. */
async function bundledWorklets(): Promise<string> {
  const options = { configFile: false, logLevel: 'warn', build: { write: false, target: 'es2022', lib: { entry: here('src/audio/worklets.ts'), formats: ['es'] }, rolldownOptions: { output: { minify: true } } } } as const;
  const [bundle] = (await build(options)) as Rollup.RollupOutput[];
  if (bundle?.output.length !== 1) throw new Error('the worklets are not one file');
  return bundle.output[0].code;
}

/** Where the source has the address of the worklets' file, the package has that of a blob with the same code. */
function worklets(): Plugin {
  const id = '\0worklets';
  return {
    name: 'worklets',
    enforce: 'pre',
    resolveId: (source) => (source.endsWith('worklets.ts?worker&url') ? id : null),
    async load(wanted) {
      if (wanted !== id) return null;
      const source = await bundledWorklets();
      this.emitFile({ type: 'asset', fileName: 'worklets.js', source });
      return `export default /* @__PURE__ */ URL.createObjectURL(new Blob([${JSON.stringify(source)}], { type: 'text/javascript' }));`;
    },
  };
}

export default defineConfig({
  root: here('.'),
  plugins: [worklets()],
  build: {
    target: 'es2022',
    lib: { entry: here('src/index.ts'), formats: ['es'], fileName: 'index' },
    // Vite keeps the white space of libraries; this does not.
    rolldownOptions: { preserveEntrySignatures: 'allow-extension', output: { minify: true, chunkFileNames: '[name].js' } },
  },
});
