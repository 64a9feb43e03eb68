//! Holds: a reply's playback pauses because speech may have begun, until that is decided.
//!
//! A sound that the turn detector has not classified holds the reply for [`MAX_HOLD`] at most. Speech that may be a
//! backchannel, or another's than the user's, holds it until `interruption` decides: by its voice, its words, a turn
//! model's answers, or its length. What an interruption does is in `listening`.

use super::backchannel::{OverlapTranscript, Words};
use super::interruption::{Decision, Evidence};
use super::speaker::{HeardSpeaker, Speaker};
use super::{Action, Dialog, Notice, PlaybackControl};
use antiphon_types::{ItemId, ResponseId, SampleRate, Samples, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest a reply is withheld before a sound is classified. The turn detector decides within 300 ms of audio; this
/// covers a microphone that stops sending.
const MAX_HOLD: Duration = Duration::from_secs(1);

/// Speech without words holds the reply for this long, then it interrupts: as long as the longest single word of a
/// backchannel. flite's voices slt, rms, awb and kal16 say "absolutely", "exactly", "interesting" and "hmm" in 0.6 to
/// 0.95 s.
pub const INTERRUPTS_AFTER: Duration = Duration::from_secs(1);

/// Speech whose words so far are those of a backchannel, or its beginning, holds the reply for this long: "makes sense"
/// takes the same voices 0.9 to 1.3 s, "mm-hmm" 0.9 to 1.15 s. Then the words of a backchannel let it go on, others
/// interrupt it.
const BACKCHANNEL_WITHIN: Duration = Duration::from_millis(1_400);

/// Speech of an unknown voice holds the reply for this long, then it counts as the user's. A voice is compared from 0.7 s of
/// voiced sound on and every 0.25 s, a little of speech is voiceless, and an answer takes some time.
const SPEAKER_WITHIN: Duration = Duration::from_millis(1_400);

/// Before either limit the words are requested once more, since the latest partial transcript may be 250 ms old: what a
/// recognizer takes to answer (Whisper base 150 to 210 ms on two cores). The limit does not wait for the answer.
const REQUESTED_BEFORE: Duration = Duration::from_millis(250);

/// The shortest wait for the provisional transcript of a pause: then the reply goes on, and late words still stop it.
const ANSWERED_WITHIN: Duration = Duration::from_millis(300);

/// Words that begin with a guess let the reply go on where the voice lasted no longer than this, and half of it where one would
/// claim the turn: recognizers write "no", "hi" and whole sentences for "uh-huh" and "mm-hm" in noise. Kokoro's voices say "mm-hm"
/// in up to 0.9 s.
const BRIEF: Duration = Duration::from_secs(1);
const BRIEF_CLAIM: Duration = Duration::from_millis(500);

/// Words that come sooner after the beginning of an answer acknowledge nothing: they are more of a turn that was taken for ended,
/// or a start at the same time. Listeners acknowledge after 700 ms of speech at the earliest (Ward and Tsukahara, 2000).
const ACKNOWLEDGED_AFTER: Duration = Duration::from_millis(500);

/// Of a hold's time, this much may be missing in the audio by jitter and in pieces that clients send. Where more is missing, the
/// microphone has stopped sending, which is not speech.
const MISSING: Duration = Duration::from_millis(300);

/// A hold under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ActiveHold {
    since: Timestamp,
    /// Turn time at `since`, in samples at 16 kHz.
    position: Samples,
    /// The item whose playback the client paused.
    sounding: Option<(ItemId, ResponseId)>,
}

/// Why the reply is held, and what decides. It follows from [`ActiveHold`] and the utterance under way, so it is not
/// stored: a reply may go on while the speech is still tentative, and be held again for the same speech.
#[derive(Clone, Copy, Debug)]
enum Hold<'a> {
    /// It is not held.
    None,
    /// For a sound that is not classified, or for speech that has ended and whose words are awaited.
    Undecided { since: Timestamp },
    /// For speech under way that may be a backchannel, or another's.
    Tentative { since: Timestamp, speech: &'a Tentative },
}

