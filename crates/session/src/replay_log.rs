//! The format of a session's replay log: lines of JSON that `replay_recorder` writes and `antiphon replay` reads.
//!
//! The first line is the [`Header`], the last one the [`End`]. The lines between are the inputs of turn-taking and of the
//! reducer in order, each with its outcome. Windows are many (62.5 a second) and must be restored bit by bit, so they are
//! packed: [`WindowFeatures`] in 14 bytes, up to 64 in a line. An hour of listening is 4 MB. Audio, where it is kept, is a
//! WAV file beside the log; the replay does not read it.
//!
//! All names in a line are part of the format, those of [`Event`], [`Action`] and the types in them included: the replay
//! compares actions as they were written. A change of any name or meaning requires a new [`VERSION`].

use antiphon_dialog::turn::{Decision, Edge, Ending, Thresholds, TurnTaker, WindowFeatures};
use antiphon_dialog::{Action, Event, PlaybackControl, Settings, Speculation};
use antiphon_types::{Samples, SessionId, Timestamp};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::time::Duration;

/// The version written and read.
///
/// Version 1 had the header key `antiphon_recording` and other names of events and actions; it is not read any more.
pub const VERSION: u32 = 2;

/// The first line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub antiphon_replay_log: u32,
    /// Version of the hub that wrote it.
    pub hub: String,
    /// The session's id.
    pub session: SessionId,
    /// When it began, RFC 3339.
    pub started_at: String,
    /// How the reducer began; `None` where only turn-taking was recorded.
    pub dialog: Option<DialogStart>,
    /// How turn-taking began.
    pub turn: TurnStart,
    /// Names of the engines: VAD, STT, LLM, TTS.
    pub engines: [String; 4],
    /// The WAV file beside it, where audio was kept: left the microphone, as the recognizer got it, right the reply, as it sounded.
    pub audio: Option<String>,
}

/// Initial state of the reducer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DialogStart {
    /// The session's.
    pub settings: Settings,
    /// Who controls playback.
    pub playback: PlaybackControl,
    /// Of the identifiers.
    pub seed: u64,
    /// See [`antiphon_dialog::Dialog::with_follow_up_after`].
    pub follow_up_after: Option<Duration>,
    /// See [`antiphon_dialog::Dialog::with_max_tool_rounds`]. Absent in logs that are older.
    #[serde(default = "max_tool_rounds")]
    pub max_tool_rounds: u32,
    /// See [`antiphon_dialog::Dialog::with_speculation`].
    pub speculation: Option<Speculation>,
}

/// The default of `session.max_tool_rounds`.
fn max_tool_rounds() -> u32 {
    crate::SessionConfig::default().max_tool_rounds
}

/// Settings of turn-taking, at the start or later.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TurnStart {
    /// The detector's.
    pub thresholds: Thresholds,
    /// What ends a turn.
    pub ending: Ending,
}

/// Any further line, as it is written.
// Entries are moved once into a queue; a box for each event would cost more than the room it saves.
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// See [`Line::Windows`].
    Windows {
        /// The windows.
        #[serde(flatten)]
        windows: Windows,
        /// The outcome of the last one; the others have none.
        #[serde(skip_serializing_if = "Outcome::is_nothing")]
        outcome: Outcome,
    },
    /// See [`Line::Partial`].
    Partial(PartialTranscript),
    /// See [`Line::TurnProbability`].
    TurnProbability(TurnProbability),
    /// See [`Line::TurnSettings`].
    TurnSettings(TurnStart),
    /// See [`Line::Ended`].
    Ended {
        /// Its outcome.
        outcome: Outcome,
    },
    /// See [`Line::Step`].
    Step {
        /// Time since the session began.
        at: Timestamp,
        /// The event.
        event: Event,
        /// What the reducer returned.
        actions: Vec<Action>,
    },
    /// See [`Line::End`].
    End(End),
}

