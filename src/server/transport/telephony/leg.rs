//! The leg of a phone call: what every peer says and takes, whichever protocol it speaks.
//!
//! Each peer's file implements [`Leg`]: it reads the peer's messages and writes ours. [`super::conversation`] drives it. A leg
//! is plain state: it reads no clock, performs no IO, resamples nothing and decides nothing about the call.

use antiphon_audio::codec::{self, CodecError};
use antiphon_types::{Format, SampleRate, Samples};
use bytes::Bytes;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The longest message of a peer, in bytes: 1 s of L16 at 24 kHz in base64, or 20 times what peers send in one.
pub(in crate::server::transport) const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Parameters of a call that are kept, and the bytes of the name and of the value of one.
const MAX_PARAMETERS: usize = 64;
const MAX_PARAMETER_BYTES: usize = 1_024;

/// One call as its peer speaks of it.
pub(super) trait Leg: Send {
    /// Reads a text message.
    ///
    /// # Errors
    /// The message violates the peer's protocol. The call is over then, but for [`LegError::BeforeStart`].
    fn text(&mut self, text: &str) -> Result<Option<PeerMessage>, LegError>;

    /// Reads a binary message.
    ///
    /// # Errors
    /// As [`Leg::text`].
    fn binary(&mut self, bytes: Bytes) -> Result<Option<PeerMessage>, LegError> {
        let _ = bytes;
        Err(LegError::BinaryMessage)
    }

    /// The message that plays audio in the coding of [`Start::output`]. The peer plays it behind what it holds already.
    fn play(&mut self, audio: Vec<u8>) -> Packet;

    /// The message that has the peer say [`PeerMessage::Played`] when all audio before it was played; `None`: it has no marks. Its
    /// audio then has to be sent in real time.
    fn mark(&mut self, mark: Mark) -> Option<Packet>;

    /// The message that has the peer discard what it has not played yet; `None`: it holds nothing that could be discarded.
    fn clear(&mut self) -> Option<Packet>;

    /// The message that pauses or continues playback; `None`: the peer cannot.
    fn hold(&mut self, is_held: bool) -> Option<Packet> {
        let _ = is_held;
        None
    }

    /// The message that ends the call, before the connection is closed; `None`: closing ends it.
    fn hang_up(&mut self) -> Option<Packet> {
        None
    }
}

/// What a peer says.
#[derive(Debug, PartialEq)]
pub(super) enum PeerMessage {
    /// The call begins. Nothing comes before it, and it comes once.
    Started(Box<Start>),
    /// Audio of the caller in the coding of [`Start::input`].
    Audio {
        /// The number of the frame where the peer does not keep their order.
        number: Option<u32>,
        /// At least one sample.
        audio: Bytes,
    },
    /// The caller pressed a key: `0` to `9`, `*`, `#`, `A` to `D`.
    Key(char),
    /// All audio before this mark was played, or discarded by a clear.
    Played(Mark),
    /// The peer has put the call on hold, so that the caller does not hear the reply, or has ended the hold.
    Held(bool),
    /// The call is over.
    Ended,
}

/// How a call begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Start {
    /// Coding of the caller's audio.
    pub(super) input: Coding,
    /// Coding of the audio that the peer plays.
    pub(super) output: Coding,
    /// What the peer says of the call: numbers as `from` and `to`, and parameters that its configuration adds.
    pub(super) parameters: Parameters,
}

/// Names and values, bounded in number and length. `Debug` shows their names only: values are about persons.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Adds a text or number. Others, and those beyond the bounds, are left out; a name that is there keeps its value.
    pub(super) fn add(&mut self, name: &str, value: &Value) {
        match value {
            Value::String(text) => self.add_text(name, text),
            Value::Number(number) => self.add_text(name, &number.to_string()),
            _ => {}
        }
    }

    /// As [`Parameters::add`], for each entry of an object.
    pub(super) fn add_all(&mut self, values: Option<&Value>) {
        for (name, value) in values.and_then(Value::as_object).into_iter().flatten() {
            self.add(name, value);
        }
    }

    /// As [`Parameters::add`].
    pub(super) fn add_text(&mut self, name: &str, value: &str) {
        let fits = self.0.len() < MAX_PARAMETERS && name.len().max(value.len()) <= MAX_PARAMETER_BYTES;
        if fits && !value.is_empty() && !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), value.to_owned());
        }
    }

    /// Adds those of `others` whose names are not there.
    pub(super) fn add_missing(&mut self, others: Self) {
        for (name, value) in others.0 {
            self.add_text(&name, &value);
        }
    }

    /// The value of a name.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A message to a peer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Packet {
    Text(String),
    Binary(Bytes),
}

impl Packet {
    /// A JSON message.
    pub(super) fn json(value: &Value) -> Self {
        Self::Text(value.to_string())
    }
}

/// A mark behind audio, numbered from 1 in the order in which they are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark(pub(super) u64);

impl Mark {
    /// Reads a name that [`fmt::Display`] wrote; `None`: it is of another's mark.
    pub(super) fn of(name: &str) -> Option<Self> {
        name.strip_prefix("antiphon-")?.parse().ok().map(Self)
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "antiphon-{}", self.0)
    }
}

