//! The scheduler's rules, on an engine that says what it is asked and takes a step when the test lets it.

use super::*;
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

/// A sequence of this number of steps.
struct Job {
    name: u32,
    steps: usize,
    deadline: Instant,
    /// Steps it may still take.
    credit: Arc<AtomicUsize>,
    /// Until when it waits for others.
    company_until: Option<Instant>,
    abandoned: Arc<AtomicBool>,
    ended: Sender<(u32, Result<usize, BatchFailure>)>,
}

impl Entry for Job {
    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    fn fail(self, failure: BatchFailure) {
        drop(self.ended.send((self.name, Err(failure))));
    }
}

impl SlotEntry for Job {
    fn has_credit(&self) -> bool {
        self.credit.load(Ordering::Acquire) > 0
    }

    fn company_until(&self) -> Option<Instant> {
        self.company_until
    }
}

/// What an engine was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
enum EngineCall {
    Admit(u32),
    /// Names and how many steps each had taken before.
    Step(Vec<(u32, usize)>),
    End(u32),
}

/// What an engine answers to the next step.
#[derive(Clone, Copy)]
enum Go {
    Step,
    Fail,
    Panic,
    /// The newest sequence finds no memory.
    Lack,
}

struct Engine {
    n_slots: usize,
    replica: usize,
    asked: Sender<(usize, EngineCall)>,
    /// `None`: it never waits.
    go: Option<Arc<Mutex<Receiver<Go>>>>,
    /// Sequences that find memory.
    room: usize,
    running: usize,
    admits_freely: bool,
    lacked_memory: bool,
}

impl SlotEngine<Job> for Engine {
    type State = (u32, usize);

    fn admits_freely(&self) -> bool {
        self.admits_freely
    }

    fn n_slots(&self) -> usize {
        self.n_slots
    }

    fn admit(&mut self, job: Job) -> Result<Admission<Job, Self::State>, (String, Job)> {
        if self.running >= self.room {
            return Ok(Admission::NoRoom(job, "it is full".into()));
        }
        drop(self.asked.send((self.replica, EngineCall::Admit(job.name))));
        if job.steps == 0 {
            drop(job.ended.send((job.name, Ok(0))));
            return Ok(Admission::Ended);
        }
        self.running += 1;
        let state = (job.name, 0);
        Ok(Admission::Running(ActiveSequence { entry: job, state, is_done: false }))
    }

    fn step(&mut self, running: &mut [&mut ActiveSequence<Job, Self::State>]) -> Result<(), String> {
        let names = running.iter().map(|one| one.state).collect();
        drop(self.asked.send((self.replica, EngineCall::Step(names))));
        self.lacked_memory = false;
        if let Some(go) = &self.go {
            // Let go of before the panic.
            let led = go.lock().expect("no panic while locked").recv();
            match led {
                Ok(Go::Fail) => return Err("on purpose".into()),
                Ok(Go::Panic) => panic!("on purpose"),
                Ok(Go::Lack) => self.lacked_memory = true,
                Ok(Go::Step) | Err(_) => {}
            }
        }
        if self.lacked_memory
            && let Some(newest) = running.last_mut()
        {
            newest.is_done = true;
            let failure = BatchFailure::Failed("no memory".into());
            drop(newest.entry.ended.send((newest.entry.name, Err(failure))));
        }
        for one in running.iter_mut().filter(|one| !one.is_done) {
            assert_eq!(one.state.0, one.entry.name, "a state belongs to its entry");
            one.state.1 += 1;
            one.entry.credit.fetch_sub(1, Ordering::AcqRel);
            one.is_done = one.state.1 == one.entry.steps;
            if one.is_done {
                drop(one.entry.ended.send((one.entry.name, Ok(one.state.1))));
            }
        }
        Ok(())
    }

    fn lacked_memory(&self) -> bool {
        self.lacked_memory
    }

    fn end(&mut self, state: Self::State) {
        self.running -= 1;
        drop(self.asked.send((self.replica, EngineCall::End(state.0))));
    }
}

