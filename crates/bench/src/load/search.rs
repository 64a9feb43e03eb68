//! Searches for the number of sessions a server can serve: doubling until it fails, then bisection.

use super::Outcome;
use std::time::Duration;

/// One size tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Number of concurrent sessions.
    pub n_sessions: usize,
    /// Voice-to-voice p95 in milliseconds; infinite if more than one turn in twenty was not answered.
    pub p95_ms: f64,
    /// Whether the objective was met.
    pub holds: bool,
}

impl Step {
    /// The step for a load's outcome.
    pub fn of(outcome: &Outcome, objective: Duration) -> Self {
        let p95_ms = outcome.waits().percentile(95.0).unwrap_or(f64::INFINITY);
        Self { n_sessions: outcome.n_sessions, p95_ms, holds: outcome.holds(objective) }
    }
}

/// The sizes tried so far; it selects the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    start: usize,
    most: usize,
    /// The steps, in the order tried.
    pub steps: Vec<Step>,
}

/// A search from `start` up to `most` sessions; both at least 1.
pub fn search(start: usize, most: usize) -> Search {
    Search { start: start.clamp(1, most.max(1)), most: most.max(1), steps: Vec::new() }
}

impl Search {
    /// The next size to try; `None` once the largest size is known within a tenth.
    pub fn next(&self) -> Option<usize> {
        let held = self.largest();
        let failed = self.steps.iter().filter(|step| !step.holds).map(|step| step.n_sessions).min();
        match (held, failed) {
            (None, None) => Some(self.start),
            (Some(held), None) => (held < self.most).then(|| (held * 2).min(self.most)),
            (held, Some(failed)) => {
                let held = held.unwrap_or(0);
                let apart = failed.saturating_sub(held);
                (apart > 1 && apart * 10 > failed).then(|| held + apart / 2)
            }
        }
    }

    /// The largest size served so far.
    pub fn largest(&self) -> Option<usize> {
        self.steps.iter().filter(|step| step.holds).map(|step| step.n_sessions).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes tried on a server that serves `capacity` sessions, and the largest size found.
    fn tried(start: usize, most: usize, capacity: usize) -> (Vec<usize>, Option<usize>) {
        let mut search = search(start, most);
        while let Some(n_sessions) = search.next() {
            search.steps.push(Step { n_sessions, p95_ms: 0.0, holds: n_sessions <= capacity });
        }
        (search.steps.iter().map(|step| step.n_sessions).collect(), search.largest())
    }

    #[test]
    fn the_largest_is_found_to_a_tenth() {
        assert_eq!(tried(4, 1_000, 50), (vec![4, 8, 16, 32, 64, 48, 56, 52], Some(48)));
        assert_eq!(tried(4, 1_000, 1), (vec![4, 2, 1], Some(1)));
        assert_eq!(tried(1, 1_000, 0), (vec![1], None));
        assert_eq!(tried(4, 20, 100), (vec![4, 8, 16, 20], Some(20)));
        assert_eq!(tried(9, 3, 100), (vec![3], Some(3)));
    }
}
