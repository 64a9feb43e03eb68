//! The moments of one turn, from the end of speech to the first reply audio.
//!
//! The actor marks them as they pass; the client of the binary mode and the metrics get them once the first audio has
//! left. A mark is set once and never moves.

use crate::telemetry::{Metrics, Stage};
use crate::turn::Decision;
use crate::units::{ItemId, ResponseId, Timestamp};
use crate::wire::{Endpointing, Marks, ServerEvent};

/// One turn's marks.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    item: Option<ItemId>,
    response: Option<ResponseId>,
    speech_end: Option<Timestamp>,
    end_confirmed: Option<Timestamp>,
    stt_final: Option<Timestamp>,
    response_started: Option<Timestamp>,
    llm_first_token: Option<Timestamp>,
    first_chunk: Option<Timestamp>,
    tts_first_audio: Option<Timestamp>,
    told: bool,
    endpointing: Option<Endpointing>,
}

impl Timeline {
    /// An utterance ended: the last voiced sample was heard at `speech_end`, and that is known now.
    pub(super) fn utterance_ended(&mut self, item: ItemId, speech_end: Timestamp, now: Timestamp) {
        *self = Self { item: Some(item), speech_end: Some(speech_end), end_confirmed: Some(now), ..Self::default() };
    }

    /// Why the utterance was taken to have ended.
    pub(super) fn decided(&mut self, decision: &Decision) {
        let Decision { hints, probability, wait } = decision;
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        self.endpointing = Some(Endpointing {
            probability: *probability,
            wait_ms: ms(*wait),
            spoken_ms: ms(hints.spoken),
            wording: hints.wording.name(),
            energy_fall_db: hints.prosody.energy_fall_db,
            pitch_fall_semitones: hints.prosody.pitch_fall_semitones,
            n_pauses: hints.n_pauses,
            typical_pause_ms: ms(hints.typical_pause),
            model_probability: hints.model,
        });
    }

    pub(super) fn transcribed(&mut self, now: Timestamp) {
        if self.response.is_none() {
            self.stt_final = Some(now);
        }
    }

    pub(super) fn response_started(&mut self, response: ResponseId, now: Timestamp) {
        if self.response.is_some() {
            // A response that follows no utterance of its own (a typed turn, a tool's result).
            *self = Self::default();
        }
        self.response = Some(response);
        self.response_started = Some(now);
    }

    pub(super) fn first_token(&mut self, response: &ResponseId, now: Timestamp) {
        if self.is_of(response) {
            self.llm_first_token.get_or_insert(now);
        }
    }

    pub(super) fn first_chunk(&mut self, response: &ResponseId, now: Timestamp) {
        if self.is_of(response) {
            self.first_chunk.get_or_insert(now);
        }
    }

    pub(super) fn first_audio(&mut self, response: &ResponseId, now: Timestamp) {
        if self.is_of(response) {
            self.tts_first_audio.get_or_insert(now);
        }
    }

    /// The first audio has left: counts the stages and gives the event for clients that take it, once.
    pub(super) fn first_sent(&mut self, now: Timestamp, metrics: &Metrics) -> Option<ServerEvent> {
        let first_audio = self.tts_first_audio.filter(|_| !std::mem::replace(&mut self.told, true))?;
        let stage = |stage: Stage, from: Option<Timestamp>, to: Option<Timestamp>| {
            if let (Some(from), Some(to)) = (from, to) {
                metrics.latency(stage, to.since(from));
            }
        };
        stage(Stage::SttFinal, self.end_confirmed, self.stt_final);
        stage(Stage::LlmFirstToken, self.response_started, self.llm_first_token);
        stage(Stage::TtsFirstAudio, self.first_chunk, Some(first_audio));
        stage(Stage::VoiceToVoice, self.speech_end, Some(now));
        let ms = |at: Option<Timestamp>| Some(at?.since(self.speech_end?).as_secs_f64() * 1e3);
        Some(ServerEvent::Timeline {
            item_id: self.item.clone()?,
            response_id: self.response.clone()?,
            marks: Marks {
                speech_end: Some(0.0),
                end_confirmed: ms(self.end_confirmed),
                stt_final: ms(self.stt_final),
                llm_first_token: ms(self.llm_first_token),
                first_chunk: ms(self.first_chunk),
                tts_first_audio: ms(Some(first_audio)),
                first_audio_sent: ms(Some(now)),
            },
            endpointing: self.endpointing,
        })
    }

    fn is_of(&self, response: &ResponseId) -> bool {
        self.response.as_ref() == Some(response)
    }
}
