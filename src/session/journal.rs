//! The journal of all sessions' turns: the latest ones in a bounded ring, and the news of them to whoever listens.
//!
//! One belongs to a server; the sessions' timelines write, `server` reads. Writing takes a lock for the time of a push
//! and never waits: a listener who is behind is told how much it missed. Words live here and nowhere else, and only where
//! the hub may keep them.

use super::timeline::{EngineNames, TurnRecord};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast;

/// News that wait for one listener. The ring holds each turn's last state, so that more would only be older.
const NEWS: usize = 256;

/// See the module.
pub struct Journal {
    ring: Mutex<Ring>,
    capacity: usize,
    news: broadcast::Sender<Entry>,
    keeps_transcripts: bool,
    engines: Mutex<Arc<EngineNames>>,
}

struct Ring {
    entries: VecDeque<Entry>,
    seq: u64,
}

/// A turn's record and the number of its last change, counted from 1 over the whole journal.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The number.
    pub seq: u64,
    /// The record.
    pub record: Arc<TurnRecord>,
}

/// News for a listener.
#[derive(Clone, Debug)]
pub enum News {
    /// A turn has changed.
    Changed(Entry),
    /// So many changes were not taken in time, and are gone.
    Missed(u64),
}

/// Somebody who listens.
pub struct Listening(broadcast::Receiver<Entry>);

impl Journal {
    /// An empty one that keeps so many turns, at least 1, with their words or without.
    pub fn new(capacity: usize, keeps_transcripts: bool, engines: EngineNames) -> Self {
        let (news, _) = broadcast::channel(NEWS);
        let ring = Mutex::new(Ring { entries: VecDeque::new(), seq: 0 });
        Self { ring, capacity: capacity.max(1), news, keeps_transcripts, engines: Mutex::new(Arc::new(engines)) }
    }

    /// How many turns it keeps.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn keeps_transcripts(&self) -> bool {
        self.keeps_transcripts
    }

    /// The engines' names, of every record of a session that begins now.
    pub(super) fn engines(&self) -> Arc<EngineNames> {
        self.engines.lock().expect("no panic while locked").clone()
    }

    /// Other engines serve the sessions that begin from now on.
    pub fn engines_are(&self, engines: EngineNames) {
        *self.engines.lock().expect("no panic while locked") = Arc::new(engines);
    }

    /// Takes a turn's record over, in the place of an earlier one of the same turn; `is_new`: there was none. A turn keeps
    /// its place; one that was pushed out meanwhile is told to the listeners only.
    pub(super) fn put(&self, record: TurnRecord, is_new: bool) {
        let record = Arc::new(record);
        let mut ring = self.ring.lock().expect("no panic while locked");
        ring.seq += 1;
        let entry = Entry { seq: ring.seq, record };
        let known = ring.entries.iter().rposition(|old| old.record.id == entry.record.id);
        match known {
            Some(at) => ring.entries[at] = entry.clone(),
            None if !is_new => {}
            None => {
                ring.entries.push_back(entry.clone());
                if ring.entries.len() > self.capacity {
                    ring.entries.pop_front();
                }
            }
        }
        // In order of the numbers, so inside the lock. An error says that nobody listens.
        let _ = self.news.send(entry);
    }

    /// At most `limit` turns, of one session or of all, the newest first.
    pub fn latest(&self, limit: usize, session: Option<&str>) -> Vec<Arc<TurnRecord>> {
        let ring = self.ring.lock().expect("no panic while locked");
        let wanted = |entry: &&Entry| session.is_none_or(|session| entry.record.session_id.as_str() == session);
        ring.entries.iter().rev().filter(wanted).take(limit).map(|entry| entry.record.clone()).collect()
    }

    /// The turn of this name.
    pub fn find(&self, id: &str) -> Option<Arc<TurnRecord>> {
        let ring = self.ring.lock().expect("no panic while locked");
        ring.entries.iter().rev().find(|entry| entry.record.id == id).map(|entry| entry.record.clone())
    }

    /// All that changes from now on, and what has changed since the number `after`, in order.
    pub fn listen(&self, after: Option<u64>) -> (Vec<Entry>, Listening) {
        let ring = self.ring.lock().expect("no panic while locked");
        let news = self.news.subscribe();
        let Some(after) = after else { return (Vec::new(), Listening(news)) };
        let mut since: Vec<Entry> = ring.entries.iter().filter(|entry| entry.seq > after).cloned().collect();
        since.sort_by_key(|entry| entry.seq);
        (since, Listening(news))
    }
}

impl Listening {
    /// The next news; `None` when the journal is gone.
    pub async fn next(&mut self) -> Option<News> {
        match self.0.recv().await {
            Ok(entry) => Some(News::Changed(entry)),
            Err(broadcast::error::RecvError::Lagged(n)) => Some(News::Missed(n)),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
