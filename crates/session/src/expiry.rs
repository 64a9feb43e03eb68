//! The session's lifetime and connection state, and the notices about them.

use super::actor::Actor;
use super::egress::Close;
use antiphon_dialog::Event;
use antiphon_protocol::{Conversation, ServerEvent, SessionKind, SessionNotice, WireError};
use std::time::Duration;
use tokio::time::Instant;

/// How long before the end the notice is sent; for a short lifetime, half of it.
const NOTICE: Duration = Duration::from_secs(60);

/// A session's end by the clock.
pub(super) struct SessionExpiry {
    expires: Instant,
    notice: Option<Instant>,
    whole: Duration,
}

impl SessionExpiry {
    /// Begins now. `is_told`: the client supports extensions and gets a notice before the end.
    pub(super) fn new(now: Instant, whole: Duration, is_told: bool) -> Self {
        let expires = now + whole;
        Self { expires, notice: is_told.then(|| expires - NOTICE.min(whole / 2)), whole }
    }

    /// Of a session that ends in `left`, `whole` after its beginning on another hub.
    pub(super) fn resumed(now: Instant, left: Duration, whole: Duration, is_told: bool) -> Self {
        let expires = now + left;
        let notice = (is_told && left > NOTICE).then(|| expires - NOTICE);
        Self { expires, notice, whole }
    }

    /// When something is due.
    pub(super) fn next_due(&self) -> Instant {
        self.notice.unwrap_or(self.expires)
    }
}

impl Actor {
    /// Says what begins: the session, and for a client that asked, how it comes back to it.
    pub(super) fn greet(&mut self, resume_key: Option<String>) {
        self.send(None, ServerEvent::SessionCreated { session: Box::new(self.session.clone()) });
        if self.dialect.beta && self.session.kind == SessionKind::Realtime {
            let conversation = Conversation::new(self.projector.conversation_id.clone());
            self.send(None, ServerEvent::ConversationCreated { conversation });
        }
        if let Some(key) = resume_key {
            let within_s = u64::from(self.setup.session.resume_seconds);
            self.tell(SessionNotice::Resumable { key, within_s });
        }
    }

    /// Reports to the reducer when the client disconnects and when it is back.
    pub(super) fn look_for_the_client(&mut self) {
        let is_there = self.egress.is_attached();
        if std::mem::replace(&mut self.is_there, is_there) != is_there {
            if !is_there {
                self.timeline.client_left();
            }
            self.step(if is_there { Event::Reconnected } else { Event::Disconnected });
        }
    }

    /// Gives the notice when it is due; at the end the error the protocol has for it, and the close. Says whether it is over.
    pub(super) fn has_expired(&mut self, now: Instant) -> bool {
        if self.life.notice.is_some_and(|notice| now >= notice) {
            self.life.notice = None;
            let in_s = (self.life.expires - now).as_secs_f64().round() as u64;
            self.tell(SessionNotice::Expiring { expires_at: self.session.expires_at, in_s });
        }
        if now < self.life.expires {
            return false;
        }
        let minutes = self.life.whole.as_secs() / 60;
        let message = format!("Your session hit the maximum duration of {minutes} minutes.");
        self.send(None, ServerEvent::Error { error: WireError::invalid("session_expired", message, None) });
        self.egress.close(Close { code: 1001, reason: "the session's time is up" });
        true
    }

    pub(super) fn tell(&mut self, notice: SessionNotice) {
        self.send(None, ServerEvent::Session(notice));
    }
}
