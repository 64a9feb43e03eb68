//! Events about the session itself, sent only to clients that enabled the hub's extensions; GA clients never receive
//! them.
//!
//! The session actor sends them ([`super::ServerEvent::Session`]), except for the last one, which `server` sends: it is a
//! reply to a connection and not part of the session's numbered event log.

use antiphon_types::ItemId;
use serde::Serialize;
use std::fmt;

/// A session notice. Its `Debug` shows nothing, so that a key cannot reach a log.
#[derive(Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum SessionNotice {
    /// After its connection broke, the session can be resumed with this key.
    #[serde(rename = "antiphon.session.resumable")]
    Resumable {
        /// Value for `?resume=`.
        key: String,
        /// Time after the break within which the session can be resumed, in seconds.
        within_s: u64,
    },
    /// The session is stored as it is with this message; after the loss of its hub the client goes back to it.
    #[serde(rename = "antiphon.session.checkpoint")]
    Checkpoint {
        /// Number of client messages that the stored session includes.
        received: u64,
    },
    /// The session is about to expire.
    #[serde(rename = "antiphon.session.expiring")]
    Expiring {
        /// Time of expiry, in seconds of Unix time.
        expires_at: u64,
        /// Time until expiry, in seconds.
        in_s: u64,
    },
    /// The reply to `antiphon.clock.ping`.
    #[serde(rename = "antiphon.clock.pong")]
    Pong {
        /// The client's clock as sent in the ping, in milliseconds.
        client_ms: f64,
        /// The session's clock, in milliseconds.
        hub_ms: f64,
    },
    /// An item's speech was stopped, and the conversation continues with these words of it.
    #[serde(rename = "antiphon.item.heard")]
    Heard {
        /// The spoken item.
        item_id: ItemId,
        /// The words that were heard, from the beginning of the item's transcript.
        transcript: String,
    },
    /// The session was resumed on this connection.
    #[serde(rename = "antiphon.session.resumed")]
    Resumed {
        /// Number of the message after which the session continues. The client named this number, or a larger one: then
        /// it is the number of a checkpoint, and what the client received after it is void.
        after: u64,
        /// Number of client messages that the session includes.
        received: u64,
    },
}

impl fmt::Debug for SessionNotice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionNotice").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServerEvent, encode};

    #[test]
    fn a_notice_shows_no_key() {
        let notice = SessionNotice::Resumable { key: "rk_1".into(), within_s: 30 };
        assert_eq!(format!("{:?}", ServerEvent::Session(notice)), "Session(SessionNotice { .. })");
    }

    #[test]
    fn notices_stand_as_documented() {
        let check = |notice, expect: &str| assert_eq!(encode(&ServerEvent::Session(notice), "event_1"), expect);
        check(
            SessionNotice::Resumable { key: "rk_1".into(), within_s: 30 },
            r#"{"event_id":"event_1","type":"antiphon.session.resumable","key":"rk_1","within_s":30}"#,
        );
        check(
            SessionNotice::Checkpoint { received: 412 },
            r#"{"event_id":"event_1","type":"antiphon.session.checkpoint","received":412}"#,
        );
        check(
            SessionNotice::Expiring { expires_at: 1_790_000_000, in_s: 60 },
            r#"{"event_id":"event_1","type":"antiphon.session.expiring","expires_at":1790000000,"in_s":60}"#,
        );
        check(
            SessionNotice::Pong { client_ms: 5.5, hub_ms: 2.25 },
            r#"{"event_id":"event_1","type":"antiphon.clock.pong","client_ms":5.5,"hub_ms":2.25}"#,
        );
        check(
            SessionNotice::Heard { item_id: "item_1".into(), transcript: "It is".into() },
            r#"{"event_id":"event_1","type":"antiphon.item.heard","item_id":"item_1","transcript":"It is"}"#,
        );
        check(
            SessionNotice::Resumed { after: 7, received: 3 },
            r#"{"event_id":"event_1","type":"antiphon.session.resumed","after":7,"received":3}"#,
        );
    }
}
