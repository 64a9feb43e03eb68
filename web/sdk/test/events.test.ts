// The JSON events: what comes in is checked, what goes out has the GA shape.
import { describe, expect, it } from 'vitest';
import { EventError, messageItem, parseEvent, played, sessionUpdate } from '../src/protocol/events';

describe('parseEvent', () => {
  it('takes known events as they are and passes unknown ones by name', () => {
    expect(parseEvent('{"type":"input_audio_buffer.committed","item_id":"a","event_id":"e"}')).toMatchObject({ item_id: 'a' });
    expect(parseEvent('{"type":"rate_limits.updated","rate_limits":[]}')).toEqual({ type: 'other', name: 'rate_limits.updated' });
  });

  it.each(['{', '7', 'null', '{}', '{"type":5}', '{"type":"error"}', '{"type":"response.done","response":null}'])('refuses %s', (text) => {
    expect(() => parseEvent(text)).toThrow(EventError);
  });
});

describe('client events', () => {
  it('asks for semantic_vad, transcription and the voice, and leaves the rest to the hub', () => {
    expect(sessionUpdate({ voice: 'rms' }, true)).toMatchObject({
      type: 'session.update',
      session: {
        type: 'realtime',
        output_modalities: ['audio'],
        audio: { input: { turn_detection: { type: 'semantic_vad', create_response: true, interrupt_response: true } }, output: { voice: 'rms' } },
      },
    });
    expect(JSON.stringify(sessionUpdate({ voice: null }, true))).not.toContain('voice');
    expect(sessionUpdate({ voice: 'rms' }, false)).toMatchObject({ session: { output_modalities: ['text'] } });
  });

  it('asks for what is set', () => {
    const settings = { instructions: '', speed: 1.2, language: 'de', eagerness: 'high', noiseReduction: 'off' } as const;
    const tool = { name: 'weather', description: 'Tells the weather.', parameters: { type: 'object' }, call: () => 'sun' };
    expect(sessionUpdate(settings, true, [tool])).toMatchObject({
      session: {
        instructions: '',
        tools: [{ type: 'function', name: 'weather', description: 'Tells the weather.', parameters: { type: 'object' } }],
        audio: {
          input: { turn_detection: { type: 'semantic_vad', eagerness: 'high' }, transcription: { language: 'de' }, noise_reduction: null },
          output: { speed: 1.2 },
        },
      },
    });
    const turns = (change: Parameters<typeof sessionUpdate>[0]) => sessionUpdate(change, true) as { session: { audio: { input: { turn_detection: unknown } } } };
    expect(turns({ ignoreBackchannels: false }).session.audio.input.turn_detection).toMatchObject({ ignore_backchannels: false });
    expect(turns({ ignoreBackchannels: null }).session.audio.input.turn_detection).not.toHaveProperty('ignore_backchannels');
    expect(turns({ manual: true, eagerness: 'low' }).session.audio.input.turn_detection).toBeNull();
    expect(sessionUpdate({ noiseReduction: 'far_field' }, false)).toMatchObject({ session: { audio: { input: { noise_reduction: { type: 'far_field' } } } } });
  });

  it('writes messages with the part type of their role', () => {
    expect(messageItem('i', 'user', 'hi')).toMatchObject({ item: { content: [{ type: 'input_text', text: 'hi' }] } });
    expect(messageItem('i', 'assistant', 'hi')).toMatchObject({ item: { content: [{ type: 'output_text' }] } });
  });

  it('reports whole milliseconds, never more than was played', () => {
    const at = { itemId: 'i', audioEndMs: 99.97, atMs: 5.5, firstSoundMs: null, nUnderruns: 1, underrunMs: 40.4, stopped: false };
    const told = { type: 'output_audio_buffer.played', item_id: 'i', audio_end_ms: 99, at_ms: 5.5, n_underruns: 1, underrun_ms: 40 };
    expect(played(at)).toEqual(told);
    expect(played({ ...at, firstSoundMs: 3, stopped: true })).toEqual({ ...told, first_sound_ms: 3, stopped: true });
  });
});
