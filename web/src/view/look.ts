// How the page looks by the user's settings: attributes of the document, which the style sheets read.

import type { Settings } from '../session/settings';

/** Colours of the browser's own bars, as in index.html. */
const BARS = { dark: '#0e1014', light: '#f6f2ea' };

export function applyLook({ theme, captionSize }: Pick<Settings, 'theme' | 'captionSize'>): void {
  const root = document.documentElement;
  if (theme === 'system') delete root.dataset['theme'];
  else root.dataset['theme'] = theme;
  root.dataset['captions'] = captionSize;
  for (const meta of document.querySelectorAll<HTMLMetaElement>('meta[name=theme-color]')) {
    const own = meta.media.includes('dark') ? 'dark' : 'light';
    meta.content = BARS[theme === 'system' ? own : theme];
  }
}
