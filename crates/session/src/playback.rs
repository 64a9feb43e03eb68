//! Reply audio that waits for its time: the paced queue of a session whose audio is not in events.
//!
//! The client's side of a session puts packets in and takes out what is due. One item sounds at a time: audio of
//! others, such as that of a response beside the conversation, waits for its end, or until it is late. Sends nothing and
//! reads no clock.

use super::output::OutputAudio;
use super::snapshot::{StoredFrame, StoredPlayback, StoredQueued};
use super::voice::Packet;
use antiphon_audio::Pacer;
use antiphon_dialog::Dialog;
use antiphon_protocol::PartAt;
use antiphon_types::{BrownoutLevel, ItemId, ResponseId, SampleRate, Samples, Timestamp};
use std::collections::VecDeque;
use std::time::Duration;

/// Frames of the item that sounds that wait for their time: 4 s at 20 ms. More is not pulled from the voices.
const MAX_WAITING: usize = 200;

/// The same while the hub is overloaded: 1 s. Less speech is generated that an interruption discards.
const MAX_WAITING_IN_BROWNOUT: usize = 50;

/// Frames that wait with those of other items, which are pulled in the order in which they are made: a minute.
const MAX_OF_ALL: usize = 3_000;

/// Frames that wait in a session that moves to another hub: a minute of a reply that was begun, which is made to its end here.
const MAX_LEAVING: usize = 3_000;

/// An estimate of when audio sounds is this coarse, in samples at 16 kHz: 300 ms of frames, windows and wall time.
const PLAYHEAD_TOLERANCE: Samples = Samples(4_800);

/// The silence of the item that sounds, of which nothing waits, after which another one may sound: its model or its
/// voice is late.
const LATE: Duration = Duration::from_secs(2);

/// A frame of the binary mode.
const FRAME: Duration = Duration::from_millis(20);

/// The paced queue of binary frames.
pub(super) struct Playback {
    pacer: Pacer,
    waiting: VecDeque<PendingItem>,
    /// The item of which audio has left and the end has not.
    sounding: Option<SoundingItem>,
    sequence: u32,
    /// Turn time at which the reply synthesized so far will have been played, as reported to the echo guard.
    sounded_by: Samples,
}

struct SoundingItem {
    response: ResponseId,
    item: ItemId,
}

struct PendingItem {
    response: ResponseId,
    item: ItemId,
    what: QueuedItem,
}

enum QueuedItem {
    Audio(Packet),
    /// The item's last frame has left.
    End(PartAt),
}

/// What may leave now.
pub(super) enum DueOutput {
    /// `n` samples of a response's audio.
    Audio { response: ResponseId, audio: OutputAudio, n: Samples },
    /// The last audio of an item has left.
    End(PartAt),
}

impl Playback {
    pub(super) fn new(lead: Duration) -> Self {
        Self {
            pacer: Pacer::new(lead, FRAME),
            waiting: VecDeque::new(),
            sounding: None,
            sequence: 0,
            sounded_by: Samples::ZERO,
        }
    }

    /// A copy for a snapshot.
    pub(super) fn stored(&self) -> StoredPlayback {
        let (first, behind): (Vec<_>, Vec<_>) = self.waiting.iter().partition(|piece| self.is_sounding(&piece.item));
        let waiting = first.into_iter().chain(behind).map(|PendingItem { response, item, what }| StoredFrame {
            response: response.clone(),
            item: item.clone(),
            what: match what {
                QueuedItem::Audio(Packet { payload, offset, n }) => {
                    StoredQueued::Audio { payload: payload.to_vec(), offset: *offset, n: *n }
                }
                QueuedItem::End(at) => StoredQueued::End { index: at.item.output_index, part: at.content_index },
            },
        });
        StoredPlayback { sequence: self.sequence, sounded_by: self.sounded_by, waiting: waiting.collect() }
    }

    /// The same queue with what another hub's held.
    pub(super) fn resumed(self, stored: StoredPlayback) -> Self {
        let waiting = stored.waiting.into_iter().map(|StoredFrame { response, item, what }| {
            let what = match what {
                StoredQueued::Audio { payload, offset, n } => {
                    QueuedItem::Audio(Packet { payload: payload.into(), offset, n })
                }
                StoredQueued::End { index, part } => {
                    QueuedItem::End(PartAt::new(response.clone(), item.clone(), index, part))
                }
            };
            PendingItem { response, item, what }
        });
        let waiting = waiting.collect();
        Self { waiting, sequence: stored.sequence, sounded_by: stored.sounded_by, ..self }
    }

    pub(super) fn has_room(&self, brownout: BrownoutLevel) -> bool {
        let is_short = brownout >= BrownoutLevel::ShortLookAhead;
        let most = if is_short { MAX_WAITING_IN_BROWNOUT } else { MAX_WAITING };
        self.waiting.len() < most || self.waiting.len() < MAX_OF_ALL && self.n_of_sounding() < most
    }