/// Any further line, as it is read. Outcomes and actions are compared as they were written.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The microphone, window by window.
    Windows {
        /// Where the first begins, in turn time.
        from: Samples,
        /// Samples of each.
        size: u64,
        /// [`Windows::unpack`] reads it.
        packed: String,
        /// The [`Outcome`] of the last one.
        #[serde(default)]
        outcome: Option<Box<RawValue>>,
    },
    /// A partial transcript, for turn-taking.
    Partial(PartialTranscript),
    /// The turn model's answer.
    TurnProbability(TurnProbability),
    /// New settings of turn-taking.
    TurnSettings(TurnStart),
    /// Speech under way was ended from outside: the audio stalled, or the client committed.
    Ended {
        /// An [`Outcome`].
        outcome: Box<RawValue>,
    },
    /// One step of the reducer.
    Step {
        /// Time since the session began.
        at: Timestamp,
        /// The event.
        event: Box<Event>,
        /// What the reducer returned, each an [`Action`].
        actions: Vec<Box<RawValue>>,
    },
    /// The last line.
    End(End),
}

/// The last line.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct End {
    /// Nothing is missing.
    pub complete: bool,
    /// Lines between the header and this one.
    pub n_lines: u64,
}

/// A partial transcript, as turn-taking gets it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartialTranscript {
    /// The words.
    pub text: String,
    /// Turn time up to which they cover the audio.
    pub audio_end: Samples,
}

/// A turn model's answer, as turn-taking gets it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TurnProbability {
    /// P(the turn is over).
    pub probability: f32,
    /// Turn time at which the pause began.
    pub pause_start: Samples,
}

/// What a window led to in turn-taking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// The edge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge: Option<Edge>,
    /// Why the utterance ended there, where the wait adapts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
}

impl Outcome {
    /// Gives turn-taking a window, as a session does.
    pub fn of_window(taker: &mut TurnTaker, heard: WindowFeatures) -> Self {
        let edge = taker.window(heard);
        Self { edge, decision: edge.and_then(|_| taker.decision().copied()) }
    }

    /// Ends what turn-taking has under way, as a session does.
    pub fn of_end(taker: &mut TurnTaker) -> Self {
        let edge = taker.end();
        Self { edge, decision: edge.and_then(|_| taker.decision().copied()) }
    }

    /// Whether it is empty.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// A run of windows, packed.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Windows {
    /// Where the first begins, in turn time.
    pub from: Samples,
    /// Samples of each.
    pub size: u64,
    /// Each in `PACKED` bytes.
    #[serde(serialize_with = "in_base64")]
    pub packed: Vec<u8>,
}

/// Bytes of a packed window: probability, peak, level and pitch (NaN: none), little endian.
pub(super) const PACKED: usize = 4 + 2 + 4 + 4;

impl Windows {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.packed.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.packed.len() / PACKED
    }

    /// Whether `heard` can follow: it begins where the last one ended and is as long.
    pub fn takes(&self, heard: &WindowFeatures) -> bool {
        let size = heard.end.saturating_sub(heard.start).0;
        self.packed.is_empty() || size == self.size && heard.start.0 == self.from.0 + self.len() as u64 * self.size
    }

    /// One more.
    pub fn push(&mut self, heard: &WindowFeatures) {
        if self.packed.is_empty() {
            self.from = heard.start;
            self.size = heard.end.saturating_sub(heard.start).0;
        }
        self.packed.extend(heard.probability.to_le_bytes());
        self.packed.extend(heard.peak.to_le_bytes());
        self.packed.extend(heard.level_db.to_le_bytes());
        self.packed.extend(heard.pitch_hz.unwrap_or(f32::NAN).to_le_bytes());
    }
}

/// The windows of a line; `None` when they are no such windows.
pub fn unpack(from: Samples, size: u64, packed: &str) -> Option<Vec<WindowFeatures>> {
    let bytes = BASE64.decode(packed).ok()?;
    let float = |at: &[u8]| f32::from_le_bytes([at[0], at[1], at[2], at[3]]);
    let window = |(i, bytes): (usize, &[u8])| {
        let start = Samples(from.0.checked_add(size.checked_mul(i as u64)?)?);
        Some(WindowFeatures {
            probability: float(bytes),
            peak: u16::from_le_bytes([bytes[4], bytes[5]]),
            level_db: float(&bytes[6..]),
            pitch_hz: Some(float(&bytes[10..])).filter(|pitch| !pitch.is_nan()),
            start,
            end: Samples(start.0.checked_add(size)?),
        })
    };
    let whole = bytes.len().is_multiple_of(PACKED) && size > 0;
    whole.then(|| bytes.chunks_exact(PACKED).enumerate().map(window).collect())?
}

