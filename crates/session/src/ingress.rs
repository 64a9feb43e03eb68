//! The way in: wire audio to windows, to edges of the turn, to the utterance's transcription.
//!
//! [`super::hearing`] pushes received audio, and the actor has it processed window by window, so that the reducer decides between
//! two windows whatever the size of a message. Owns the microphone's windows, turn pipeline and pre-roll. Never waits:
//! when the transcription is behind, [`Ingress::blocked_on`] names the queue to wait for.

use super::microphone::{Microphone, give_back};
use super::replay_recorder::{RecordedTurns, Recorder};
use super::snapshot::StoredInput;
use super::speaker::SpeakerEar;
use super::transcription_input::Report;
use super::transcription_task::TranscriptionInput;
use super::turns::Turns;
use super::utterance::Utterance;
use antiphon_audio::codec::{self, CodecError, OpusIn};
use antiphon_audio::{Jitter, NoiseReduction, PreRoll, Resampler, Slot};
use antiphon_dialog::turn::{Decision, Edge, TurnTaker};
use antiphon_engine_api::speaker::SpeakerModel;
use antiphon_engine_api::vad::Vad;
use antiphon_types::Format;
use antiphon_types::{ItemId, Pcm, ResponseId, SampleRate, Samples};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;

const RATE: SampleRate = SampleRate::HZ_16000;

/// Silence after which a pause may have begun, 32 ms: two steps of a detector. Most gaps within words are shorter.
const LULL: Samples = Samples(512);

/// Result of [`Ingress::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// Less than a window of audio is available.
    Starved,
    /// A transcription is behind: see [`Ingress::blocked_on`].
    Blocked,
    /// A window was processed; the turn did not change.
    Window,
    /// A window was processed; the turn changed.
    Edge(Edge),
}

/// One microphone.
pub(super) struct Ingress {
    format: Format,
    turns: Turns,
    /// Samples of a window.
    window: usize,
    /// Made on the first audio, since many connections never send any.
    resampler: Option<Resampler>,
    opus: Option<OpusIn>,
    jitter: Jitter,
    turn: RecordedTurns,
    microphone: Microphone,
    preroll: PreRoll,
    /// The least capacity of the pre-roll.
    kept: Samples,
    /// Turn time at which the pre-roll began.
    preroll_base: Samples,
    /// Turn time of the last commit or clear.
    buffer_start: Samples,
    /// Samples at 16 kHz that the resampler holds back, and held back at the last commit or clear.
    lag: f64,
    lag_at_start: f64,
    utterance: Option<Utterance>,
    /// Where the session is locked to its user's voice.
    ear: Option<SpeakerEar>,
    /// The voice has been silent for [`LULL`].
    in_lull: bool,
    /// Complete utterances whose input queue is full.
    closing: Vec<Utterance>,
    /// Audio received since it was last asked for, at 16 kHz.
    received: Samples,
    scratch: Vec<i16>,
}

impl Ingress {
    pub(super) fn new(engine: Arc<dyn Vad>, format: Format, turns: Turns, recorder: Recorder) -> Self {
        Self {
            format,
            window: engine.window(),
            turn: RecordedTurns::new(engine, turns.thresholds(), turns.ending(), recorder),
            preroll: PreRoll::new(turns.capacity()),
            kept: Samples::ZERO,
            turns,
            resampler: None,
            opus: None,
            jitter: Jitter::new(),
            microphone: Microphone::default(),
            preroll_base: Samples::ZERO,
            buffer_start: Samples::ZERO,
            lag: 0.0,
            lag_at_start: 0.0,
            utterance: None,
            ear: None,
            in_lull: false,
            closing: Vec::new(),
            received: Samples::ZERO,
            scratch: Vec::new(),
        }
    }

    /// The microphone is a telephone's.
    pub(super) fn expect_line(&mut self) {
        self.microphone.expect_line();
    }

    /// The same with at least `kept` of audio in the pre-roll, for a turn model. Call before any audio.
    pub(super) fn keeping(self, kept: Samples) -> Self {
        Self { kept, preroll: PreRoll::new(self.turns.capacity().max(kept)), ..self }
    }

