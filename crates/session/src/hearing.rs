//! What a session hears: the microphone's way in, the transcriptions of utterances, and what was learnt of the speaker.
//!
//! The actor gives it audio and what the reducer decided about utterances, and gets edges of the turn, events and lengths of audio.
//! It spawns the tasks of transcriptions, the turn model and the speaker model; they report to the actor. It never decides what an edge or a
//! transcript leads to, sends nothing to the client and reads no clock. The replay log's recorder stands here, since the
//! microphone's windows are most of that log and the reducer's steps must stand between them.

use super::ingress::{Advance, Ingress};
use super::inline_audio::InlineAudio;
use super::judging;
use super::replay_recorder::Recorder;
use super::setup::Setup;
use super::snapshot::StoredInput;
use super::transcription_input::{INPUT_PIECES, Report, TranscriptionInput};
use super::transcription_task::TranscriptionTask;
use super::translate;
use antiphon_audio::codec::CodecError;
use antiphon_audio::echo::MAX_LEAD;
use antiphon_dialog::turn::{Decision, Edge};
use antiphon_dialog::{Command, Event, SpeakerComparison, UtteranceEnd, VoiceSample};
use antiphon_engine_api::Hop;
use antiphon_engine_api::stt::{SpeakerState, SttOptions};
use antiphon_protocol::frame::MicrophoneFrame;
use antiphon_protocol::{INCLUDE_LOGPROBS, Session, WireError};
use antiphon_telemetry::span;
use antiphon_types::{ItemId, Meter, Pcm, Requester, ResponseId, SampleRate, Samples, Timestamp};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;
use tracing::Instrument;

/// The most concurrent transcriptions of a session: more are needed only when audio comes much faster than real time, and
/// then the client is read more slowly.
const MAX_TRANSCRIPTIONS: usize = 4;
/// Time without messages that counts as silence of the speaker, in addition to the silence that ends a turn.
const STALL_MARGIN: Duration = Duration::from_millis(500);
/// A client that sends its audio in pieces of up to this length is not silent between two of them.
const LONGEST_PIECE: Duration = Duration::from_secs(2);
/// Audio between two queries of the turn model about speech over a reply, 160 ms: the step of streaming turn models.
const OVERLAP_STEP: Samples = Samples(2_560);
/// Received audio that is reported at once: 100 ms at 16 kHz.
const REPORTED: Samples = Samples(1_600);
/// How long a reply is kept for a microphone that has sent nothing yet: turn time begins with its first audio, and the echo guard
/// looks no further ahead.
const EARLY: Duration = Duration::from_millis(MAX_LEAD as u64 / 16);

/// See the module.
pub(super) struct Hearing {
    setup: Arc<Setup>,
    requester: Requester,
    reports: mpsc::Sender<Report>,
    ingress: Ingress,
    /// Transcriptions under way; dropping a guard cancels one.
    transcriptions: HashMap<ItemId, DropGuard>,
    /// The turn model's work on the latest pause.
    judging: Option<DropGuard>,
    /// Its work on speech over a reply.
    judging_overlap: Option<DropGuard>,
    /// Turn time up to which such speech was last judged.
    overlap_judged_to: Samples,
    speaker: Option<SpeakerState>,
    last_audio: Timestamp,
    /// The length of the piece that came then, at most the time since the piece before; zero after a gap that is longer than the
    /// piece and [`STALL_MARGIN`].
    last_piece: Duration,
    /// The time between it and the piece before it.
    since_piece_before: Duration,
    /// When the first reply began, if no audio of a microphone had come.
    first_reply: Option<Timestamp>,
    /// Until when that reply is kept; `None`: it is not.
    kept_until: Option<Timestamp>,
}

impl Hearing {
    /// `last_audio`: when the session begins to wait for audio.
    pub(super) fn new(
        setup: Arc<Setup>,
        requester: Requester,
        reports: mpsc::Sender<Report>,
        ingress: Ingress,
        speaker: Option<SpeakerState>,
        last_audio: Timestamp,
    ) -> Self {
        let transcriptions = HashMap::new();
        Self {
            setup,
            requester,
            reports,
            ingress,
            transcriptions,
            judging: None,
            judging_overlap: None,
            overlap_judged_to: Samples::ZERO,
            speaker,
            last_audio,
            last_piece: Duration::ZERO,
            since_piece_before: Duration::ZERO,
            first_reply: None,
            kept_until: None,
        }
    }

