//! What the hub does in a call of its own, by who answers it.
//!
//! [`super::conversation`] gives an [`Answerer`] the sound of the line and takes [`Step`]s from it. The call's greeting
//! waits until the other side has spoken or is silent, where an answering machine is not talked to. It has no IO; what it
//! waits for has a deadline, since sound or silence comes all the time.

use super::answering::{AnswerDetector, AnsweredBy, Finding};
use super::leg::Coding;
use crate::config::OnVoicemail;
use antiphon_protocol::ServerEvent;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The greeting is said after this time without speech.
const GREETS_AFTER: Duration = Duration::from_secs(2);
/// A call that is handed over is greeted after this time at the latest.
const DECIDES_WITHIN: Duration = Duration::from_secs(30);
/// From one attempt to stop a reply to an answering machine to the next.
const STOPS_EVERY: Duration = Duration::from_millis(200);
/// The longest greeting of an answering machine; then the call ends.
const RECORDS_WITHIN: Duration = Duration::from_secs(90);
/// The longest wait for the beginning of the message, and for its end; then the call ends.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
const LEAVES_WITHIN: Duration = Duration::from_secs(120);
/// From the end of the message to that of the call: what the peer's jitter buffer still plays.
const PLAYED_WITHIN: Duration = Duration::from_millis(300);
/// What was recognized since the answer, at most; further words do not count.
const MAX_TEXT_BYTES: usize = 4_096;

/// What a call of ours does about its answer.
pub(super) struct AnswerPlan {
    /// Responses of the conversation that have waited for the answer.
    pub(super) n_responses: u32,
    pub(super) on_voicemail: OnVoicemail,
    /// Instructions of the message that is left.
    pub(super) message: String,
    /// Cancelled once the greeting was said to a person, who is then connected with another call: nobody else is talked
    /// to. `None`: it is a conversation.
    pub(super) handed_over: Option<CancellationToken>,
    /// Reports who has answered, outside of the session.
    pub(super) report: Box<dyn Fn(AnsweredBy) + Send + Sync>,
}

/// What the call does next.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    /// To report who answers.
    Report(AnsweredBy),
    /// To tell the model something, without an answer to it.
    Tell(String),
    /// To have the model speak, by these instructions or, where they are empty, its own.
    Respond(String),
    /// To say the notice of a recording, and the greeting behind it.
    SayNotice,
    /// To say neither, and not to record the call.
    SkipNotice,
    /// To say no more of the notice, to greet, and not to record the call.
    CutNotice,
    /// To stop the reply.
    Stop,
    /// To drop the turn under way.
    DropTurn,
    HangUp,
}

/// What the session does at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionActivity {
    /// Responses under way.
    pub(super) n_responses: u32,
    /// Whether audio of the hub sounds, or waits for its time.
    pub(super) is_sounding: bool,
}

/// The words of the other side, as the session's events have them. One writer, one reader.
#[derive(Default)]
pub(super) struct HeardWords {
    finals: String,
    partial: String,
    draft: String,
    /// Words may follow for what was said so far.
    is_pending: bool,
    /// Utterances so far.
    n_utterances: u64,
    has_news: bool,
}

/// See the module.
pub(super) struct Answerer {
    plan: AnswerPlan,
    coding: Coding,
    detector: AnswerDetector,
    samples: Vec<i16>,
    phase: Phase,
    notice: NoticeUse,
    greeting: Option<PendingGreeting>,
    /// Instructions of the greeting that waits behind the notice.
    greeting_behind_notice: Option<String>,
    /// Instructions of what is said to whom the call is handed over to, once that has begun.
    announcement: String,
    began: Instant,
}

/// What becomes of the notice of a recording, which waits for who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoticeUse {
    /// There is none, or it no longer matters.
    None,
    /// It waits. When a reply was stopped last, which would come before it.
    Waiting { stopped_at: Option<Instant> },
    /// It is said, or was.
    Said,
}

/// The call's greeting, until it is said.
struct PendingGreeting {
    instructions: String,
    /// The model was told to begin with it.
    is_told: bool,
}

/// How far the call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is a conversation.
    Conversation,
    /// An answering machine speaks, and the hub is silent. When it began, and when a reply was stopped last.
    Waiting { since: Instant, stopped_at: Option<Instant> },
    /// The message is said.
    Leaving { since: Instant, n_utterances: u64, progress: MessageProgress },
    /// The greeting is said to whom the call is handed over to.
    Announcing { since: Instant, progress: MessageProgress },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageProgress {
    Requested,
    Begun,
    /// Since when nothing of it is left.
    Over(Instant),
}

