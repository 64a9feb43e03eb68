// The inspector: what is hidden, the bounds of the log, filters, tool calls, addresses and code.
import { execFileSync } from 'node:child_process';
import type { WireEvent } from '@antiphon/client';
import { describe, expect, it } from 'vitest';
import { addressFrom, protocolsOf } from '../src/inspector/data/address';
import { TEMPLATES, codeOf, draftFrom } from '../src/inspector/data/code';
import { firstFilter, matching, toolCalls } from '../src/inspector/data/filter';
import { PCM_AT_24K, audioAfter, fromBase64, toBase64 } from '../src/inspector/data/speech';
import { EventLog, MAX_CHARS, MAX_ENTRIES } from '../src/inspector/data/log';
import { shown, withoutHidden } from '../src/inspector/data/redact';
import { RecentEvents } from '../src/session/recent_events';

const T0 = 1_000;
const audio = (bytes: number) => Buffer.alloc(bytes, 7).toString('base64');
const logOf = (...events: [('sent' | 'received'), object][]) => {
  const log = new EventLog();
  for (const [i, [direction, event]] of events.entries()) log.message(direction, JSON.stringify(event), T0 + i);
  return log;
};

describe('what is shown', () => {
  it('has no secrets, wherever they are', () => {
    const event = {
      type: 'session.created',
      session: {
        client_secret: { value: 'ek_1234567890', expires_at: 5 },
        instructions: 'Use sk-proj-abcdef123456 and Bearer abc.def-ghi, the key to success.',
        tools: [{ type: 'mcp', authorization: 'secret token', headers: { 'X-Any': 'credential' }, server_url: 'https://tools.example' }],
      },
      key: 'resume-1',
    };
    const text = JSON.stringify(shown(event).event);
    for (const secret of ['ek_1234', 'sk-proj', 'abc.def', 'secret token', 'credential', 'resume-1']) expect(text).not.toContain(secret);
    expect(text).toContain('the key to success');
    expect(text).toContain('https://tools.example');
    expect(JSON.stringify(event)).toContain('ek_1234567890');
  });

  it('has sizes and durations instead of audio, by the format of the session', () => {
    const log = logOf(
      ['sent', { type: 'input_audio_buffer.append', audio: audio(4_800) }],
      ['received', { type: 'session.updated', session: { audio: { output: { format: { type: 'audio/pcmu' } } } } }],
      ['received', { type: 'response.output_audio.delta', delta: audio(800) }],
      ['received', { type: 'response.output_audio_transcript.delta', delta: 'wordsthatlooklikebase64andarelongerthansixtyfourcharacterswithoutaspace' }],
    );
    expect(log.entries.map(({ audioMs }) => audioMs)).toEqual([100, null, 100, null]);
    expect(log.entries[0]?.json).toContain('<audio: 4800 bytes>');
    expect(log.entries[0]?.bytes).toBeGreaterThan(6_400);
    expect(log.entries[3]?.json).toContain('looklikebase64');
  });

  it('is also what cannot be read', () => {
    const log = new EventLog();
    log.message('received', '{"type": 5}', T0);
    log.message('received', 'no JSON, but sk-abcdefgh', T0);
    log.message('received', new ArrayBuffer(40), T0);
    log.note('closed with 1006', T0);
    expect(log.entries.map(({ type, direction, bytes }) => [type, direction, bytes])).toEqual([
      ['not an event', 'received', 11],
      ['not an event', 'received', 24],
      ['binary frame', 'received', 40],
      ['closed with 1006', 'note', 0],
    ]);
    expect(log.entries[1]?.json).not.toContain('abcdefgh');
  });
});

describe('the log', () => {
  it('forgets the oldest beyond its number of events', () => {
    const log = new EventLog();
    for (let i = 0; i < MAX_ENTRIES + 3; i += 1) log.note(`${i}`, T0);
    expect([log.entries.length, log.entries[0]?.n, log.dropped]).toEqual([MAX_ENTRIES, 4, 3]);
    log.clear();
    expect([log.entries.length, log.dropped]).toEqual([0, 0]);
  });

  it('and beyond its size, but never the newest', () => {
    const log = new EventLog();
    const long = 'x '.repeat(MAX_CHARS / 4);
    for (let i = 0; i < 3; i += 1) log.note(long, T0);
    expect([log.entries.length, log.dropped]).toEqual([1, 2]);
  });
});

