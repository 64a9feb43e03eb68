//! The NATS subjects of the cluster. Each is built here and nowhere else; [`permissions`](crate::permissions) derives from them
//! what a user may publish and subscribe to. Knows no connection.
//!
//! `<worker>` and `<hub>` are incarnations in hex, `<attempt>` is hex. Environments share the subjects: each has a NATS account
//! of its own.
//!
//! | subject | published by | subscribed by |
//! | --- | --- | --- |
//! | `antiphon.v1.advert.worker.<worker>` | the worker | hubs and workers |
//! | `antiphon.v1.advert.hub.<hub>` | the hub | hubs and workers |
//! | `antiphon.v1.open.<worker>` | hubs | the worker |
//! | `antiphon.v1.ask.<hub>` | other hubs | the hub |
//! | `antiphon.v1.reply.<hub>.<question>` | other hubs | the hub that asked |
//! | `antiphon.v1.news.<hub>` | the hub | other hubs, while a dashboard is open there |
//! | `antiphon.v1.in.<worker>.<attempt>` | the hub of the attempt | the worker |
//! | `antiphon.v1.out.<hub>.<attempt>` | the worker of the attempt | the hub |
//!
//! | `antiphon.v1.inbox.<random>.<random>` | JetStream, with replies to a hub's requests | the hub |
//! | `antiphon.v1.job.<job>` | hubs | JetStream: the stream of jobs that wait |
//!
//! `out` is also the reply subject of what a hub publishes on `open` and `in`: NATS answers there that it has no
//! subscriber (503).

/// First token of each subject.
pub const PREFIX: &str = "antiphon";

/// Second token of each subject: the version of the subjects and adverts. Which frames and requests a peer understands, its
/// adverts say; so peers of different versions see each other, and refuse each other by name.
pub const VERSION: &str = "v1";

/// What the subjects begin with where JetStream replies to a hub. Another prefix than NATS' own, so that users need no permission
/// for `_INBOX`.
pub const INBOX: &str = "antiphon.v1.inbox";

/// Where a job is published that waits for a hub to do it.
#[must_use]
pub fn job(id: &str) -> String {
    subject(&["job", id])
}

/// All jobs that wait.
#[must_use]
pub fn any_job() -> String {
    job("*")
}

/// JetStream's replies to a hub.
#[must_use]
pub fn any_inbox() -> String {
    format!("{INBOX}.>")
}

/// Where a worker publishes its adverts.
#[must_use]
pub fn advert_of_worker(worker: &str) -> String {
    subject(&["advert", "worker", worker])
}

/// Where a hub publishes its adverts.
#[must_use]
pub fn advert_of_hub(hub: &str) -> String {
    subject(&["advert", "hub", hub])
}

/// Where hubs open attempts on a worker.
#[must_use]
pub fn open(worker: &str) -> String {
    subject(&["open", worker])
}

/// Where a hub receives what other hubs ask it.
#[must_use]
pub fn ask(hub: &str) -> String {
    subject(&["ask", hub])
}

/// Where a worker receives the frames of one attempt.
#[must_use]
pub fn inbound(worker: &str, attempt: u64) -> String {
    subject(&["in", worker, &format!("{attempt:x}")])
}

/// Where a hub receives the frames of one attempt, and the report that its own had no subscriber.
#[must_use]
pub fn outbound(hub: &str, attempt: u64) -> String {
    subject(&["out", hub, &format!("{attempt:x}")])
}

/// The frames of all attempts on a worker.
#[must_use]
pub fn inbound_of(worker: &str) -> String {
    subject(&["in", worker, "*"])
}

/// The frames of all attempts of a hub.
#[must_use]
pub fn outbound_of(hub: &str) -> String {
    subject(&["out", hub, "*"])
}

/// The adverts of all workers and hubs.
#[must_use]
pub fn any_advert() -> String {
    subject(&["advert", ">"])
}

/// The adverts of all workers.
#[must_use]
pub fn any_advert_of_worker() -> String {
    advert_of_worker(">")
}

/// The adverts of all hubs.
#[must_use]
pub fn any_advert_of_hub() -> String {
    advert_of_hub(">")
}

/// The opens of all workers.
#[must_use]
pub fn any_open() -> String {
    open(">")
}

/// Where a hub receives the replies to one question.
#[must_use]
pub fn reply(hub: &str, question: u64) -> String {
    subject(&["reply", hub, &format!("{question:x}")])
}

/// The replies to all questions of a hub.
#[must_use]
pub fn reply_of(hub: &str) -> String {
    subject(&["reply", hub, "*"])
}

/// The replies to all hubs.
#[must_use]
pub fn any_reply() -> String {
    subject(&["reply", ">"])
}

/// Whether replies to a hub's question go there.
#[must_use]
pub fn is_reply(text: &str) -> bool {
    text.starts_with(&subject(&["reply", ""])) && attempt_of(text).is_some()
}

/// Where a hub publishes its news.
#[must_use]
pub fn news_of(hub: &str) -> String {
    subject(&["news", hub])
}

/// The news of all hubs.
#[must_use]
pub fn any_news() -> String {
    news_of(">")
}

/// The questions to all hubs.
#[must_use]
pub fn any_ask() -> String {
    ask(">")
}

/// The frames to all workers.
#[must_use]
pub fn any_inbound() -> String {
    subject(&["in", ">"])
}

/// The frames to all hubs.
#[must_use]
pub fn any_outbound() -> String {
    subject(&["out", ">"])
}

/// The last token of a subject: an incarnation, or an attempt in hex. `None` where it is empty or a wildcard.
#[must_use]
pub fn last_token(subject: &str) -> Option<&str> {
    let token = subject.rsplit('.').next()?;
    (!matches!(token, "" | "*" | ">")).then_some(token)
}

