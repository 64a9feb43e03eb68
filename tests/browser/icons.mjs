// Draws the icons of the page and its social card from `web/public/icon.svg` by Chromium, into `web/public`: `node icons.mjs`.

import { readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const folder = join(dirname(fileURLToPath(import.meta.url)), '../../web/public');
const svg = readFileSync(join(folder, 'icon.svg'), 'utf8');
const GROUND = '#14171d';
const icon = (size, share) => `<div style="width:${size}px;height:${size}px;background:${share < 1 ? GROUND : 'none'};display:grid;place-items:center"><div style="width:${size * share}px;height:${size * share}px">${svg}</div></div>`;
const PICTURES = [
  { name: 'icon-180.png', width: 180, height: 180, body: icon(180, 0.999) },
  { name: 'icon-192.png', width: 192, height: 192, body: icon(192, 1) },
  { name: 'icon-512.png', width: 512, height: 512, body: icon(512, 1) },
  // A launcher cuts a maskable icon to a circle of 80 % of its side.
  { name: 'icon-maskable-512.png', width: 512, height: 512, body: icon(512, 0.8) },
  {
    name: 'card.png',
    width: 1200,
    height: 630,
    body: `<div style="width:1200px;height:630px;background:${GROUND};color:#ece7dc;display:flex;align-items:center;gap:70px;padding:0 110px;font-family:'Noto Serif','DejaVu Serif',Georgia,serif"><div style="width:330px;height:330px;flex:none">${svg}</div><div><div style="font-size:104px;line-height:1.1">Antiphon</div><div style="font-size:44px;line-height:1.35;color:#a5a39c;margin-top:18px">You call, it responds.<br>A voice hub of your own.</div></div></div>`,
  },
];

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'] });
for (const { name, width, height, body } of PICTURES) {
  const page = await browser.newPage({ viewport: { width, height } });
  await page.setContent(`<style>*{margin:0;box-sizing:border-box}svg{display:block;width:100%;height:100%}</style>${body}`);
  const path = join(folder, name);
  await page.screenshot({ path, omitBackground: true });
  console.log(`${name}: ${statSync(path).size} bytes`);
  await page.close();
}
await browser.close();