impl HeardWords {
    /// An event of the session, in its order.
    pub(super) fn happened(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::SpeechStarted { .. } => {
                self.is_pending = true;
                self.n_utterances += 1;
            }
            ServerEvent::TranscriptionDelta { delta, .. } => self.partial.push_str(delta),
            ServerEvent::TranscriptionDraft { transcript, .. } => self.draft.clone_from(transcript),
            ServerEvent::TranscriptionCompleted { transcript, .. } => {
                self.partial.clear();
                self.draft.clear();
                self.finals.push(' ');
                self.finals.push_str(transcript);
                self.is_pending = false;
            }
            ServerEvent::TranscriptionFailed { .. } => self.is_pending = false,
            _ => return,
        }
        for text in [&mut self.finals, &mut self.partial] {
            text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        }
        self.has_news = true;
    }

    /// What was recognized, and whether no more words follow for it; `None`: nothing has changed since.
    fn take_news(&mut self) -> Option<(String, bool)> {
        let has_news = std::mem::take(&mut self.has_news);
        has_news.then(|| (format!("{} {}{}", self.finals, self.partial, self.draft), !self.is_pending))
    }
}

impl Answerer {
    /// For a call that was just answered, whose sound is coded like this. Takes the greeting where it has to wait and
    /// comes behind no notice.
    pub(super) fn new(plan: AnswerPlan, coding: Coding, greeting: &mut Option<String>, has_notice: bool) -> Self {
        let waits = plan.on_voicemail != OnVoicemail::GoOn;
        let notice = match (has_notice, waits) {
            (false, _) => NoticeUse::None,
            (true, true) => NoticeUse::Waiting { stopped_at: None },
            (true, false) => NoticeUse::Said,
        };
        let greeting_behind_notice = greeting.clone().filter(|_| has_notice);
        let greeting = if waits && !has_notice { greeting.take() } else { None };
        let greeting = greeting.map(PendingGreeting::new);
        let detector = AnswerDetector::new(coding.rate);
        let phase = Phase::Conversation;
        let announcement = String::new();
        let samples = Vec::new();
        let began = Instant::now();
        Self { plan, coding, detector, samples, phase, notice, greeting, greeting_behind_notice, announcement, began }
    }

    /// Whether the notice of a recording waits for who answers.
    pub(super) fn awaits_notice(&self) -> bool {
        matches!(self.notice, NoticeUse::Waiting { .. })
    }

    /// Whether the session gets silence instead of the line's sound.
    pub(super) fn mutes_line(&self) -> bool {
        matches!(self.phase, Phase::Waiting { .. })
    }

    /// Whether nothing is left to do.
    pub(super) fn is_done(&self) -> bool {
        let has_greeted = self.greeting.is_none() && !self.awaits_notice();
        self.phase == Phase::Conversation && has_greeted && self.detector.is_done()
    }

    /// Takes the next sound of the line, coded, and gives what is to be done, in this order.
    pub(super) fn listen(&mut self, audio: &[u8], words: &mut HeardWords, activity: SessionActivity) -> Vec<Step> {
        let now = Instant::now();
        let mut steps = Vec::new();
        if let Some((text, is_final)) = words.take_news() {
            self.detector.hear(&text, is_final);
        }
        self.samples.clear();
        // The microphone reports audio that cannot be decoded.
        if self.coding.decode(audio, &mut self.samples).is_ok() {
            self.detector.push(&self.samples);
        }
        while let Some(finding) = self.detector.pop() {
            self.found(finding, words, now, &mut steps);
        }
        self.greet(activity, now, &mut steps);
        self.proceed(words, activity, now, &mut steps);
        steps
    }

    /// The line was on hold for this long, in which it was not listened to: that does not count. An announcement that the
    /// hold has cut begins anew.
    pub(super) fn resumed(&mut self, held: Duration) -> Vec<Step> {
        self.began += held;
        match &mut self.phase {
            Phase::Conversation | Phase::Announcing { progress: MessageProgress::Over(_), .. } => Vec::new(),
            Phase::Waiting { since, .. } | Phase::Leaving { since, .. } => {
                *since += held;
                Vec::new()
            }
            Phase::Announcing { since, progress } => {
                *since = Instant::now();
                *progress = MessageProgress::Requested;
                vec![Step::Stop, Step::Respond(self.announcement.clone())]
            }
        }
    }

