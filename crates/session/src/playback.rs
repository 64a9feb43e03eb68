//! Reply audio on its way to the wire: at once in JSON events, paced in binary frames.

use super::actor::Actor;
use super::egress::{Output, OutputAudio};
use super::snapshot::{StoredFrame, StoredPlayback, StoredQueued};
use super::voice::Packet;
use antiphon_audio::Pacer;
use antiphon_dialog::{Dialog, Event};
use antiphon_protocol::{PartAt, ServerEvent};
use antiphon_types::{BrownoutLevel, ItemId, Pcm, ResponseId, SampleRate, Samples, Timestamp};
use std::collections::VecDeque;
use std::time::Duration;

/// Frames that wait for their time: 4 s at 20 ms. More is not pulled from the voice.
const MAX_WAITING: usize = 200;

/// The same while the hub is overloaded: 1 s. Less speech is generated that an interruption discards.
const MAX_WAITING_IN_BROWNOUT: usize = 50;

/// Frames that wait in a session that moves to another hub: a minute of a reply that was begun, which is made to its end here.
const MAX_LEAVING: usize = 3_000;

/// An estimate of when audio sounds is this coarse, in samples at 16 kHz: 300 ms of frames, windows and wall time.
const SEAM: Samples = Samples(4_800);

/// A frame of the binary mode.
const FRAME: Duration = Duration::from_millis(20);

/// The paced queue of binary frames.
pub(super) struct Playback {
    pacer: Pacer,
    waiting: VecDeque<Waiting>,
    sequence: u32,
    /// Turn time at which the reply synthesized so far will have been played, as reported to the echo guard.
    sounded_by: Samples,
}

struct Waiting {
    response: ResponseId,
    item: ItemId,
    what: Queued,
}

enum Queued {
    Audio(Packet),
    /// The item's last frame has left.
    End(PartAt),
}

impl Playback {
    pub(super) fn new(lead: Duration) -> Self {
        Self { pacer: Pacer::new(lead, FRAME), waiting: VecDeque::new(), sequence: 0, sounded_by: Samples::ZERO }
    }

    /// A copy for a snapshot.
    pub(super) fn stored(&self) -> StoredPlayback {
        let waiting = self.waiting.iter().map(|Waiting { response, item, what }| StoredFrame {
            response: response.clone(),
            item: item.clone(),
            what: match what {
                Queued::Audio(Packet { payload, offset, n }) => {
                    StoredQueued::Audio { payload: payload.to_vec(), offset: *offset, n: *n }
                }
                Queued::End(at) => StoredQueued::End { index: at.item.output_index, part: at.content_index },
            },
        });
        StoredPlayback { sequence: self.sequence, sounded_by: self.sounded_by, waiting: waiting.collect() }
    }

    /// The same queue with what another hub's held.
    pub(super) fn resumed(self, stored: StoredPlayback) -> Self {
        let waiting = stored.waiting.into_iter().map(|StoredFrame { response, item, what }| {
            let what = match what {
                StoredQueued::Audio { payload, offset, n } => {
                    Queued::Audio(Packet { payload: payload.into(), offset, n })
                }
                StoredQueued::End { index, part } => {
                    Queued::End(PartAt::new(response.clone(), item.clone(), index, part))
                }
            };
            Waiting { response, item, what }
        });
        let waiting = waiting.collect();
        Self { waiting, sequence: stored.sequence, sounded_by: stored.sounded_by, ..self }
    }

    pub(super) fn has_room(&self, brownout: BrownoutLevel) -> bool {
        let is_short = brownout >= BrownoutLevel::ShortLookAhead;
        self.waiting.len() < if is_short { MAX_WAITING_IN_BROWNOUT } else { MAX_WAITING }
    }

    /// The same in a session that moves to another hub.
    pub(super) fn has_room_to_leave(&self) -> bool {
        self.waiting.len() < MAX_LEAVING
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops the frames of a response. Returns the ends of its items that waited behind them.
    pub(super) fn drop_audio(&mut self, response: &ResponseId) -> Vec<ServerEvent> {
        let (dropped, kept) =
            std::mem::take(&mut self.waiting).into_iter().partition(|piece| piece.response == *response);
        self.waiting = kept;
        let dropped: VecDeque<Waiting> = dropped;
        let ends = dropped.into_iter().filter_map(|piece| match piece.what {
            Queued::End(at) => Some(audio_sent(at)),
            Queued::Audio(_) => None,
        });
        ends.collect()
    }

    /// The voice has made all audio of an item. Returns the event that its last frame has been sent, or keeps it behind
    /// the frames that wait.
    pub(super) fn item_made(&mut self, at: PartAt) -> Option<ServerEvent> {
        let item = at.item.item_id.clone();
        if !self.waiting.iter().any(|piece| piece.item == item) {
            return Some(audio_sent(at));
        }
        let response = at.item.response_id.clone();
        self.waiting.push_back(Waiting { response, item, what: Queued::End(at) });
        None
    }

    /// Playback stood still for `by`.
    pub(super) fn delayed(&mut self, by: Samples) {
        self.sounded_by += by;
    }

    /// Playback stopped at `at`.
    pub(super) fn stopped(&mut self, at: Samples) {
        self.sounded_by = at;
    }

    /// When the next frame may leave.
    pub(super) fn next_due(&self, dialog: &Dialog, now: Timestamp) -> Option<Timestamp> {
        let first = self.waiting.front()?;
        match (&first.what, dialog.history().spoken(&first.item)) {
            (Queued::Audio(_), Some(spoken)) => self.pacer.next_due(spoken.playhead(), now),
            // Beside the conversation nobody listens in real time.
            _ => Some(now),
        }
    }

    fn take_due(&mut self, dialog: &Dialog, now: Timestamp) -> Option<Waiting> {
        let first = self.waiting.front()?;
        if let (Queued::Audio(packet), Some(spoken)) = (&first.what, dialog.history().spoken(&first.item))
            && self.pacer.budget(spoken.playhead(), now) < packet.n
        {
            return None;
        }
        self.waiting.pop_front()
    }
}

fn audio_sent(at: PartAt) -> ServerEvent {
    ServerEvent::OutputAudioSent { response_id: at.item.response_id, item_id: at.item.item_id }
}

impl Actor {
    /// Takes PCM of a response that is under way.
    pub(super) fn speech(&mut self, response: &ResponseId, pcm: &Pcm) {
        let Some((item, index)) = self.dialog.speaking_item(response) else { return };
        let at = self.sounds_at(&item, self.now());
        let Some((_, voice)) = self.speaking.get_mut(response) else { return };
        // The echo guard listens for the reply only where there is a microphone.
        let reference = (self.ingress.position() > Samples::ZERO).then(|| voice.reference(pcm));
        let made = voice.push(pcm);
        if let Some(reference) = reference {
            self.ingress.played(at, &reference);
            self.playback.sounded_by = at + reference.len();
        }
        self.packed(response, item, index, made);
    }