impl Hold<'_> {
    /// When something is to be done about it.
    fn due(self) -> Option<Timestamp> {
        match self {
            Self::None => None,
            Self::Undecided { since } => Some(since + MAX_HOLD),
            Self::Tentative { since, speech } => Some(speech.due(since)),
        }
    }
}

/// Speech of which it is not decided whether it is a turn, and interrupts the reply.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Tentative {
    /// Its speaker, where the session is locked to its user's voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) speaker: Option<HeardSpeaker>,
    /// It may be a backchannel: its words count. Absent in snapshots that are older.
    #[serde(default = "weighs_words")]
    weighs_words: bool,
    /// When the utterance ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Timestamp>,
    /// All words claim the turn: the reply asked something where it was held, or had just begun.
    #[serde(rename = "reply_is_question")]
    pub(super) all_claim: bool,
    /// What its latest transcript is.
    pub(super) words: Words,
    voice: Voice,
    /// How long the speaker spoke before the last pause.
    voiced_before_pause: Duration,
    /// When its voice was heard first, or when it became speech where the reply was held for an earlier utterance.
    #[serde(default)]
    began: Timestamp,
    /// Turn time at which the reply went on because the microphone had stopped sending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing_from: Option<Samples>,
    /// When the words were requested because a limit was near.
    requested: Option<Timestamp>,
    /// P(it claims the turn), by the turn model's latest answer. Absent in snapshots that are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<f32>,
}

fn weighs_words() -> bool {
    true
}

/// Whether a speaker's voice is heard.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Voice {
    /// It is. `resumed`: since when after the last pause; `None`: there was no pause.
    Speaking { resumed: Option<Timestamp> },
    /// The speaker pauses, or has ended.
    Silent { since: Timestamp },
}

impl Tentative {
    /// `weighs_words`: it may be a backchannel. `all_claim` and `began`: see the fields.
    fn new(speaker: Option<HeardSpeaker>, weighs_words: bool, all_claim: bool, began: Timestamp) -> Self {
        let voice = Voice::Speaking { resumed: None };
        Self {
            speaker,
            weighs_words,
            ended: None,
            all_claim,
            words: Words::None,
            voice,
            voiced_before_pause: Duration::ZERO,
            began,
            missing_from: None,
            requested: None,
            claim: None,
        }
    }

    /// The speaker pauses.
    fn pause(&mut self, now: Timestamp) {
        let Voice::Speaking { resumed } = self.voice else { return };
        let since = resumed.unwrap_or(self.began);
        self.voiced_before_pause += now.since(since);
        self.voice = Voice::Silent { since: now };
    }

    fn resume(&mut self, now: Timestamp) {
        if matches!(self.words, Words::Guess | Words::GuessedClaim) {
            self.words = Words::Open;
        }
        self.voice = Voice::Speaking { resumed: Some(now) };
    }

    /// The utterance has ended.
    pub(super) fn end(&mut self, now: Timestamp) {
        self.pause(now);
        self.ended = Some(now);
    }

    /// Takes a transcript.
    pub(super) fn heard(&mut self, transcript: &OverlapTranscript<'_>, is_echo: bool) {
        let words = Words::of(transcript, self.all_claim).after(self.words, transcript);
        self.words = if is_echo { Words::Backchannel } else { words };
    }

    /// When the utterance ended; `None`: its audio still comes.
    pub(super) fn ended(&self) -> Option<Timestamp> {
        self.ended
    }

    /// Whether its voice is heard.
    pub(super) fn is_speaking(&self) -> bool {
        matches!(self.voice, Voice::Speaking { .. })
    }

    /// What becomes of the reply. `is_final`: its words are all; `is_due`: their time has passed.
    pub(super) fn decide(&self, is_final: bool, is_due: bool) -> Decision {
        let is_speaking = self.is_speaking();
        let words = self.words;
        let brief = if words == Words::GuessedClaim { BRIEF_CLAIM } else { BRIEF };
        let is_brief = !is_speaking && self.voiced_before_pause <= brief;
        let claim = self.claim;
        let speaker = self.speaker.map(|heard| heard.speaker);
        let has_ended = self.ended.is_some();
        let weighs_words = self.weighs_words;
        Evidence { speaker, has_ended, weighs_words, words, is_final, is_speaking, is_brief, is_due, claim }.decide()
    }

