// Conversations as they are kept and exported, and their sound.
import type { Caption } from '@antiphon/client';
import { describe, expect, it } from 'vitest';
import { type Kept, MAX_CHARS, captionsOf, jsonOf, keptFrom, linesOf, plainOf, srtOf, textOf, titleOf } from '../src/conversations/data';
import { MAX_BLOCKS, MAX_BYTES, KeptSound } from '../src/conversations/sound';
import { Halver, type SoundBlock } from '../src/conversations/sound_block';

const asked: Caption = { role: 'user', id: 'u', text: 'What time is it?', draft: '', committed: true, final: true, typed: false, fault: null };
const answered: Caption = {
  role: 'assistant', id: 'a', responseId: 'r', text: 'It is ten. And it rains.', textDone: true, sound: true, receivedMs: 900, playedMs: 500,
  audioDone: true, whole: true, revealed: 10, status: 'cut', latencyMs: 640, marks: null, hops: {},
};
const spans = new Map([['u', { startMs: 1_000, endMs: 2_500 }], ['a', { startMs: 3_661_040, endMs: 3_661_040 }]]);
const kept: Kept = { id: 'x', startedAt: Date.UTC(2026, 0, 31, 14, 5), changedAt: 7, lines: linesOf([asked, { ...asked, id: 'v', text: ' ' }, answered], spans) };

describe('a conversation', () => {
  it('comes back from storage as captions of an earlier session, with its times', () => {
    expect(keptFrom(textOf(kept))).toEqual(kept);
    const { captions, spans: back } = captionsOf(kept);
    expect(captions.map(({ id }) => id)).toEqual(['past/x/0', 'past/x/1']);
    expect(captions).toMatchObject([{ text: 'What time is it?', final: true }, { status: 'cut', revealed: 10, latencyMs: 640 }]);
    expect(linesOf(captions, back)).toEqual(kept.lines);
  });

  it('is not read where it is something else, and loses only the lines that are', () => {
    for (const text of [null, '', '{', '7', 'null', '{}', textOf(kept).replace('"version":1', '"version":2')]) expect(keptFrom(text)).toBeNull();
    const odd = [{ ...kept.lines[0], heard: 99 }, { ...kept.lines[0], role: 'system' }, null, { ...kept.lines[0], startMs: '1' }, ...kept.lines];
    expect(keptFrom(JSON.stringify({ version: 1, ...kept, lines: odd }))?.lines).toEqual(kept.lines);
  });

  it('loses its oldest lines where it is too long', () => {
    const long = { ...kept, lines: Array.from({ length: 500 }, (_, i) => ({ ...kept.lines[0]!, text: `${i} ${'x'.repeat(2_000)}` })) };
    const text = textOf(long);
    expect(text.length).toBeLessThanOrEqual(MAX_CHARS);
    const lines = keptFrom(text)?.lines ?? [];
    expect(lines.length).toBeGreaterThan(50);
    expect(lines.at(-1)).toEqual(long.lines.at(-1));
    expect(keptFrom(textOf({ ...kept, lines: [{ ...kept.lines[0]!, text: 'x'.repeat(2 * MAX_CHARS) }] }))?.lines).toEqual([]);
  });

  it('is exported as text, JSON and subtitles, as far as it was heard', () => {
    expect(plainOf(kept)).toBe('You: What time is it?\nAntiphon: It is ten.… [interrupted]\n');
    expect(JSON.parse(jsonOf(kept))).toMatchObject({ startedAt: '2026-01-31T14:05:00.000Z', lines: [{ who: 'You' }, { who: 'Antiphon', heard: 'It is ten.', end: 'cut' }] });
    expect(srtOf(kept)).toBe(
      '1\n00:00:01,000 --> 00:00:02,500\nYou: What time is it?\n\n2\n01:01:01,040 --> 01:01:02,480\nAntiphon: It is ten.… [interrupted]\n',
    );
    expect(titleOf({ ...kept, lines: [{ ...kept.lines[0]!, text: 'word '.repeat(40) }] })).toHaveLength(60);
  });
});

describe('the sound', () => {
  const block = (you: number | null, hub: number | null, nSamples = 2_400): SoundBlock => {
    const side = (value: number | null) => (value === null ? null : new Int16Array(nSamples).fill(value));
    return { nSamples, sides: [side(you), side(hub)] };
  };

  it('is a WAV file of two channels', async () => {
    const sound = new KeptSound();
    expect(sound.isEmpty).toBe(true);
    sound.push(block(5, null));
    sound.push(block(null, -7));
    expect([sound.startMs, sound.endMs]).toEqual([0, 200]);
    const bytes = await sound.wav().arrayBuffer();
    const view = new DataView(bytes);
    expect([bytes.byteLength, view.getUint32(40, true), view.getUint32(24, true), view.getUint16(22, true)]).toEqual([44 + 4 * 4_800, 4 * 4_800, 24_000, 2]);
    expect(new TextDecoder().decode(bytes.slice(0, 16))).toMatch(/^RIFF.{4}WAVEfmt $/s);
    const samples = new Int16Array(bytes.slice(44));
    expect([...samples.slice(0, 2), ...samples.slice(-2)]).toEqual([5, 0, 0, -7]);
  });

  it('keeps so many bytes and says where it begins; silence takes none', () => {
    const sound = new KeptSound();
    const second = 24_000;
    for (let i = 0; i < 100; i += 1) sound.push(block(null, null, second));
    const full = block(1, 1, second);
    for (let held = 0; held < MAX_BYTES + 10 * 96_000; held += 96_000) sound.push(full);
    expect(sound.startMs).toBe(111_000);
    expect(sound.wav().size).toBeLessThanOrEqual(MAX_BYTES + 44);
  });

  it('keeps two hours, also of a microphone that is muted for days', () => {
    const sound = new KeptSound();
    for (let i = 0; i < MAX_BLOCKS + 600; i += 1) sound.push(block(null, null));
    expect([sound.startMs, sound.endMs]).toEqual([60_000, 7_260_000]);
  });

  it('counts where it keeps nothing, and goes on after an earlier conversation', () => {
    const sound = new KeptSound();
    sound.push(block(1, 1));
    sound.keeps = false;
    sound.push(block(1, 1));
    expect([sound.isEmpty, sound.endMs]).toEqual([true, 200]);
    sound.begin(60_000);
    expect([sound.startMs, sound.endMs]).toEqual([60_000, 60_000]);
  });

  it('halves the rate: what is below stays, what is above goes', () => {
    const amplitude = (hz: number) => {
      const halver = new Halver();
      const out = Array.from({ length: 20 }, (_, n) => [...halver.process(Float32Array.from({ length: 128 }, (_, i) => Math.sin((2 * Math.PI * hz * (128 * n + i)) / 48_000)))]).flat();
      return Math.sqrt((2 * out.slice(200).reduce((sum, sample) => sum + sample ** 2, 0)) / (out.length - 200));
    };
    expect(amplitude(1_000)).toBeGreaterThan(0.99);
    expect(amplitude(8_000)).toBeGreaterThan(0.95);
    expect(amplitude(14_000)).toBeLessThan(0.01);
    expect(amplitude(20_000)).toBeLessThan(0.01);
  });
});