    fn found(&mut self, finding: Finding, words: &HeardWords, now: Instant, steps: &mut Vec<Step>) {
        match (finding, self.plan.on_voicemail) {
            (Finding::Answered(by), on_voicemail) => {
                (self.plan.report)(by);
                steps.push(Step::Report(by));
                match (by, on_voicemail) {
                    (AnsweredBy::Fax, _) => steps.push(Step::HangUp),
                    (AnsweredBy::Person | AnsweredBy::Unknown, _) if self.plan.handed_over.is_some() => {
                        self.announce(now, steps);
                    }
                    (AnsweredBy::Screening | AnsweredBy::Ivr, _) if self.plan.handed_over.is_some() => {
                        self.greeting = None;
                        steps.extend([Step::Stop, Step::HangUp]);
                    }
                    (AnsweredBy::Voicemail, OnVoicemail::HangUp) => {
                        self.greeting = None;
                        self.skip_notice(steps);
                        steps.extend([Step::DropTurn, Step::Stop, Step::HangUp]);
                    }
                    (AnsweredBy::Voicemail, OnVoicemail::LeaveMessage | OnVoicemail::AskModel) => {
                        self.greeting = None;
                        self.skip_notice(steps);
                        self.phase = Phase::Waiting { since: now, stopped_at: None };
                        steps.extend([Step::DropTurn, Step::Stop]);
                    }
                    (AnsweredBy::Voicemail | AnsweredBy::Screening | AnsweredBy::Ivr, _) => self.cut_notice(steps),
                    _ => self.say_notice(steps),
                }
            }
            (Finding::Records, _) if !self.mutes_line() => {}
            (Finding::Records, OnVoicemail::AskModel) => {
                self.phase = Phase::Conversation;
                let told = "An answering machine has answered the call, and records from now on. Leave a short message, \
                            or end the call.";
                steps.extend([Step::Tell(told.to_owned()), Step::Respond(String::new())]);
            }
            (Finding::Records, _) => {
                let n_utterances = words.n_utterances;
                self.phase = Phase::Leaving { since: now, n_utterances, progress: MessageProgress::Requested };
                steps.push(Step::Respond(self.plan.message.clone()));
            }
        }
    }

    /// Has the notice said, once.
    fn say_notice(&mut self, steps: &mut Vec<Step>) {
        if self.awaits_notice() {
            self.notice = NoticeUse::Said;
            steps.push(Step::SayNotice);
        }
    }

    /// A machine answers: what it hears is neither the notice nor the greeting.
    fn skip_notice(&mut self, steps: &mut Vec<Step>) {
        if self.notice != NoticeUse::None {
            self.notice = NoticeUse::None;
            steps.push(Step::SkipNotice);
        }
    }

    /// What answers is talked to, but the person behind it does not hear the notice. It is greeted as without one.
    fn cut_notice(&mut self, steps: &mut Vec<Step>) {
        match self.notice {
            NoticeUse::None => return,
            NoticeUse::Waiting { .. } => {
                self.greeting = self.greeting_behind_notice.take().map(PendingGreeting::new);
                steps.push(Step::SkipNotice);
            }
            NoticeUse::Said => steps.push(Step::CutNotice),
        }
        self.notice = NoticeUse::None;
    }

    /// Whether nothing was said for a time: who says nothing is greeted.
    fn is_silent(&self, now: Instant) -> bool {
        let silence = Duration::from_millis(u64::from(self.detector.silent_ms()));
        silence >= GREETS_AFTER && now.duration_since(self.began) >= GREETS_AFTER
    }

    /// Has the notice said to a silent line. Until then no reply comes before it.
    fn proceed_with_notice(&mut self, activity: SessionActivity, now: Instant, steps: &mut Vec<Step>) {
        let is_silent = self.is_silent(now);
        let NoticeUse::Waiting { stopped_at } = &mut self.notice else { return };
        if is_silent {
            self.say_notice(steps);
        } else if activity.n_responses > 0 && stopped_at.is_none_or(|at| now.duration_since(at) >= STOPS_EVERY) {
            *stopped_at = Some(now);
            steps.push(Step::Stop);
        }
    }

