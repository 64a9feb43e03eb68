//! What hubs ask each other: a question of bytes, a reply of bytes. What they mean is the root's affair; `/api/turns` shows the
//! turns of all hubs so.

use super::{Cluster, HUB_SILENT};
use crate::exchange::Delivery;
use crate::frame::{Frame, Kind};
use crate::subject;
use async_nats::{StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Replies to another hub's question. Must not block. `None`: it cannot be replied to.
pub type Replier = Arc<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// The longest question.
const MAX_QUESTION_BYTES: usize = 4 * 1024;

/// The longest reply: half of what an inbox holds.
pub const MAX_REPLY_BYTES: usize = 256 * 1024;

/// What another hub replied.
#[derive(Clone, Debug)]
pub struct PeerReply {
    /// The hub's name.
    pub hub: String,
    /// Its incarnation.
    pub id: String,
    /// The reply; `None` if there was none in time.
    pub reply: Option<Bytes>,
}

impl Cluster {
    /// From now on `replier` replies to other hubs. The first one counts.
    pub fn reply_with(&self, replier: Replier) {
        let _ = self.0.replier.set(replier);
    }

    /// This hub's name, as others see it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// How many other hubs there are now.
    pub fn n_peers(&self) -> usize {
        self.peers().len()
    }

    /// Asks all other hubs, and waits for their replies, but no longer than `longest`; not at all for those that NATS says are
    /// gone, or while there is no connection. In the order of their names.
    pub async fn ask_peers(&self, question: &[u8], longest: Duration) -> Vec<PeerReply> {
        let due = Instant::now() + longest;
        let asked = self.peers().into_iter().map(|(hub, id)| async move {
            let reply = self.ask_peer(&id, question, due).await;
            PeerReply { hub, id, reply }
        });
        futures_util::future::join_all(asked).await
    }

    /// The other hubs' names and incarnations, by name.
    fn peers(&self) -> Vec<(String, String)> {
        let mut peers: Vec<(String, String)> = Vec::new();
        for hub in &self.0.hubs {
            let (advert, seen) = hub.value();
            if advert.hub != self.0.hub && seen.elapsed() < HUB_SILENT {
                peers.push((advert.name.clone(), advert.hub.clone()));
            }
        }
        peers.sort();
        peers
    }

    async fn ask_peer(&self, hub: &str, question: &[u8], due: Instant) -> Option<Bytes> {
        if !self.0.link.state().is_connected {
            return None;
        }
        let mut inbox = self.0.inboxes.open(rand::random())?;
        let mut frame = Frame::new(Kind::Ask, inbox.attempt());
        frame.payload = Bytes::copy_from_slice(question);
        let reply = Subject::from(subject::reply(&self.0.hub, inbox.attempt()));
        self.0.link.send(&Subject::from(subject::ask(hub)), Some(&reply), frame.encode());
        match timeout_at(due, inbox.next()).await {
            Ok(Some(Delivery::Frame(frame, _))) => Some(frame.payload),
            _ => None,
        }
    }

    pub(super) async fn reply_to_peers(self, mut asked: Subscriber) {
        while let Some(message) = asked.next().await {
            let question = Frame::decode(&message.payload)
                .ok()
                .filter(|frame| frame.kind == Kind::Ask && frame.payload.len() <= MAX_QUESTION_BYTES);
            let to = message.reply.filter(|subject| subject::is_reply(subject));
            let (Some(question), Some(to)) = (question, to) else {
                self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let reply = self.0.replier.get().and_then(|replier| replier(&question.payload));
            if let Some(reply) = reply.filter(|reply| reply.len() <= MAX_REPLY_BYTES) {
                let frame = Frame { payload: reply.into(), ..Frame::new(Kind::Reply, question.attempt) };
                self.0.link.send(&to, None, frame.encode());
            }
        }
    }

    pub(super) async fn receive_replies(self, mut replies: Subscriber) {
        while let Some(message) = replies.next().await {
            let Some(question) = subject::attempt_of(&message.subject) else { continue };
            if message.status == Some(StatusCode::NO_RESPONDERS) {
                self.0.inboxes.deliver(question, Delivery::NoResponders);
                continue;
            }
            match Frame::decode(&message.payload) {
                Ok(frame) if frame.kind == Kind::Reply && frame.attempt == question => {
                    self.0.inboxes.deliver(question, Delivery::Frame(frame, Instant::now()));
                }
                _ => {
                    self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}