    /// Takes over the session's new settings; an utterance under way continues.
    pub(super) fn configure(&mut self, session: &Session) {
        self.ingress.set(translate::format(session.audio.input.format), self.setup.turns(session));
        self.ingress.reduce_noise(translate::noise_reduction(session));
        let model = self.setup.engines.speaker.clone();
        self.ingress.lock_speaker(model.filter(|_| self.setup.locks_speaker(session)));
    }

    /// The end of speech that was over before the hub detected turns: no window reports it.
    pub(super) fn ended_before_detection(&self) -> Option<Edge> {
        let is_over = !self.ingress.is_manual() && self.ingress.has_utterance() && !self.ingress.is_listening();
        is_over.then(|| Edge::Stopped { at: self.ingress.position() })
    }

    /// Audio is about to come. Refuses it where the client commits and has left too much speech uncommitted.
    pub(super) fn expect_audio(&mut self, now: Timestamp) -> Result<(), WireError> {
        self.since_piece_before = now.since(self.last_audio);
        self.last_audio = now;
        let limit = self.max_utterance();
        if self.ingress.is_manual() && self.ingress.utterance_length() >= limit {
            return Err(WireError::buffer_full(limit.duration(SampleRate::HZ_16000)));
        }
        Ok(())
    }

    /// Takes audio in the session's format; any length of whole samples.
    pub(super) fn push(&mut self, audio: &[u8]) -> Result<(), CodecError> {
        let before = self.ingress.received();
        let pushed = self.ingress.push(audio);
        let piece = self.ingress.received().saturating_sub(before).duration(SampleRate::HZ_16000);
        let is_in_time = self.since_piece_before <= piece + STALL_MARGIN;
        let longest = if is_in_time { LONGEST_PIECE } else { Duration::ZERO };
        self.last_piece = piece.min(self.since_piece_before).min(longest);
        pushed
    }

    /// Takes a microphone's packet: Opus, or PCM16.
    pub(super) fn push_frame(&mut self, frame: MicrophoneFrame, is_opus: bool) -> Result<(), CodecError> {
        self.ingress.push_frame(frame.sequence, frame.offset, frame.payload, is_opus)
    }

    /// The audio received since the last call, at 16 kHz, once it is worth a report; otherwise zero.
    pub(super) fn take_reportable(&mut self) -> Samples {
        if self.ingress.received() >= REPORTED { self.ingress.take_received() } else { Samples::ZERO }
    }

    /// As [`Self::take_reportable`], however little it is.
    pub(super) fn take_received(&mut self) -> Samples {
        self.ingress.take_received()
    }

    /// Audio that is missing until now is not the speaker's silence.
    pub(super) fn excuse_silence(&mut self, now: Timestamp) {
        self.last_audio = now;
    }

    /// Processes the next window. Without a place for another transcription no utterance may begin.
    pub(super) fn advance(&mut self) -> Advance {
        if self.is_full() && !self.ingress.has_utterance() {
            return Advance::Blocked;
        }
        self.ingress.advance()
    }

    /// Whether as many transcriptions are under way as there may be.
    pub(super) fn is_full(&self) -> bool {
        self.transcriptions.len() >= MAX_TRANSCRIPTIONS
    }

    /// The full input queue to wait for before [`Self::advance`] goes on.
    pub(super) fn blocked_on(&self) -> Option<mpsc::Sender<TranscriptionInput>> {
        self.ingress.blocked_on()
    }

    /// Ends an utterance that is as long as one may be: endless noise is cut into turns.
    pub(super) fn cut_endless(&mut self) -> Option<Edge> {
        let is_too_long = self.ingress.utterance_length() >= self.max_utterance() && self.ingress.is_listening();
        if is_too_long { self.ingress.stall() } else { None }
    }

    /// When missing audio counts as the end of speech under way.
    pub(super) fn stalls_at(&self) -> Option<Timestamp> {
        self.ingress.is_listening().then(|| self.last_audio + self.patience())
    }

    /// Ends speech under way whose audio has been missing for too long.
    pub(super) fn end_stalled(&mut self, now: Timestamp) -> Option<Edge> {
        let is_stalled = self.ingress.is_listening() && now.since(self.last_audio) >= self.patience();
        if is_stalled { self.ingress.stall() } else { None }
    }

    /// Where an utterance begins whose first voiced window is at `voiced`.
    pub(super) fn audio_start(&self, voiced: Samples) -> Samples {
        self.ingress.audio_start(voiced)
    }

    /// The speaker pauses since `pause_start`: asks for the words so far, and the turn model.
    pub(super) fn paused(&mut self, pause_start: Samples) {
        self.ingress.paused();
        let Some(model) = self.setup.engines.turn.clone() else { return };
        let Some(pcm) = self.ingress.turn_so_far(model.span()) else { return };
        let work = judging::judge(model, pcm, pause_start, self.reports.clone());
        self.judging = Some(self.setup.spawn(work));
    }

