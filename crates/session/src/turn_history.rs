//! The history of all sessions' turns: the latest ones in a bounded ring, and a stream of changes for listeners.
//!
//! One belongs to a server; the sessions' timelines write, `server` reads. Writing takes a lock for the time of a push
//! and never waits: a listener that is behind receives how much it missed. Words live here and nowhere else, and only where
//! the hub may keep them.

use super::timeline::{Kind, Status, TurnRecord};
use antiphon_engine_api::EngineNames;
use antiphon_types::{KeyId, SessionId};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// News that wait for one listener. The ring holds each turn's last state, so that more would only be older.
const NEWS: usize = 256;

/// See the module.
pub struct TurnHistory {
    ring: Mutex<Ring>,
    capacity: usize,
    news: broadcast::Sender<Entry>,
    keeps_transcripts: bool,
    engines: Mutex<Arc<EngineNames>>,
}

struct Ring {
    entries: VecDeque<Entry>,
    /// How many entries were pushed out before the first one.
    n_gone: u64,
    seq: u64,
    answered: VecDeque<AnsweredTurn>,
    /// Turns whose sound is awaited, by their place.
    awaited: HashMap<u64, PendingTurn>,
}

/// A turn whose sound is awaited.
struct PendingTurn {
    session: SessionId,
    /// The end of speech and the wait's beginning behind it, by the record: others begin the wait again.
    from: (SystemTime, f64),
    since: Instant,
    /// What counts of the wait for the end of the turn.
    endpointing_ms: f64,
}

/// Where a turn is kept: how many turns came before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnIndex(u64);

/// A spoken turn whose first reply audio was sent, for the load monitor. Nothing in it can be reported by a client.
#[derive(Clone, Debug, PartialEq)]
pub struct AnsweredTurn {
    /// Whose.
    pub session: SessionId,
    /// From the end of speech to the first reply audio sent, in milliseconds. Of the wait for the end of the turn, which a client
    /// may set, at most [`MAX_ENDPOINTING_MS`] count; the time in which it asked for no response does not.
    pub latency_ms: f64,
    /// Time that the recognizer took after the end of the turn, in milliseconds.
    pub stt_ms: Option<f64>,
    /// From the first chunk to its first audio, in milliseconds.
    pub tts_ms: Option<f64>,
}

/// A spoken turn whose reply has made no sound yet.
#[derive(Clone, Debug, PartialEq)]
pub struct AwaitedTurn {
    /// Whose.
    pub session: SessionId,
    /// Its [`AnsweredTurn::latency_ms`] if it were answered now.
    pub waited_ms: f64,
}

/// The longest wait for the end of a turn that counts for the load: the default `turn.silence_duration_ms`, rounded up to windows
/// of 16 ms.
pub const MAX_ENDPOINTING_MS: f64 = 512.0;

/// Answered turns that wait for the load monitor, which takes them four times a second.
const ANSWERED: usize = 1_024;

/// A turn's record and the number of its last change, counted from 1 over the whole turn_history.
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
    /// This many changes were missed.
    Missed(u64),
}

/// Whose turns a viewer may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Everybody's.
    All,
    /// Those of one API key's sessions.
    Key(KeyId),
    /// None.
    Nobody,
}

impl Viewer {
    /// Whether this turn is one of them.
    pub fn sees(self, turn: &TurnRecord) -> bool {
        match self {
            Self::All => true,
            Self::Key(key) => turn.owner == Some(key),
            Self::Nobody => false,
        }
    }
}

/// A page of turns.
#[derive(Debug)]
pub struct Page {
    /// The newest first.
    pub turns: Vec<Arc<TurnRecord>>,
    /// Whether there are older ones.
    pub has_more: bool,
}

/// A subscription to the changes.
pub struct ChangeSubscription {
    news: broadcast::Receiver<Entry>,
    viewer: Viewer,
}