fn in_base64<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&BASE64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_dialog::{Command, UtteranceEnd};
    use proptest::prelude::*;

    #[test]
    fn a_change_of_these_names_requires_a_new_version() {
        let written = |entry: &Entry| serde_json::to_string(entry).expect("keys are text");
        let step = |event, actions| written(&Entry::Step { at: Timestamp::from_ms(5), event, actions });
        let lines = [
            written(&Entry::Partial(PartialTranscript { text: "hello".into(), audio_end: Samples(160) })),
            written(&Entry::TurnProbability(TurnProbability { probability: 0.5, pause_start: Samples(160) })),
            written(&Entry::Ended {
                outcome: Outcome { edge: Some(Edge::Stopped { at: Samples(1) }), decision: None },
            }),
            written(&Entry::End(End { complete: true, n_lines: 3 })),
            step(
                Event::VoiceOnset { position: Samples(1) },
                vec![Action::Hold, Action::Release { held_at: Samples(1) }],
            ),
            step(
                Event::SpeechStarted { audio_start: Samples(1) },
                vec![Action::OpenUtterance { item: "i".into(), audio_start: Samples(1) }],
            ),
            step(
                Event::Client {
                    event_id: None,
                    command: Command::Commit { buffer_start: Samples(1), buffered: Samples(2) },
                },
                vec![Action::CloseUtterance { item: "i".into(), end: UtteranceEnd::Committed }, Action::ClearInput],
            ),
        ];
        let expect = [
            r#"{"partial":{"text":"hello","audio_end":160}}"#,
            r#"{"turn_probability":{"probability":0.5,"pause_start":160}}"#,
            r#"{"ended":{"outcome":{"edge":{"Stopped":{"at":1}}}}}"#,
            r#"{"end":{"complete":true,"n_lines":3}}"#,
            r#"{"step":{"at":AT,"event":{"VoiceOnset":{"position":1}},"actions":["Hold",{"Release":{"held_at":1}}]}}"#,
            r#"{"step":{"at":AT,"event":{"SpeechStarted":{"audio_start":1}},"actions":[{"OpenUtterance":{"item":"i","audio_start":1}}]}}"#,
            r#"{"step":{"at":AT,"event":{"Client":{"event_id":null,"command":{"Commit":{"buffer_start":1,"buffered":2}}}},"actions":[{"CloseUtterance":{"item":"i","end":"Committed"}},"ClearInput"]}}"#,
        ];
        let at = serde_json::to_string(&Timestamp::from_ms(5)).expect("a number");
        assert_eq!(lines.to_vec(), expect.map(|line| line.replace("AT", &at)));
        assert_eq!(VERSION, 2);
    }

    proptest! {
        #[test]
        fn windows_come_back_to_the_bit(
            heard in prop::collection::vec((0.0..=1.0f32, any::<u16>(), -120.0..=0.0f32, prop::option::of(50.0..500.0f32)), 1..70),
            from in 0..1u64 << 40
        ) {
            let mut windows = Windows::default();
            for (i, &(probability, peak, level_db, pitch_hz)) in heard.iter().enumerate() {
                let start = Samples(from + 256 * i as u64);
                let heard = WindowFeatures { probability, peak, level_db, pitch_hz, start, end: start + Samples(256) };
                prop_assert!(windows.takes(&heard));
                windows.push(&heard);
            }
            let back = unpack(windows.from, windows.size, &BASE64.encode(&windows.packed)).expect("windows");
            let fields = |h: &WindowFeatures| (h.probability, h.peak, h.level_db, h.pitch_hz);
            prop_assert_eq!(back.iter().map(fields).collect::<Vec<_>>(), heard);
            prop_assert_eq!(back[0].start.0, from);
        }

        #[test]
        fn any_text_is_windows_or_none(packed in "\\PC*", from in any::<u64>(), size in any::<u64>()) {
            let _ = unpack(Samples(from), size, &packed);
        }
    }
}