    /// Whether the voice is not the user's.
    pub(super) fn is_others(&self) -> bool {
        self.speaker.is_some_and(|heard| heard.speaker == Speaker::Other)
    }

    /// Whether it waits for its speaker alone: its words do not count.
    pub(super) fn is_of_speaker_alone(&self) -> bool {
        !self.weighs_words
    }

    fn is_of_unknown(&self) -> bool {
        self.speaker.is_some_and(|heard| heard.speaker == Speaker::Unknown)
    }

    /// Whether the speech interrupts the reply if no more is heard of it.
    fn may_interrupt(&self) -> bool {
        self.decide(false, true) == Decision::Yield
    }

    /// When a reply that is held since `held` is decided about, if nothing is heard until then.
    fn limit(&self, held: Timestamp) -> Timestamp {
        let held = held.max(self.began);
        match (self.voice, self.words) {
            (Voice::Silent { since }, _) => (held + MAX_HOLD).max(since + ANSWERED_WITHIN),
            (Voice::Speaking { .. }, _) if self.is_of_unknown() => held + SPEAKER_WITHIN,
            // Pauses neither shorten what was spoken nor prolong a hold that lasts.
            (Voice::Speaking { resumed }, Words::None) => {
                let rest = INTERRUPTS_AFTER.saturating_sub(self.voiced_before_pause);
                (held + INTERRUPTS_AFTER).min(resumed.unwrap_or(held) + rest)
            }
            (Voice::Speaking { .. }, _) => held + BACKCHANNEL_WITHIN,
        }
    }

    /// When the words are requested before that; `None`: they were, or a pause has requested them.
    fn request_at(&self, held: Timestamp) -> Option<Timestamp> {
        let Voice::Speaking { .. } = self.voice else { return None };
        if self.is_of_speaker_alone() {
            return None;
        }
        let at = self.limit(held).before(REQUESTED_BEFORE);
        self.requested.is_none_or(|requested| requested < at).then_some(at)
    }

    /// When the words are requested, or else the limit.
    fn due(&self, held: Timestamp) -> Timestamp {
        self.request_at(held).unwrap_or_else(|| self.limit(held))
    }
}