/// How a peer codes audio, mono.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Coding {
    /// How a sample is coded. Of [`Format::Pcm16`] only the form counts here, not the rate.
    pub(super) format: Format,
    pub(super) rate: SampleRate,
}

impl Default for Coding {
    fn default() -> Self {
        Self::ULAW
    }
}

impl Coding {
    pub(super) const ULAW: Self = Self { format: Format::Ulaw, rate: SampleRate::HZ_8000 };
    pub(super) const ALAW: Self = Self { format: Format::Alaw, rate: SampleRate::HZ_8000 };

    /// Little-endian samples of 16 bits at this rate.
    ///
    /// # Errors
    /// No telephony peer uses that rate.
    pub(super) fn l16(hz: u64) -> Result<Self, LegError> {
        match hz {
            8_000 | 12_000 | 16_000 | 24_000 | 32_000 | 44_100 | 48_000 => {
                Ok(Self { format: Format::Pcm16, rate: SampleRate::new(hz as u32) })
            }
            _ => Err(LegError::Coding(format!("L16 at {hz} Hz"))),
        }
    }

    /// Appends the samples of `audio`.
    ///
    /// # Errors
    /// The audio ends inside a sample.
    pub(super) fn decode(self, audio: &[u8], out: &mut Vec<i16>) -> Result<(), CodecError> {
        codec::decode(self.format, audio, out)
    }

    /// Codes samples at its rate.
    pub(super) fn encode(self, samples: &[i16]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(samples.len() * self.format.bytes_per_sample());
        codec::encode(self.format, samples, &mut bytes);
        bytes
    }

    /// Samples in 20 ms.
    pub(super) fn frame(self) -> Samples {
        Samples::from_ms(20, self.rate)
    }
}

/// How a peer violates its protocol. The words go to the peer in the reason of the close frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LegError {
    /// A text message is not what the protocol has there.
    #[error("a message is not valid JSON of this protocol")]
    NotJson,
    /// A field that the protocol requires is missing or has another type.
    #[error("a message lacks its field '{0}'")]
    Lacks(&'static str),
    /// The payload of a media message is not base64.
    #[error("the payload of a media message is not base64")]
    NotBase64,
    /// The hub does not speak this coding.
    #[error("this coding is not supported: {0}")]
    Coding(String),
    /// Audio, a key or a mark came before the start: it is dropped.
    #[error("media came before the start of the stream")]
    BeforeStart,
    /// A second start.
    #[error("the stream started twice")]
    StartedTwice,
    /// The peer's protocol has no binary messages.
    #[error("this protocol has no binary messages")]
    BinaryMessage,
    /// A frame of another length than its kind has.
    #[error("a frame has the wrong length for its kind")]
    Length,
}

impl LegError {
    /// The close code, after RFC 6455, section 7.4.1.
    pub(super) fn code(&self) -> u16 {
        match self {
            Self::NotJson | Self::NotBase64 | Self::Lacks(_) | Self::Length => 1007,
            Self::Coding(_) | Self::BinaryMessage => 1003,
            Self::BeforeStart | Self::StartedTwice => 1008,
        }
    }
}

/// A whole number that a peer writes as a number or as text.
pub(super) fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn marks_come_back_by_their_names_and_others_are_nobodys() {
        assert_eq!(Mark::of(&Mark(17).to_string()), Some(Mark(17)));
        for other in ["", "17", "antiphon-", "antiphon-x", "antiphon--1", "antiphon-99999999999999999999"] {
            assert_eq!(Mark::of(other), None, "{other:?}");
        }
    }

    #[test]
    fn parameters_are_bounded_and_the_first_counts() {
        let mut parameters = Parameters::default();
        parameters.add_all(Some(&json!({"to": "+1", "n": 3, "list": [1], "none": null, "empty": ""})));
        parameters.add_text("to", "+2");
        parameters.add_text("long", &"x".repeat(MAX_PARAMETER_BYTES + 1));
        assert_eq!((parameters.get("to"), parameters.get("n")), (Some("+1"), Some("3")));
        assert_eq!(["list", "none", "empty", "long"].map(|name| parameters.get(name)), [None; 4]);
        for n in 0..2 * MAX_PARAMETERS {
            parameters.add_text(&n.to_string(), "x");
        }
        assert_eq!(parameters.0.len(), MAX_PARAMETERS);
        assert!(!format!("{parameters:?}").contains("+1"), "numbers of persons are in no log");
    }

    #[test]
    fn codings_come_back() {
        let samples = [0, 1_000, -20_000];
        for coding in [Coding::ULAW, Coding::ALAW, Coding::l16(16_000).unwrap()] {
            let mut back = Vec::new();
            coding.decode(&coding.encode(&samples), &mut back).unwrap();
            assert!(
                back.iter().zip(&samples).all(|(a, b)| (i32::from(*a) - i32::from(*b)).abs() < 600),
                "{coding:?} {back:?}"
            );
        }
        assert!(Coding::l16(11_025).is_err());
    }
}
