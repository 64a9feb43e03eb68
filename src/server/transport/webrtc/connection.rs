//! The connection of a call to its peer, and the offers that change it: what signaling hands to the call's task.
//!
//! [`super::signaling`] makes both, [`super::peer`] takes them. Nothing runs here.

use super::endpoint::Route;
use std::collections::BTreeSet;
use str0m::Rtc;
use tokio::sync::oneshot;

/// A connection whose offer was answered.
pub(in crate::server::transport) struct Connection {
    pub(super) rtc: Rtc,
    pub(super) route: Route,
    /// What a data channel message to the peer may hold; `None`: the offer has no data channel.
    pub(super) max_message_bytes: Option<usize>,
    pub(super) kept: PinnedMedia,
}

/// A further offer of a call's peer.
pub(in crate::server::transport) enum NewOffer {
    /// On the connection that there is. The answer, or what is wrong with the offer.
    Same { sdp: String, answer: oneshot::Sender<Result<String, String>> },
    /// A new connection, which was answered, takes the place of the call's own.
    Other { connection: Box<Connection>, taken: oneshot::Sender<()> },
}

/// What a further offer on the same connection leaves as it is.
#[derive(Debug, PartialEq)]
pub(super) struct PinnedMedia {
    /// Kind and name of each media line; there may be more in a further offer.
    pub(super) media: Vec<(String, String)>,
    /// Of the certificate.
    pub(super) fingerprints: BTreeSet<String>,
}

impl PinnedMedia {
    /// Of an offer.
    pub(super) fn of(sdp: &str) -> Self {
        let value = |line: &str, name: &str| Some(line.strip_prefix(name)?.trim().to_owned());
        let fingerprints = sdp.lines().filter_map(|line| value(line, "a=fingerprint:")).collect();
        let mut media: Vec<(String, String)> = Vec::new();
        for line in sdp.lines() {
            if let Some(line) = line.strip_prefix("m=") {
                media.push((line.split(' ').next().unwrap_or_default().to_owned(), String::new()));
            } else if let (Some(name), Some((_, last))) = (value(line, "a=mid:"), media.last_mut()) {
                *last = name;
            }
        }
        Self { media, fingerprints }
    }
}