impl Dialog {
    fn hold(&self) -> Hold<'_> {
        let Some(since) = self.held_since() else { return Hold::None };
        match self.tentative() {
            Some(speech) => Hold::Tentative { since, speech },
            None => Hold::Undecided { since },
        }
    }

    /// When the hold is decided about, or the words of the speech under way are requested.
    pub(super) fn hold_due(&self) -> Option<Timestamp> {
        self.hold().due()
    }

    /// The hold's deadline has passed: requests the words of the speech under way, once before each limit, or decides.
    /// `position`: turn time.
    pub(super) fn hold_elapsed(&mut self, position: Samples) {
        let now = self.now;
        match self.hold() {
            Hold::None => {}
            Hold::Undecided { .. } => self.release(),
            Hold::Tentative { since, speech } if speech.request_at(since).is_some() && now < speech.limit(since) => {
                self.request_words();
            }
            Hold::Tentative { speech, .. } if speech.may_interrupt() => match self.lacks_audio(position) {
                true => self.release_until_heard(position),
                false => self.interrupted_by_speaker(),
            },
            Hold::Tentative { .. } => self.release(),
        }
    }

    /// Whether the microphone has stopped sending during the hold.
    fn lacks_audio(&self, position: Samples) -> bool {
        let Some(held) = &self.held else { return false };
        let heard = position.saturating_sub(held.position).duration(SampleRate::HZ_16000);
        heard + MISSING < self.now.since(held.since)
    }

    /// Resumes the reply, since the microphone has stopped sending: it is held again for what comes later.
    fn release_until_heard(&mut self, position: Samples) {
        if let Some(tentative) = self.tentative_mut() {
            tentative.missing_from = Some(position);
        }
        self.release();
    }

    /// Words of the speech under way: holds the reply again where it went on only because the microphone had stopped sending.
    pub(super) fn hold_again(&mut self) {
        let Some(tentative) = self.tentative_mut().filter(|tentative| tentative.is_speaking()) else { return };
        if let Some(position) = tentative.missing_from.take() {
            self.voice_onset(position);
        }
    }

    /// The turn model's answer about the speech under way in `item`: the reply stops, goes on, or stays as it is.
    pub(super) fn overlap_judged(&mut self, item: &ItemId, claim: f32) {
        let speaking = self.listening.speaking.as_mut().filter(|utterance| utterance.item == *item);
        let Some(tentative) = speaking.and_then(|utterance| utterance.tentative.as_mut()) else { return };
        tentative.claim = Some(claim);
        match tentative.decide(false, false) {
            Decision::Yield => self.interrupted_by_speaker(),
            Decision::Continue => self.release(),
            Decision::Wait => {}
        }
    }

    fn request_words(&mut self) {
        let now = self.now;
        let Some(utterance) = &mut self.listening.speaking else { return };
        let Some(tentative) = &mut utterance.tentative else { return };
        tentative.requested = Some(now);
        self.actions.push(Action::TranscribePartially(utterance.item.clone()));
    }

    /// Withholds the reply's audio until the sound is classified.
    pub(super) fn voice_onset(&mut self, position: Samples) {
        let interrupts = self.settings.turn_detection.is_some_and(|detection| detection.interrupt_response);
        let unheard = self.history.unheard(self.now);
        if !interrupts || self.held.is_some() || (unheard.is_empty() && self.active.is_none()) {
            return;
        }
        let latest = self.latest_of_active();
        let sounding = self.first_of(&unheard).or_else(|| self.begun(latest.as_ref()?));
        self.held = Some(ActiveHold { since: self.now, position, sounding: sounding.clone() });
        self.actions.push(Action::Hold);
        if self.playback == PlaybackControl::Server {
            // All that was made of the latest one may be heard: more of it is held, too.
            for id in unheard.iter().chain(&latest) {
                let now = self.now;
                if let Some(spoken) = self.history.spoken_mut(id) {
                    spoken.hold(now);
                }
            }
        }
        if let Some((item, response)) = sounding {
            self.notify(Notice::Held { item, response });
        }
    }

    /// The sound was no speech: resumes the reply, unless it is held for earlier speech that is being transcribed.
    pub(super) fn voice_retracted(&mut self) {
        let mut ends = self.listening.awaiting.iter().filter_map(|utterance| utterance.tentative.as_ref()?.ended());
        let is_for_sound = ends.all(|end| self.is_held_after(end));
        if is_for_sound {
            self.release();
        }
    }

    /// Resumes the reply.
    pub(super) fn release(&mut self) {
        let Some(held) = self.held.take() else { return };
        self.history.resume(self.now);
        if let Some((item, response)) = held.sounding {
            self.notify(Notice::Released { item, response });
        }
        self.actions.push(Action::Release { held_at: held.position });
    }

    /// The item that the response under way is speaking.
    fn latest_of_active(&self) -> Option<ItemId> {
        let (item, _) = self.speaking_item(self.active.as_ref()?)?;
        self.history.spoken(&item).map(|_| item)
    }

    /// The item and its response, where some of it was sent.
    fn begun(&self, item: &ItemId) -> Option<(ItemId, ResponseId)> {
        let spoken = self.history.spoken(item).filter(|spoken| spoken.playhead().n_sent() > Samples::ZERO)?;
        Some((item.clone(), spoken.response().clone()))
    }

    /// The responses of what was not heard, and that of the item whose playback the client has paused: the last of it may have
    /// been heard meanwhile.
    pub(super) fn sounding_responses(&self, unheard: &[ItemId]) -> Vec<ResponseId> {
        let mut sounding = self.history.responses_of(unheard);
        let paused = self.held.as_ref().and_then(|held| held.sounding.as_ref());
        if let Some((_, response)) = paused.filter(|(_, response)| !sounding.contains(response)) {
            sounding.push(response.clone());
        }
        sounding
    }

    /// Whether the reply is held for a sound that came at `since` or later.
    pub(super) fn is_held_after(&self, since: Timestamp) -> bool {
        self.held_since().is_some_and(|held| held >= since)
    }

    /// Resumes the reply, unless speech is under way that may interrupt it.
    pub(super) fn release_unless_interrupted(&mut self) {
        if !self.tentative().is_some_and(Tentative::may_interrupt) {
            self.release();
        }
    }

    /// Ends a hold because the withheld audio is dropped.
    pub(super) fn end_hold(&mut self) {
        if let Some(held) = self.held.take() {
            self.history.resume(self.now);
            self.actions.push(Action::Release { held_at: held.position });
        }
    }

    /// Speech that begins now is tentative over a reply, where its words may be a backchannel's, and wherever it has to be
    /// the user's.
    pub(super) fn tentative_from_now(&self) -> Option<Tentative> {
        let speaker = self.is_locked().then(HeardSpeaker::default);
        let all_claim = self.may_be_backchannel();
        let weighs_words = all_claim.is_some();
        let is_tentative = weighs_words || speaker.is_some();
        let mut earlier = self.listening.awaiting.iter().filter_map(|utterance| utterance.tentative.as_ref()?.ended());
        let is_own_hold = earlier.all(|end| self.is_held_after(end));
        let began = self.held_since().filter(|_| is_own_hold).unwrap_or(self.now);
        is_tentative.then(|| Tentative::new(speaker, weighs_words, all_claim.unwrap_or(false), began))
    }

    /// Whether all words claim the turn of speech that begins now and may be a backchannel; `None`: it is none.
    fn may_be_backchannel(&self) -> Option<bool> {
        let detection = self.settings.turn_detection?;
        let held = self.held.as_ref()?;
        let (item, _) = held.sounding.as_ref()?;
        let decides = detection.interrupt_response && detection.ignore_backchannels;
        let has_just_begun = held.since.since(self.history.answer_began(item)?) < ACKNOWLEDGED_AFTER;
        let all_claim = has_just_begun || self.history.spoken(item)?.is_question(self.now);
        (decides && self.playback == PlaybackControl::Server).then_some(all_claim)
    }

    /// Whether speech is under way that may be a backchannel, or of an unknown voice: the reply is held whenever its speaker
    /// goes on after a pause.
    pub fn is_speech_tentative(&self) -> bool {
        self.tentative().is_some_and(|tentative| !tentative.is_others())
    }

    /// Whether a turn model's answer about the speech under way counts.
    pub fn awaits_claim(&self) -> bool {
        self.is_speech_tentative() && self.tentative().is_some_and(|tentative| tentative.weighs_words)
    }

    /// Whether the voice of tentative speech is heard.
    pub(super) fn is_tentative_voice_heard(&self) -> bool {
        self.tentative().is_some_and(Tentative::is_speaking)
    }

    fn tentative(&self) -> Option<&Tentative> {
        self.listening.speaking.as_ref()?.tentative.as_ref()
    }

    /// The speaker of tentative speech pauses.
    pub(super) fn speaker_pauses(&mut self) {
        let now = self.now;
        if let Some(tentative) = self.tentative_mut() {
            tentative.pause(now);
        }
    }

    /// The speaker of tentative speech goes on.
    pub(super) fn speaker_resumes(&mut self) {
        let now = self.now;
        if let Some(tentative) = self.tentative_mut() {
            tentative.resume(now);
        }
    }

    fn tentative_mut(&mut self) -> Option<&mut Tentative> {
        self.listening.speaking.as_mut()?.tentative.as_mut()
    }

    fn held_since(&self) -> Option<Timestamp> {
        self.held.as_ref().map(|held| held.since)
    }

    fn first_of(&self, unheard: &[ItemId]) -> Option<(ItemId, ResponseId)> {
        let item = unheard.first()?;
        Some((item.clone(), self.history.spoken(item)?.response().clone()))
    }
}
