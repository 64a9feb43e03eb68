//! News of the session itself, for clients that asked for this hub's extensions; GA clients never get them.
//!
//! The actor sends them, but for the last, which `server` sends: it answers a connection and is no part of the session's numbered log.

use serde::Serialize;

/// One notice. It has no `Debug`: a key must not reach a log.
#[derive(Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
pub enum SessionNotice {
    /// The session can be taken up again with this key after its connection broke.
    #[serde(rename = "antiphon.session.resumable")]
    Resumable {
        /// For `?resume=`.
        key: String,
        /// How long after the break.
        within_s: u64,
    },
    /// The session is about to end.
    #[serde(rename = "antiphon.session.expiring")]
    Expiring {
        /// Unix time.
        expires_at: u64,
        /// From now.
        in_s: u64,
    },
    /// The answer to `antiphon.clock.ping`.
    #[serde(rename = "antiphon.clock.pong")]
    Pong {
        /// As the ping had it.
        client_ms: f64,
        /// The session's clock.
        hub_ms: f64,
    },
    /// The session goes on, on this connection.
    #[serde(rename = "antiphon.session.resumed")]
    Resumed {
        /// The number of the last event the client said it has; the next one follows.
        after: u64,
        /// How many of the client's messages the hub has got.
        received: u64,
    },
}

/// The notice as it goes out.
pub fn encode_notice(notice: &SessionNotice, event_id: &str) -> String {
    #[derive(Serialize)]
    struct Envelope<'a> {
        event_id: &'a str,
        #[serde(flatten)]
        notice: &'a SessionNotice,
    }
    serde_json::to_string(&Envelope { event_id, notice }).expect("notices have string keys and no failing parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_stand_as_documented() {
        let check = |notice, expect: &str| assert_eq!(encode_notice(&notice, "event_1"), expect);
        check(
            SessionNotice::Resumable { key: "rk_1".into(), within_s: 30 },
            r#"{"event_id":"event_1","type":"antiphon.session.resumable","key":"rk_1","within_s":30}"#,
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
            SessionNotice::Resumed { after: 7, received: 3 },
            r#"{"event_id":"event_1","type":"antiphon.session.resumed","after":7,"received":3}"#,
        );
    }
}
