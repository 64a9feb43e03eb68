//! Fairness between the owners of jobs, in either store: whose finished jobs make room for whose new sound. Pure.

use std::collections::HashMap;

/// What one job takes of the room of all.
#[derive(Debug)]
pub(super) struct JobUsage {
    pub(super) id: String,
    /// The API key it belongs to; `None` on a hub without keys.
    pub(super) owner: Option<String>,
    pub(super) bytes: u64,
    /// Only finished jobs are removed.
    pub(super) is_completed: bool,
    /// The smallest is removed first.
    pub(super) age: (i64, u64),
}

/// The finished jobs to remove, the oldest of each owner first, so that `more` bytes of `owner` fit into `room`. The room is taken
/// from the one that has most, `owner` included: one that has less than `owner` loses nothing. `None`: that does not suffice, and
/// nothing is to be removed.
pub(super) fn removals(mut jobs: Vec<JobUsage>, owner: Option<&str>, more: u64, room: u64) -> Option<Vec<String>> {
    let mut taken: HashMap<Option<String>, u64> = HashMap::new();
    for job in &jobs {
        *taken.entry(job.owner.clone()).or_default() += job.bytes;
    }
    *taken.entry(owner.map(str::to_owned)).or_default() += more;
    let mut total: u64 = taken.values().sum();
    jobs.retain(|job| job.is_completed && job.bytes > 0);
    jobs.sort_by_key(|job| job.age);
    let mut removed = Vec::new();
    while total > room {
        let of_owner = taken[&owner.map(str::to_owned)];
        let may_lose = |job: &JobUsage| job.owner.as_deref() == owner || taken[&job.owner] > of_owner;
        // The oldest of the owner that has most; ages are in order.
        let candidates = jobs.iter().enumerate().filter(|(_, job)| may_lose(job));
        let (at, _) = candidates.min_by_key(|(at, job)| (u64::MAX - taken[&job.owner], *at))?;
        let job = jobs.remove(at);
        total -= job.bytes;
        *taken.get_mut(&job.owner).expect("it was counted") -= job.bytes;
        removed.push(job.id);
    }
    Some(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(id: &str, owner: &str, bytes: u64, ended: i64) -> JobUsage {
        let is_completed = !id.starts_with("open");
        JobUsage { id: id.into(), owner: Some(owner.into()), bytes, is_completed, age: (ended, 0) }
    }

    #[test]
    fn one_key_makes_room_for_itself_and_takes_none_of_another_that_has_less() {
        let jobs = || vec![job("b1", "b", 10, 1), job("a1", "a", 40, 2), job("a2", "a", 40, 3), job("open", "a", 8, 0)];
        assert_eq!(removals(jobs(), Some("a"), 2, 100), Some(vec![]));
        assert_eq!(removals(jobs(), Some("a"), 10, 100), Some(vec!["a1".into()]), "the oldest is another's");
        assert_eq!(removals(jobs(), Some("a"), 60, 100), Some(vec!["a1".into(), "a2".into()]));
        assert_eq!(removals(jobs(), Some("a"), 90, 100), None, "b keeps its own");
        // Who has less gets room of who has most.
        assert_eq!(removals(jobs(), Some("b"), 10, 100), Some(vec!["a1".into()]));
        assert_eq!(removals(jobs(), Some("c"), 5, 100), Some(vec!["a1".into()]));
    }

    #[test]
    fn without_keys_the_oldest_makes_room() {
        let nobodys = |id: &str, ended| JobUsage { owner: None, ..job(id, "", 40, ended) };
        let jobs = || vec![nobodys("new", 2), nobodys("old", 1)];
        assert_eq!(removals(jobs(), None, 30, 100), Some(vec!["old".into()]));
        assert_eq!(removals(jobs(), None, 101, 100), None);
    }
}
