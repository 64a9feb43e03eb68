//! News that hubs publish to each other while a dashboard is open: bytes that this module does not read. The root's server defines
//! them, for the dashboard, which shows the turns of all hubs.
//!
//! A hub's advert says whether a page watches there, and the others publish only then. News are not sent again: a
//! receiver that lost some learns how many.

use super::{Cluster, HUB_SILENT, Inner, MAX_HUBS};
use crate::frame::{Frame, Kind};
use crate::subject;
use async_nats::{Message, Subject};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

/// The longest news.
pub const MAX_NEWS_BYTES: usize = 64 * 1024;

/// News that wait for one watcher: 16 MiB at most, which all watchers share.
const WAITING: usize = 256;

/// The longest wait until the others know that a page watches. It is exceeded only after the hub has left.
const WATCH_DEADLINE: Duration = Duration::from_secs(1);

/// What arrives from the other hubs.
#[derive(Clone, Debug)]
pub enum PeerNews {
    /// A hub's news.
    Update(Bytes),
    /// This many news were lost; 0: it is not known how many, because there was no connection.
    Missed(u64),
}

/// The others publish while this is held.
pub struct WatchGuard(Arc<Inner>);

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.0.news.watchers.send_modify(|n| *n -= 1);
    }
}

/// A hub's own news, and those of others.
pub(super) struct News {
    /// The hub's incarnation.
    number: u64,
    subject: Subject,
    watchers: watch::Sender<usize>,
    /// What adverts say; they have said it once `is_watching` is true.
    is_wanted: AtomicBool,
    is_watching: watch::Sender<bool>,
    is_watched: AtomicBool,
    received: broadcast::Sender<PeerNews>,
    n_published: AtomicU32,
    n_too_long: AtomicU64,
}

impl News {
    pub(super) fn of(hub: &str) -> Self {
        Self {
            number: u64::from_str_radix(hub, 16).unwrap_or_default(),
            subject: subject::news_of(hub).into(),
            watchers: watch::Sender::new(0),
            is_wanted: AtomicBool::new(false),
            is_watching: watch::Sender::new(false),
            is_watched: AtomicBool::new(false),
            received: broadcast::Sender::new(WAITING),
            n_published: AtomicU32::new(0),
            n_too_long: AtomicU64::new(0),
        }
    }

    /// Whether others should publish.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn n_too_long(&self) -> u64 {
        self.n_too_long.load(Ordering::Relaxed)
    }

    /// Ends watching, unless another watcher has started meanwhile. A watcher that starts afterwards subscribes again.
    fn stop_watching(&self) -> bool {
        let mut is_over = false;
        self.watchers.send_if_modified(|n| {
            is_over = *n == 0;
            if is_over {
                self.is_wanted.store(false, Ordering::Relaxed);
                self.is_watching.send_replace(false);
            }
            false
        });
        is_over
    }
}

impl Cluster {
    /// Whether a page watches at another hub: news are worth making.
    pub fn is_watched(&self) -> bool {
        self.0.news.is_watched.load(Ordering::Relaxed)
    }