    /// A copy for a snapshot, of a microphone that has no utterance under way: with the audio since the last one, as far as
    /// the pre-roll holds it, since the next may begin there.
    pub(super) fn stored(&self) -> StoredInput {
        let mut recent = Vec::new();
        let from = self.buffer_start.saturating_sub(self.preroll_base);
        self.preroll.copy_from(from, &mut recent);
        StoredInput {
            turn: TurnTaker::clone(&self.turn),
            position: self.position(),
            buffer_start: self.buffer_start,
            sequence: self.jitter.due(),
            recent,
            waiting: self.microphone.waiting(),
        }
    }

    /// The same microphone, heard elsewhere so far. Call before any audio.
    pub(super) fn heard_elsewhere(mut self, engine: Arc<dyn Vad>, stored: StoredInput) -> Self {
        let StoredInput { turn, position, buffer_start, sequence, recent, waiting } = stored;
        self.turn = RecordedTurns::resumed(engine, turn, position, &recent);
        self.preroll_base = position.saturating_sub(Samples(recent.len() as u64));
        self.preroll.push(&recent);
        self.buffer_start = buffer_start;
        self.jitter = Jitter::resumed(sequence);
        self.microphone.starts_at(position);
        self.microphone.push(|raw| raw.extend_from_slice(&waiting));
        self
    }

    /// Whether no utterance takes audio any more, and none is behind.
    pub(super) fn is_quiet(&self) -> bool {
        self.utterance.is_none() && self.closing.is_empty()
    }

    /// Changes the settings; an utterance under way continues.
    pub(super) fn set(&mut self, format: Format, turns: Turns) {
        if format != self.format {
            self.format = format;
            if let Some(resampler) = &mut self.resampler {
                *resampler = Resampler::new(format.rate(), RATE);
                self.lag = 0.0;
                self.lag_at_start = 0.0;
            }
        }
        if turns == self.turns {
            return;
        }
        if turns.capacity().max(self.kept) != self.turns.capacity().max(self.kept) {
            let mut kept = Vec::new();
            let start = self.preroll.copy_from(Samples::ZERO, &mut kept) + self.preroll_base;
            self.preroll = PreRoll::new(turns.capacity().max(self.kept));
            self.preroll.push(&kept);
            self.preroll_base = start;
        }
        self.turns = turns;
        self.turn.set(turns.thresholds(), turns.ending());
    }

    /// Sets or removes the noise reduction, from the next audio on.
    pub(super) fn reduce_noise(&mut self, reduction: Option<NoiseReduction>) {
        self.microphone.reduce_noise(reduction);
    }

    /// Takes audio in the session's format; any length of whole samples.
    pub(super) fn push(&mut self, audio: &[u8]) -> Result<(), CodecError> {
        let mut samples = std::mem::take(&mut self.scratch);
        samples.clear();
        let decoded = codec::decode(self.format, audio, &mut samples);
        if decoded.is_ok() {
            let rate = self.format.rate();
            let resampler = self.resampler.get_or_insert_with(|| Resampler::new(rate, RATE));
            let (n, ()) = self.microphone.push(|waiting| resampler.process(&samples, waiting));
            self.received += super::limits::at_16_khz(Samples(samples.len() as u64), rate);
            self.lag += samples.len() as f64 * f64::from(RATE.hz()) / f64::from(rate.hz()) - n as f64;
        }
        samples.clear();
        give_back(&mut samples);
        self.scratch = samples;
        decoded
    }

    /// Takes a binary frame's payload: one Opus packet, or PCM16.
    pub(super) fn push_frame(
        &mut self,
        sequence: u32,
        offset: Samples,
        payload: Bytes,
        opus: bool,
    ) -> Result<(), CodecError> {
        self.jitter.push(sequence, offset.0, payload);
        let mut worst = Ok(());
        while let Some(slot) = self.jitter.pop() {
            let result = match slot {
                Slot::Frame(frame) if opus => self.push_opus(|decoder, out| decoder.decode(&frame.payload, out)),
                Slot::Frame(frame) => self.push(&frame.payload),
                Slot::Lost { next, .. } if opus => self.push_opus(|decoder, out| decoder.conceal(next.as_deref(), out)),
                // A lost PCM frame is silence of its length, so that turn time stays true.
                Slot::Lost { next, .. } => self.push(&vec![0; next.map_or(960, |next| next.len() & !1)]),
            };
            worst = worst.and(result);
        }
        worst
    }

