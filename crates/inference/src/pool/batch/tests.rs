//! The queue's rules, with time as a number; the scheduler's threads in `threads`. No test depends on how fast anything is.

use super::super::queue::{Next, Queue};
use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

mod threads;

const MS: Duration = Duration::from_millis(1);

/// An entry that says what becomes of it.
struct Job {
    name: u32,
    bucket: u32,
    deadline: Instant,
    steps: usize,
    may_wait: bool,
    abandoned: Arc<AtomicBool>,
    ended: Sender<(u32, Result<(), BatchFailure>)>,
}

impl Entry for Job {
    fn bucket(&self) -> u32 {
        self.bucket
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn may_wait(&self) -> bool {
        self.may_wait
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    fn fail(self, failure: BatchFailure) {
        let _ = self.ended.send((self.name, Err(failure)));
    }
}

/// Makes jobs, and hears of them.
struct Office {
    zero: Instant,
    ended: Sender<(u32, Result<(), BatchFailure>)>,
    heard: Receiver<(u32, Result<(), BatchFailure>)>,
}

impl Office {
    fn new() -> Self {
        let (ended, heard) = channel();
        Self { zero: Instant::now(), ended, heard }
    }

    fn at(&self, ms: u32) -> Instant {
        self.zero + MS * ms
    }

    fn job(&self, name: u32, bucket: u32, deadline_ms: u32) -> Job {
        let deadline = self.at(deadline_ms);
        let abandoned = Arc::default();
        Job { name, bucket, deadline, steps: 1, may_wait: true, abandoned, ended: self.ended.clone() }
    }
}

fn settings(max_batch: usize, max_wait_ms: u32, max_waiting: usize) -> BatchSettings {
    BatchSettings { n_replicas: 1, max_batch, max_wait: MS * max_wait_ms, max_waiting }
}

fn names(next: &Next<Job>) -> Vec<u32> {
    match next {
        Next::Run(batch) => batch.iter().map(|job| job.name).collect(),
        Next::Wait(_) | Next::Empty => Vec::new(),
    }
}

fn push(queue: &mut Queue<Job>, job: Job, now: Instant) {
    queue.push(job, usize::MAX, now).map_err(|(overloaded, _)| overloaded).expect("there is room");
}

#[test]
fn the_most_urgent_leads_and_its_bucket_fills_the_batch() {
    let office = Office::new();
    let mut queue = Queue::new(settings(3, 0, 100));
    for (name, bucket, deadline) in [(1, 7, 500), (2, 8, 100), (3, 7, 90), (4, 7, 400), (5, 7, 300)] {
        push(&mut queue, office.job(name, bucket, deadline), office.zero);
    }
    assert_eq!(names(&queue.next(office.zero)), [3, 5, 4]);
    assert_eq!(names(&queue.next(office.zero)), [2]);
    assert_eq!(names(&queue.next(office.zero)), [1]);
    assert!(matches!(queue.next(office.zero), Next::Empty));
}

#[test]
fn a_batch_waits_to_fill_only_as_long_as_it_may() {
    let office = Office::new();
    let mut queue = Queue::new(settings(3, 10, 100));
    push(&mut queue, office.job(1, 0, 50), office.at(0));
    assert!(matches!(queue.next(office.at(4)), Next::Wait(until) if until == office.at(10)));
    push(&mut queue, office.job(2, 0, 20), office.at(8));
    assert!(matches!(queue.next(office.at(9)), Next::Wait(until) if until == office.at(10)), "since the first came");
    assert_eq!(names(&queue.next(office.at(10))), [2, 1]);
    for name in 3..6 {
        push(&mut queue, office.job(name, 0, 50), office.at(20));
    }
    assert_eq!(names(&queue.next(office.at(20))), [3, 4, 5], "a full batch does not wait");
    push(&mut queue, office.job(6, 0, 50), office.at(30));
    push(&mut queue, office.job(7, 1, 60), office.at(30));
    assert_eq!(names(&queue.next(office.at(30))), [6], "nothing waits while there is other work");
}

#[test]
fn an_entry_that_is_due_waits_for_nobody() {
    let office = Office::new();
    let mut queue = Queue::new(settings(3, 10, 100));
    push(&mut queue, office.job(1, 0, 0), office.at(0));
    assert_eq!(names(&queue.next(office.at(0))), [1], "its listener hears silence");
    push(&mut queue, office.job(2, 0, 31), office.at(20));
    assert!(matches!(queue.next(office.at(20)), Next::Wait(_)), "there is time");
    push(&mut queue, office.job(3, 0, 30), office.at(20));
    assert_eq!(names(&queue.next(office.at(20))), [3, 2], "due when the wait would be over");
}

#[test]
fn an_entry_that_may_not_wait_takes_those_along_that_wait() {
    let office = Office::new();
    let mut queue = Queue::new(settings(3, 10, 100));
    push(&mut queue, office.job(1, 0, 50), office.at(0));
    assert!(matches!(queue.next(office.at(0)), Next::Wait(_)));
    push(&mut queue, Job { may_wait: false, ..office.job(2, 0, 60) }, office.at(1));
    assert_eq!(names(&queue.next(office.at(1))), [1, 2]);
}

#[test]
fn abandoned_entries_leave_before_they_cost_anything() {
    let office = Office::new();
    let mut queue = Queue::new(settings(8, 0, 2));
    let first = office.job(1, 0, 1);
    let second = office.job(2, 0, 2);
    let gone = first.abandoned.clone();
    push(&mut queue, first, office.zero);
    push(&mut queue, second, office.zero);
    let refused = queue.push(office.job(3, 0, 3), usize::MAX, office.zero).expect_err("full");
    assert_eq!((refused.0, refused.1.name), (Overloaded { waiting: 2 }, 3));
    gone.store(true, Ordering::Relaxed);
    assert_eq!(queue.len(), 1, "an abandoned entry is not counted");
    push(&mut queue, office.job(4, 0, 4), office.zero);
    assert_eq!(names(&queue.next(office.zero)), [2, 4]);
}

#[test]
fn what_comes_back_goes_behind_what_waited_meanwhile() {
    let office = Office::new();
    let mut queue = Queue::new(settings(1, 50, 100));
    push(&mut queue, office.job(1, 0, 0), office.zero);
    let Next::Run(mut huge) = queue.next(office.at(50)) else { panic!("due") };
    push(&mut queue, office.job(2, 1, 9_000), office.at(60));
    push(&mut queue, office.job(3, 1, 8_000), office.at(61));
    queue.again(huge.pop().expect("one"));
    assert_eq!(names(&queue.next(office.at(62))), [3], "whatever its deadline");
    push(&mut queue, office.job(4, 1, 8_500), office.at(63));
    assert_eq!(names(&queue.next(office.at(63))), [4], "the later one is more urgent than the second");
    assert_eq!(names(&queue.next(office.at(64))), [2]);
    assert_eq!(names(&queue.next(office.at(64))), [1], "and it is not held up to fill a batch");
}

#[test]
fn entries_that_could_not_run_leave_the_queue_one_by_one() {
    let office = Office::new();
    let mut queue = Queue::new(settings(1, 0, 100));
    queue.put_back(office.job(1, 0, 30));
    queue.put_back(office.job(2, 0, 20));
    push(&mut queue, office.job(3, 0, 20), office.zero);
    assert_eq!(names(&queue.next(office.zero)), [2], "before one of its deadline that has just come");
    assert_eq!(names(&queue.next(office.zero)), [3]);
    assert_eq!(names(&queue.next(office.zero)), [1]);
    assert!(matches!(queue.next(office.zero), Next::Empty));
}

/// What happens in a run of the property test: an entry comes, or a replica takes a batch and ends it.
#[derive(Clone, Debug)]
enum Act {
    Come { bucket: u32, unplayed: u32, steps: usize },
    Abandon(usize),
    Run,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..3_u32, 0..2_000_u32, 1..6_usize)
            .prop_map(|(bucket, unplayed, steps)| Act::Come { bucket, unplayed, steps }),
        1 => (0..32_usize).prop_map(Act::Abandon),
        3 => Just(Act::Run),
    ];
    prop::collection::vec(act, 1..120)
}