describe('a filter', () => {
  const log = logOf(
    ['sent', { type: 'input_audio_buffer.append', audio: audio(100) }],
    ['sent', { type: 'session.update', session: { instructions: 'Be Brief' } }],
    ['received', { type: 'response.output_audio.delta', delta: audio(100) }],
    ['received', { type: 'response.done', response: { status: 'failed' } }],
    ['received', { type: 'error', error: { message: 'no' } }],
    ['sent', { type: 'conversation.item.create', item: { type: 'function_call_output', call_id: 'c', output: '1' } }],
  );
  const admitted = (change: object) => matching(log.entries, { ...firstFilter, ...change }).map(({ n }) => n);

  it('admits by direction, kind and words, and leaves audio out unless it is asked for', () => {
    expect(admitted({})).toEqual([2, 4, 5, 6]);
    expect(admitted({ showsAudio: true })).toEqual([1, 2, 3, 4, 5, 6]);
    expect(admitted({ direction: 'sent' })).toEqual([2, 6]);
    expect(admitted({ group: 'audio' })).toEqual([1, 3]);
    expect(admitted({ group: 'session' })).toEqual([2]);
    expect(admitted({ group: 'errors' })).toEqual([4, 5]);
    expect(admitted({ group: 'tools' })).toEqual([6]);
    expect(admitted({ words: 'brief UPDATE' })).toEqual([2]);
  });
});

describe('tool calls', () => {
  it('are paired with their results', () => {
    const { entries } = logOf(
      ['received', { type: 'response.function_call_arguments.done', call_id: 'call_1', name: 'weather', arguments: '{"in":"Oslo"}' }],
      ['received', { type: 'response.output_item.done', item: { type: 'function_call', call_id: 'call_1', name: 'weather', arguments: '{"in":"Oslo"}' } }],
      ['received', { type: 'response.output_item.done', item: { type: 'function_call', call_id: 'call_2', name: 'time', arguments: '{}' } }],
      ['sent', { type: 'conversation.item.create', item: { type: 'function_call_output', call_id: 'call_1', output: 'rain' } }],
      // The server repeats it.
      ['received', { type: 'conversation.item.added', item: { type: 'function_call_output', call_id: 'call_1', output: 'rain' } }],
    );
    expect(toolCalls(entries)).toEqual([
      { id: 'call_1', name: 'weather', args: '{"in":"Oslo"}', output: 'rain', askedAt: T0, answeredAt: T0 + 3, n: 1 },
      { id: 'call_2', name: 'time', args: '{}', output: null, askedAt: T0 + 2, answeredAt: null, n: 3 },
    ]);
  });
});

describe('an address', () => {
  const url = (text: string, model = '') => {
    const address = addressFrom(text, model);
    return address.kind === 'fit' ? address.url : address.why;
  };

  it('is completed', () => {
    expect(url('api.openai.com', 'gpt-realtime')).toBe('wss://api.openai.com/v1/realtime?model=gpt-realtime');
    expect(url('http://127.0.0.1:8080')).toBe('ws://127.0.0.1:8080/v1/realtime');
    expect(url('localhost:8080/v1/')).toBe('ws://localhost:8080/v1/realtime');
    expect(url('https://host.example/voice/v1/realtime?model=a&audio=pcm16', 'b')).toBe('wss://host.example/voice/v1/realtime?model=b&audio=pcm16');
  });

  it('is refused where it cannot be one, or holds a key', () => {
    expect(url(' ')).toMatch(/Enter/);
    expect(url('ftp://host')).toMatch(/begins with/);
    expect(url('wss://user:key@host')).toMatch(/own field/);
    expect(url('wss://')).toMatch(/not an address/);
  });

  it('takes a key as a subprotocol', () => {
    expect(protocolsOf('')).toEqual(['realtime']);
    expect(protocolsOf(' ek_1 ')).toEqual(['realtime', 'openai-insecure-api-key.ek_1']);
    expect(protocolsOf('a key')).toBeNull();
  });
});