/// A scheduler whose engines are seen and led.
struct Office {
    scheduler: SlotScheduler<Job>,
    asked: Receiver<(usize, EngineCall)>,
    go: Sender<Go>,
    ended: Sender<(u32, Result<usize, BatchFailure>)>,
    results: Receiver<(u32, Result<usize, BatchFailure>)>,
    zero: Instant,
}

impl Office {
    fn new(n_replicas: usize, n_slots: usize, room: usize, waits: bool) -> Self {
        Self::of(n_replicas, n_slots, room, waits, false)
    }

    fn of(n_replicas: usize, n_slots: usize, room: usize, waits: bool, admits_freely: bool) -> Self {
        let (asking, asked) = channel();
        let (go, leading) = channel();
        let leading = Arc::new(Mutex::new(leading));
        let asking = Mutex::new(asking);
        let scheduler = SlotScheduler::start("test", n_replicas, 64 / (n_replicas * n_slots), move |replica| {
            let asked = asking.lock().expect("no panic while locked").clone();
            let go = waits.then(|| leading.clone());
            Ok::<_, String>(Engine {
                n_slots,
                replica,
                asked,
                go,
                room,
                running: 0,
                admits_freely,
                lacked_memory: false,
            })
        });
        let (ended, results) = channel();
        let scheduler = scheduler.expect("it starts");
        Self { scheduler, asked, go, ended, results, zero: Instant::now() }
    }

    fn job(&self, name: u32, steps: usize, deadline_ms: u32) -> Job {
        Job {
            name,
            steps,
            deadline: self.zero + Duration::from_millis(1) * deadline_ms,
            credit: Arc::new(AtomicUsize::new(1_000_000)),
            company_until: None,
            abandoned: Arc::default(),
            ended: self.ended.clone(),
        }
    }

    fn submit(&self, job: Job) {
        assert!(self.scheduler.submit(job).is_ok(), "there is room");
    }

    fn next(&self) -> EngineCall {
        self.asked.recv().expect("the engine lives").1
    }

    /// Lets the engine take the step that it is at, and says what it is asked then.
    fn step(&self) -> EngineCall {
        self.go.send(Go::Step).expect("the engine lives");
        self.next()
    }
}

use EngineCall::{Admit, End, Step};

#[test]
fn newcomers_join_one_a_step_the_most_urgent_first() {
    let office = Office::new(1, 4, 4, true);
    office.submit(office.job(1, 9, 0));
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    for (name, deadline) in [(2, 30), (3, 10), (4, 20)] {
        office.submit(office.job(name, 9, deadline));
    }
    assert_eq!(office.step(), Admit(3), "its listener runs dry first");
    assert_eq!(office.next(), Step(vec![(1, 1), (3, 0)]), "one prefill, and those who speak go on");
    assert_eq!((office.step(), office.next()), (Admit(4), Step(vec![(1, 2), (3, 1), (4, 0)])));
    assert_eq!((office.step(), office.next()), (Admit(2), Step(vec![(1, 3), (3, 2), (4, 1), (2, 0)])));
    assert_eq!(office.scheduler.load(), SlotLoad { n_slots: 4, in_use: 4, waiting: 0 });
}

#[test]
fn a_slot_is_free_within_a_step_of_its_end() {
    let office = Office::new(1, 1, 1, true);
    let first = office.job(1, 9, 0);
    let abandoned = first.abandoned.clone();
    office.submit(first);
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    office.submit(office.job(2, 1, 0));
    abandoned.store(true, Ordering::Release);
    office.scheduler.wake();
    assert_eq!((office.step(), office.next(), office.next()), (End(1), Admit(2), Step(vec![(2, 0)])));
    assert_eq!(office.step(), End(2), "done");
    assert_eq!(office.results.recv(), Ok((2, Ok(1))), "who was abandoned gets nothing");
}

#[test]
fn who_has_no_credit_sits_out_and_goes_on_where_it_was() {
    let office = Office::new(1, 2, 2, true);
    let slow = office.job(1, 3, 0);
    let fast = office.job(2, 4, 1);
    slow.credit.store(1, Ordering::Release);
    let credit = slow.credit.clone();
    office.submit(slow);
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    office.submit(fast);
    assert_eq!((office.step(), office.next()), (Admit(2), Step(vec![(2, 0)])));
    assert_eq!(office.step(), Step(vec![(2, 1)]));
    credit.store(5, Ordering::Release);
    office.scheduler.wake();
    assert_eq!(office.step(), Step(vec![(1, 1), (2, 2)]));
    assert_eq!(office.step(), Step(vec![(1, 2), (2, 3)]));
}