    /// The same in a session that moves to another hub.
    pub(super) fn has_room_to_leave(&self) -> bool {
        self.waiting.len() < MAX_LEAVING
    }

    /// Frames that wait of the item that sounds; of all items where none does.
    fn n_of_sounding(&self) -> usize {
        match &self.sounding {
            Some(sounding) => self.waiting.iter().filter(|piece| piece.item == sounding.item).count(),
            None => self.waiting.len(),
        }
    }

    fn is_sounding(&self, item: &ItemId) -> bool {
        self.sounding.as_ref().is_some_and(|sounding| sounding.item == *item)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Reply audio that waits for its time.
    pub(super) fn push(&mut self, response: ResponseId, item: ItemId, packet: Packet) {
        self.waiting.push_back(PendingItem { response, item, what: QueuedItem::Audio(packet) });
    }

    /// Drops the frames of a response. Returns the ends of its items that waited behind them.
    pub(super) fn drop_audio(&mut self, response: &ResponseId) -> Vec<PartAt> {
        self.sounding.take_if(|sounding| sounding.response == *response);
        let (dropped, kept) =
            std::mem::take(&mut self.waiting).into_iter().partition(|piece| piece.response == *response);
        self.waiting = kept;
        let dropped: VecDeque<PendingItem> = dropped;
        let ends = dropped.into_iter().filter_map(|piece| match piece.what {
            QueuedItem::End(at) => Some(at),
            QueuedItem::Audio(_) => None,
        });
        ends.collect()
    }

    /// The voice has made all audio of an item. Returns it where its last frame has been sent, or keeps it behind the frames
    /// that wait.
    pub(super) fn item_made(&mut self, at: PartAt) -> Option<PartAt> {
        let item = at.item.item_id.clone();
        if !self.waiting.iter().any(|piece| piece.item == item) {
            self.ended(&item);
            return Some(at);
        }
        let response = at.item.response_id.clone();
        self.waiting.push_back(PendingItem { response, item, what: QueuedItem::End(at) });
        None
    }

    /// The end of an item leaves: another one may sound.
    fn ended(&mut self, item: &ItemId) {
        self.sounding.take_if(|sounding| sounding.item == *item);
    }

    /// The place of what leaves next. `None`: nothing waits, or only what waits for the end of the item that sounds.
    fn next_place(&self, dialog: &Dialog, now: Timestamp) -> Option<usize> {
        let first = (!self.waiting.is_empty()).then_some(0);
        let Some(sounding) = &self.sounding else { return first };
        let own = self.waiting.iter().position(|piece| piece.item == sounding.item);
        // No more is pulled then, so that the rest of the item would not come.
        let is_full = self.waiting.len() >= MAX_OF_ALL;
        let is_late = || self.late_from(dialog).is_some_and(|from| from <= now);
        own.or_else(|| first.filter(|_| is_full || is_late()))
    }

    /// When the item that sounds is late, if nothing of it comes until then. `None`: none sounds, or it is held.
    fn late_from(&self, dialog: &Dialog) -> Option<Timestamp> {
        let spoken = dialog.history().spoken(&self.sounding.as_ref()?.item)?;
        Some(spoken.playhead().ends_at()? + LATE)
    }

    /// Playback stood still for `by`.
    pub(super) fn delayed(&mut self, by: Samples) {
        self.sounded_by += by;
    }

    /// When the next frame may leave.
    pub(super) fn next_due(&self, dialog: &Dialog, now: Timestamp) -> Option<Timestamp> {
        let Some(place) = self.next_place(dialog, now) else {
            return self.late_from(dialog).filter(|_| !self.waiting.is_empty());
        };
        let first = self.waiting.get(place)?;
        match (&first.what, dialog.history().spoken(&first.item)) {
            (QueuedItem::Audio(_), Some(spoken)) => self.pacer.next_due(spoken.playhead(), now),
            // The end of an item, or speech that the history has forgotten.
            _ => Some(now),
        }
    }

    /// What may leave next. A frame that is taken counts as sent: the lead bounds what the client has of it.
    pub(super) fn take_due(&mut self, dialog: &Dialog, now: Timestamp) -> Option<DueOutput> {
        let place = self.next_place(dialog, now)?;
        let first = self.waiting.get(place)?;
        if let (QueuedItem::Audio(packet), Some(spoken)) = (&first.what, dialog.history().spoken(&first.item))
            && self.pacer.budget(spoken.playhead(), now) < packet.n
        {
            return None;
        }
        let PendingItem { response, item, what } = self.waiting.remove(place)?;
        let Packet { payload, offset, n } = match what {
            QueuedItem::Audio(packet) => packet,
            QueuedItem::End(at) => {
                self.ended(&item);
                return Some(DueOutput::End(at));
            }
        };
        self.sounding = Some(SoundingItem { response: response.clone(), item: item.clone() });
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        Some(DueOutput::Audio { response, audio: OutputAudio { item, sequence, offset, payload }, n })
    }

    /// Turn time at which audio of `item` that is made at `now` will sound, where the turn is at `position`. Where the estimate is
    /// near the end of the audio before, that end is meant: a listener hears no seam, and the echo guard must see none.
    pub(super) fn sounds_at(&self, item: &ItemId, dialog: &Dialog, position: Samples, now: Timestamp) -> Samples {
        let ahead = dialog.history().spoken(item).map_or(Duration::ZERO, |spoken| {
            spoken.generated().saturating_sub(spoken.heard(now)).duration(spoken.rate())
        });
        let estimate = position + SampleRate::HZ_16000.samples_in(ahead);
        let end = self.sounded_by;
        if self.waits_behind_another(item, dialog) {
            return estimate.max(end);
        }
        if estimate.0.abs_diff(end.0) < PLAYHEAD_TOLERANCE.0 { end } else { estimate }
    }

    /// Whether nothing of the item was sent, and audio of another one comes first.
    fn waits_behind_another(&self, item: &ItemId, dialog: &Dialog) -> bool {
        let is_unsent = dialog.history().spoken(item).is_some_and(|spoken| spoken.playhead().n_sent() == Samples::ZERO);
        is_unsent && self.waiting.iter().any(|piece| piece.item != *item)
    }

    /// The reply made so far will have sounded by then, in turn time.
    pub(super) fn sounds_until(&mut self, end: Samples) {
        self.sounded_by = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::Opening;
    use crate::output::AudioMode;
    use crate::testing::begun;
    use antiphon_dialog::{Action, Command, Event, ResponseRequest};

    fn packet(n: u64) -> Packet {
        Packet { payload: vec![0; 2].into(), offset: Samples::ZERO, n: Samples(n) }
    }

    fn end() -> PartAt {
        PartAt::new("resp_1".into(), "item_1".into(), 0, 0)
    }

    /// The items of the frames that leave at once, each end as "end".
    fn leaves(playback: &mut Playback, dialog: &Dialog) -> Vec<String> {
        let now = Timestamp::ZERO;
        let due = std::iter::from_fn(|| playback.next_due(dialog, now).and_then(|_| playback.take_due(dialog, now)));
        due.map(|due| match due {
            DueOutput::Audio { audio, .. } => audio.item.as_str().to_owned(),
            DueOutput::End(_) => "end".into(),
        })
        .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn audio_of_another_item_waits_for_the_end_of_the_one_that_sounds() {
        let dialog = begun(Opening::default()).1.dialog;
        let mut playback = Playback::new(Duration::ZERO);
        let push = |playback: &mut Playback, number: u8| {
            playback.push(format!("resp_{number}").into(), format!("item_{number}").into(), packet(480));
        };
        for number in [1, 2, 1, 2] {
            push(&mut playback, number);
        }
        assert_eq!(leaves(&mut playback, &dialog), ["item_1", "item_1"]);
        push(&mut playback, 2);
        push(&mut playback, 1);
        assert_eq!(leaves(&mut playback, &dialog), ["item_1"]);
        push(&mut playback, 1);
        assert_eq!(playback.item_made(end()), None);
        assert_eq!(leaves(&mut playback, &dialog), ["item_1", "end", "item_2", "item_2", "item_2"]);
        push(&mut playback, 1);
        assert_eq!(leaves(&mut playback, &dialog), Vec::<String>::new());
        assert_eq!(playback.drop_audio(&"resp_2".into()), []);
        assert_eq!(leaves(&mut playback, &dialog), ["item_1"], "it was dropped before its end");
        push(&mut playback, 2);
        assert_eq!(playback.item_made(end()), Some(end()));
        assert_eq!(leaves(&mut playback, &dialog), ["item_2"]);
    }

    /// The dialog of a session whose audio is in frames.
    fn framed() -> Dialog {
        begun(Opening { mode: AudioMode::Pcm16, ..Opening::default() }).1.dialog
    }

    /// A response beside the conversation that has begun to speak, and its item.
    fn begins(dialog: &mut Dialog) -> (ResponseId, ItemId) {
        let now = Timestamp::ZERO;
        let request = ResponseRequest { out_of_band: true, ..ResponseRequest::default() };
        let command = Command::CreateResponse(Box::new(request));
        let actions = dialog.step(now, Event::Client { event_id: None, command });
        let started = actions.into_iter().find_map(|action| match action {
            Action::StartResponse(work) => Some(work.response),
            _ => None,
        });
        let response = started.expect("nothing is awaited");
        dialog.step(now, Event::Text { response: response.clone(), text: "Yes.".into() });
        let (item, _) = dialog.speaking_item(&response).expect("it speaks");
        (response, item)
    }

    /// 20 ms of the response are made, and wait.
    fn made(dialog: &mut Dialog, playback: &mut Playback, response: &ResponseId, item: &ItemId) {
        let n = Samples(480);
        let event = Event::AudioGenerated { response: response.clone(), n, quiet: Samples::ZERO };
        dialog.step(Timestamp::ZERO, event);
        playback.push(response.clone(), item.clone(), packet(n.0));
    }

    /// Lets a frame leave that is due. Returns its item.
    fn leave(playback: &mut Playback, dialog: &mut Dialog, now: Timestamp) -> Option<ItemId> {
        let Some(DueOutput::Audio { audio, n, .. }) = playback.take_due(dialog, now) else { return None };
        dialog.step(now, Event::AudioSent { item: audio.item.clone(), n });
        Some(audio.item)
    }

    #[tokio::test(start_paused = true)]
    async fn another_item_sounds_where_nothing_more_of_the_one_that_sounds_comes() {
        let mut dialog = framed();
        let mut playback = Playback::new(Duration::ZERO);
        let (first, one) = begins(&mut dialog);
        let (second, other) = begins(&mut dialog);
        made(&mut dialog, &mut playback, &first, &one);
        made(&mut dialog, &mut playback, &second, &other);
        let ms = Timestamp::from_ms;
        assert_eq!(leave(&mut playback, &mut dialog, ms(0)), Some(one.clone()));
        assert_eq!(leave(&mut playback, &mut dialog, ms(20)), None);
        assert_eq!(playback.next_due(&dialog, ms(20)), Some(ms(20 + 2_000)));
        assert_eq!(leave(&mut playback, &mut dialog, ms(2_019)), None);
        assert_eq!(playback.next_due(&dialog, ms(2_020)), Some(ms(2_020)));
        assert_eq!(leave(&mut playback, &mut dialog, ms(2_020)), Some(other.clone()));
        made(&mut dialog, &mut playback, &first, &one);
        made(&mut dialog, &mut playback, &second, &other);
        assert_eq!(leave(&mut playback, &mut dialog, ms(2_100)), Some(other), "now the first one waits");
    }

    #[tokio::test(start_paused = true)]
    async fn audio_behind_that_of_another_item_sounds_at_its_end() {
        let mut dialog = framed();
        let mut playback = Playback::new(Duration::ZERO);
        let (first, one) = begins(&mut dialog);
        let (_, other) = begins(&mut dialog);
        made(&mut dialog, &mut playback, &first, &one);
        playback.sounds_until(Samples(16_000));
        let sounds_at = |playback: &Playback| playback.sounds_at(&other, &dialog, Samples(100), Timestamp::ZERO);
        assert_eq!(sounds_at(&playback), Samples(16_000));
        playback.drop_audio(&first);
        assert_eq!(sounds_at(&playback), Samples(100), "nothing comes before it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_another_item_leaves_room_for_it() {
        let dialog = begun(Opening::default()).1.dialog;
        let mut playback = Playback::new(Duration::ZERO);
        playback.push("resp_1".into(), "item_1".into(), packet(480));
        assert_eq!(leaves(&mut playback, &dialog), ["item_1"]);
        for n in 0..MAX_OF_ALL {
            assert!(playback.has_room(BrownoutLevel::Normal), "{n} frames wait");
            playback.push("resp_2".into(), "item_2".into(), packet(480));
        }
        assert!(!playback.has_room(BrownoutLevel::Normal));
        assert_eq!(leaves(&mut playback, &dialog).len(), MAX_OF_ALL, "the rest of the first one would not come");
    }

    #[test]
    fn the_end_of_an_item_waits_behind_its_frames_and_goes_at_once_without_any() {
        let mut playback = Playback::new(Duration::ZERO);
        assert_eq!(playback.item_made(end()), Some(end()));
        playback.push("resp_1".into(), "item_1".into(), packet(480));
        assert_eq!(playback.item_made(end()), None);
        assert_eq!(playback.drop_audio(&"resp_2".into()), []);
        assert_eq!(playback.drop_audio(&"resp_1".into()), [end()]);
        assert!(playback.is_empty());
    }

    #[test]
    fn what_waits_goes_on_with_its_numbers_on_another_hub() {
        let mut playback = Playback { sequence: u32::MAX, ..Playback::new(Duration::ZERO) };
        playback.push("resp_1".into(), "item_1".into(), packet(480));
        assert_eq!(playback.item_made(end()), None);
        let resumed = Playback::new(Duration::ZERO).resumed(playback.stored());
        assert_eq!((resumed.sequence, resumed.waiting.len()), (u32::MAX, 2));
        assert!(matches!(&resumed.waiting[1].what, QueuedItem::End(at) if *at == end()));
    }
}
