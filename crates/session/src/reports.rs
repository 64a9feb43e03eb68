//! What a client says of its playback and of its clock, on its way to the reducer and the turns' records.

use super::actor::Actor;
use super::timeline::Played;
use antiphon_dialog::{Command, Event};
use antiphon_protocol::{ClockPing, PlayedReport, SessionNotice};
use antiphon_types::{SampleRate, Samples};
use std::time::Duration;

impl Actor {
    /// The playhead of an item. A position that was true a moment ago goes on from there.
    pub(super) fn played(&mut self, event_id: Option<String>, report: PlayedReport) {
        let now = self.now();
        let here = |client_ms: Option<f64>| self.client_clock.here(client_ms?);
        let at = here(report.at_ms).unwrap_or(now);
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let played = Played {
            first_sound: here(report.first_sound_ms),
            underruns: report.n_underruns.map(|n| (n, ms(report.underrun_ms.unwrap_or_default()))),
            stopped_at: report.stopped.then(|| ms(report.audio_end_ms)),
        };
        if let Some(event) = self.timeline.played(&report.item_id, played, now).filter(|_| self.is_framed()) {
            self.send(None, event);
        }
        // What the client has handed to its loudspeaker is heard a little later.
        let ahead = if report.stopped { Duration::ZERO } else { at.since(now) };
        let audio_end_ms = u64::from(report.audio_end_ms).saturating_sub(ahead.as_millis() as u64);
        let item = report.item_id;
        let ago = now.since(at);
        let command = Command::Played { item: item.clone(), audio_end_ms, ago, stopped: report.stopped };
        self.step(Event::Client { event_id, command });
        // The report may have moved the cut.
        if report.stopped && self.is_framed() {
            self.tell_heard(item);
        }
    }

    /// Answers at once.
    pub(super) fn clock_ping(&mut self, ping: ClockPing) {
        let now = self.now();
        self.client_clock.pinged(&ping, now);
        self.tell(SessionNotice::Pong { client_ms: ping.client_ms, hub_ms: now.since_start().as_secs_f64() * 1e3 });
    }

    /// An utterance whose last voiced sample is at `audio_end` in turn time was spoken when its microphone says.
    pub(super) fn spoken_at(&mut self, item: &antiphon_types::ItemId, audio_end: Samples) {
        if let Some(at) = self.client_clock.captured(audio_end.duration(SampleRate::HZ_16000)) {
            self.timeline.spoken_at(item, at);
        }
    }
}
