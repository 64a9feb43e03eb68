//! The notice of a recording: what a caller hears before anything else, and the key by which it agrees.
//!
//! [`super::intake`] holds the [`RecordingSettings`], by which each phone call begins. [`super::conversation`] drives a
//! [`RecordingNotice`]: it says the notice by the call's own session and voice, gives the session silence meanwhile, and
//! passes keys here. Nothing here has IO or writes a recording.

use super::answerer::SessionActivity;
use super::recital::NoticeFirst;
use crate::config::{Config, ConsentMethod};
use crate::server::transport::call::ModelChange;
use crate::server::transport::recording::CallRecording;
use antiphon_engine_api::llm::Llm;
use antiphon_protocol::{Modality, Response, ResponseParams, ResponseStatus, ServerEvent, ToolChoice};
use antiphon_types::ResponseId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The key by which a caller agrees.
const AGREES: char = '1';
/// From the end of the notice to the greeting of a caller who presses no key: until then keys decide.
const GREETS_AFTER: Duration = Duration::from_secs(5);
/// From the end of the notice to that of the time for a decision.
const DECIDES_WITHIN: Duration = Duration::from_secs(15);
/// From the end of the notice at the hub: what the peer's jitter buffer still plays.
const PLAYED_WITHIN: Duration = Duration::from_millis(300);
/// The longest wait for the notice's beginning, and for its end; then the call goes on without it.
const BEGINS_WITHIN: Duration = Duration::from_secs(20);
const ENDS_WITHIN: Duration = Duration::from_secs(120);
/// From one request for the notice to the next: where another response was under way, and where the session is silent.
const STOPS_EVERY: Duration = Duration::from_millis(200);
const REQUESTS_EVERY: Duration = Duration::from_secs(2);
/// The metadata of the response that says the notice: how often it was requested.
const METADATA: &str = "antiphon.recording_notice";

/// Whether phone calls are recorded, what notice their callers hear, and how they agree.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordingSettings {
    is_on: bool,
    consent: ConsentMethod,
    /// Empty: nothing is said.
    notice: String,
}

/// What a phone call begins with.
pub(super) struct PhoneRecording {
    pub(super) recording: CallRecording,
    /// `None`: nothing is said.
    pub(super) notice: Option<RecordingNotice>,
}

/// The notice of one call, until its recording is decided. Dropping it refuses a recording that is not decided.
pub(super) struct RecordingNotice {
    text: String,
    recording: CallRecording,
    /// Cancelled once the session's model may answer.
    said: CancellationToken,
    phase: Phase,
    /// Whether a greeting follows.
    greets: bool,
    n_requests: u32,
}

/// How far the notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits for who answers.
    Waiting,
    /// It is to be said.
    Due,
    /// It is said. `silent_since`: since when nothing of it is left.
    Saying { since: Instant, requested_at: Instant, silent_since: Option<Instant> },
    /// It was said, and the caller may decide: by a key, until the greeting or another reply begins.
    Said { at: Instant, takes_keys: bool },
    /// The call goes on without it.
    Over,
}

/// What the conversation does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoticeStep {
    /// To stop what the session says, to drop what it has heard, and to request the notice again.
    Repeat,
    /// To stop the notice, and to greet.
    Cut,
    Greet,
}

/// How far the session is with the notice that was requested last, by its events. One writer, one reader.
#[derive(Clone, Debug)]
pub(super) struct NoticeProgress {
    n_requests: u32,
    /// The response that says it; `None`: it has not begun.
    response_id: Option<ResponseId>,
    stage: Stage,
    /// Another response has begun since it was made.
    is_followed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Requested,
    Begun,
    /// All of it was made. `is_whole`: nothing has cut it off so far, and no stage has failed.
    Done {
        is_whole: bool,
    },
}

impl RecordingSettings {
    /// Those of the hub.
    pub(super) fn of(config: &Config) -> Self {
        let is_on = !config.session.record.is_empty();
        let notice = config.telephony.recording_notice.trim().to_owned();
        Self { is_on, consent: config.telephony.recording_consent, notice }
    }

