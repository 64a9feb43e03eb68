//! Questions of one hub to another, and their replies: bytes that this module does not read. The root's server defines them, for
//! `/api/turns`, which lists the turns of all hubs, and for the handover of sessions.

use super::{Cluster, HUB_SILENT};
use crate::exchange::Delivery;
use crate::frame::{Frame, Kind};
use crate::subject;
use async_nats::{StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Replies to another hub's question. Must not block; a reply may take a while. `None`: it cannot be replied to.
pub type Replier = Arc<dyn Fn(&[u8]) -> BoxFuture<'static, Option<Vec<u8>>> + Send + Sync>;

/// Replies that are being made. Further questions wait in the subscription.
const MAX_REPLYING: usize = 1_024;

/// The longest question.
const MAX_QUESTION_BYTES: usize = 4 * 1024;

/// The longest reply: half of what an inbox holds.
pub const MAX_REPLY_BYTES: usize = 256 * 1024;

/// What came of a question to one hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerAnswer {
    /// Its reply.
    Reply(Bytes),
    /// NATS says that there is no such hub.
    Gone,
    /// There was no reply in time, or there is no connection.
    Silent,
}

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
            let reply = match self.ask_until(&id, question, due).await {
                PeerAnswer::Reply(reply) => Some(reply),
                PeerAnswer::Gone | PeerAnswer::Silent => None,
            };
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

    /// Asks one hub, by its incarnation, and waits for its reply, but no longer than `longest`.
    pub async fn ask_hub(&self, hub: &str, question: &[u8], longest: Duration) -> PeerAnswer {
        self.ask_until(hub, question, Instant::now() + longest).await
    }

    async fn ask_until(&self, hub: &str, question: &[u8], due: Instant) -> PeerAnswer {
        if !self.0.link.state().is_connected {
            return PeerAnswer::Silent;
        }
        let Some(mut inbox) = self.0.inboxes.open(rand::random()) else { return PeerAnswer::Silent };
        let mut frame = Frame::new(Kind::Ask, inbox.attempt());
        frame.payload = Bytes::copy_from_slice(question);
        let reply = Subject::from(subject::reply(&self.0.hub, inbox.attempt()));
        self.0.link.send(&Subject::from(subject::ask(hub)), Some(&reply), frame.encode());
        match timeout_at(due, inbox.next()).await {
            Ok(Some(Delivery::Frame(frame, _))) => PeerAnswer::Reply(frame.payload),
            Ok(Some(Delivery::NoResponders)) => PeerAnswer::Gone,
            _ => PeerAnswer::Silent,
        }
    }

    pub(super) async fn reply_to_peers(self, mut asked: Subscriber) {
        let mut replying = FuturesUnordered::new();
        loop {
            let message = tokio::select! {
                message = asked.next(), if replying.len() < MAX_REPLYING => match message {
                    Some(message) => message,
                    None => return,
                },
                Some((to, attempt, reply)) = replying.next() => {
                    self.reply(&to, attempt, reply);
                    continue;
                }
            };
            let question = Frame::decode(&message.payload)
                .ok()
                .filter(|frame| frame.kind == Kind::Ask && frame.payload.len() <= MAX_QUESTION_BYTES);
            let to = message.reply.filter(|subject| subject::is_reply(subject));
            let (Some(question), Some(to)) = (question, to) else {
                self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let Some(replier) = self.0.replier.get() else { continue };
            let reply = replier(&question.payload);
            replying.push(async move { (to, question.attempt, reply.await) });
        }
    }

    fn reply(&self, to: &Subject, attempt: u64, reply: Option<Vec<u8>>) {
        if let Some(reply) = reply.filter(|reply| reply.len() <= MAX_REPLY_BYTES) {
            let frame = Frame { payload: reply.into(), ..Frame::new(Kind::Reply, attempt) };
            self.0.link.send(to, None, frame.encode());
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