    /// The speaker goes on.
    pub(super) fn resumed(&mut self) {
        self.ingress.resumed();
    }

    /// The turn model's answer at the pause that began at `pause_start`.
    pub(super) fn judged(&mut self, probability: f32, pause_start: Samples) {
        self.ingress.judged(probability, pause_start);
    }

    /// Speech over a reply is under way that may be a backchannel: asks the turn model about it, where that judges it, has
    /// answered the last query, and more of the speech has come.
    pub(super) fn judge_overlap(&mut self) {
        let position = self.ingress.position();
        let is_early = position.saturating_sub(self.overlap_judged_to) < OVERLAP_STEP;
        if is_early || self.judging_overlap.is_some() {
            return;
        }
        let Some(model) = self.setup.engines.turn.as_ref().filter(|model| model.judges_overlap()) else { return };
        let Some((item, pcm)) = self.ingress.utterance_so_far(model.span()) else { return };
        self.overlap_judged_to = position;
        let work = judging::judge_overlap(model.judge_overlap(pcm), item, self.reports.clone());
        self.judging_overlap = Some(self.setup.spawn(work));
    }

    /// The turn model has answered a query about speech over a reply.
    pub(super) fn overlap_judged(&mut self) {
        self.judging_overlap = None;
    }

    /// An utterance is under way in a session that is locked to its user's voice: asks the speaker model about it, where that
    /// has answered the last query, and more of the voice has come. `matters`: what is decided waits for it.
    pub(super) fn compare_speaker(&mut self, matters: bool) {
        let Some((item, work)) = self.ingress.speaker_query(matters, &self.reports) else { return };
        let query = self.setup.spawn(work);
        if let Some(ear) = self.ingress.ear() {
            ear.started(item, query);
        }
    }

    /// The speaker model has answered a query about the voice of `item`; `None`: it failed. Returns how that compares with
    /// the user's voice, once it is known.
    pub(super) fn speaker_heard(&mut self, item: ItemId, sample: Option<VoiceSample>) -> Option<SpeakerComparison> {
        self.ingress.ear()?.answered(item, sample)
    }

    /// The utterance was the user's. Returns whether the user's voice is known by that.
    pub(super) fn learn_speaker(&mut self, item: &ItemId) -> bool {
        self.ingress.ear().is_some_and(|ear| ear.learn(item))
    }

    /// Opens an utterance from `start` in turn time on, and its transcription.
    pub(super) fn open_utterance(&mut self, item: ItemId, start: Samples, session: &Session) {
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let task = self.transcription_task(&item, input, session).run();
        let guard = self.setup.spawn(task.instrument(span::turn(&item)));
        self.transcriptions.insert(item.clone(), guard);
        self.ingress.open(item, start, sender);
    }

    /// Completes an utterance. Returns its place in the session's recording; `None`: it is in none, or no such utterance is open.
    pub(super) fn close_utterance(&mut self, item: &ItemId, end: UtteranceEnd) -> Option<Range<Samples>> {
        let audio = self.ingress.close(item, end == UtteranceEnd::Committed);
        if end == UtteranceEnd::Detected {
            self.ingress.mark_buffer();
        }
        self.ingress.recorder().recorded_span(audio?)
    }

    /// Abandons an utterance and its transcription.
    pub(super) fn drop_utterance(&mut self, item: &ItemId) {
        self.ingress.drop_utterance(item);
        if let Some(ear) = self.ingress.ear() {
            ear.forget(item);
        }
        self.transcriptions.remove(item);
    }

    /// Transcribes the audio of an item.
    pub(super) fn transcribe(&mut self, audio: InlineAudio, session: &Session) {
        let item = audio.item.clone();
        let (sender, input) = mpsc::channel(INPUT_PIECES);
        let transcription = self.transcription_task(&item, input, session).run();
        let work = async {
            tokio::join!(transcription, audio.send(sender));
        };
        let guard = self.setup.spawn(work.instrument(span::turn(&item)));
        self.transcriptions.insert(item, guard);
    }

    /// Requests a provisional transcript of an utterance.
    pub(super) fn request_provisional(&mut self, item: &ItemId) {
        self.ingress.request_provisional(item);
    }

    /// Requests a partial transcript of an utterance.
    pub(super) fn request_partial(&mut self, item: &ItemId) {
        self.ingress.request_partial(item);
    }

