//! The deadline queue: the order in which entries run. The batch scheduler and the slot scheduler take from it.
//!
//! Pure: it reads no clock and waits for nothing, so that time in its tests is a number.

use super::Overloaded;
use super::batch::{BatchSettings, Entry};
use tokio::time::Instant;

/// Entries that wait.
pub(super) struct Queue<W> {
    settings: BatchSettings,
    waiting: Vec<QueuedEntry<W>>,
    /// The number the next entry gets.
    next: u64,
}

struct QueuedEntry<W> {
    entry: W,
    bucket: u32,
    deadline: Instant,
    /// When it came; `None` of one that may not wait, or came back and has waited already: it is not held up for others.
    came: Option<Instant>,
    /// Rises from entry to entry, also when one comes back.
    number: u64,
    /// Entries with a lower number go first: of one that came back, all that waited then. 0: none.
    behind: u64,
}

/// What a free replica is to do.
pub(super) enum Next<W> {
    /// Run these.
    Run(Vec<W>),
    /// Ask again then, or when something has come.
    Wait(Instant),
    /// Nothing is here.
    Empty,
}

impl<W: Entry> Queue<W> {
    pub(super) fn new(settings: BatchSettings) -> Self {
        Self { settings, waiting: Vec::new(), next: 1 }
    }

    /// How many may wait.
    pub(super) fn max_waiting(&self) -> usize {
        self.settings.max_waiting
    }

    /// How many wait that are not abandoned.
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().filter(|waiting| !waiting.entry.is_abandoned()).count()
    }

    /// Takes a new entry, or gives it back when the queue is full or `most` wait.
    pub(super) fn push(&mut self, entry: W, most: usize, now: Instant) -> Result<(), (Overloaded, W)> {
        let most = most.min(self.settings.max_waiting);
        if self.waiting.len() >= most {
            self.drop_abandoned();
        }
        if self.waiting.len() >= most {
            return Err((Overloaded { waiting: self.waiting.len() }, entry));
        }
        let came = entry.may_wait().then_some(now);
        self.put(entry, came, 0);
        Ok(())
    }

    /// Takes back what has steps left. It keeps its place in the bound: it is taken even where the queue is full.
    pub(super) fn again(&mut self, entry: W) {
        self.put(entry, None, self.next);
    }

    /// Takes back what was taken and could not be run: it goes first among those of its deadline.
    pub(super) fn put_back(&mut self, entry: W) {
        let bucket = entry.bucket();
        let deadline = entry.deadline();
        // Numbers begin at 1.
        self.waiting.push(QueuedEntry { entry, bucket, deadline, came: None, number: 0, behind: 0 });
    }

    /// Sets how many may wait from now on.
    pub(super) fn set_max_waiting(&mut self, max_waiting: usize) {
        self.settings.max_waiting = max_waiting;
    }

    /// The next batch.
    pub(super) fn next(&mut self, now: Instant) -> Next<W> {
        self.drop_abandoned();
        let Some(leader) = self.leader() else { return Next::Empty };
        let bucket = self.waiting[leader].bucket;
        let mates = self.by_urgency(|waiting| waiting.bucket == bucket);
        let others = mates.len() < self.waiting.len();
        let max_batch = self.settings.max_batch.max(1);
        // An entry that is due before the wait would be over is not held up: batches form behind its run.
        let is_urgent = self.waiting[leader].deadline <= now + self.settings.max_wait;
        if mates.len() < max_batch && !others && !is_urgent {
            // `None` is less than any time: it makes the batch due.
            let first_came = mates.iter().map(|i| self.waiting[*i].came).min().flatten();
            if let Some(due) = first_came.map(|came| came + self.settings.max_wait)
                && now < due
            {
                return Next::Wait(due);
            }
        }
        let mut chosen: Vec<usize> =
            std::iter::once(leader).chain(mates.into_iter().filter(|i| *i != leader)).collect();
        chosen.truncate(max_batch);
        self.take(chosen)
    }

    /// Takes all entries that wait, for no replica can run them.
    pub(super) fn all(&mut self) -> Vec<W> {
        self.waiting.drain(..).map(|waiting| waiting.entry).collect()
    }

    /// The entry that leads: the most urgent of those that need not let others go first.
    fn leader(&self) -> Option<usize> {
        let oldest = self.waiting.iter().map(|waiting| waiting.number).min()?;
        self.by_urgency(|waiting| waiting.behind <= oldest).first().copied()
    }

    /// Indices of the entries that match, the earliest deadline first.
    fn by_urgency(&self, matches: impl Fn(&QueuedEntry<W>) -> bool) -> Vec<usize> {
        let mut places: Vec<_> = (0..self.waiting.len()).filter(|i| matches(&self.waiting[*i])).collect();
        places.sort_by_key(|i| (self.waiting[*i].deadline, self.waiting[*i].number));
        places
    }

    /// Takes the entries out, in the order of `places`. By place: several that came back have one number.
    fn take(&mut self, places: Vec<usize>) -> Next<W> {
        let mut waiting: Vec<Option<QueuedEntry<W>>> = self.waiting.drain(..).map(Some).collect();
        let chosen: Vec<W> =
            places.into_iter().filter_map(|place| waiting[place].take()).map(|chosen| chosen.entry).collect();
        self.waiting.extend(waiting.into_iter().flatten());
        Next::Run(chosen)
    }

    fn put(&mut self, entry: W, came: Option<Instant>, behind: u64) {
        let bucket = entry.bucket();
        let deadline = entry.deadline();
        let number = self.next;
        self.next += 1;
        self.waiting.push(QueuedEntry { entry, bucket, deadline, came, number, behind });
    }

    fn drop_abandoned(&mut self) {
        self.waiting.retain(|waiting| !waiting.entry.is_abandoned());
    }
}
