// Where the worklets are if the page does not say: loaded with the first conversation. The package replaces the address of
// the file by that of a blob with the same code, see `vite.config.ts`.

export { default } from './worklets.ts?worker&url';