    /// What a phone call begins with.
    pub(super) fn of_call(&self) -> PhoneRecording {
        let recording = match self.consent {
            _ if !self.is_on => CallRecording::Off,
            // Without a notice no caller knows what to press: such settings are refused where they are loaded.
            ConsentMethod::Key if self.notice.is_empty() => CallRecording::Off,
            ConsentMethod::Key => CallRecording::asked(),
            ConsentMethod::None if self.notice.is_empty() => CallRecording::Unasked,
            ConsentMethod::None => CallRecording::announced(),
        };
        let is_said = self.is_on && !self.notice.is_empty();
        let notice = is_said.then(|| RecordingNotice::new(self.notice.clone(), recording.clone()));
        PhoneRecording { recording, notice }
    }
}

impl PhoneRecording {
    /// What a call to the target of a warm transfer begins with: the target hears no notice, and is not recorded.
    pub(super) fn of_target() -> Self {
        Self { recording: CallRecording::Off, notice: None }
    }
}

impl RecordingNotice {
    fn new(text: String, recording: CallRecording) -> Self {
        let said = CancellationToken::new();
        Self { text, recording, said, phase: Phase::Due, greets: false, n_requests: 0 }
    }

    /// Has the model of the call's session wait for the notice, and say it.
    pub(super) fn before_model(&self) -> ModelChange {
        let notice = self.text.clone();
        let instructions = self.instructions();
        let said = self.said.clone();
        Box::new(move |model: Arc<dyn Llm>| -> Arc<dyn Llm> {
            Arc::new(NoticeFirst { notice, instructions, said, model })
        })
    }

    /// A greeting follows it; no other reply is said before that.
    pub(super) fn expect_greeting(&mut self) {
        self.greets = true;
    }

    /// It is said only once [`Self::answered`] was called.
    pub(super) fn wait(&mut self) {
        self.phase = Phase::Waiting;
    }

    /// What answers the call is to hear it.
    pub(super) fn answered(&mut self) {
        if self.phase == Phase::Waiting {
            self.phase = Phase::Due;
        }
    }

    /// A machine, a menu or a screening hears it in the place of a person: the call is not recorded, also if it was said
    /// already. `true`: that cuts it off.
    pub(super) fn unheard(&mut self) -> bool {
        let is_cut = matches!(self.phase, Phase::Saying { .. });
        self.recording.notice_was_unheard();
        self.end();
        is_cut
    }

    /// It is not said, or no further: the caller has not heard all of it.
    fn skip(&mut self) {
        self.recording.refuse_undecided();
        self.end();
    }