    fn push_opus(
        &mut self,
        decode: impl FnOnce(&mut OpusIn, &mut Vec<i16>) -> Result<(), CodecError>,
    ) -> Result<(), CodecError> {
        if self.opus.is_none() {
            self.opus = Some(OpusIn::new()?);
        }
        let decoder = self.opus.as_mut().expect("made just now");
        let (n, decoded) = self.microphone.push(|waiting| decode(decoder, waiting));
        self.received += Samples(n as u64);
        decoded
    }

    /// Audio received and not [taken](Self::take_received), at 16 kHz.
    pub(super) fn received(&self) -> Samples {
        self.received
    }

    /// As [`Self::received`], which restarts.
    pub(super) fn take_received(&mut self) -> Samples {
        std::mem::take(&mut self.received)
    }

    /// Processes the next window.
    pub(super) fn advance(&mut self) -> Advance {
        if self.is_blocked() {
            return Advance::Blocked;
        }
        let Some(window) = self.microphone.window(self.window) else { return Advance::Starved };
        self.preroll.push(window.words);
        if let Some(utterance) = &mut self.utterance {
            utterance.push(window.words);
        }
        let heard = self.turn.window(window.voice, window.words);
        let edge = heard.outcome.edge;
        if let Some(ear) = &mut self.ear {
            // What sounds in the background, or before the voice, is none of it.
            if !self.turn.is_active() {
                ear.restart();
                if !window.may_hold_reply {
                    ear.hear_background(window.words);
                }
            } else if self.turn.is_voiced() && heard.features.probability >= self.turns.thresholds().voiced {
                ear.hear(window.words);
            }
        }
        self.look_for_a_lull();
        edge.map_or(Advance::Window, Advance::Edge)
    }

    /// Tells the utterance when its voice has fallen silent, once each time.
    fn look_for_a_lull(&mut self) {
        let silence = self.turn.pause(self.position());
        let is_lull = silence.is_some_and(|silence| silence >= LULL);
        let was_lull = std::mem::replace(&mut self.in_lull, is_lull);
        if is_lull
            && !was_lull
            && let Some(utterance) = &mut self.utterance
        {
            utterance.lull();
        }
    }

    /// Listens for the user's voice by this model, from the next window on, or no longer: then what was heard of it is gone.
    pub(super) fn lock_speaker(&mut self, model: Option<Arc<dyn SpeakerModel>>) {
        match model {
            Some(model) if self.ear.is_none() => self.ear = Some(SpeakerEar::new(model)),
            Some(_) => {}
            None => self.ear = None,
        }
    }

    /// What was heard of the user's voice, where the session is locked to it.
    pub(super) fn ear(&mut self) -> Option<&mut SpeakerEar> {
        self.ear.as_mut()
    }

    /// The query of the speaker model that is due about the utterance under way; see [`SpeakerEar::due`].
    pub(super) fn speaker_query(
        &mut self,
        matters: bool,
        reports: &mpsc::Sender<Report>,
    ) -> Option<(ItemId, impl Future<Output = ()> + Send + use<>)> {
        let item = &self.utterance.as_ref()?.item;
        let query = self.ear.as_mut()?.due(item, matters, reports)?;
        Some((item.clone(), query))
    }

    fn voice_ended(&mut self) {
        if let Some(ear) = &mut self.ear {
            ear.restart();
        }
    }

    /// The speaker pauses: requests a partial transcript where the wait adapts to it and no provisional one is on its way.
    pub(super) fn paused(&mut self) {
        if self.turn.listens_to_the_voice()
            && let Some(utterance) = &mut self.utterance
        {
            utterance.request_partial();
        }
    }

    /// Requests a partial transcript of the utterance `item`, unless a provisional one is on its way.
    pub(super) fn request_partial(&mut self, item: &ItemId) {
        if let Some(utterance) = self.utterance.as_mut().filter(|utterance| utterance.item == *item) {
            utterance.request_partial();
        }
    }

    /// Requests a provisional transcript of the utterance `item`.
    pub(super) fn request_provisional(&mut self, item: &ItemId) {
        if let Some(utterance) = self.utterance.as_mut().filter(|utterance| utterance.item == *item) {
            utterance.request_provisional();
        }
    }

    /// The speaker goes on.
    pub(super) fn resumed(&mut self) {
        if let Some(utterance) = &mut self.utterance {
            utterance.resume();
        }
    }

    /// The audio of the turn under way, the last `span` of it at most, where the wait adapts.
    pub(super) fn turn_so_far(&self, span: Samples) -> Option<Vec<i16>> {
        if !self.turn.listens_to_the_voice() {
            return None;
        }
        self.utterance_so_far(span).map(|(_, pcm)| pcm)
    }