    /// Says the greeting to whom the call is handed over to, once.
    fn announce(&mut self, now: Instant, steps: &mut Vec<Step>) {
        if let Some(greeting) = self.greeting.take() {
            self.announcement.clone_from(&greeting.instructions);
            steps.push(Step::Respond(greeting.instructions));
            self.phase = Phase::Announcing { since: now, progress: MessageProgress::Requested };
        }
    }

    /// Says the greeting, or has the model begin its first reply with it.
    fn greet(&mut self, activity: SessionActivity, now: Instant, steps: &mut Vec<Step>) {
        self.proceed_with_notice(activity, now, steps);
        let is_silent = self.is_silent(now);
        let Some(greeting) = &mut self.greeting else { return };
        if self.plan.handed_over.is_some() {
            let waits = now.duration_since(self.began);
            if waits >= DECIDES_WITHIN || waits >= GREETS_AFTER && !self.detector.has_spoken() {
                self.announce(now, steps);
            }
            return;
        }
        if activity.n_responses > 0 || activity.is_sounding {
            // The reply to what was said begins with it.
            self.greeting = None;
            return;
        }
        if is_silent {
            steps.push(Step::Respond(std::mem::take(&mut greeting.instructions)));
            self.greeting = None;
        } else if self.detector.has_spoken() && !std::mem::replace(&mut greeting.is_told, true) {
            let told = format!(
                "The other side has answered your call. Begin your first reply by this: {}",
                greeting.instructions
            );
            steps.push(Step::Tell(told));
        }
    }

    /// Goes on with an answering machine.
    fn proceed(&mut self, words: &HeardWords, activity: SessionActivity, now: Instant, steps: &mut Vec<Step>) {
        let is_speaking = activity.n_responses > 0 || activity.is_sounding;
        match &mut self.phase {
            Phase::Conversation => {}
            Phase::Waiting { since, stopped_at } => {
                if now.duration_since(*since) >= RECORDS_WITHIN {
                    steps.push(Step::HangUp);
                } else if is_speaking && stopped_at.is_none_or(|at| now.duration_since(at) >= STOPS_EVERY) {
                    *stopped_at = Some(now);
                    steps.push(Step::Stop);
                }
            }
            Phase::Leaving { n_utterances, .. } if words.n_utterances > *n_utterances => {
                // The call has been picked up.
                self.phase = Phase::Conversation;
            }
            Phase::Leaving { since, progress, .. } => {
                if progress.is_over(*since, is_speaking, now) {
                    steps.push(Step::HangUp);
                }
            }
            Phase::Announcing { since, progress } => {
                // A greeting that cannot be said keeps nobody from talking to each other.
                if progress.is_over(*since, is_speaking, now)
                    && let Some(handed_over) = &self.plan.handed_over
                {
                    handed_over.cancel();
                }
            }
        }
    }
}

impl PendingGreeting {
    fn new(instructions: String) -> Self {
        Self { instructions, is_told: false }
    }
}