    /// Begins it where it is due. `true`: it is to be requested.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if self.phase != Phase::Due {
            return false;
        }
        if self.recording.is_decided() {
            self.end();
            return false;
        }
        self.phase = Phase::Saying { since: now, requested_at: now, silent_since: None };
        true
    }

    /// What requests it from the session, and what follows that.
    pub(super) fn request(&mut self) -> (ResponseParams, NoticeProgress) {
        self.n_requests += 1;
        let n_requests = self.n_requests;
        let params = ResponseParams {
            instructions: Some(self.instructions()),
            output_modalities: Some(Modality::Audio),
            tools: Some(Vec::new()),
            tool_choice: Some(ToolChoice::None),
            // It reads nothing of the conversation, and waits for no transcript.
            input: Some(Vec::new()),
            metadata: Some([(METADATA.to_owned(), n_requests.to_string())].into()),
            ..ResponseParams::default()
        };
        (params, NoticeProgress { n_requests, response_id: None, stage: Stage::Requested, is_followed: false })
    }

    /// The line is put on hold. `true`: that cuts it off; it begins again behind the hold.
    pub(super) fn held(&mut self) -> bool {
        let is_cut = matches!(self.phase, Phase::Saying { .. });
        if is_cut {
            self.phase = Phase::Due;
        }
        is_cut
    }

    /// The line was on hold for this long, which does not count.
    pub(super) fn resumed(&mut self, held: Duration) {
        if let Phase::Said { at, .. } = &mut self.phase {
            *at += held;
        }
    }

    /// Whether the session gets silence instead of the line's sound.
    pub(super) fn mutes_line(&self) -> bool {
        match self.phase {
            Phase::Due | Phase::Saying { .. } => true,
            Phase::Said { takes_keys, .. } => self.greets && takes_keys,
            Phase::Waiting | Phase::Over => false,
        }
    }

    /// Whether the greeting may follow.
    pub(super) fn lets_greet(&self) -> bool {
        matches!(self.phase, Phase::Said { takes_keys: false, .. } | Phase::Over)
    }

    /// Takes a key of the caller, if it decides, or would cut the notice off.
    pub(super) fn takes(&mut self, key: char) -> bool {
        let is_said = matches!(self.phase, Phase::Due | Phase::Saying { .. });
        let is_awaited = matches!(self.phase, Phase::Saying { .. } | Phase::Said { takes_keys: true, .. });
        let decides = is_awaited && self.recording.is_asked() && !self.recording.is_decided();
        if decides {
            // Nothing is decided yet: it is taken.
            let _ = self.recording.decide(key == AGREES);
        }
        decides || is_said
    }

    /// When [`Self::proceed`] is due; `None`: with what the session or the line does next.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match self.phase {
            Phase::Saying { silent_since: Some(at), .. } => Some(at + PLAYED_WITHIN),
            Phase::Said { at, takes_keys } => Some(at + if takes_keys { GREETS_AFTER } else { DECIDES_WITHIN }),
            Phase::Waiting | Phase::Due | Phase::Saying { .. } | Phase::Over => None,
        }
    }

    /// Goes on with it. Not called while the line is on hold.
    pub(super) fn proceed(
        &mut self,
        progress: &NoticeProgress,
        activity: SessionActivity,
        now: Instant,
    ) -> Option<NoticeStep> {
        match self.phase {
            Phase::Waiting | Phase::Due | Phase::Over => None,
            // A response that has not begun cannot be stopped.
            Phase::Saying { .. } if self.recording.is_decided() && progress.stage != Stage::Requested => {
                self.end();
                Some(NoticeStep::Cut)
            }
            Phase::Saying { since, requested_at, silent_since } => {
                let lasts = now.duration_since(since);
                match progress.stage {
                    Stage::Requested if lasts >= BEGINS_WITHIN => Some(self.failed("it did not begin")),
                    Stage::Requested => {
                        let every = if activity.n_responses > 0 { STOPS_EVERY } else { REQUESTS_EVERY };
                        if now.duration_since(requested_at) < every {
                            return None;
                        }
                        self.phase = Phase::Saying { since, requested_at: now, silent_since: None };
                        Some(NoticeStep::Repeat)
                    }
                    Stage::Done { is_whole: false } => Some(self.failed("it was cut off, or could not be spoken")),
                    Stage::Begun | Stage::Done { .. } if lasts >= ENDS_WITHIN => {
                        self.failed("it did not end");
                        Some(NoticeStep::Cut)
                    }
                    Stage::Begun => None,
                    Stage::Done { is_whole: true } => {
                        let silent_since = match silent_since {
                            _ if activity.is_sounding => None,
                            None => Some(now),
                            since => since,
                        };
                        self.phase = Phase::Saying { since, requested_at, silent_since };
                        let at = silent_since.filter(|at| now.duration_since(*at) >= PLAYED_WITHIN)?;
                        self.was_said(at)
                    }
                }
            }
            Phase::Said { at, takes_keys } => {
                let lasts = now.duration_since(at);
                // Before the greeting no reply is heard.
                let has_reply = !self.greets && progress.is_followed;
                if lasts >= DECIDES_WITHIN {
                    self.recording.refuse_undecided();
                }
                if self.recording.is_decided() {
                    self.end();
                } else if lasts >= GREETS_AFTER || has_reply {
                    self.said.cancel();
                    self.phase = Phase::Said { at, takes_keys: false };
                }
                (takes_keys && self.lets_greet()).then_some(NoticeStep::Greet)
            }
        }
    }

    /// All of it was said.
    fn was_said(&mut self, at: Instant) -> Option<NoticeStep> {
        if self.recording.is_asked() {
            if !self.greets {
                self.said.cancel();
            }
            self.phase = Phase::Said { at, takes_keys: true };
            return None;
        }
        self.recording.notice_was_said();
        self.end();
        Some(NoticeStep::Greet)
    }

    /// The caller has not heard all of it, and cannot agree.
    fn failed(&mut self, why: &'static str) -> NoticeStep {
        tracing::warn!(why, "the notice of a recording was not said");
        self.skip();
        NoticeStep::Greet
    }

    fn end(&mut self) {
        self.said.cancel();
        self.phase = Phase::Over;
    }

    /// Those of the response that says it. The model does not see them.
    fn instructions(&self) -> String {
        format!("Say this word for word, and nothing else: {}", self.text)
    }
}