describe('code', () => {
  const update = { type: 'session.update', session: { instructions: "It's \"short\".", tools: [], temperature: null, on: true } };

  it('is valid in its language', () => {
    const python = codeOf('python', 'ws://127.0.0.1:8080/v1/realtime?model=antiphon', TEMPLATES) ?? '';
    expect(python).toContain('websocket_base_url="ws://127.0.0.1:8080/v1"');
    expect(python).toContain('connect(model="antiphon")');
    execFileSync('python3', ['-c', 'import ast, sys; ast.parse(sys.stdin.read())'], { input: python });
    execFileSync('python3', ['-c', 'import ast, sys; ast.parse(sys.stdin.read())'], { input: codeOf('python', 'ws://a/v1/realtime', [update]) ?? '' });
    const script = codeOf('typescript', 'ws://127.0.0.1:8080/v1/realtime', [update]) ?? '';
    execFileSync(process.execPath, ['--check', '--input-type=module', '-'], { input: script });
    const curl = codeOf('curl', 'wss://api.openai.com/v1/realtime?model=gpt-realtime', [update]) ?? '';
    expect(curl).toContain('curl https://api.openai.com/v1/realtime/client_secrets');
    // What a shell makes of it is the session.
    const sent = execFileSync('sh', ['-c', `curl() { for last; do :; done; printf %s "$last"; }\n${curl}`]).toString();
    expect(JSON.parse(sent)).toEqual({ session: update.session });
  });

  it('is not made where the language cannot', () => {
    expect(codeOf('curl', 'wss://a/v1/realtime', [{ type: 'response.create' }])).toBeNull();
  });

  it('begins with events that are events', () => {
    for (const template of TEMPLATES) expect(draftFrom(JSON.stringify(template)).kind).toBe('fit');
    expect(draftFrom('{"type":').kind).toBe('unfit');
    expect(draftFrom('[]').kind).toBe('unfit');
    expect(draftFrom('{"type": 5}').kind).toBe('unfit');
  });
});

describe('what is hidden', () => {
  it('is empty in an event to edit, and named', () => {
    const sent = { type: 'session.update', session: { tools: [{ type: 'mcp', authorization: 'x', headers: { a: 'b' } }], instructions: 'Use sk-abcdefgh.' }, audio: 'A'.repeat(80) };
    const { event, hidden } = withoutHidden(shown(sent).event);
    expect(JSON.stringify(event)).not.toMatch(/•|<audio/);
    expect(hidden).toEqual(['session.tools[0].authorization', 'session.tools[0].headers.a', 'session.instructions', 'audio']);
    expect(event).toMatchObject({ session: { tools: [{ type: 'mcp', authorization: '' }], instructions: 'Use .' } });
    expect(withoutHidden({ a: [1, null, true, 'b'] })).toEqual({ event: { a: [1, null, true, 'b'] }, hidden: [] });
  });
});

describe('the recent events', () => {
  it('are kept without audio, bounded, until the inspector takes them', () => {
    let send: (event: WireEvent) => void = () => {};
    const recent = new RecentEvents({ onEvent: (listener) => ((send = listener), () => {}) });
    const event = (n: number, bytes = 10, text: string | null = `${n}`) => send({ direction: 'sent', atMs: n, bytes, event: {}, text, audio: null });
    event(0, 10, null);
    for (let n = 1; n <= 1_200; n += 1) event(n);
    expect(recent.take().map(({ atMs }) => atMs)).toEqual(Array.from({ length: 1_000 }, (_, i) => i + 201));
    for (let n = 0; n < 5; n += 1) event(n, 1 << 20);
    expect(recent.take()).toHaveLength(2);
    const seen: number[] = [];
    recent.listener = ({ atMs }) => seen.push(atMs);
    event(7, 10, null);
    expect([seen, recent.take()]).toEqual([[7], []]);
  });
});

describe('speech', () => {
  const of = (input: unknown, output: unknown) => ({ type: 'session.updated', session: { audio: { input: { format: input }, output: { format: output } } } });

  it('has the rates of the session, in both generations of the protocol', () => {
    const pcm = (rate?: number) => ({ type: 'audio/pcm', rate });
    expect(audioAfter(of(pcm(16_000), pcm(48_000)), PCM_AT_24K)).toEqual({ inputHz: 16_000, outputHz: 48_000 });
    expect(audioAfter(of(pcm(), undefined), { inputHz: 8_000, outputHz: 48_000 })).toEqual({ inputHz: 24_000, outputHz: 48_000 });
    expect(audioAfter({ session: { input_audio_format: 'pcm16', output_audio_format: 'pcm16' } }, null)).toEqual(PCM_AT_24K);
    for (const event of [null, 'x', {}, { type: 'response.done' }]) expect(audioAfter(event, PCM_AT_24K)).toEqual(PCM_AT_24K);
  });

  it('is none where the session has another format', () => {
    expect(audioAfter(of({ type: 'audio/pcmu' }, { type: 'audio/pcm', rate: 24_000 }), PCM_AT_24K)).toBeNull();
    expect(audioAfter({ session: { output_audio_format: 'g711_ulaw' } }, PCM_AT_24K)).toBeNull();
  });

  it('travels as base64', () => {
    const bytes = Uint8Array.from({ length: 20_000 }, (_, i) => i % 256);
    expect(fromBase64(toBase64(bytes))).toEqual(bytes);
    expect(fromBase64('no base64!')).toBeNull();
  });
});