    /// Publishes to the other hubs, if a page watches there. News that are longer than [`MAX_NEWS_BYTES`] are dropped
    /// and counted. Does not wait.
    pub fn publish_news(&self, news: Bytes) {
        let own = &self.0.news;
        if !self.is_watched() {
            return;
        }
        if news.len() > MAX_NEWS_BYTES {
            own.n_too_long.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let sequence = own.n_published.fetch_add(1, Ordering::Relaxed);
        let frame = Frame { sequence, payload: news, ..Frame::new(Kind::News, own.number) };
        self.0.link.send(&own.subject, None, frame.encode());
    }

    /// Counts `n` news that could not be published; watchers learn the number with the next news.
    pub fn skip_news(&self, n: u64) {
        if self.is_watched() {
            self.0.news.n_published.fetch_add(u32::try_from(n).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// News of the other hubs from now on, as long as a page is [watching](Cluster::watch). A receiver that is behind
    /// learns how many it missed.
    pub fn news(&self) -> broadcast::Receiver<PeerNews> {
        self.0.news.received.subscribe()
    }

    /// Lets the other hubs publish until the result is dropped. What this hub asks them afterwards reaches them after that.
    pub async fn watch(&self) -> WatchGuard {
        let news = &self.0.news;
        news.watchers.send_modify(|n| *n += 1);
        let watching = WatchGuard(self.0.clone());
        let _ = timeout(WATCH_DEADLINE, news.is_watching.subscribe().wait_for(|is_watching| *is_watching)).await;
        watching
    }

    /// Finds out whether a page watches at another hub.
    pub(super) fn note_watching_hubs(&self) {
        let is_watched = self.0.hubs.iter().any(|hub| {
            let (advert, seen) = hub.value();
            advert.is_watching && advert.hub != self.0.hub && seen.elapsed() < HUB_SILENT
        });
        self.0.news.is_watched.store(is_watched, Ordering::Relaxed);
    }

    pub(super) async fn follow_news(self) {
        let news = &self.0.news;
        let mut watchers = news.watchers.subscribe();
        let mut link = self.0.link.states();
        while watchers.wait_for(|n| *n > 0).await.is_ok() {
            // The advert follows the subscription on the same connection.
            let Ok(mut messages) = self.0.link.follow(subject::any_news()).await else { return };
            news.is_wanted.store(true, Ordering::Relaxed);
            self.advertise_now();
            news.is_watching.send_replace(true);
            let mut last = LastNews::default();
            loop {
                tokio::select! {
                    message = messages.next() => match message {
                        Some(message) => self.hear(&message, &mut last),
                        None => return,
                    },
                    changed = link.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        if link.borrow_and_update().is_connected {
                            self.advertise_now();
                            let _ = news.received.send(PeerNews::Missed(0));
                        }
                    }
                    () = none(&mut watchers) => if news.stop_watching() { break },
                }
            }
            self.advertise_now();
        }
    }

    /// Takes another hub's news.
    fn hear(&self, message: &Message, last: &mut LastNews) {
        let news = &self.0.news;
        let sender = subject::attempt_of(&message.subject);
        if sender == Some(news.number) {
            return;
        }
        let frame = Frame::decode(&message.payload).ok().filter(|frame| {
            frame.kind == Kind::News && Some(frame.attempt) == sender && frame.payload.len() <= MAX_NEWS_BYTES
        });
        let is_there = |hub: u64| self.0.hubs.contains_key(&format!("{hub:016x}"));
        let taken = frame.and_then(|frame| Some((last.take(frame.attempt, frame.sequence, is_there)?, frame)));
        let Some((n_missed, frame)) = taken else {
            self.0.inboxes.dropped().malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if n_missed > 0 {
            let _ = news.received.send(PeerNews::Missed(n_missed.into()));
        }
        let _ = news.received.send(PeerNews::Update(frame.payload));
    }
}

/// The number of the last news of each hub.
#[derive(Default)]
struct LastNews(HashMap<u64, u32>);

impl LastNews {
    /// Takes the number of a hub's news: how many before it were missed. `None`: there are too many hubs. `is_there`:
    /// whether a hub advertises.
    fn take(&mut self, hub: u64, number: u32, is_there: impl Fn(u64) -> bool) -> Option<u32> {
        if self.0.len() >= MAX_HUBS && !self.0.contains_key(&hub) {
            // A hub that is restarted is another one.
            self.0.retain(|known, _| is_there(*known));
            if self.0.len() >= MAX_HUBS {
                return None;
            }
        }
        let expected = self.0.insert(hub, number).map_or(number, |last| last.wrapping_add(1));
        let n_missed = number.wrapping_sub(expected);
        // NATS keeps a hub's order: a number from before is no gap.
        Some(if n_missed < u32::MAX / 2 { n_missed } else { 0 })
    }
}

/// Until no page watches.
async fn none(watchers: &mut watch::Receiver<usize>) {
    let _ = watchers.wait_for(|n| *n == 0).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubs_that_have_gone_leave_their_places_to_new_ones() {
        let mut last = LastNews::default();
        let n = MAX_HUBS as u64;
        for hub in 0..n {
            assert_eq!(last.take(hub, 5, |_| true), Some(0));
        }
        assert_eq!(last.take(n, 5, |_| true), None, "all are there");
        assert_eq!(last.take(0, 8, |_| true), Some(2));
        assert_eq!(last.take(n, 5, |hub| hub == 0), Some(0));
        assert_eq!(last.take(0, 7, |_| true), Some(0), "it came late");
        assert_eq!(last.0.len(), 2);
    }
}