    /// The utterance under way, and the last `span` of its audio at most.
    pub(super) fn utterance_so_far(&self, span: Samples) -> Option<(ItemId, Vec<i16>)> {
        let utterance = self.utterance.as_ref()?;
        let start = utterance.start.max(self.position().saturating_sub(span));
        let mut pcm = Vec::new();
        self.preroll.copy_from(start.saturating_sub(self.preroll_base), &mut pcm);
        Some((utterance.item.clone(), pcm))
    }

    /// The turn model's answer at the pause that began at `pause_start`.
    pub(super) fn judged(&mut self, probability: f32, pause_start: Samples) {
        self.turn.judged(probability, pause_start);
    }

    /// A partial transcript of the first `n_heard` samples of the utterance `item`.
    pub(super) fn partial(&mut self, item: &ItemId, text: &str, n_heard: Samples) {
        if let Some(utterance) = self.utterance.as_ref().filter(|utterance| utterance.item == *item) {
            self.turn.partial(text, utterance.start + n_heard);
        }
    }

    /// Why the last utterance ended when it did, where the wait adapts.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.turn.decision()
    }

    /// The silence that would end the turn now.
    pub(super) fn wait(&self) -> Samples {
        self.turn.wait()
    }

    /// The session's replay log.
    pub(super) fn recorder(&mut self) -> &mut Recorder {
        &mut self.turn.recorder
    }

    /// Where an utterance begins whose first voiced window is at `voiced`.
    pub(super) fn audio_start(&self, voiced: Samples) -> Samples {
        match self.turns {
            Turns::Detected { padding, .. } => voiced.saturating_sub(padding).max(self.buffer_start),
            Turns::Manual { .. } => self.buffer_start,
        }
    }

    /// Opens an utterance whose audio goes to `input`, from `start` in turn time on, as far as the pre-roll reaches.
    pub(super) fn open(&mut self, item: ItemId, start: Samples, input: mpsc::Sender<TranscriptionInput>) {
        let mut audio = Vec::new();
        let start = self.preroll.copy_from(start.saturating_sub(self.preroll_base), &mut audio) + self.preroll_base;
        let mut utterance = Utterance::new(item, start, input);
        utterance.push(&audio);
        self.utterance = Some(utterance);
    }

    /// Completes the utterance `item`. With `rest`, audio that has not filled a window belongs to it. Returns what it is of the
    /// microphone's audio, in turn time; `None`: no such utterance is open.
    pub(super) fn close(&mut self, item: &ItemId, rest: bool) -> Option<Range<Samples>> {
        let mut utterance = self.utterance.take_if(|utterance| utterance.item == *item)?;
        self.voice_ended();
        if rest {
            utterance.push(&self.take_rest());
            utterance.resume();
        }
        let audio = utterance.start..utterance.start + Samples(utterance.n_samples as u64);
        if !utterance.finish() {
            self.closing.push(utterance);
        }
        Some(audio)
    }

    /// Abandons the utterance.
    pub(super) fn drop_utterance(&mut self, item: &ItemId) {
        if self.utterance.take_if(|utterance| utterance.item == *item).is_some() {
            self.voice_ended();
        }
    }

    /// Empties the buffer, after a commit or a clear. Returns the edge that ends speech under way.
    pub(super) fn restart_buffer(&mut self) -> Option<Edge> {
        self.take_rest();
        self.mark_buffer();
        self.turn.end()
    }

    /// Takes the audio that fills no window: it counts in turn time, but is in no window.
    fn take_rest(&mut self) -> Vec<i16> {
        let rest = self.microphone.take_rest();
        self.preroll.push(&rest);
        self.turn.skip(&rest);
        rest
    }

    /// The next utterance begins here at the earliest.
    pub(super) fn mark_buffer(&mut self) {
        self.buffer_start = self.position();
        self.lag_at_start = self.lag;
    }

    /// Turn time at which the buffer begins.
    pub(super) fn buffer_start(&self) -> Samples {
        self.buffer_start
    }

    /// The audio appended since the last commit or clear, exact to the sample: a client that counts must not be refused.
    pub(super) fn buffered(&self) -> Samples {
        let held_back = (self.lag - self.lag_at_start).round().max(0.0) as u64;
        self.position() - self.buffer_start + Samples(self.microphone.n_waiting() as u64 + held_back)
    }

    /// Whether an utterance is receiving audio.
    pub(super) fn has_utterance(&self) -> bool {
        self.utterance.is_some()
    }

    /// The length of the utterance under way, at 16 kHz.
    pub(super) fn utterance_length(&self) -> Samples {
        self.utterance.as_ref().map_or(Samples::ZERO, |utterance| Samples(utterance.n_samples as u64))
    }

    /// Whether the client commits.
    pub(super) fn is_manual(&self) -> bool {
        matches!(self.turns, Turns::Manual { .. })
    }

    /// Turn time.
    pub(super) fn position(&self) -> Samples {
        self.turn.position()
    }

    /// Whether speech, or an onset of it, is under way.
    pub(super) fn is_listening(&self) -> bool {
        matches!(self.turns, Turns::Detected { .. }) && self.turn.is_active()
    }

    /// The audio has stalled: ends speech under way.
    pub(super) fn stall(&mut self) -> Option<Edge> {
        self.turn.end()
    }

    /// Reply audio at 16 kHz that will sound from `at` on.
    pub(super) fn played(&mut self, at: Samples, reply: &Pcm) {
        self.microphone.played(at, reply);
    }

    /// Playback stands still from now on.
    pub(super) fn reply_held(&mut self) {
        self.recorder().reply_held();
    }

    /// No microphone hears what sounded.
    pub(super) fn forget_reply(&mut self) {
        self.microphone.forget_reply();
    }

    /// A response stops sounding now.
    pub(super) fn reply_stopped(&mut self, response: &ResponseId) {
        self.microphone.reply_stopped(self.position());
        self.recorder().reply_stopped(response);
    }

    /// Playback stood still from `since` in turn time until now.
    pub(super) fn reply_resumed(&mut self, since: Samples) {
        self.microphone.reply_resumed(since, self.position().saturating_sub(since));
        self.recorder().reply_resumed();
    }

    fn is_blocked(&mut self) -> bool {
        self.closing.retain_mut(|utterance| !utterance.drain());
        !self.closing.is_empty() || self.utterance.as_mut().is_some_and(|utterance| !utterance.drain())
    }

    /// The full input queue to wait for before [`Ingress::advance`] goes on.
    pub(super) fn blocked_on(&self) -> Option<mpsc::Sender<TranscriptionInput>> {
        let mut utterances = self.closing.iter().chain(&self.utterance);
        utterances.find_map(|utterance| utterance.blocked_on())
    }
}