impl TurnHistory {
    /// An empty history of the given capacity, at least 1, with or without the turns' words.
    pub fn new(capacity: usize, keeps_transcripts: bool, engines: EngineNames) -> Self {
        let (news, _) = broadcast::channel(NEWS);
        let ring = Mutex::new(Ring {
            entries: VecDeque::new(),
            n_gone: 0,
            seq: 0,
            answered: VecDeque::new(),
            awaited: HashMap::new(),
        });
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

    /// Takes a turn's record over and returns its place. `place`: that of an earlier record of the same turn, which this one
    /// replaces. A turn keeps its place; the changes of one that was pushed out meanwhile only reach the listeners.
    pub(super) fn put(&self, record: TurnRecord, place: Option<TurnIndex>) -> TurnIndex {
        let record = Arc::new(record);
        let mut ring = self.ring.lock().expect("no panic while locked");
        ring.seq += 1;
        let entry = Entry { seq: ring.seq, record };
        let place = place.unwrap_or(TurnIndex(ring.n_gone + ring.entries.len() as u64));
        let at = place.0.checked_sub(ring.n_gone).map(|at| at as usize);
        let known = at.and_then(|at| ring.entries.get(at));
        let was_sent = known.is_some_and(|known| known.record.marks.first_audio_sent.is_some());
        if let Some(answered) = AnsweredTurn::of(&entry.record).filter(|_| !was_sent) {
            if ring.answered.len() == ANSWERED {
                ring.answered.pop_front();
            }
            ring.answered.push_back(answered);
        }
        match PendingTurn::of(&entry.record) {
            // Each turn is put once more when it is settled, so that none stays.
            None => drop(ring.awaited.remove(&place.0)),
            Some(new) if ring.awaited.get(&place.0).is_some_and(|known| known.from == new.from) => {}
            Some(new) => drop(ring.awaited.insert(place.0, new)),
        }
        match at {
            None => {}
            Some(at) if at < ring.entries.len() => ring.entries[at] = entry.clone(),
            Some(_) => {
                ring.entries.push_back(entry.clone());
                if ring.entries.len() > self.capacity {
                    ring.entries.pop_front();
                    ring.n_gone += 1;
                }
            }
        }
        // In order of the numbers, so inside the lock. An error says that there are no listeners.
        let _ = self.news.send(entry);
        place
    }

    /// The turns that were answered since the last call, oldest first, at most 1,024. There is one caller: the load monitor.
    pub fn take_answered(&self) -> Vec<AnsweredTurn> {
        self.ring.lock().expect("no panic while locked").answered.drain(..).collect()
    }

    /// The turns whose reply has made no sound yet, in no order.
    pub fn awaited(&self) -> Vec<AwaitedTurn> {
        let ring = self.ring.lock().expect("no panic while locked");
        let of = |turn: &PendingTurn| AwaitedTurn {
            session: turn.session.clone(),
            waited_ms: turn.since.elapsed().as_secs_f64() * 1e3 + turn.endpointing_ms,
        };
        ring.awaited.values().map(of).collect()
    }

    /// At most `limit` turns, of one session or of all, the newest first.
    pub fn latest(&self, limit: usize, session: Option<&str>) -> Vec<Arc<TurnRecord>> {
        self.page(Viewer::All, session, None, limit).turns
    }

    /// At most `limit` of the turns that `viewer` may see, of one session or of all, the newest first. `before`: those
    /// that began before the turn of this id; none where that is not kept any more, because then no older one is.
    pub fn page(&self, viewer: Viewer, session: Option<&str>, before: Option<&str>, limit: usize) -> Page {
        let ring = self.ring.lock().expect("no panic while locked");
        let end = match before {
            None => ring.entries.len(),
            Some(id) => ring.entries.iter().rposition(|entry| entry.record.id == id).unwrap_or(0),
        };
        let of_session = |entry: &&Entry| session.is_none_or(|session| entry.record.session_id.as_str() == session);
        let mut wanted = ring.entries.range(..end).rev().filter(of_session).filter(|entry| viewer.sees(&entry.record));
        let turns = wanted.by_ref().take(limit).map(|entry| entry.record.clone()).collect();
        Page { turns, has_more: wanted.next().is_some() }
    }

    /// The turn of this name, where `viewer` may see it.
    pub fn find(&self, viewer: Viewer, id: &str) -> Option<Arc<TurnRecord>> {
        let ring = self.ring.lock().expect("no panic while locked");
        let found = ring.entries.iter().rev().find(|entry| entry.record.id == id)?;
        viewer.sees(&found.record).then(|| found.record.clone())
    }

    /// All that changes from now on, and what has changed since the number `after` that `viewer` may see, in order. The
    /// listener gets at most as many old changes as may wait for it; how many were left out is the second value.
    pub fn listen(&self, viewer: Viewer, after: Option<u64>) -> (Vec<Entry>, u64, ChangeSubscription) {
        let ring = self.ring.lock().expect("no panic while locked");
        let listening = ChangeSubscription { news: self.news.subscribe(), viewer };
        let Some(after) = after else { return (Vec::new(), 0, listening) };
        let is_news = |entry: &&Entry| entry.seq > after && viewer.sees(&entry.record);
        let mut since: Vec<Entry> = ring.entries.iter().filter(is_news).cloned().collect();
        drop(ring);
        since.sort_by_key(|entry| entry.seq);
        let n_left_out = since.len().saturating_sub(NEWS);
        since.drain(..n_left_out);
        (since, n_left_out as u64, listening)
    }
}

impl AnsweredTurn {
    fn of(record: &TurnRecord) -> Option<Self> {
        let marks = &record.marks;
        let sent = marks.first_audio_sent?;
        let end = marks.end_confirmed?;
        let is_spoken = record.kind == Kind::Speech && !record.is_excused;
        let owed_from = record.awaited_from.map_or(end, |from| from.max(end));
        is_spoken.then(|| Self {
            session: record.session_id.clone(),
            latency_ms: (sent - owed_from).max(0.0) + end.min(MAX_ENDPOINTING_MS),
            stt_ms: marks.stt_final.map(|at| (at - end).max(0.0)),
            tts_ms: marks.first_chunk.zip(marks.tts_first_audio).map(|(from, to)| (to - from).max(0.0)),
        })
    }
}

impl PendingTurn {
    /// `None`: the hub owes no sound of this turn now.
    fn of(record: &TurnRecord) -> Option<Self> {
        let marks = &record.marks;
        let is_under_way = match record.status {
            Status::Listening => !record.settled,
            // A response that was announced and has not begun waits for another one, or for a list of tools.
            Status::Answering => !record.settled && marks.response_started.is_some(),
            _ => false,
        };
        let is_silent = record.kind == Kind::Speech && marks.first_audio_sent.is_none() && !record.is_excused;
        let end = marks.end_confirmed.filter(|_| is_under_way && is_silent)?;
        let session = record.session_id.clone();
        let endpointing_ms = end.min(MAX_ENDPOINTING_MS);
        let from = (record.origin, record.awaited_from?);
        Some(Self { session, from, since: Instant::now(), endpointing_ms })
    }
}

impl ChangeSubscription {
    /// The next news of a turn that the listener may see; `None` when the turn_history is gone. Cancel safe. What was missed
    /// may have been others' changes.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            match self.news.recv().await {
                Ok(entry) if self.viewer.sees(&entry.record) => return Some(News::Changed(entry)),
                Ok(_) => {}
                Err(broadcast::error::RecvError::Lagged(n)) => return Some(News::Missed(n)),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
