//! What calls out have in common, by SIP and by accounts: what a client asks for, whom the settings allow to be called, when
//! and how often, the line until the answer, and the entry of a call in the list.
//!
//! [`super::sip`] and [`super::accounts`] ask [`DialRights`] before they dial. Nothing here dials.

use super::answerer::AnswerPlan;
use super::call_reports::CallReports;
use crate::config::{MAX_VOICEMAIL_MESSAGE_BYTES, OnVoicemail, QuietHours, SipConfig, TransferTargets};
use crate::server::access::AccessParts;
use crate::server::access::caller::Caller;
use crate::server::transport::call::Call;
use crate::server::transport::calls::{CallEntry, CallState};
use crate::server::transport::transfers::DialError;
use antiphon_protocol::ServerEvent;
use antiphon_session::{InboundPayload, OutputEvent};
use antiphon_sip::is_transfer_target;
use antiphon_types::KeyId;
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// The pattern of the route, for the log.
pub(super) const ROUTE: &str = "/v1/realtime/calls";
/// The longest wait for an answer: a voicemail answers after some 25 s, most exchanges give up after 60.
pub(super) const RINGS: Duration = Duration::from_secs(60);
/// The longest greeting: some two minutes of speech.
const MAX_GREETING_BYTES: usize = 2_000;
const MINUTE: Duration = Duration::from_secs(60);

/// What a client asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::server::transport) struct DialRequest {
    /// The number or address: `tel:` or `sip:`.
    pub(in crate::server::transport) to: String,
    /// Shown as the caller; that of the trunk or the account where it is missing.
    pub(in crate::server::transport) from: Option<String>,
    /// A trunk by its name; the first that has a host where it and the account are missing.
    pub(in crate::server::transport) trunk: Option<String>,
    /// An account by its name; the first one where there is no trunk with a host either.
    pub(in crate::server::transport) account: Option<String>,
    /// Said once somebody answers.
    pub(in crate::server::transport) greeting: Option<String>,
    /// What the call does when an answering machine answers; `sip.on_voicemail` where it is missing.
    pub(in crate::server::transport) on_voicemail: Option<OnVoicemail>,
    /// Instructions of the message that is left; `sip.voicemail_message` where they are missing.
    pub(in crate::server::transport) voicemail_message: Option<String>,
}

impl DialRequest {
    /// Whether it can be dialed as far as its fields say.
    ///
    /// # Errors
    /// [`DialError::Wrong`].
    pub(super) fn check(&self) -> Result<(), DialError> {
        if !is_transfer_target(&self.to) || !has_number(&self.to) {
            return Err(no_target());
        }
        if self.greeting.as_ref().is_some_and(|greeting| greeting.len() > MAX_GREETING_BYTES) {
            return Err(DialError::Wrong("greeting", format!("It has at most {MAX_GREETING_BYTES} bytes.")));
        }
        if self.voicemail_message.as_ref().is_some_and(|message| message.len() > MAX_VOICEMAIL_MESSAGE_BYTES) {
            let most = format!("It has at most {MAX_VOICEMAIL_MESSAGE_BYTES} bytes.");
            return Err(DialError::Wrong("voicemail_message", most));
        }
        Ok(())
    }
}

pub(super) fn no_target() -> DialError {
    DialError::Wrong("to", "It is a URI such as \"tel:+15550123\" or \"sip:office@pbx.example.com\".".into())
}

/// Whether what follows `tel:` is a number; true for other schemes.
pub(super) fn has_number(to: &str) -> bool {
    let is_tel = to.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("tel:"));
    let number = to.get(4..).and_then(|rest| rest.split(';').next()).unwrap_or_default();
    let is_of_number = |c: char| c.is_ascii_digit() || "+-.()*#".contains(c);
    !is_tel || number.contains(|c: char| c.is_ascii_digit()) && number.chars().all(is_of_number)
}

