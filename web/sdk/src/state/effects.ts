// What the loudspeaker must do on an event of the hub, decided from the state before the event. Pure
// functions; the session executes the effects immediately, before drawing.

import type { ServerEvent } from '../protocol/events.js';
import type { State } from './model.js';

export type Effect =
  | { kind: 'pause' }
  | { kind: 'resume' }
  | { kind: 'flush' }
  | { kind: 'end'; itemId: string }
  /** Paused because the user speaks: if the hub neither clears nor resumes soon, the response is dropped. */
  | { kind: 'pause-or-drop' };

export function effectsOf(state: State, event: ServerEvent): Effect[] {
  switch (event.type) {
    case 'output_audio_buffer.held':
      return [{ kind: 'pause' }];
    case 'output_audio_buffer.resumed':
      return [{ kind: 'resume' }];
    case 'output_audio_buffer.cleared':
      return [{ kind: 'flush' }];
    case 'input_audio_buffer.speech_started':
      return state.playback === 'idle' ? [] : [{ kind: 'pause-or-drop' }];
    case 'response.created':
      // A new response must be heard even if the hub failed to end a hold.
      return state.playback === 'held' ? [{ kind: 'flush' }] : [];
    case 'response.done':
      return event.response.status === 'cancelled' && isComing(state, event.response.id) ? [{ kind: 'flush' }] : [];
    case 'antiphon.output_audio.sent':
      return [{ kind: 'end', itemId: event.item_id }];
    default:
      return [];
  }
}

/** Audio of an interrupted item is not played, even if it is still arriving; that of one that broke off is. */
export function isWanted(state: State, itemId: string): boolean {
  const caption = state.captions.find((c) => c.id === itemId);
  return caption?.role !== 'assistant' || (caption.status !== 'cut' && caption.status !== 'lost');
}

function isComing(state: State, responseId: string): boolean {
  return state.captions.some((c) => c.role === 'assistant' && c.responseId === responseId && c.status === 'coming');
}