#[cfg(test)]
mod tests {
    use super::super::transcription_input::INPUT_PIECES;
    use super::*;
    use antiphon_dialog::turn::{Ending, Thresholds};
    use antiphon_engine_api::fakes::speaker::FakeSpeakerModel;
    use antiphon_engine_api::fakes::vad::FakeVad;

    /// Pushes windows of 16 ms that are loud or silent, and takes what the utterance sends.
    fn hear(
        ingress: &mut Ingress,
        loud: bool,
        n_windows: usize,
        input: &mut mpsc::Receiver<TranscriptionInput>,
    ) -> usize {
        let sample = if loud { 5_000i16 } else { 0 };
        let audio: Vec<u8> = std::iter::repeat_n(sample.to_le_bytes(), 256 * n_windows * 3 / 2).flatten().collect();
        ingress.push(&audio).expect("whole samples");
        while ingress.advance() != Advance::Starved {}
        let mut n_lulls = 0;
        while let Ok(input) = input.try_recv() {
            n_lulls += usize::from(matches!(input, TranscriptionInput::Lull));
        }
        n_lulls
    }

    #[test]
    fn a_voice_that_falls_silent_is_a_lull_once_each_time() {
        let turns = Turns::Detected {
            thresholds: Thresholds::from_ms(0.5, 32, 500),
            padding: Samples(4_800),
            ending: Ending::Silence,
        };
        let mut ingress = Ingress::new(Arc::new(FakeVad), Format::Pcm16, turns, Recorder::default());
        let (sender, mut input) = mpsc::channel(INPUT_PIECES);
        assert_eq!(hear(&mut ingress, true, 10, &mut input), 0);
        ingress.open("item".into(), Samples::ZERO, sender);
        assert_eq!(hear(&mut ingress, false, 1, &mut input), 0, "16 ms");
        assert_eq!(hear(&mut ingress, false, 3, &mut input), 1, "more than 32 ms");
        assert_eq!(hear(&mut ingress, false, 10, &mut input), 0, "it lasts");
        assert_eq!(hear(&mut ingress, true, 4, &mut input), 0);
        assert_eq!(hear(&mut ingress, false, 4, &mut input), 1);
        ingress.request_provisional(&"item".into());
        assert_eq!(hear(&mut ingress, true, 4, &mut input) + hear(&mut ingress, false, 4, &mut input), 0, "on its way");
    }