#[test]
fn newcomers_whose_start_costs_nothing_join_all_at_once() {
    let office = Office::of(1, 4, 4, true, true);
    office.submit(office.job(1, 9, 0));
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    for (name, deadline) in [(2, 30), (3, 10), (4, 20)] {
        office.submit(office.job(name, 9, deadline));
    }
    assert_eq!((office.step(), office.next(), office.next()), (Admit(3), Admit(4), Admit(2)));
    assert_eq!(office.next(), Step(vec![(1, 1), (3, 0), (4, 0), (2, 0)]));
}

#[test]
fn a_step_waits_for_company_until_all_have_credit_or_one_may_not_wait() {
    let office = Office::of(1, 2, 2, false, true);
    let hour = Duration::from_secs(3_600);
    let late = Job { company_until: Some(office.zero + hour), ..office.job(1, 2, 0) };
    late.credit.store(0, Ordering::Release);
    let credit = late.credit.clone();
    office.submit(late);
    assert_eq!(office.next(), Admit(1));
    office.submit(Job { company_until: Some(office.zero + hour), ..office.job(2, 2, 1) });
    assert_eq!(office.next(), Admit(2));
    // It waits, for an hour: its company comes first.
    credit.store(1, Ordering::Release);
    office.scheduler.wake();
    assert_eq!(office.next(), Step(vec![(1, 0), (2, 0)]));
    // The first has no credit again, until it is given some.
    credit.fetch_add(1, Ordering::AcqRel);
    office.scheduler.wake();
    assert_eq!(office.next(), Step(vec![(1, 1), (2, 1)]));
    assert_eq!((office.next(), office.next()), (End(1), End(2)));
    // Its time is over: it does not wait.
    let idle = office.job(3, 1, 0);
    idle.credit.store(0, Ordering::Release);
    let idle_credit = idle.credit.clone();
    office.submit(idle);
    assert_eq!(office.next(), Admit(3));
    office.submit(Job { company_until: Some(office.zero), ..office.job(4, 1, 0) });
    assert_eq!((office.next(), office.next(), office.next()), (Admit(4), Step(vec![(4, 0)]), End(4)));
    idle_credit.store(1, Ordering::Release);
    office.scheduler.wake();
    assert_eq!((office.next(), office.next()), (Step(vec![(3, 0)]), End(3)));
}

#[test]
fn an_idle_engine_waits_for_credit_without_steps() {
    let office = Office::new(1, 2, 2, false);
    let job = office.job(1, 2, 0);
    job.credit.store(1, Ordering::Release);
    let credit = job.credit.clone();
    office.submit(job);
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    credit.fetch_add(1, Ordering::AcqRel);
    office.scheduler.wake();
    assert_eq!((office.next(), office.next()), (Step(vec![(1, 1)]), End(1)));
}

#[test]
fn a_step_that_fails_or_panics_ends_its_sequences_and_the_engine_goes_on() {
    for (go, failure) in [(Go::Fail, BatchFailure::Failed("on purpose".into())), (Go::Panic, BatchFailure::Panicked)] {
        let office = Office::new(1, 2, 2, true);
        office.submit(office.job(1, 3, 0));
        assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
        office.go.send(go).expect("the engine lives");
        assert_eq!(office.results.recv(), Ok((1, Err(failure))));
        office.submit(office.job(2, 1, 0));
        assert_eq!((office.next(), office.next()), (Admit(2), Step(vec![(2, 0)])));
        assert_eq!(office.step(), End(2));
        assert_eq!(office.results.recv(), Ok((2, Ok(1))));
    }
}

