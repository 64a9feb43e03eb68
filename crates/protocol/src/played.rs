//! Playback reports and clock pings, which are extensions: the client's playhead, and the relation of its clock to the
//! hub's.
//!
//! A time named `..._ms` that is not a duration is a reading of the client's clock, which may be any steady clock with
//! any origin.

use super::read::{Fields, Read};
use antiphon_types::ItemId;

/// Upper bound of a clock reading in milliseconds.
const MAX_MS: f64 = 1e15;

/// `output_audio_buffer.played`
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedReport {
    /// The response item being played.
    pub item_id: ItemId,
    /// Playback position from the start of the item, in milliseconds.
    pub audio_end_ms: u32,
    /// Time of the position; `None`: now.
    pub at_ms: Option<f64>,
    /// Time at which the item's first audible sample was played.
    pub first_sound_ms: Option<f64>,
    /// Number of underruns within the item so far.
    pub n_underruns: Option<u32>,
    /// Total duration of these underruns in milliseconds.
    pub underrun_ms: Option<u32>,
    /// Whether playback of the item was stopped here for good.
    pub stopped: bool,
}

/// `antiphon.clock.ping`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockPing {
    /// The client's clock when the ping was sent.
    pub client_ms: f64,
    /// The client's clock when the reply to the previous ping arrived.
    pub pong_ms: Option<f64>,
    /// The client's clock when the first sample of its microphone stream was captured.
    pub microphone_ms: Option<f64>,
}

impl PlayedReport {
    /// A playhead, true now, of an item that goes on.
    pub fn new(item_id: ItemId, audio_end_ms: u32) -> Self {
        Self {
            item_id,
            audio_end_ms,
            at_ms: None,
            first_sound_ms: None,
            n_underruns: None,
            underrun_ms: None,
            stopped: false,
        }
    }

    pub(super) fn read(fields: &mut Fields) -> Read<Self> {
        Ok(Self {
            item_id: fields.required("item_id", super::item::read_item_id)?,
            audio_end_ms: fields.required("audio_end_ms", |node| node.integer(0..=u32::MAX))?,
            at_ms: clock(fields, "at_ms")?,
            first_sound_ms: clock(fields, "first_sound_ms")?,
            n_underruns: fields.optional("n_underruns", |node| node.integer(0..=u32::MAX))?,
            underrun_ms: fields.optional("underrun_ms", |node| node.integer(0..=u32::MAX))?,
            stopped: fields.optional("stopped", |node| node.flag())?.unwrap_or_default(),
        })
    }
}

impl ClockPing {
    pub(super) fn read(fields: &mut Fields) -> Read<Self> {
        Ok(Self {
            client_ms: fields.required("client_ms", |node| node.decimal(-MAX_MS..=MAX_MS))?,
            pong_ms: clock(fields, "pong_ms")?,
            microphone_ms: clock(fields, "microphone_ms")?,
        })
    }
}

fn clock(fields: &mut Fields, name: &str) -> Read<Option<f64>> {
    fields.optional(name, |node| node.decimal(-MAX_MS..=MAX_MS))
}