/// The attempt in the last token of a subject that [`inbound`] or [`outbound`] built, `None` for anything else there.
#[must_use]
pub fn attempt_of(subject: &str) -> Option<u64> {
    let token = last_token(subject)?;
    // `from_str_radix` also accepts a sign and capitals.
    let is_hex = token.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_hex { u64::from_str_radix(token, 16).ok() } else { None }
}

/// Who publishes adverts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A worker.
    Worker,
    /// A hub.
    Hub,
}

/// Who published an advert: the role and the incarnation. `None` for a subject of something else.
#[must_use]
pub fn advert_sender(subject: &str) -> Option<(Sender, &str)> {
    let rest = subject.strip_prefix(PREFIX)?.strip_prefix('.')?.strip_prefix(VERSION)?.strip_prefix(".advert.")?;
    let (sender, id) = match rest.split_once('.')? {
        ("worker", id) => (Sender::Worker, id),
        ("hub", id) => (Sender::Hub, id),
        _ => return None,
    };
    let is_id = (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_id.then_some((sender, id))
}

/// Whether frames for a worker go there. A peer's reply subject is published to only if it is one of these.
#[must_use]
pub fn is_inbound(text: &str) -> bool {
    text.starts_with(&subject(&["in", ""])) && attempt_of(text).is_some()
}

/// Whether frames for a hub go there.
#[must_use]
pub fn is_outbound(text: &str) -> bool {
    text.starts_with(&subject(&["out", ""])) && attempt_of(text).is_some()
}

fn subject(tokens: &[&str]) -> String {
    format!("{PREFIX}.{VERSION}.{}", tokens.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_those_of_version_1() {
        assert_eq!(advert_of_worker("a1"), "antiphon.v1.advert.worker.a1");
        assert_eq!(advert_of_hub("b2"), "antiphon.v1.advert.hub.b2");
        assert_eq!(open("a1"), "antiphon.v1.open.a1");
        assert_eq!((ask("b2").as_str(), any_ask().as_str()), ("antiphon.v1.ask.b2", "antiphon.v1.ask.>"));
        assert_eq!(reply("b2", 17), "antiphon.v1.reply.b2.11");
        assert_eq!((reply_of("b2").as_str(), any_reply().as_str()), ("antiphon.v1.reply.b2.*", "antiphon.v1.reply.>"));
        assert!(is_reply(&reply("b2", 17)) && !is_reply(&outbound("b2", 17)));
        assert_eq!((news_of("b2").as_str(), any_news().as_str()), ("antiphon.v1.news.b2", "antiphon.v1.news.>"));
        assert_eq!(inbound("a1", 255), "antiphon.v1.in.a1.ff");
        assert_eq!(outbound("b2", 16), "antiphon.v1.out.b2.10");
        assert_eq!(inbound_of("a1"), "antiphon.v1.in.a1.*");
        assert_eq!(outbound_of("b2"), "antiphon.v1.out.b2.*");
        assert_eq!(any_advert(), "antiphon.v1.advert.>");
        assert_eq!(any_advert_of_worker(), "antiphon.v1.advert.worker.>");
        assert_eq!(any_advert_of_hub(), "antiphon.v1.advert.hub.>");
        assert_eq!(any_open(), "antiphon.v1.open.>");
        assert_eq!(any_inbound(), "antiphon.v1.in.>");
        assert_eq!(any_outbound(), "antiphon.v1.out.>");
        assert_eq!((job("a").as_str(), any_job().as_str()), ("antiphon.v1.job.a", "antiphon.v1.job.*"));
        assert_eq!(any_inbox(), subject(&["inbox", ">"]));
    }

    #[test]
    fn the_attempt_is_read_back() {
        for attempt in [0, 1, 0xbeef, u64::MAX] {
            assert_eq!(attempt_of(&inbound("a1", attempt)), Some(attempt));
            assert_eq!(attempt_of(&outbound("b2", attempt)), Some(attempt));
        }
    }

    #[test]
    fn what_is_no_attempt_is_refused() {
        for token in ["", "*", ">", "+1f", "-1", "FF", "0x1", "1f ", "10000000000000000", "é"] {
            assert_eq!(attempt_of(&format!("antiphon.v1.in.a1.{token}")), None, "{token:?}");
        }
        assert_eq!(attempt_of(""), None);
    }

    #[test]
    fn the_sender_of_an_advert_is_read_back() {
        assert_eq!(advert_sender(&advert_of_worker("a1")), Some((Sender::Worker, "a1")));
        assert_eq!(advert_sender(&advert_of_hub("b2")), Some((Sender::Hub, "b2")));
        for wrong in [open("a1"), advert_of_worker(""), advert_of_worker("a.b"), advert_of_worker("*"), any_advert()] {
            assert_eq!(advert_sender(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_reply_goes_to_frames_only() {
        assert!(is_inbound(&inbound("a1", 7)) && is_outbound(&outbound("b2", 7)));
        for wrong in [outbound("b2", 7), open("a1"), "antiphon.v1.in.a1.x".into(), "$JS.API".into()] {
            assert!(!is_inbound(&wrong), "{wrong}");
        }
    }

    #[test]
    fn the_last_token_is_the_incarnation_of_an_advert() {
        assert_eq!(last_token(&advert_of_worker("a1")), Some("a1"));
        assert_eq!(last_token(&advert_of_hub("b2")), Some("b2"));
        assert_eq!(last_token("a1"), Some("a1"));
        assert_eq!(last_token(&any_advert()), None);
        assert_eq!(last_token(&inbound_of("a1")), None);
        assert_eq!(last_token("antiphon.v1."), None);
    }
}