impl Drop for RecordingNotice {
    fn drop(&mut self) {
        self.skip();
    }
}

impl NoticeProgress {
    /// An event of the session, in its order.
    pub(super) fn happened(&mut self, event: &ServerEvent) {
        match event {
            ServerEvent::ResponseCreated { response } if self.is_of(response) => {
                self.response_id = Some(response.id.clone());
                self.stage = Stage::Begun;
            }
            ServerEvent::ResponseCreated { .. } => self.is_followed |= matches!(self.stage, Stage::Done { .. }),
            ServerEvent::ResponseDone { response } if self.is_of(response) => {
                let was_cleared = self.stage == Stage::Done { is_whole: false };
                let is_whole = response.status == ResponseStatus::Completed && !was_cleared;
                self.stage = Stage::Done { is_whole };
            }
            // What the line has not played is dropped. The response may be done, since it is made faster than it sounds.
            ServerEvent::OutputCleared { response_id } if self.response_id.as_ref() == Some(response_id) => {
                self.stage = Stage::Done { is_whole: false };
            }
            _ => {}
        }
    }

    fn is_of(&self, response: &Response) -> bool {
        let n_requests = response.metadata.as_ref().and_then(|metadata| metadata.get(METADATA));
        n_requests.is_some_and(|n_requests| *n_requests == self.n_requests.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::transport::recording::RecordingState::{self, Recorded, Refused, Waiting};

    const STEP: Duration = Duration::from_millis(20);
    const SECOND: Duration = Duration::from_secs(1);

    /// A notice that is being said.
    struct TestNotice {
        notice: RecordingNotice,
        recording: CallRecording,
        progress: NoticeProgress,
        activity: SessionActivity,
        now: Instant,
    }

    impl TestNotice {
        fn new(consent: ConsentMethod) -> Self {
            let settings = RecordingSettings { is_on: true, consent, notice: "We record. Press 1.".into() };
            let PhoneRecording { recording, notice } = settings.of_call();
            let mut notice = notice.expect("there is a notice");
            let now = Instant::now();
            assert!(notice.begin(now) && !notice.begin(now), "once");
            let (_, progress) = notice.request();
            Self { notice, recording, progress, activity: SessionActivity::default(), now }
        }

        /// One that was just said. `greets`: a greeting follows.
        fn said(greets: bool) -> Self {
            let mut test = Self::new(ConsentMethod::Key);
            if greets {
                test.notice.expect_greeting();
            }
            test.begins();
            test.ends(ResponseStatus::Completed);
            assert_eq!(test.after(PLAYED_WITHIN + STEP), []);
            test
        }

        fn event(&self, status: ResponseStatus) -> Box<Response> {
            let mut response = Response::new("resp_1".into(), Some("conv_1".into()));
            response.status = status;
            response.metadata = Some([(METADATA.to_owned(), self.progress.n_requests.to_string())].into());
            Box::new(response)
        }

        fn begins(&mut self) {
            let response = self.event(ResponseStatus::InProgress);
            self.progress.happened(&ServerEvent::ResponseCreated { response });
            self.activity = SessionActivity { n_responses: 1, is_sounding: true };
        }

        /// Another response begins and ends.
        fn answers(&mut self) {
            let response = Box::new(Response::new("resp_2".into(), Some("conv_1".into())));
            self.progress.happened(&ServerEvent::ResponseCreated { response });
        }

        fn clears(&mut self, response_id: &str) {
            self.progress.happened(&ServerEvent::OutputCleared { response_id: response_id.into() });
        }

        fn ends(&mut self, status: ResponseStatus) {
            let response = self.event(status);
            self.progress.happened(&ServerEvent::ResponseDone { response });
            self.activity = SessionActivity::default();
        }

        /// What is done in this time.
        fn after(&mut self, time: Duration) -> Vec<NoticeStep> {
            let until = self.now + time;
            let mut steps = Vec::new();
            while self.now < until {
                self.now += STEP;
                steps.extend(self.notice.proceed(&self.progress, self.activity, self.now));
            }
            steps
        }

        fn state(&self) -> RecordingState {
            self.recording.state()
        }
    }

    #[test]
    fn a_notice_without_a_question_is_followed_by_the_greeting() {
        let mut test = TestNotice::new(ConsentMethod::None);
        test.begins();
        assert_eq!(test.after(10 * SECOND), []);
        assert!(test.notice.mutes_line() && !test.notice.said.is_cancelled());
        assert!(test.notice.takes('7'), "it would cut the notice off");
        assert_eq!(test.state(), Waiting);
        test.ends(ResponseStatus::Completed);
        test.activity.is_sounding = true;
        assert_eq!(test.after(SECOND), [], "it still sounds");
        test.activity.is_sounding = false;
        assert_eq!(test.after(PLAYED_WITHIN), []);
        assert_eq!(test.after(STEP), [NoticeStep::Greet]);
        assert!(test.notice.lets_greet() && !test.notice.mutes_line() && test.notice.said.is_cancelled());
        assert!(!test.notice.takes('1') && test.state() == Recorded);
        assert_eq!(test.after(20 * SECOND), []);
    }

    #[test]
    fn one_agrees_and_other_keys_refuse_and_none_is_passed_on() {
        for (key, state) in [('1', Recorded), ('2', Refused), ('#', Refused)] {
            let mut test = TestNotice::said(true);
            assert!(test.notice.mutes_line() && !TestNotice::said(false).notice.mutes_line());
            assert_eq!(test.after(SECOND), []);
            assert!(test.notice.takes(key) && !test.notice.takes(key), "once");
            assert_eq!((test.state(), test.after(STEP)), (state, vec![NoticeStep::Greet]), "{key}");
            drop(test.notice);
            assert_eq!(test.recording.state(), state);
        }
    }

    #[test]
    fn a_key_cuts_the_notice_short() {
        let mut test = TestNotice::new(ConsentMethod::Key);
        test.begins();
        assert_eq!(test.after(SECOND), []);
        assert!(test.notice.takes('1'));
        assert_eq!(test.after(STEP), [NoticeStep::Cut]);
        assert!(test.notice.lets_greet() && test.state() == Recorded);
    }

    #[test]
    fn without_a_key_the_greeting_comes_after_five_seconds_and_the_refusal_after_fifteen() {
        let mut test = TestNotice::said(true);
        let rest = GREETS_AFTER - PLAYED_WITHIN - 2 * STEP;
        assert_eq!(test.after(rest), []);
        assert!(!test.notice.said.is_cancelled(), "the greeting comes before other replies");
        assert_eq!(test.after(2 * STEP), [NoticeStep::Greet]);
        assert!(test.notice.said.is_cancelled() && !test.notice.mutes_line());
        assert_eq!((test.after(9 * SECOND), test.state()), (Vec::new(), Waiting));
        assert!(test.notice.due_at().is_some_and(|at| at <= test.now + SECOND + STEP));
        assert_eq!((test.after(2 * SECOND), test.state()), (Vec::new(), Refused));
    }

    #[test]
    fn a_key_behind_the_greeting_is_for_the_model_and_a_client_may_still_decide() {
        let mut test = TestNotice::said(true);
        assert_eq!(test.after(GREETS_AFTER), [NoticeStep::Greet]);
        for key in ['1', '2'] {
            assert!(!test.notice.takes(key) && test.state() == Waiting, "{key}");
        }
        test.recording.decide(true).unwrap();
        assert_eq!((test.after(20 * SECOND), test.state()), (Vec::new(), Recorded));
    }

    #[test]
    fn a_key_behind_another_reply_is_for_the_model() {
        let mut test = TestNotice::said(false);
        assert_eq!(test.after(SECOND), []);
        assert!(test.notice.said.is_cancelled(), "the caller is answered");
        test.answers();
        assert_eq!(test.after(STEP), [NoticeStep::Greet]);
        assert!(!test.notice.takes('1') && test.state() == Waiting);
        // A reply that waits behind the greeting is not heard.
        let mut test = TestNotice::said(true);
        test.answers();
        assert_eq!(test.after(SECOND), []);
        assert!(test.notice.takes('1') && test.state() == Recorded);
    }

    #[test]
    fn a_notice_that_is_cleared_before_it_has_sounded_was_not_heard() {
        for consent in [ConsentMethod::Key, ConsentMethod::None] {
            let mut test = TestNotice::new(consent);
            test.begins();
            test.ends(ResponseStatus::Completed);
            test.activity.is_sounding = true;
            assert_eq!(test.after(SECOND), []);
            test.clears("resp_2");
            assert_eq!(test.after(STEP), [], "that is of another response");
            test.clears("resp_1");
            test.activity.is_sounding = false;
            assert_eq!((test.after(STEP), test.state()), (vec![NoticeStep::Greet], Refused));
        }
        // While it is made.
        let mut test = TestNotice::new(ConsentMethod::None);
        test.begins();
        test.clears("resp_1");
        test.ends(ResponseStatus::Completed);
        assert_eq!((test.after(SECOND), test.state()), (vec![NoticeStep::Greet], Refused));
    }

    #[test]
    fn a_notice_that_a_machine_heard_does_not_record() {
        let mut test = TestNotice::new(ConsentMethod::None);
        test.begins();
        assert!(test.notice.unheard() && test.notice.lets_greet() && test.state() == Refused);
        let mut test = TestNotice::new(ConsentMethod::None);
        test.begins();
        test.ends(ResponseStatus::Completed);
        assert_eq!((test.after(SECOND), test.state()), (vec![NoticeStep::Greet], Recorded));
        assert!(!test.notice.unheard() && test.state() == Refused);
    }

    #[test]
    fn a_caller_who_objects_to_a_notice_without_a_question_is_not_recorded() {
        let mut test = TestNotice::new(ConsentMethod::None);
        test.begins();
        test.recording.decide(false).unwrap();
        assert_eq!((test.after(STEP), test.state()), (vec![NoticeStep::Cut], Refused));
    }

    #[test]
    fn a_client_decides_in_the_place_of_a_key() {
        let mut test = TestNotice::new(ConsentMethod::Key);
        test.begins();
        test.recording.decide(false).unwrap();
        assert_eq!(test.after(STEP), [NoticeStep::Cut]);
        // Before it has begun, nothing is said.
        let settings = RecordingSettings { is_on: true, consent: ConsentMethod::Key, notice: "Press 1.".into() };
        let PhoneRecording { recording, notice } = settings.of_call();
        let mut notice = notice.unwrap();
        recording.decide(true).unwrap();
        assert!(!notice.begin(Instant::now()) && notice.lets_greet());
    }

    #[test]
    fn another_response_is_stopped_and_the_notice_requested_again() {
        let mut test = TestNotice::new(ConsentMethod::None);
        test.activity.n_responses = 1;
        assert_eq!(test.after(STOPS_EVERY), [NoticeStep::Repeat]);
        let (params, progress) = test.notice.request();
        assert_eq!(params.metadata.unwrap()[METADATA], "2");
        let first = test.event(ResponseStatus::Cancelled);
        test.progress = progress;
        test.progress.happened(&ServerEvent::ResponseDone { response: first });
        assert_eq!(test.progress.stage, Stage::Requested, "that was the first request");
        assert_eq!(test.after(STOPS_EVERY), [NoticeStep::Repeat]);
        test.begins();
        assert_eq!(test.after(SECOND), []);
        test.ends(ResponseStatus::Completed);
        assert_eq!(test.after(SECOND), [NoticeStep::Greet]);
    }

    #[test]
    fn a_notice_that_is_not_said_to_its_end_asks_nothing() {
        let mut never_begun = TestNotice::new(ConsentMethod::Key);
        let steps = never_begun.after(BEGINS_WITHIN + STEP);
        assert_eq!((steps.last(), never_begun.state()), (Some(&NoticeStep::Greet), Refused));
        let mut cut = TestNotice::new(ConsentMethod::Key);
        cut.begins();
        cut.ends(ResponseStatus::Cancelled);
        assert_eq!((cut.after(STEP), cut.state()), (vec![NoticeStep::Greet], Refused));
        let mut endless = TestNotice::new(ConsentMethod::Key);
        endless.begins();
        assert_eq!((endless.after(ENDS_WITHIN), endless.state()), (vec![NoticeStep::Cut], Refused));
        let mut unasked = TestNotice::new(ConsentMethod::None);
        unasked.begins();
        unasked.ends(ResponseStatus::Failed);
        assert_eq!((unasked.after(STEP), unasked.state()), (vec![NoticeStep::Greet], Refused));
        let mut dropped = TestNotice::said(true);
        assert_eq!(dropped.after(SECOND), []);
        let TestNotice { notice, recording, .. } = dropped;
        drop(notice);
        assert_eq!(recording.state(), Refused);
    }

    #[test]
    fn a_hold_repeats_the_notice_and_does_not_count() {
        let mut test = TestNotice::new(ConsentMethod::Key);
        test.begins();
        assert!(test.notice.held() && !test.notice.held());
        assert!(test.notice.begin(test.now), "it is said again");
        let mut test = TestNotice::said(true);
        assert_eq!(test.after(GREETS_AFTER), [NoticeStep::Greet]);
        assert!(!test.notice.held());
        test.now += 60 * SECOND;
        test.notice.resumed(60 * SECOND);
        assert_eq!((test.after(SECOND), test.state()), (Vec::new(), Waiting));
    }

    #[test]
    fn a_notice_that_waits_for_who_answers_is_said_then_or_not_at_all() {
        let settings = RecordingSettings { is_on: true, consent: ConsentMethod::Key, notice: "Press 1.".into() };
        let now = Instant::now();
        for is_person in [true, false] {
            let PhoneRecording { recording, notice } = settings.of_call();
            let mut notice = notice.unwrap();
            notice.wait();
            assert!(!notice.begin(now) && !notice.mutes_line() && !notice.lets_greet() && !notice.takes('1'));
            if is_person {
                notice.answered();
                assert!(notice.mutes_line() && notice.begin(now));
            } else {
                assert!(!notice.unheard(), "nothing is said");
                assert!(!notice.begin(now) && notice.lets_greet() && recording.state() == Refused);
            }
        }
    }

    #[test]
    fn the_settings_say_what_is_recorded_and_who_hears_a_notice() {
        let begin = |is_on: bool, consent: ConsentMethod, notice: &str| {
            let settings = RecordingSettings { is_on, consent, notice: notice.into() };
            let PhoneRecording { recording, notice } = settings.of_call();
            (recording.state(), notice.is_some())
        };
        let none = RecordingState::None;
        assert_eq!(begin(false, ConsentMethod::Key, "Press 1."), (none, false));
        assert_eq!(begin(true, ConsentMethod::None, ""), (Recorded, false));
        assert_eq!(begin(true, ConsentMethod::None, "We record."), (Waiting, true));
        assert_eq!(begin(true, ConsentMethod::Key, "Press 1."), (Waiting, true));
        assert_eq!(begin(true, ConsentMethod::Key, ""), (none, false));
        let target = PhoneRecording::of_target();
        assert!(target.notice.is_none() && target.recording.state() == none);
    }
}