#[test]
fn the_replica_with_the_fewest_sequences_takes_the_next() {
    let office = Office::new(2, 4, 4, true);
    let mut taken = [0_usize; 2];
    for name in 0..6 {
        // Enough that none ends, whichever replica gets to step.
        office.submit(office.job(name, 1_000_000, 0));
        loop {
            // The engine that is not admitting may be waiting in its step.
            match office.asked.recv().expect("the engines live") {
                (replica, Admit(_)) => {
                    taken[replica] += 1;
                    break;
                }
                _ => office.go.send(Go::Step).expect("the engines live"),
            }
        }
        assert!(taken[0].abs_diff(taken[1]) <= 1, "{taken:?}");
    }
}

#[test]
fn without_memory_an_entry_waits_for_one_that_ends_and_fails_where_none_runs() {
    let office = Office::new(1, 4, 1, true);
    office.submit(office.job(1, 2, 0));
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    office.submit(office.job(2, 1, 0));
    assert_eq!(office.step(), Step(vec![(1, 1)]), "the second one waits");
    assert_eq!((office.step(), office.next(), office.next()), (End(1), Admit(2), Step(vec![(2, 0)])));
    assert_eq!(office.scheduler.load().n_slots, 2, "it tries with one more after each end");
    let none = Office::new(1, 4, 0, false);
    none.submit(none.job(1, 1, 0));
    assert_eq!(none.results.recv(), Ok((1, Err(BatchFailure::Failed("it is full".into())))));
}

#[test]
fn where_a_step_ends_a_sequence_for_lack_of_memory_no_other_takes_its_slot_until_one_ends() {
    let office = Office::new(1, 3, 3, true);
    office.submit(office.job(1, 3, 0));
    assert_eq!((office.next(), office.next()), (Admit(1), Step(vec![(1, 0)])));
    office.submit(office.job(2, 9, 0));
    office.submit(office.job(3, 1, 0));
    assert_eq!((office.step(), office.next()), (Admit(2), Step(vec![(1, 1), (2, 0)])));
    office.go.send(Go::Lack).expect("the engine lives");
    assert_eq!((office.next(), office.next()), (End(2), Step(vec![(1, 2)])), "the third one waits");
    assert_eq!(office.results.recv(), Ok((2, Err(BatchFailure::Failed("no memory".into())))));
    assert_eq!(office.scheduler.load(), SlotLoad { n_slots: 1, in_use: 1, waiting: 1 });
    assert_eq!((office.step(), office.next(), office.next()), (End(1), Admit(3), Step(vec![(3, 0)])));
}

#[test]
fn a_replica_without_memory_does_not_keep_others_from_serving() {
    // Each has memory for one of its four slots.
    let office = Office::new(2, 4, 1, true);
    for name in 0..3 {
        office.submit(office.job(name, 2, 0));
    }
    let mut n_ended = 0;
    while n_ended < 3 {
        office.go.send(Go::Step).expect("the engines live");
        while let Ok(result) = office.results.try_recv() {
            assert_eq!(result.1, Ok(2));
            n_ended += 1;
        }
        std::thread::yield_now();
    }
}

#[test]
fn an_engine_that_cannot_be_restarted_fails_what_waits_and_is_tried_again() {
    let starts = Arc::new(AtomicUsize::new(0));
    let (asking, _asked) = channel();
    let (go, leading) = channel();
    let asking = Mutex::new(asking);
    let leading = Arc::new(Mutex::new(leading));
    let scheduler = SlotScheduler::start("test", 1, 8, move |replica| {
        if starts.fetch_add(1, Ordering::AcqRel) == 1 {
            return Err("the device is gone".to_owned());
        }
        let asked = asking.lock().expect("no panic while locked").clone();
        let go = Some(leading.clone());
        Ok(Engine { n_slots: 1, replica, asked, go, room: 1, running: 0, admits_freely: false, lacked_memory: false })
    });
    let scheduler = scheduler.expect("it starts");
    let (ended, results) = channel();
    let job = |name| Job {
        name,
        steps: 1,
        deadline: Instant::now(),
        credit: Arc::new(AtomicUsize::new(9)),
        company_until: None,
        abandoned: Arc::default(),
        ended: ended.clone(),
    };
    go.send(Go::Fail).expect("the engine lives");
    assert!(scheduler.submit(job(1)).is_ok());
    assert_eq!(results.recv(), Ok((1, Err(BatchFailure::Failed("on purpose".into())))));
    // The restart fails; the next request starts it.
    go.send(Go::Step).expect("the engine lives");
    assert!(scheduler.submit(job(2)).is_ok());
    assert_eq!(results.recv(), Ok((2, Ok(1))));
}

