//! How a client plays: the extension's reports of the playhead, and the pings that relate its clock to the hub's.
//!
//! All times named `..._ms` that are no lengths are of the client's own clock: any that runs evenly, from any beginning.

use super::read::{Fields, Read};
use antiphon_types::ItemId;

/// Later than any clock in milliseconds.
const MAX_MS: f64 = 1e15;

/// `output_audio_buffer.played`
#[derive(Clone, Debug, PartialEq)]
pub struct PlayedReport {
    /// Of which reply item.
    pub item_id: ItemId,
    /// Heard so far, from the item's beginning.
    pub audio_end_ms: u32,
    /// When that was so; `None`: now.
    pub at_ms: Option<f64>,
    /// When the item's first audible sample sounded.
    pub first_sound_ms: Option<f64>,
    /// How often playback ran dry within the item so far, and for how long in all.
    pub n_underruns: Option<u32>,
    /// See [`PlayedReport::n_underruns`].
    pub underrun_ms: Option<u32>,
    /// Playback of the item was stopped here: nothing more of it will be heard.
    pub stopped: bool,
}

/// `antiphon.clock.ping`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClockPing {
    /// The client's clock when it was sent.
    pub client_ms: f64,
    /// The client's clock when the answer to the ping before came.
    pub pong_ms: Option<f64>,
    /// The client's clock when the first sample of its microphone's stream was captured.
    pub microphone_ms: Option<f64>,
}

impl PlayedReport {
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