/// Whether this caller may call by a trunk or an account that is for the API key of this name; empty: for any.
///
/// # Errors
/// [`DialError::NoRight`].
pub(super) fn check_key(access: &AccessParts, caller: &Caller, key: &str) -> Result<(), DialError> {
    let owner = caller.owner;
    let is_its_key = key.is_empty() || access.keys.name_of(owner).as_deref() == Some(key);
    // Settings that the caller is bound to are those of a client secret.
    if caller.settings.is_some() || !is_its_key && !access.keys.is_admin(owner) {
        return Err(DialError::NoRight);
    }
    Ok(())
}

/// Who may be called, when, and how often.
pub(in crate::server) struct DialRights {
    allowed: TransferTargets,
    /// `None`: at any time.
    quiet_hours: Option<QuietHours>,
    /// Of one key; 0: no limit.
    max_per_minute: usize,
    recent: RecentCalls,
    /// Calls at a time.
    places: Arc<Semaphore>,
}

impl DialRights {
    pub(in crate::server) fn of(config: &SipConfig) -> Self {
        Self {
            allowed: config.call_targets(),
            quiet_hours: QuietHours::parse(&config.quiet_hours),
            max_per_minute: config.max_calls_out_per_minute as usize,
            recent: RecentCalls::default(),
            places: Arc::new(Semaphore::new(config.max_calls_out)),
        }
    }

    /// Whether the settings allow the target.
    ///
    /// # Errors
    /// [`DialError::NotAllowed`].
    pub(super) fn allow(&self, to: &str) -> Result<(), DialError> {
        if self.allowed.allow(to) { Ok(()) } else { Err(DialError::NotAllowed) }
    }

    /// Whether calls are made at this time of the day.
    ///
    /// # Errors
    /// [`DialError::QuietHours`].
    pub(super) fn check_time(&self) -> Result<(), DialError> {
        let time = jiff::Zoned::now();
        let minute = 60 * time.hour() as u16 + time.minute() as u16;
        if self.quiet_hours.is_some_and(|hours| hours.contain(minute)) {
            return Err(DialError::QuietHours);
        }
        Ok(())
    }

    /// Takes the place of a call of this key among the calls at a time, and counts the call where there is one.
    ///
    /// # Errors
    /// [`DialError::TooMany`], [`DialError::TooManyPerMinute`].
    pub(super) fn take(&self, owner: Option<KeyId>) -> Result<OwnedSemaphorePermit, DialError> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| DialError::TooMany)?;
        self.recent.count(owner, self.max_per_minute).map_err(DialError::TooManyPerMinute)?;
        Ok(place)
    }
}

/// When each key's calls of the last minute were made.
#[derive(Default)]
struct RecentCalls(Mutex<HashMap<Option<KeyId>, VecDeque<Instant>>>);

impl RecentCalls {
    /// Counts a call of this key, of which it may make `most` in a minute; 0: any number.
    ///
    /// # Errors
    /// The time until it may make one.
    fn count(&self, owner: Option<KeyId>, most: usize) -> Result<(), Duration> {
        if most == 0 {
            return Ok(());
        }
        let now = Instant::now();
        let mut recent = self.0.lock().expect("no panic while locked");
        // Keys without a recent call are forgotten.
        recent.retain(|_, calls| {
            while calls.front().is_some_and(|at| now.duration_since(*at) >= MINUTE) {
                calls.pop_front();
            }
            !calls.is_empty()
        });
        let calls = recent.entry(owner).or_default();
        if let Some(first) = calls.front().filter(|_| calls.len() >= most) {
            return Err(MINUTE.saturating_sub(now.duration_since(*first)));
        }
        calls.push_back(now);
        Ok(())
    }
}

/// Puts the line of a call that begins on hold: nobody hears its session until the call is answered.
/// [`super::conversation`] ends that.
pub(super) async fn hold_line(call: &Call) {
    // The output of a session that takes nothing says so.
    let _ = call.send_event(InboundPayload::LineHeld(true)).await;
}