#[test]
fn the_queue_is_bounded_by_the_slots() {
    let office = Office::new(1, 1, 1, true);
    office.submit(office.job(0, 9, 0));
    assert_eq!((office.next(), office.next()), (Admit(0), Step(vec![(0, 0)])));
    for name in 1..=64 {
        office.submit(office.job(name, 1, 0));
    }
    let refused = office.scheduler.submit(office.job(65, 1, 0)).err().map(|(overloaded, _)| overloaded);
    assert_eq!(refused, Some(Overloaded { waiting: 64 }));
}

/// What happens while the engine steps by itself.
#[derive(Clone, Debug)]
enum Act {
    Submit { steps: usize, deadline: u32, credit: usize },
    Abandon(usize),
    Credit(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..6_usize, 0..50_u32, 0..4_usize)
            .prop_map(|(steps, deadline, credit)| Act::Submit { steps, deadline, credit }),
        1 => (0..20_usize).prop_map(Act::Abandon),
        2 => (0..20_usize).prop_map(Act::Credit),
    ];
    prop::collection::vec(act, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    /// Whatever comes, goes, and is starved: no sequence runs twice in a step or while others have more than all slots,
    /// each one's steps are counted without a gap, and all that were not abandoned end with as many steps as they have.
    #[test]
    fn every_sequence_takes_its_own_steps(acts in acts(), n_replicas in 1..3_usize, n_slots in 1..5_usize) {
        let office = Office::new(n_replicas, n_slots, n_slots, false);
        let mut jobs: Vec<(Arc<AtomicUsize>, Arc<AtomicBool>, usize)> = Vec::new();
        for act in acts {
            match act {
                Act::Submit { steps, deadline, credit } => {
                    let job = office.job(jobs.len() as u32, steps, deadline);
                    job.credit.store(credit, Ordering::Release);
                    jobs.push((job.credit.clone(), job.abandoned.clone(), steps));
                    office.submit(job);
                }
                Act::Abandon(which) if which < jobs.len() => jobs[which].1.store(true, Ordering::Release),
                Act::Credit(which) if which < jobs.len() => {
                    jobs[which].0.fetch_add(2, Ordering::AcqRel);
                }
                _ => {}
            }
            office.scheduler.wake();
        }
        for (credit, ..) in &jobs {
            credit.fetch_add(100, Ordering::AcqRel);
        }
        office.scheduler.wake();
        let abandoned: Vec<bool> = jobs.iter().map(|(_, abandoned, _)| abandoned.load(Ordering::Acquire)).collect();
        let Office { scheduler, asked, ended, results, .. } = office;
        // The threads end when nothing is left, and with them the engines' senders.
        drop((scheduler, ended));
        let mut steps = vec![0; jobs.len()];
        let mut held: Vec<Vec<u32>> = vec![Vec::new(); n_replicas];
        for (replica, asked) in asked {
            match asked {
                Admit(name) if jobs[name as usize].2 > 0 => held[replica].push(name),
                Admit(_) => {}
                Step(names) => {
                    prop_assert!(held[replica].len() <= n_slots);
                    for (name, taken) in names {
                        prop_assert!(held[replica].contains(&name));
                        prop_assert_eq!(taken, steps[name as usize]);
                        steps[name as usize] += 1;
                    }
                }
                End(name) => held[replica].retain(|held| *held != name),
            }
        }
        prop_assert!(held.iter().all(Vec::is_empty), "a slot was not given back");
        let results: std::collections::HashMap<u32, _> = results.into_iter().collect();
        for (name, (_, _, wanted)) in jobs.iter().enumerate() {
            match results.get(&(name as u32)) {
                Some(result) => prop_assert_eq!(result, &Ok(*wanted)),
                None => prop_assert!(abandoned[name], "{} has no result", name),
            }
        }
    }
}
