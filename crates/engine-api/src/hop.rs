//! Which other machine served a request, and how much of its time the network took.
//!
//! `session` asks for it in a request and puts the answer into the turn's record. An engine that runs on another machine
//! fills it in; every other engine leaves it empty. It never decides anything: a request without an answer is complete.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A cell in a request, for what there is to know of the machine that serves it. Clones share the cell.
///
/// Any two are equal: two requests for the same thing are the same, whichever worker serves them.
#[derive(Clone, Debug, Default)]
pub struct Hop(Option<Arc<Mutex<Option<HopReport>>>>);

/// Who served a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopReport {
    /// Name of the worker, as its operator knows it.
    pub worker: String,
    /// What the requester waited for the network, both ways together: to the final transcript of an utterance, to the first
    /// sound of a chunk. Never longer than the whole wait.
    pub network: Duration,
    /// Attempts that other workers had failed at before.
    pub retried: u32,
}

impl Hop {
    /// A cell that is read later. [`Hop::default`] has none, allocates nothing and stays empty.
    pub fn requested() -> Self {
        Self(Some(Arc::default()))
    }

    /// Fills the cell in; the last call counts. Does nothing where it was not requested. Does not block.
    pub fn set(&self, worker: &str, network: Duration, retried: u32) {
        let Some(cell) = &self.0 else { return };
        *cell.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(HopReport { worker: worker.to_owned(), network, retried });
    }

    /// Empties the cell: this process serves the request after all. Does nothing where it was not requested. Does not block.
    pub fn clear(&self) {
        let Some(cell) = &self.0 else { return };
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// What was filled in last; `None`: this process served the request, it was not served yet, or its
    /// engine fills nothing in.
    pub fn get(&self) -> Option<HopReport> {
        self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl PartialEq for Hop {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Hop {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_counts_and_every_clone_sees_it() {
        let hop = Hop::requested();
        let ms = Duration::from_millis;
        let request = hop.clone();
        assert_eq!(hop.get(), None);
        request.set("a", ms(3), 0);
        request.set("b", ms(2), 1);
        assert_eq!(hop.get(), Some(HopReport { worker: "b".into(), network: ms(2), retried: 1 }));
        request.clear();
        assert_eq!(hop.get(), None);
    }

    #[test]
    fn what_nobody_asked_for_stays_empty() {
        let hop = Hop::default();
        hop.set("a", Duration::from_millis(3), 0);
        assert_eq!(hop.get(), None);
    }

    #[test]
    fn two_are_equal_whatever_they_hold() {
        let hop = Hop::requested();
        let other = Hop::requested();
        hop.set("a", Duration::from_millis(3), 0);
        assert!(hop == other && hop == Hop::default());
    }
}