    #[test]
    fn speech_that_is_confirmed_late_is_transcribed_from_its_beginning() {
        let turns = Turns::Detected {
            thresholds: Thresholds::from_ms(0.5, 2_000, 500),
            padding: Samples(4_800),
            ending: Ending::Silence,
        };
        let mut ingress = Ingress::new(Arc::new(FakeVad), Format::Pcm16, turns, Recorder::default());
        // Voiced for 48 ms of every 96.
        let sample = |i: usize| if (i / (24 * 48)).is_multiple_of(2) { 5_000i16 } else { 0 };
        let audio: Vec<u8> = (0..24 * 5_000).map(sample).flat_map(i16::to_le_bytes).collect();
        ingress.push(&audio).expect("whole samples");
        let voiced = loop {
            match ingress.advance() {
                Advance::Edge(Edge::Started { at }) => break at,
                Advance::Edge(_) | Advance::Window => {}
                Advance::Starved | Advance::Blocked => panic!("it is speech"),
            }
        };
        let start = ingress.audio_start(voiced);
        let (sender, _input) = mpsc::channel(INPUT_PIECES);
        ingress.open("item".into(), start, sender);
        assert!(ingress.position() > Samples(32_000), "it took {:?}", ingress.position());
        assert_eq!(ingress.utterance_length(), ingress.position() - start);
    }

    /// An ingress that listens for its user's voice.
    fn locked() -> Ingress {
        let turns = Turns::Detected {
            thresholds: Thresholds::from_ms(0.5, 32, 500),
            padding: Samples(4_800),
            ending: Ending::Silence,
        };
        let mut ingress = Ingress::new(Arc::new(FakeVad), Format::Pcm16, turns, Recorder::default());
        ingress.lock_speaker(Some(Arc::new(FakeSpeakerModel::parts_at(10_000))));
        ingress
    }

    #[test]
    fn what_sounds_before_the_voice_and_without_a_reply_is_its_background() {
        let mut ingress = locked();
        let hears = |ingress: &mut Ingress, sample: i16, ms: usize| {
            let audio: Vec<u8> = std::iter::repeat_n(sample.to_le_bytes(), 24 * ms).flatten().collect();
            ingress.push(&audio).expect("whole samples");
            while ingress.advance() != Advance::Starved {}
            ingress.ear().expect("there is one").background().rms()
        };
        let before = hears(&mut ingress, 400, 1_500);
        assert!((before - 400.0).abs() < 10.0, "{before}");
        assert_eq!(hears(&mut ingress, 20_000, 1_000), before, "a voice is no background");
        let after = hears(&mut ingress, 400, 1_500);
        let reply = Pcm { samples: vec![5_000; 16_000], rate: SampleRate::HZ_16000 };
        ingress.played(ingress.position(), &reply);
        assert_eq!(hears(&mut ingress, 900, 500), after, "a reply that may come back is none");
        assert!(hears(&mut ingress, 900, 4_000) > after + 100.0);
    }

    #[test]
    fn talk_in_the_background_is_no_part_of_the_voice_that_follows() {
        let mut ingress = locked();
        let (reports, _inbox) = mpsc::channel(1);
        let mut says = |sample: i16, ms: usize| {
            let audio: Vec<u8> = std::iter::repeat_n(sample.to_le_bytes(), 24 * ms).flatten().collect();
            ingress.push(&audio).expect("whole samples");
            while ingress.advance() != Advance::Starved {}
            ingress.ear().expect("there is one").due(&"item".into(), true, &reports).is_some()
        };
        assert!(says(20_000, 3_000), "the user speaks");
        says(6_000, 1_600);
        assert!(!says(6_000, 3_000), "other tables, 10 dB quieter, have ended the turn and go on");
        assert!(!says(20_000, 500));
        assert!(says(20_000, 500), "0.7 s of the voice of the user");
    }
}