    /// A partial transcript of the first `n_heard` samples of an utterance.
    pub(super) fn partial(&mut self, item: &ItemId, text: &str, n_heard: Samples) {
        self.ingress.partial(item, text, n_heard);
    }

    /// A transcription has given its last report.
    pub(super) fn transcription_ended(&mut self, item: &ItemId) {
        self.transcriptions.remove(item);
    }

    /// The recognizer's state for this speaker, where it gives one.
    pub(super) fn learn(&mut self, speaker: Option<SpeakerState>) {
        self.speaker = speaker.or(self.speaker.take());
    }

    /// The client commits its buffer.
    pub(super) fn commit(&self) -> Command {
        Command::Commit { buffer_start: self.ingress.buffer_start(), buffered: self.ingress.buffered() }
    }

    /// Empties the input buffer and resets the turn detector: speech under way belonged to the buffer.
    pub(super) fn restart_buffer(&mut self) -> Option<Event> {
        let edge = self.ingress.restart_buffer();
        (edge == Some(Edge::Retracted)).then_some(Event::VoiceRetracted)
    }

    /// Whether a microphone may hear the reply: there is one, or it may begin at once, as in a call that begins with a
    /// greeting.
    pub(super) fn may_hear_reply(&mut self, now: Timestamp) -> bool {
        if self.position() > Samples::ZERO {
            return true;
        }
        let Some(first) = self.first_reply else {
            self.first_reply = Some(now);
            self.kept_until = Some(now + EARLY);
            return true;
        };
        now.since(first) < EARLY
    }

    /// When a reply is given up that no microphone has heard.
    pub(super) fn forgets_reply_at(&self) -> Option<Timestamp> {
        self.kept_until
    }

    /// Forgets a reply that no microphone has heard by now.
    pub(super) fn forget_unheard_reply(&mut self, now: Timestamp) {
        if self.kept_until.take_if(|until| now >= *until).is_some() && self.position() == Samples::ZERO {
            self.ingress.forget_reply();
        }
    }

    /// Reply audio at 16 kHz that will sound from `at` in turn time on.
    pub(super) fn reply_sounds(&mut self, at: Samples, reply: &Pcm) {
        self.ingress.played(at, reply);
    }

    /// Playback stands still from now on.
    pub(super) fn reply_held(&mut self) {
        self.ingress.reply_held();
    }

    /// A response stops sounding now.
    pub(super) fn reply_stopped(&mut self, response: &ResponseId) {
        self.ingress.reply_stopped(response);
    }

    /// Playback stood still from `since` in turn time until now.
    pub(super) fn reply_resumed(&mut self, since: Samples) {
        self.ingress.reply_resumed(since);
    }

    /// Turn time.
    pub(super) fn position(&self) -> Samples {
        self.ingress.position()
    }

    /// Why the last utterance ended when it did, where the wait adapts.
    pub(super) fn decision(&self) -> Option<&Decision> {
        self.ingress.decision()
    }

    /// Whether an utterance is receiving audio.
    pub(super) fn has_utterance(&self) -> bool {
        self.ingress.has_utterance()
    }

    /// Whether no transcription is under way.
    pub(super) fn has_transcribed(&self) -> bool {
        self.transcriptions.is_empty()
    }

    /// Whether, in addition, no utterance takes audio any more, and none is behind.
    pub(super) fn is_quiet(&self) -> bool {
        self.has_transcribed() && self.ingress.is_quiet()
    }

    /// The longest utterance.
    pub(super) fn max_utterance(&self) -> Samples {
        Samples::from_ms(1_000 * u64::from(self.setup.session.max_utterance_seconds), SampleRate::HZ_16000)
    }

    /// A copy for a snapshot, while [`Self::is_quiet`].
    pub(super) fn stored(&self) -> StoredInput {
        self.ingress.stored()
    }

    /// The session's replay log.
    pub(super) fn recorder(&mut self) -> &mut Recorder {
        self.ingress.recorder()
    }

    /// How long audio may be missing before that ends speech under way.
    fn patience(&self) -> Duration {
        self.ingress.wait().duration(SampleRate::HZ_16000) + STALL_MARGIN + self.last_piece
    }

