//! The session timer of a call (RFC 4028): when the session ends, and the requests of ours that refresh it.
//!
//! [`super`] calls it when the timer is due and when a refresh is answered. A refresh is an UPDATE, or, for a peer
//! without it, an INVITE that repeats our description.

use super::outgoing::within_transaction;
use super::{ClientRequest, Phase, session_expires};
use crate::endpoint::{ALLOW, CallId, Endpoint, Event, MIN_SESSION, TRANSACTION};
use crate::message::{Message, Method};
use bytes::Bytes;
use std::time::{Duration, Instant};

/// A refresh that is refused is tried again after this part of the interval. The first one is sent after half of it:
/// eight are tried before the session ends.
const RETRY_PART: u32 = 16;

/// See the module.
#[derive(Clone, Copy, Default)]
pub(super) struct SessionTimer {
    /// `None`: the session does not end by itself.
    interval: Option<Duration>,
    /// The shortest interval that the peer takes, if it has refused a shorter one.
    minimum: Option<Duration>,
    pub(super) we_refresh: bool,
    /// When we refresh, or when the call has expired.
    pub(super) at: Option<Instant>,
}

impl SessionTimer {
    /// The timer of a session that begins, or was refreshed by the peer.
    pub(super) fn begin(now: Instant, interval: Duration, we_refresh: bool) -> Self {
        let mut timer = Self { interval: Some(interval), minimum: None, we_refresh, at: None };
        timer.restart(now);
        timer
    }

    fn restart(&mut self, now: Instant) {
        self.at = self.interval.map(|interval| match self.we_refresh {
            true => now + interval / 2,
            // Section 10: the BYE goes out a little before.
            false => now + interval - (interval / 3).min(TRANSACTION),
        });
    }

    /// A refresh was refused, or could not be sent.
    fn retry(&mut self, now: Instant) {
        self.at = self.interval.map(|interval| now + interval / RETRY_PART);
    }
}

/// What answers the final response to an INVITE inside the dialog, which comes again where it was lost.
pub(super) struct InviteAcknowledgement {
    /// Of the INVITE.
    pub(super) branch: String,
    bytes: Bytes,
}

/// The shortest interval that a 422 asks for.
fn min_se(message: &Message) -> Option<Duration> {
    let seconds = message.get("min-se")?.split(';').next()?.trim().parse::<u32>().ok()?;
    Some(Duration::from_secs(u64::from(seconds)))
}

impl Endpoint {
    /// Refreshes the session.
    pub(super) fn refresh(&mut self, now: Instant, call: CallId) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let Some(interval) = entry.session.interval else { return };
        // Should the answer not come, the request's own failure ends the call.
        entry.session.at = None;
        let has_update = entry.dialog.has_update;
        let is_changing = entry.is_changing();
        let description = entry.description.clone();
        let expires = format!("{};refresher=uac", interval.as_secs());
        let minimum = entry.session.minimum.map(|minimum| minimum.as_secs().to_string());
        let mut headers = vec![("supported", "timer"), ("session-expires", expires.as_str())];
        headers.extend(minimum.as_deref().map(|seconds| ("min-se", seconds)));
        let is_sent = if has_update {
            self.request_of_call(now, call, Method::Update, &headers, Bytes::new())
        } else {
            headers.extend([("allow", ALLOW), ("content-type", "application/sdp")]);
            !is_changing && self.request_of_call(now, call, Method::Invite, &headers, description)
        };
        if is_sent {
            return;
        }
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.session.retry(now);
        }
        self.reschedule(call);
    }

    /// The peer has accepted a refresh, by INVITE with a description.
    pub(super) fn session_refreshed(&mut self, now: Instant, call: CallId, method: &Method, message: &Message) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let session = &mut entry.session;
        // A request of the peer may have switched the session timer off meanwhile: it then stays off.
        if session.interval.is_some() {
            if let Some((interval, refresher)) = session_expires(message) {
                session.interval = Some(interval.max(MIN_SESSION));
                // RFC 4028, section 7.2.
                session.we_refresh = refresher.as_deref() != Some("uas");
            }
            session.restart(now);
        }
        let has_answer = *method == Method::Invite && !message.body.is_empty();
        if has_answer && entry.phase == Phase::Connected {
            self.event(Event::OfferAnswered { call, answer: message.body.clone() });
        }
    }

    /// The peer has refused a refresh, and the session goes on: it is tried again after a while, or, with the interval
    /// that a 422 asks for, at once.
    pub(super) fn refresh_refused(&mut self, now: Instant, call: CallId, status: u16, message: &Message) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        // UPDATE is not understood, whatever `Allow` said.
        if matches!(status, 405 | 501) {
            entry.dialog.has_update = false;
        }
        let session = &mut entry.session;
        let minimum = min_se(message).filter(|minimum| status == 422 && session.interval < Some(*minimum));
        if minimum.is_some() && session.interval.is_some() {
            session.minimum = minimum;
            session.interval = minimum;
            session.at = Some(now);
        } else {
            session.retry(now);
        }
    }

    /// Acknowledges the final response to an INVITE inside the dialog.
    pub(super) fn acknowledge_refresh(
        &mut self,
        call: CallId,
        request: &ClientRequest,
        status: u16,
        message: &Message,
    ) {
        let Some(entry) = self.calls.get_mut(&call) else { return };
        let peer = entry.peer;
        let invite = &request.request;
        let ack = if status < 300 {
            if let Some(contact) = message.contact() {
                entry.dialog.target = contact.uri;
            }
            self.acknowledgement(call, invite)
        } else {
            refusal_acknowledgement(invite, message)
        };
        let Some(ack) = ack else { return };
        let bytes = ack.write();
        let acknowledgement = InviteAcknowledgement { branch: request.branch.clone(), bytes: bytes.clone() };
        let entry = self.calls.get_mut(&call);
        if let Some(before) = entry.and_then(|entry| entry.acknowledgement.replace(acknowledgement)) {
            self.by_branch.remove(&before.branch);
        }
        self.send(peer, bytes);
    }

    /// The final response to an INVITE with this branch has come again.
    pub(super) fn acknowledge_again(&mut self, call: CallId, branch: &str) {
        let Some(entry) = self.calls.get(&call) else { return };
        let peer = entry.peer;
        let known = entry.acknowledgement.as_ref().filter(|acknowledgement| acknowledgement.branch == branch);
        if let Some(bytes) = known.map(|acknowledgement| acknowledgement.bytes.clone()) {
            self.send(peer, bytes);
        }
    }
}

/// What acknowledges a refusal of an INVITE: within its transaction.
fn refusal_acknowledgement(invite: &Message, refusal: &Message) -> Option<Message> {
    let mut ack = within_transaction(invite, Method::Ack, invite.get("via")?)?;
    ack.set("to", refusal.get("to")?.to_owned());
    Some(ack)
}