    /// What the response speaks now has ended: what the resampler and the encoder still hold goes out.
    pub(super) fn finish_speech(&mut self, response: &ResponseId) {
        let Some((item, index)) = self.dialog.speaking_item(response) else { return };
        let Some((_, voice)) = self.speaking.get_mut(response) else { return };
        let made = voice.finish();
        self.packed(response, item, index, made);
    }

    fn packed(
        &mut self,
        response: &ResponseId,
        item: ItemId,
        index: u32,
        made: Result<(Samples, Vec<Packet>), antiphon_audio::codec::CodecError>,
    ) {
        let (n, packets) = match made {
            Ok(made) => made,
            Err(error) => {
                tracing::error!(%error, "reply audio could not be encoded");
                let outcome = Err("the reply could not be encoded".into());
                return self.step(Event::ResponseFinished { response: response.clone(), outcome });
            }
        };
        self.step(Event::AudioGenerated { response: response.clone(), n });
        for packet in packets {
            if self.is_framed() {
                let what = Queued::Audio(packet);
                self.playback.waiting.push_back(Waiting { response: response.clone(), item: item.clone(), what });
            } else {
                let at = PartAt::new(response.clone(), item.clone(), index, 0);
                let Some(event) = self.numbered(ServerEvent::OutputAudioDelta { at, delta: packet.payload }) else {
                    continue;
                };
                let n_bytes = self.egress.push_audio(Output::Event(event), response.clone(), (item.clone(), packet.n));
                self.setup.metrics.bytes_out(n_bytes as u64);
            }
        }
        self.release_frames();
    }

    /// Lets the frames out whose time has come. A frame given to the egress counts as sent: the lead bounds both.
    pub(super) fn release_frames(&mut self) {
        if !self.egress.is_attached() {
            // Nobody plays them; they wait for the client to come back.
            return;
        }
        let now = self.now();
        while let Some(Waiting { response, item, what }) = self.playback.take_due(&self.dialog, now) {
            let packet = match what {
                Queued::Audio(packet) => packet,
                Queued::End(at) => {
                    self.send(Some(response), audio_sent(at));
                    continue;
                }
            };
            let audio = OutputAudio {
                item: item.clone(),
                sequence: self.playback.sequence,
                offset: packet.offset,
                payload: packet.payload,
            };
            self.playback.sequence = self.playback.sequence.wrapping_add(1);
            let n_bytes = self.egress.push_audio(Output::Audio(audio), response, (item.clone(), packet.n));
            self.setup.metrics.bytes_out(n_bytes as u64);
            self.step(Event::AudioSent { item, n: packet.n });
        }
    }

    /// The writer has sent messages: reports sent audio to the reducer and latencies to the client.
    pub(super) fn audio_left(&mut self) {
        let sent = self.egress.take_sent();
        if sent.is_empty() {
            return;
        }
        let now = self.now();
        for event in self.timeline.sent(&sent, now) {
            if self.is_framed() {
                self.send(None, event);
            }
        }
        for (item, n) in sent {
            if !self.is_framed() {
                self.step(Event::AudioSent { item: item.clone(), n });
            }
            self.timeline.estimate(&item, &self.dialog);
        }
    }

    /// Turn time at which audio of `item` that is made now will sound. Where the estimate is near the end of the audio
    /// before, that end is meant: a listener hears no seam, and the echo guard must see none.
    fn sounds_at(&self, item: &ItemId, now: Timestamp) -> Samples {
        let ahead = self.dialog.history().spoken(item).map_or(Duration::ZERO, |spoken| {
            spoken.generated().saturating_sub(spoken.heard(now)).duration(spoken.rate())
        });
        let estimate = self.ingress.position() + SampleRate::HZ_16000.samples_in(ahead);
        let end = self.playback.sounded_by;
        if estimate.0.abs_diff(end.0) < SEAM.0 { end } else { estimate }
    }
}