    fn transcription_task(
        &self,
        item: &ItemId,
        input: mpsc::Receiver<TranscriptionInput>,
        session: &Session,
    ) -> TranscriptionTask {
        let transcription = session.audio.input.transcription.as_ref();
        TranscriptionTask {
            item: item.clone(),
            stt: self.setup.engines.stt.clone(),
            options: SttOptions {
                language: self.setup.spoken_language(session),
                prompt: transcription.and_then(antiphon_protocol::Transcription::expected),
                logprobs: session.include.iter().flatten().any(|name| name == INCLUDE_LOGPROBS),
                speaker: self.speaker.clone(),
                hop: Hop::requested(),
                meter: Meter::requested_by(self.requester),
                ..SttOptions::default()
            },
            timeout: self.setup.stt_timeout,
            input,
            backlog: VecDeque::new(),
            due: None,
            n_replayed: 0,
            reports: self.reports.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opening::Opening;
    use crate::testing::begun;

    fn hearing() -> (Hearing, mpsc::Receiver<Report>) {
        let (setup, beginning) = begun(Opening::default());
        let (reports, inbox) = mpsc::channel(16);
        let requester = beginning.requester;
        (Hearing::new(setup, requester, reports, beginning.ingress, None, Timestamp::ZERO), inbox)
    }

    /// As many milliseconds of sound, PCM at 24 kHz.
    fn sound(ms: usize) -> Vec<u8> {
        8_000_i16.to_le_bytes().repeat(24 * ms)
    }

    fn edges(hearing: &mut Hearing) -> Vec<Edge> {
        let mut edges = Vec::new();
        loop {
            match hearing.advance() {
                Advance::Edge(edge) => edges.push(edge),
                Advance::Window => {}
                Advance::Starved | Advance::Blocked => return edges,
            }
        }
    }

    #[test]
    fn audio_that_stalls_ends_speech_under_way() {
        let (mut hearing, _inbox) = hearing();
        assert_eq!(hearing.stalls_at(), None, "nobody speaks");
        let now = Timestamp::from_ms(1_000);
        hearing.expect_audio(now).expect("there is room");
        hearing.push(&sound(400)).expect("PCM");
        let heard = edges(&mut hearing);
        assert!(matches!(heard[..], [Edge::Onset { .. }, Edge::Started { .. }]), "{heard:?}");
        let at = hearing.stalls_at().expect("speech is under way");
        assert!(at > now + STALL_MARGIN);
        assert_eq!(hearing.end_stalled(at.before(Duration::from_millis(1))), None);
        assert!(matches!(hearing.end_stalled(at), Some(Edge::Stopped { .. })));
        assert_eq!(hearing.stalls_at(), None);
    }

    #[test]
    fn a_client_that_sends_long_pieces_is_not_silent_between_two_of_them() {
        let (mut hearing, _inbox) = hearing();
        let wait = |hearing: &mut Hearing, from_ms: u64, piece_ms: usize| {
            let now = Timestamp::from_ms(from_ms);
            hearing.expect_audio(now).expect("there is room");
            hearing.push(&sound(piece_ms)).expect("PCM");
            edges(hearing);
            hearing.stalls_at().expect("speech is under way").since(now)
        };
        let usual = wait(&mut hearing, 20, 400);
        assert_eq!(wait(&mut hearing, 1_520, 1_500) - usual, Duration::from_millis(1_480));
        assert_eq!(wait(&mut hearing, 1_620, 1_500) - usual, Duration::from_millis(80), "faster than it speaks");
        assert_eq!(wait(&mut hearing, 5_000, 4_000) - usual, LONGEST_PIECE - Duration::from_millis(20));
        let at_once = wait(&mut hearing, 15_000, 4_000);
        assert_eq!(usual - at_once, Duration::from_millis(20), "an utterance in one piece");
    }

    #[test]
    fn audio_is_reported_from_a_tenth_of_a_second_on() {
        let (mut hearing, _inbox) = hearing();
        hearing.push(&sound(50)).expect("PCM");
        assert_eq!(hearing.take_reportable(), Samples::ZERO);
        hearing.push(&sound(60)).expect("PCM");
        assert_eq!(hearing.take_reportable(), Samples(1_760));
        assert_eq!(hearing.take_received(), Samples::ZERO);
    }

    #[tokio::test]
    async fn no_utterance_begins_while_all_transcriptions_are_in_use() {
        let (mut hearing, _inbox) = hearing();
        let session = begun(Opening::default()).1.client.session;
        for n in 0..MAX_TRANSCRIPTIONS {
            let item = ItemId::from(format!("item_{n}"));
            hearing.open_utterance(item.clone(), Samples::ZERO, &session);
            hearing.close_utterance(&item, UtteranceEnd::Detected);
        }
        hearing.push(&sound(400)).expect("PCM");
        assert!(hearing.is_full() && edges(&mut hearing).is_empty());
        hearing.drop_utterance(&"item_0".into());
        assert_eq!(edges(&mut hearing).len(), 2);
        assert!(!hearing.is_quiet());
    }
}
