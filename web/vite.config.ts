// How the pages, voice chat, dashboard and inspector, are built: relative addresses, nothing inlined into the HTML, so that
// the hub can serve it from any path under a strict content security policy.
import { env } from 'node:process';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const hub = env['HUB_URL'] ?? 'http://127.0.0.1:8080';
const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const toHub = { target: hub, changeOrigin: true };

export default defineConfig({
  base: './',
  // The client package, from its source: one build, and changes of it are seen at once.
  resolve: {
    alias: [
      { find: /^@antiphon\/client$/, replacement: here('sdk/src/index.ts') },
      { find: /^@antiphon\/client\/answer$/, replacement: here('sdk/src/answer.ts') },
      { find: /^@antiphon\/client\/worklets\.js/, replacement: here('sdk/src/audio/worklets.ts') },
    ],
  },
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: 'es2022',
    rollupOptions: {
      input: ['index.html', 'dashboard.html', 'inspector.html'],
      // Fewer files compress better: what all three pages share, and what the chat page loads at once and shares with its own
      // later views only. Style sheets keep the order of their files: page.css is the first.
      output: {
        codeSplitting: {
          groups: [
            { name: 'common', test: /node_modules\/preact|vite\/preload-helper|src\/(view\/(icons|NoticeBar)|dashboard\/data\/sse|session\/(key|backoff))\.tsx?$|src\/style\/page\.css$/ },
            { name: 'chat', test: /src\/(state\/(latency|model)|session\/settings|conversations\/data|protocol\/\w+|session\/connection|audio\/(queue|microphone|speaker|messages|sound_start)|view\/(Dialog|offline))\.tsx?$/ },
          ],
        },
      },
    },
  },
  worker: { format: 'es' },
  server: {
    host: '127.0.0.1',
    // The hub checks Origin, so the development server speaks to it as the hub's own page would.
    proxy: {
      '/v1': { ...toHub, ws: true, rewriteWsOrigin: true },
      '/readyz': toHub,
      '/api': toHub,
    },
  },
});
