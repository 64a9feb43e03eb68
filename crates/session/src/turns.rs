//! How a session detects turns: the settings of its ingress.

use super::setup::Setup;
use super::translate;
use antiphon_dialog::turn::{Ending, Thresholds};
use antiphon_types::{SampleRate, Samples};

/// The least audio kept before an utterance in addition to its padding: more than the detector needs to confirm speech
/// by the default `turn.min_speech_ms`.
const ONSET_MARGIN: Samples = Samples(16_000);

/// Samples of a detector's window.
const WINDOW: u64 = 256;

/// Speech that is confirmed has at most six silent windows behind each voiced one: with more the onset is retracted.
const WINDOWS_A_VOICED_ONE: u64 = 7;

/// Leading silence kept for a client that commits: longer silence before the first word is dropped.
const MANUAL_PREROLL: Samples = Samples(30 * 16_000);

/// How turns are detected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Turns {
    /// By the detector; `padding` of audio before the speech belongs to the utterance.
    Detected { thresholds: Thresholds, padding: Samples, ending: Ending },
    /// By the client's commits; the detector only finds speech to transcribe.
    Manual { thresholds: Thresholds },
}

impl Turns {
    pub(super) fn thresholds(&self) -> Thresholds {
        match self {
            Self::Detected { thresholds, .. } => *thresholds,
            Self::Manual { thresholds } => Thresholds { silence: Samples(u64::MAX), pause: None, ..*thresholds },
        }
    }

    pub(super) fn ending(&self) -> Ending {
        match self {
            Self::Detected { ending, .. } => *ending,
            Self::Manual { .. } => Ending::Silence,
        }
    }

    /// How much audio is kept for the beginning of an utterance.
    pub(super) fn capacity(&self) -> Samples {
        match self {
            Self::Detected { thresholds, padding, .. } => {
                let longest_onset = Samples(WINDOWS_A_VOICED_ONE * (thresholds.min_speech.0 + WINDOW));
                *padding + ONSET_MARGIN.max(longest_onset)
            }
            Self::Manual { .. } => MANUAL_PREROLL,
        }
    }
}

impl Setup {
    /// Whether a session is locked to its user's voice.
    pub(super) fn locks_speaker(&self, session: &antiphon_protocol::Session) -> bool {
        let detection = session.audio.input.turn_detection.as_ref();
        detection.is_some_and(|detection| detection.speaker_lock().unwrap_or(self.session.speaker_lock))
    }

    /// How turns are detected in a session.
    pub(super) fn turns(&self, session: &antiphon_protocol::Session) -> Turns {
        let turn = &self.turn;
        let samples = |ms: u32| Samples::from_ms(u64::from(ms), SampleRate::HZ_16000);
        let pause = Some(samples(self.speculation.pause_ms()));
        let thresholds = |threshold: f32, silence_ms: u32| {
            Thresholds::from_ms(threshold, turn.min_speech_ms, silence_ms).with_pause(pause)
        };
        match &session.audio.input.turn_detection {
            None => Turns::Manual { thresholds: thresholds(turn.threshold, turn.silence_duration_ms) },
            Some(antiphon_protocol::TurnDetection::ServerVad(vad)) => Turns::Detected {
                thresholds: thresholds(vad.threshold as f32, vad.silence_duration_ms),
                padding: samples(vad.prefix_padding_ms),
                ending: Ending::Silence,
            },
            Some(antiphon_protocol::TurnDetection::SemanticVad(vad)) => Turns::Detected {
                thresholds: thresholds(turn.threshold, turn.silence_duration_ms),
                padding: samples(turn.prefix_padding_ms),
                ending: Ending::Adaptive(translate::eagerness(vad.eagerness)),
            },
        }
    }
}