proptest! {
    /// Whatever comes and goes: batches are of one bucket, no larger than they may be and never empty; no abandoned
    /// entry runs; everybody else ends after as many steps as it has; and between two steps of one entry, every entry
    /// that waited when it came back and was there before has run, been abandoned, or shares its batch.
    #[test]
    fn the_queue_keeps_its_promises(acts in acts(), max_batch in 1..5_usize) {
        let office = Office::new();
        let mut queue = Queue::new(settings(max_batch, 0, 16));
        let mut flags: Vec<Arc<AtomicBool>> = Vec::new();
        let mut steps_run: Vec<usize> = Vec::new();
        let mut requested: Vec<usize> = Vec::new();
        let mut waiting: Vec<u32> = Vec::new();
        // Of each entry that came back: who waited then.
        let mut ahead: std::collections::HashMap<u32, Vec<u32>> = std::collections::HashMap::new();
        let drain = std::iter::repeat_n(Act::Run, 700);
        for (ms, act) in acts.into_iter().chain(drain).enumerate() {
            let now = office.at(ms as u32);
            match act {
                Act::Come { bucket, unplayed, steps } => {
                    let name = flags.len() as u32;
                    let mut job = office.job(name, bucket, ms as u32 + unplayed);
                    job.steps = steps;
                    let flag = job.abandoned.clone();
                    let n_waiting = waiting.iter().filter(|n| !flags[**n as usize].load(Ordering::Relaxed)).count();
                    match queue.push(job, usize::MAX, now) {
                        Ok(()) => {
                            flags.push(flag);
                            steps_run.push(0);
                            requested.push(steps);
                            waiting.push(name);
                        }
                        Err(_) => prop_assert!(n_waiting >= 16),
                    }
                }
                Act::Abandon(which) => {
                    if let Some(name) = waiting.get(which) {
                        flags[*name as usize].store(true, Ordering::Relaxed);
                    }
                }
                Act::Run => {
                    let Next::Run(batch) = queue.next(now) else { continue };
                    prop_assert!(!batch.is_empty() && batch.len() <= max_batch);
                    prop_assert!(batch.iter().all(|job| job.bucket == batch[0].bucket));
                    prop_assert!(batch.iter().all(|job| !job.is_abandoned()));
                    let in_batch: Vec<u32> = batch.iter().map(|job| job.name).collect();
                    waiting.retain(|name| !in_batch.contains(name) && !flags[*name as usize].load(Ordering::Relaxed));
                    let leader = in_batch[0];
                    for earlier in ahead.remove(&leader).unwrap_or_default() {
                        prop_assert!(!waiting.contains(&earlier), "{leader} went before {earlier}");
                    }
                    for mut job in batch {
                        steps_run[job.name as usize] += 1;
                        job.steps -= 1;
                        for others in ahead.values_mut() {
                            others.retain(|name| *name != job.name);
                        }
                        if job.steps > 0 {
                            job.deadline = now;
                            ahead.insert(job.name, waiting.clone());
                            waiting.push(job.name);
                            queue.again(job);
                        } else {
                            ahead.remove(&job.name);
                        }
                    }
                }
            }
        }
        prop_assert_eq!(queue.len(), 0);
        for (name, steps) in requested.iter().enumerate() {
            let abandoned = flags[name].load(Ordering::Relaxed);
            prop_assert!(abandoned || steps_run[name] == *steps, "{name}: {} of {steps}", steps_run[name]);
        }
    }
}
