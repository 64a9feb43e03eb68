// The element's style. Custom properties of a page set colours, font and shape; `::part` reaches everything else. Light and
// dark follow the `color-scheme` that the element has in its page.

export const STYLE = `
:host {
  --ground: var(--antiphon-ground, light-dark(#fffdf8, #171a20));
  --ink: var(--antiphon-ink, light-dark(#1d1b18, #ece7dc));
  --soft: var(--antiphon-ink-soft, light-dark(#5c574e, #a5a39c));
  --line: var(--antiphon-line, light-dark(#ddd5c6, #2a2e37));
  --you: var(--antiphon-you, light-dark(#0b736e, #5cc8c2));
  --reply: var(--antiphon-reply, light-dark(#9a5808, #f2b65c));
  --warn: var(--antiphon-warn, light-dark(#b3401c, #f08a6a));
  --on: var(--antiphon-on-accent, light-dark(#fff, #101216));
  display: block;
  max-width: 26rem;
}
:host([hidden]) { display: none; }
* { box-sizing: border-box; }
.panel {
  display: grid;
  gap: .75rem;
  padding: .9rem;
  border: 1px solid var(--line);
  border-radius: var(--antiphon-radius, 1rem);
  background: var(--ground);
  color: var(--ink);
  font: 400 1rem/1.45 var(--antiphon-font, system-ui, sans-serif);
}
.bar { display: flex; align-items: center; gap: .8rem; }
button, input { font: inherit; color: inherit; }
button { cursor: pointer; touch-action: manipulation; }
:focus-visible { outline: 2px solid var(--you); outline-offset: 2px; }
.talk {
  --level: 0;
  flex: none;
  display: grid;
  place-items: center;
  width: 3.25rem;
  height: 3.25rem;
  padding: 0;
  border: 0;
  border-radius: 50%;
  background: var(--you);
  color: var(--on);
  box-shadow: 0 0 0 calc(var(--level) * .6rem) color-mix(in srgb, currentColor 0%, var(--glow) 30%);
  --glow: var(--you);
}
:host([phase=speaking]) .talk { background: var(--reply); --glow: var(--reply); }
:host([phase=connecting]) .talk, :host([phase=reconnecting]) .talk, :host([phase=thinking]) .talk { animation: wait 1.2s ease-in-out infinite alternate; }
@keyframes wait { to { opacity: .55; } }
@media (prefers-reduced-motion: reduce) { .talk { animation: none !important; } }
svg { width: 1.5rem; height: 1.5rem; }
.status { flex: 1; margin: 0; min-width: 0; }
.small, .send {
  min-height: 2.5rem;
  padding: 0 .9rem;
  border: 1px solid var(--line);
  border-radius: 999px;
  background: none;
}
.small.on { border-color: var(--warn); color: var(--warn); }
[hidden] { display: none !important; }
.captions { max-height: var(--antiphon-captions-height, 14rem); overflow-y: auto; overscroll-behavior: contain; }
.line { margin: 0 0 .4rem; overflow-wrap: anywhere; }
.who { font-weight: 600; color: var(--you); }
.reply .who { color: var(--reply); }
.words { display: inline; }
.answer > * { margin: .3rem 0 0; }
ul, ol { padding-inline-start: 1.4em; }
.nested { margin-inline-start: 1.2em; }
.heading { font-weight: 600; }
a { color: inherit; }
code { font: .9em ui-monospace, monospace; }
pre { overflow-x: auto; }
.thought { color: var(--soft); white-space: pre-wrap; }
.unspoken { color: var(--soft); text-decoration: line-through; }
.notice { margin: 0; padding-left: .7rem; border-left: 3px solid var(--warn); font-size: .93em; overflow-wrap: anywhere; }
.composer { display: flex; gap: .5rem; }
.text {
  flex: 1;
  min-width: 0;
  min-height: 2.5rem;
  padding: 0 .9rem;
  border: 1px solid var(--line);
  border-radius: 999px;
  background: none;
}
.text::placeholder { color: var(--soft); opacity: 1; }
`;