impl MessageProgress {
    /// Follows what is said since it was requested. Whether it is over: all was said, it did not begin in time, or it
    /// takes too long.
    fn is_over(&mut self, since: Instant, is_speaking: bool, now: Instant) -> bool {
        let lasts = now.duration_since(since);
        match self {
            Self::Requested if is_speaking => *self = Self::Begun,
            Self::Begun if !is_speaking => *self = Self::Over(now),
            Self::Over(_) if is_speaking => *self = Self::Begun,
            Self::Over(at) if now.duration_since(*at) >= PLAYED_WITHIN => return true,
            Self::Requested if lasts >= BEGINS_WITHIN => return true,
            _ => {}
        }
        lasts >= LEAVES_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::ItemId;
    use std::sync::{Arc, Mutex};

    /// A call whose line is fed in frames of 20 ms.
    struct TestCall {
        answerer: Answerer,
        words: HeardWords,
        activity: SessionActivity,
        steps: Vec<Step>,
        reported: Arc<Mutex<Vec<AnsweredBy>>>,
    }

    impl TestCall {
        fn new(on_voicemail: OnVoicemail) -> Self {
            Self::with_notice(on_voicemail, false)
        }

        fn with_notice(on_voicemail: OnVoicemail, has_notice: bool) -> Self {
            let reported = Arc::<Mutex<Vec<AnsweredBy>>>::default();
            let reports = reported.clone();
            let report = Box::new(move |by| reports.lock().unwrap().push(by));
            let message = "Leave a message.".into();
            let plan = AnswerPlan { n_responses: 0, on_voicemail, message, handed_over: None, report };
            let mut greeting = Some("Say hello.".to_owned());
            let answerer = Answerer::new(plan, Coding::l16(8_000).unwrap(), &mut greeting, has_notice);
            assert_eq!(greeting.is_some(), has_notice || on_voicemail == OnVoicemail::GoOn);
            Self {
                answerer,
                words: HeardWords::default(),
                activity: SessionActivity::default(),
                steps: Vec::new(),
                reported,
            }
        }

        fn handing_over() -> Self {
            let mut call = Self::new(OnVoicemail::HangUp);
            call.answerer.plan.handed_over = Some(CancellationToken::new());
            call
        }

        fn is_handed_over(&self) -> bool {
            self.answerer.plan.handed_over.as_ref().is_some_and(CancellationToken::is_cancelled)
        }

        async fn line(&mut self, sample: impl Fn(usize) -> i16, ms: usize) {
            for frame in 0..ms / 20 {
                tokio::time::advance(Duration::from_millis(20)).await;
                let audio: Vec<u8> = (0..160).flat_map(|i| sample(160 * frame + i).to_le_bytes()).collect();
                self.steps.extend(self.answerer.listen(&audio, &mut self.words, self.activity));
            }
        }

        async fn silence(&mut self, ms: usize) {
            self.line(|_| 0, ms).await;
        }

        async fn says(&mut self, text: &str, ms: usize) {
            let item_id = ItemId::from("item_1");
            self.words.happened(&ServerEvent::SpeechStarted { audio_start_ms: 0, item_id: item_id.clone() });
            let transcript = text.to_owned();
            self.words.happened(&ServerEvent::TranscriptionDraft { item_id, content_index: 0, transcript });
            self.line(|i| if i % 50 < 25 { 3_000 } else { -2_000 }, ms).await;
            self.words.is_pending = false;
            self.words.has_news = true;
        }

        async fn beep(&mut self) {
            let sine = |i: usize| (5_000.0 * (std::f32::consts::TAU * 1_000.0 * i as f32 / 8_000.0).sin()) as i16;
            self.line(sine, 400).await;
            self.silence(200).await;
        }

        fn take(&mut self) -> Vec<Step> {
            std::mem::take(&mut self.steps)
        }
    }

    const MACHINE: &str = "You've reached Anna. Leave a message after the tone.";

    fn found_machine() -> Vec<Step> {
        let told = "The other side has answered your call. Begin your first reply by this: Say hello.";
        vec![Step::Tell(told.into()), Step::Report(AnsweredBy::Voicemail), Step::DropTurn, Step::Stop]
    }

    #[tokio::test(start_paused = true)]
    async fn time_on_hold_does_not_count_and_an_announcement_that_it_cuts_is_repeated() {
        let held = Duration::from_secs(60);
        let mut call = TestCall::handing_over();
        call.silence(1_000).await;
        tokio::time::advance(held).await;
        assert_eq!(call.answerer.resumed(held), []);
        call.silence(900).await;
        assert_eq!(call.take(), [], "1.9 s of silence");
        call.silence(200).await;
        assert_eq!(call.take(), [Step::Respond("Say hello.".into())]);
        call.activity = SessionActivity { n_responses: 1, is_sounding: true };
        call.silence(200).await;
        tokio::time::advance(held).await;
        assert_eq!(call.answerer.resumed(held), [Step::Stop, Step::Respond("Say hello.".into())]);
        call.activity = SessionActivity::default();
        call.silence(400).await;
        assert!(!call.is_handed_over(), "it has not begun again");
        call.activity = SessionActivity { n_responses: 1, is_sounding: true };
        call.silence(200).await;
        call.activity = SessionActivity::default();
        call.silence(40).await;
        assert_eq!(call.answerer.resumed(Duration::ZERO), [], "all of it was said");
        call.silence(400).await;
        assert!(call.is_handed_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_person_is_told_and_handed_over_and_a_machine_is_hung_up_on() {
        let mut call = TestCall::handing_over();
        call.says("Hello?", 500).await;
        call.silence(1_000).await;
        assert_eq!(call.steps, [Step::Report(AnsweredBy::Person), Step::Respond("Say hello.".into())]);
        call.activity = SessionActivity { n_responses: 1, is_sounding: true };
        call.silence(2_000).await;
        call.says("Who?", 500).await;
        assert!(!call.is_handed_over(), "it is being told");
        call.activity = SessionActivity::default();
        call.silence(400).await;
        assert!(call.is_handed_over());

        let mut call = TestCall::handing_over();
        call.silence(2_100).await;
        assert_eq!(call.steps, [Step::Respond("Say hello.".into())]);
        call.silence(18_500).await;
        assert!(!call.is_handed_over());
        call.silence(2_000).await;
        assert!(call.is_handed_over(), "what cannot be said is not waited for");

        for words in [MACHINE, "For sales, press one. For support, press two."] {
            let mut call = TestCall::handing_over();
            call.says(words, 3_000).await;
            call.silence(1_500).await;
            assert!(call.steps.contains(&Step::HangUp) && !call.is_handed_over(), "{:?}", call.steps);
            assert!(!call.steps.iter().any(|step| matches!(step, Step::Respond(_))), "{:?}", call.steps);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_is_left_after_the_beep_and_the_call_ends_behind_it() {
        let mut call = TestCall::new(OnVoicemail::LeaveMessage);
        call.says(MACHINE, 3_000).await;
        assert_eq!(call.take(), found_machine());
        assert!(call.answerer.mutes_line());
        // A reply to the turn that was dropped is stopped.
        call.activity.n_responses = 1;
        call.silence(400).await;
        assert_eq!(call.take(), [Step::Stop, Step::Stop]);
        call.activity.n_responses = 0;
        call.beep().await;
        assert_eq!(call.take(), [Step::Respond("Leave a message.".into())]);
        assert!(!call.answerer.mutes_line());
        call.activity.n_responses = 1;
        call.silence(500).await;
        call.activity = SessionActivity { n_responses: 0, is_sounding: true };
        call.silence(3_000).await;
        call.activity.is_sounding = false;
        call.silence(280).await;
        assert_eq!(call.take(), []);
        call.silence(60).await;
        assert_eq!(call.take().first(), Some(&Step::HangUp));
        assert_eq!(*call.reported.lock().unwrap(), [AnsweredBy::Voicemail]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_picks_up_during_the_message_talks_on() {
        let mut call = TestCall::new(OnVoicemail::LeaveMessage);
        call.says(MACHINE, 3_000).await;
        call.beep().await;
        call.take();
        call.activity.n_responses = 1;
        call.silence(500).await;
        call.says("Hello? I'm here.", 500).await;
        call.activity.n_responses = 0;
        call.silence(5_000).await;
        assert_eq!(call.take(), []);
        assert!(call.answerer.is_done());
    }

    #[tokio::test(start_paused = true)]
    async fn each_setting_does_what_it_says() {
        let mut call = TestCall::new(OnVoicemail::HangUp);
        call.says(MACHINE, 3_000).await;
        let mut expect = found_machine();
        expect.push(Step::HangUp);
        assert_eq!(call.take(), expect);

        let mut call = TestCall::new(OnVoicemail::AskModel);
        call.says(MACHINE, 3_000).await;
        call.take();
        call.beep().await;
        let steps = call.take();
        assert!(
            matches!(&steps[..], [Step::Tell(told), Step::Respond(none)] if told.contains("records") && none.is_empty())
        );
        assert!(call.answerer.is_done());

        let mut call = TestCall::new(OnVoicemail::GoOn);
        call.says(MACHINE, 3_000).await;
        call.beep().await;
        assert_eq!(call.take(), [Step::Report(AnsweredBy::Voicemail)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_greeting_waits_for_who_answers_or_for_silence() {
        let mut call = TestCall::new(OnVoicemail::HangUp);
        call.silence(1_980).await;
        assert_eq!(call.take(), []);
        call.silence(40).await;
        assert_eq!(call.take(), [Step::Respond("Say hello.".into())]);

        let mut call = TestCall::new(OnVoicemail::HangUp);
        call.says("Hello?", 400).await;
        assert!(matches!(&call.take()[..], [Step::Tell(told)] if told.ends_with("Say hello.")));
        call.activity.n_responses = 1;
        call.silence(3_000).await;
        assert_eq!(call.take(), [Step::Report(AnsweredBy::Person)]);

        // A turn without words gets no reply.
        let mut call = TestCall::new(OnVoicemail::HangUp);
        call.says("", 100).await;
        call.silence(3_000).await;
        assert!(call.take().contains(&Step::Respond("Say hello.".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_notice_is_said_to_a_person_or_a_silent_line_and_to_no_machine() {
        let mut call = TestCall::with_notice(OnVoicemail::LeaveMessage, true);
        call.activity.n_responses = 1;
        call.says("Hello?", 400).await;
        assert_eq!(call.take(), [Step::Stop, Step::Stop], "no reply comes before it");
        call.activity.n_responses = 0;
        call.silence(1_000).await;
        assert_eq!(call.take(), [Step::Report(AnsweredBy::Person), Step::SayNotice]);
        call.silence(5_000).await;
        assert_eq!(call.take(), []);
        assert!(call.answerer.is_done());

        let mut call = TestCall::with_notice(OnVoicemail::HangUp, true);
        call.silence(1_980).await;
        assert_eq!(call.take(), []);
        call.silence(40).await;
        assert_eq!(call.take(), [Step::SayNotice]);

        let mut call = TestCall::with_notice(OnVoicemail::LeaveMessage, true);
        call.says(MACHINE, 3_000).await;
        let report = Step::Report(AnsweredBy::Voicemail);
        assert_eq!(call.take(), [report, Step::SkipNotice, Step::DropTurn, Step::Stop]);
        call.silence(1_000).await;
        call.beep().await;
        assert_eq!(call.take(), [Step::Respond("Leave a message.".into())], "the message alone");

        // Where the call goes on with a machine as with a person, nothing waits.
        let mut call = TestCall::with_notice(OnVoicemail::GoOn, true);
        assert!(!call.answerer.awaits_notice());
        call.says(MACHINE, 3_000).await;
        assert_eq!(call.take(), [Step::Report(AnsweredBy::Voicemail), Step::CutNotice]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_menu_hears_the_greeting_without_the_notice_and_the_call_is_not_recorded() {
        let menu = "For sales, press one. For support, press two.";
        let mut call = TestCall::with_notice(OnVoicemail::HangUp, true);
        call.says(menu, 3_000).await;
        call.silence(1_500).await;
        let mut steps = call.take();
        call.silence(3_000).await;
        steps.extend(call.take());
        assert!(steps.contains(&Step::Report(AnsweredBy::Ivr)), "{steps:?}");
        assert!(steps.contains(&Step::SkipNotice) && !steps.contains(&Step::SayNotice), "{steps:?}");
        assert_eq!(steps.last(), Some(&Step::Respond("Say hello.".into())), "{steps:?}");

        // Behind a notice that was said to the silence before it.
        let mut call = TestCall::with_notice(OnVoicemail::HangUp, true);
        call.silence(2_020).await;
        assert_eq!(call.take(), [Step::SayNotice]);
        call.says(menu, 3_000).await;
        call.silence(1_500).await;
        assert_eq!(call.take(), [Step::Report(AnsweredBy::Ivr), Step::CutNotice]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_wait_is_endless() {
        let mut call = TestCall::new(OnVoicemail::LeaveMessage);
        call.says(MACHINE, 95_000).await;
        assert!(call.take().contains(&Step::HangUp), "a machine that talks on");

        let mut call = TestCall::new(OnVoicemail::LeaveMessage);
        call.says(MACHINE, 3_000).await;
        call.beep().await;
        call.silence(19_500).await;
        assert!(!call.take().contains(&Step::HangUp));
        call.silence(1_000).await;
        assert!(call.take().contains(&Step::HangUp), "a message that does not begin");

        let mut call = TestCall::new(OnVoicemail::LeaveMessage);
        call.says(MACHINE, 3_000).await;
        call.beep().await;
        call.activity.n_responses = 1;
        call.silence(121_000).await;
        assert!(call.take().contains(&Step::HangUp), "a message that does not end");
    }

    #[test]
    fn words_are_bounded() {
        let mut words = HeardWords::default();
        for _ in 0..10_000 {
            let item_id = ItemId::from("item_1");
            words.happened(&ServerEvent::TranscriptionDelta { item_id, content_index: 0, delta: "é wörds ".into() });
        }
        assert!(words.partial.len() <= MAX_TEXT_BYTES);
    }
}
