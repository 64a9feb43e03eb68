// What the hub says of its models, and how it is put into words.
import { describe, expect, it } from 'vitest';
import { type Pull, firstModel, isHere, isUnderWay, llmServersFrom, missingOf, modelsFrom, modelsOf, pullFrom, share, size, pullStatus, unchecked, withPull } from '../src/models/data';

const body = {
  may_change: true,
  stages: [{ stage: 'stt', engine: 'openai', model: null, auto: true, passed_over: [{ model: 'a:f16', why: 'broken' }], offer: 'b' }],
  models: [
    { name: 'a', stage: 'stt', title: 'A', note: 'n', licence: 'MIT', languages: ['en'], serves: false, lacks: 'a library', variants: [{ precision: 'f16', state: 'absent', about_bytes: 5, unchecked_files: 1 }], pull: null },
    { name: 'b', stage: 'stt', title: '', variants: [{ precision: 'f16', state: 'whole', about_bytes: 7 }], pull: { state: 'loading' } },
    { name: 'c', stage: 'tts' },
  ],
};

describe('the models', () => {
  it('are read as the hub sends them', () => {
    const models = modelsFrom(body)!;
    expect(models.mayChange).toBe(true);
    expect(models.stages[0]).toEqual({ stage: 'stt', engine: 'openai', model: null, waitMs: null, bothMs: 0, passedOver: [{ model: 'a:f16', why: 'broken', slow: false }], offer: 'b' });
    expect(models.models.map(({ title }) => title)).toEqual(['A', 'b', 'c']);
    expect(modelsOf(models, 'stt').map(({ name }) => name)).toEqual(['b', 'a']);
    expect(models.models.map(isHere)).toEqual([false, true, false]);
    expect(models.models.map(({ lacks }) => lacks)).toEqual(['a library', null, null]);
    expect(models.models.map(unchecked)).toEqual(['Not all of its files have a published checksum.', null, null]);
  });

  it('are none where the answer is something else', () => {
    for (const other of [null, 'x', [], {}, { error: {} }, { may_change: 'yes', stages: [] }, { may_change: true }]) expect(modelsFrom(other)).toBeNull();
    expect(modelsFrom({ may_change: false, stages: [null, 3], models: ['x'] })!.models).toHaveLength(1);
  });
});

describe('a pull', () => {
  const pulling = (bytes: number, total: number, phase = 'fetching'): Pull => pullFrom({ state: 'pulling', phase, bytes, total_bytes: total })!;

  it('is described by its share and in words', () => {
    expect([share(pulling(25e6, 100e6)), pullStatus(pulling(25e6, 100e6))]).toEqual([0.25, '25 MB of 100 MB']);
    expect([share(pulling(0, 0)), pullStatus(pulling(0, 100e6))]).toEqual([null, 'Asking for it …']);
    expect(share(pulling(7, 5))).toBe(1);
    expect(pullStatus(pulling(5, 5, 'checking'))).toBe('Checking what came …');
    expect(pullStatus(pullFrom({ state: 'failed', message: 'the disk is full' })!)).toBe('the disk is full');
  });

  it('ends with done or failed', () => {
    const states = [{ state: 'pulling' }, { state: 'loading' }, { state: 'done', serves: true, message: '' }, { state: 'failed', message: '' }];
    expect(states.map((state) => isUnderWay(pullFrom(state)))).toEqual([true, true, false, false]);
    expect([pullFrom({ state: 'odd' }), pullFrom(null)]).toEqual([null, null]);
  });

  it('changes its own model only', () => {
    const models = withPull(modelsFrom(body)!, 'a', { state: 'loading' });
    expect(models.models.map(({ pull }) => pull?.state ?? null)).toEqual(['loading', 'loading', null]);
  });

  it('tells sizes as download pages do', () => {
    expect([size(1_624_555_275), size(147_951_465), size(2_327_524)]).toEqual(['1.6 GB', '148 MB', '2.3 MB']);
  });
});

describe('language model servers', () => {
  const active = { engine: 'openai', model: 'm', base_url: 'http://127.0.0.1:9/v1', connected: true, settings: '[llm]' };

  it('are read as the hub sends them', () => {
    const servers = [{ port: 9, name: 'Ollama', base_url: 'http://127.0.0.1:9/v1', models: ['m', 'n'], problem: null }, { port: 10, problem: 'It requires a key' }];
    const seen = llmServersFrom({ active, servers })!;
    expect(seen.active).toEqual({ engine: 'openai', model: 'm', baseUrl: 'http://127.0.0.1:9/v1', connected: true, settings: '[llm]' });
    expect(seen.servers).toEqual([
      { port: 9, name: 'Ollama', models: ['m', 'n'], problem: null },
      { port: 10, name: '', models: [], problem: 'It requires a key' },
    ]);
    expect(llmServersFrom({ active }, seen.servers)!.servers).toBe(seen.servers);
    for (const other of [null, [], {}, { active: {} }]) expect(llmServersFrom(other)).toBeNull();
  });

  it('offer the first model that could answer, where none does', () => {
    const servers = [{ port: 8, models: ['broken'], problem: 'It requires a key' }, { port: 9, models: [] }, { port: 10, name: 'Ollama', models: ['m', 'n'] }];
    const none = { engine: 'assistant', model: null };
    const found = (active: object, servers: object[]) => firstModel(llmServersFrom({ active, servers })!);
    expect(found(none, servers)).toMatchObject({ server: { port: 10, name: 'Ollama' }, model: 'm' });
    expect([found(active, servers), found(none, servers.slice(0, 2)), found(none, [])]).toEqual([null, null, null]);
  });

  it('leave what is missing of the recommended models', () => {
    const models = modelsFrom({ ...body, recommended: ['a', 'b', 'c'] })!;
    expect(missingOf(models).map(({ name }) => name)).toEqual(['c']);
  });
});