/// A call of ours in the list. Its end is reported, also where its task ends early.
pub(super) struct OutgoingEntry {
    entry: CallEntry,
    reports: CallReports,
    is_over: bool,
    /// Responses of the conversation that wait for the answer.
    n_responses: u32,
}

impl OutgoingEntry {
    /// The entry of a call that begins.
    pub(super) fn new(entry: CallEntry, reports: CallReports) -> Self {
        entry.set_state(CallState::Calling);
        Self { entry, reports, is_over: false, n_responses: 0 }
    }

    /// Gives an event of the session to the clients that have joined, before the answer.
    pub(super) fn publish_unanswered(&mut self, event: &OutputEvent) {
        match &event.event {
            ServerEvent::ResponseCreated { response } if response.conversation_id.is_some() => self.n_responses += 1,
            ServerEvent::ResponseDone { response } if response.conversation_id.is_some() => {
                self.n_responses = self.n_responses.saturating_sub(1);
            }
            _ => {}
        }
        if !event.event.is_extension() {
            self.entry.publish(event);
        }
    }

    /// Lists and reports how far the call is.
    pub(super) fn is_now(&mut self, state: CallState) {
        self.is_over = !matches!(state, CallState::Calling | CallState::Ringing | CallState::InProgress);
        self.entry.set_state(state);
        self.reports.report(self.entry.id(), "out", state);
    }

    /// What the call does about who has answered. `message`: instructions of the message that is left.
    pub(super) fn plan(&self, on_voicemail: OnVoicemail, message: String) -> AnswerPlan {
        let id = self.entry.id().to_owned();
        let reports = self.reports.clone();
        let report = Box::new(move |answered_by| reports.report_answer(&id, answered_by));
        AnswerPlan { n_responses: self.n_responses, on_voicemail, message, report, handed_over: None }
    }
}

impl Deref for OutgoingEntry {
    type Target = CallEntry;

    fn deref(&self) -> &CallEntry {
        &self.entry
    }
}

impl Drop for OutgoingEntry {
    fn drop(&mut self) {
        if !self.is_over {
            self.is_now(CallState::Ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn each_key_has_its_own_minute() {
        let recent = RecentCalls::default();
        let [one, other] = [Some(KeyId::new([1; 16])), None];
        for _ in 0..2 {
            assert_eq!(recent.count(one, 2), Ok(()));
            sleep(Duration::from_secs(20)).await;
        }
        assert_eq!(recent.count(one, 2), Err(Duration::from_secs(20)));
        assert_eq!((recent.count(other, 2), recent.count(one, 0)), (Ok(()), Ok(())));
        sleep(Duration::from_secs(20)).await;
        assert_eq!(recent.count(one, 2), Ok(()), "the first one is a minute ago");
        assert_eq!(recent.count(one, 2), Err(Duration::from_secs(20)));
        sleep(MINUTE).await;
        assert_eq!(recent.count(other, 2), Ok(()));
        assert_eq!(recent.0.lock().unwrap().len(), 1, "who has not called is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_a_place_is_not_counted() {
        let config = SipConfig { max_calls_out: 1, max_calls_out_per_minute: 2, ..SipConfig::default() };
        let rights = DialRights::of(&config);
        let first = rights.take(None).expect("a place");
        for _ in 0..3 {
            assert!(matches!(rights.take(None), Err(DialError::TooMany)));
        }
        drop(first);
        drop(rights.take(None).expect("the second call of the minute"));
        assert!(matches!(rights.take(None), Err(DialError::TooManyPerMinute(_))));
        assert_eq!(rights.places.available_permits(), 1);
    }

    #[test]
    fn a_telephone_number_has_digits_and_separators_only() {
        let is_number = ["tel:+49(30)12-3", "tel:*31#", "sip:a@b"].map(has_number);
        assert_eq!(
            (is_number, has_number("tel:+49@example.com"), has_number("tel:+")),
            ([true, true, true], false, false)
        );
    }
}
