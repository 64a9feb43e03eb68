//! The scheduler's threads, with an engine that runs on demand.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{SyncSender, sync_channel};

/// An engine that runs on demand, and reports its batches.
struct Puppet {
    go: Arc<Mutex<Receiver<&'static str>>>,
    ran: SyncSender<Vec<u32>>,
}

impl BatchEngine<Job> for Puppet {
    fn run(&mut self, batch: &mut Vec<Job>) -> Result<(), String> {
        self.ran.send(batch.iter().map(|job| job.name).collect()).expect("the test listens");
        let go = self.go.lock().expect("no panic while locked").recv().expect("the test says go");
        match go {
            "panic" => panic!("on purpose"),
            "fail" => Err("the device is gone".into()),
            _ => {
                for job in &mut *batch {
                    job.steps -= 1;
                }
                for job in batch.extract_if(.., |job| job.steps == 0) {
                    let _ = job.ended.send((job.name, Ok(())));
                }
                Ok(())
            }
        }
    }
}

struct Rig {
    scheduler: BatchScheduler<Job>,
    office: Office,
    go: Sender<&'static str>,
    ran: Receiver<Vec<u32>>,
    n_made: Arc<AtomicUsize>,
    broken: Arc<AtomicBool>,
}

fn rig(settings: BatchSettings) -> Rig {
    let (go, gated) = channel();
    let (says, ran) = sync_channel(100);
    let gated = Arc::new(Mutex::new(gated));
    let n_made = Arc::new(AtomicUsize::new(0));
    let broken = Arc::default();
    let (counts, breaks): (Arc<AtomicUsize>, Arc<AtomicBool>) = (n_made.clone(), Arc::clone(&broken));
    let make = move |_| {
        if breaks.load(Ordering::Relaxed) {
            return Err("no device");
        }
        counts.fetch_add(1, Ordering::Relaxed);
        Ok(Puppet { go: gated.clone(), ran: says.clone() })
    };
    Rig {
        scheduler: BatchScheduler::start("test", settings, make).expect("made"),
        office: Office::new(),
        go,
        ran,
        n_made,
        broken,
    }
}

impl Rig {
    fn submit(&self, job: Job) {
        self.scheduler.submit(job).map_err(|(overloaded, _)| overloaded).expect("there is room");
    }

    fn runs(&self) -> Vec<u32> {
        self.ran.recv().expect("the engine lives")
    }

    fn ends(&self) -> (u32, Result<(), BatchFailure>) {
        self.office.heard.recv().expect("an end")
    }
}

#[test]
fn what_waits_during_a_run_goes_together_in_the_next() {
    let rig = rig(settings(4, 0, 100));
    rig.submit(rig.office.job(1, 0, 0));
    assert_eq!(rig.runs(), [1]);
    for name in 2..8 {
        rig.submit(rig.office.job(name, 0, 100 - name));
    }
    assert_eq!(rig.scheduler.waiting(), 6);
    for _ in 0..3 {
        rig.go.send("go").expect("it lives");
    }
    assert_eq!((rig.runs(), rig.runs()), (vec![7, 6, 5, 4], vec![3, 2]));
    let ended: Vec<_> = (0..7).map(|_| rig.ends()).collect();
    assert!(ended.iter().all(|(_, end)| end.is_ok()), "{ended:?}");
}

#[test]
fn a_panic_and_a_failure_end_their_batch_and_the_engine_is_restarted() {
    let rig = rig(settings(1, 0, 100));
    for (name, how) in [(1, "panic"), (2, "fail"), (3, "go")] {
        rig.submit(rig.office.job(name, 0, name));
        rig.go.send(how).expect("it lives");
    }
    assert_eq!(rig.ends(), (1, Err(BatchFailure::Panicked)));
    assert_eq!(rig.ends(), (2, Err(BatchFailure::Failed("the device is gone".into()))));
    assert_eq!(rig.ends(), (3, Ok(())));
    assert_eq!(rig.n_made.load(Ordering::Relaxed), 3);
}

#[test]
fn an_engine_that_cannot_be_restarted_is_tried_again_with_the_next_entry() {
    let rig = rig(settings(1, 0, 100));
    rig.broken.store(true, Ordering::Relaxed);
    rig.submit(rig.office.job(1, 0, 0));
    rig.go.send("fail").expect("it lives");
    assert_eq!(rig.ends(), (1, Err(BatchFailure::Failed("the device is gone".into()))));
    rig.submit(rig.office.job(2, 0, 0));
    assert_eq!(rig.ends(), (2, Err(BatchFailure::RestartFailed("no device".into()))));
    rig.broken.store(false, Ordering::Relaxed);
    rig.submit(rig.office.job(3, 0, 0));
    rig.go.send("go").expect("it lives");
    assert_eq!(rig.ends(), (3, Ok(())));
}

#[test]
fn a_replica_without_an_engine_leaves_the_work_to_the_others_until_it_has_one() {
    let rig = rig(BatchSettings { n_replicas: 2, ..settings(1, 0, 100) });
    rig.broken.store(true, Ordering::Relaxed);
    rig.submit(rig.office.job(1, 0, 0));
    rig.go.send("fail").expect("it lives");
    assert_eq!(rig.runs(), [1]);
    assert!(rig.ends().1.is_err());
    for name in 2..8 {
        rig.submit(rig.office.job(name, 0, 0));
        rig.go.send("go").expect("it lives");
        assert_eq!(rig.ends(), (name, Ok(())));
        assert_eq!(rig.runs(), [name]);
    }
    rig.broken.store(false, Ordering::Relaxed);
    rig.submit(rig.office.job(8, 0, 0));
    rig.submit(rig.office.job(9, 0, 0));
    let mut both = [rig.runs(), rig.runs()].concat();
    both.sort_unstable();
    assert_eq!(both, [8, 9], "both run before either may go on");
    assert_eq!(rig.n_made.load(Ordering::Relaxed), 3);
    // A scheduler with a replica that has no engine ends like any other.
    rig.broken.store(true, Ordering::Relaxed);
    rig.go.send("fail").expect("it lives");
    rig.go.send("go").expect("it lives");
    drop((rig.ends(), rig.ends()));
    drop(rig.scheduler);
    while rig.ran.recv().is_ok() {}
}

#[test]
fn replicas_work_side_by_side_and_what_waits_is_done_after_the_last_handle_is_gone() {
    let rig = rig(BatchSettings { n_replicas: 2, ..settings(1, 0, 100) });
    for name in 1..6 {
        rig.submit(rig.office.job(name, 0, name));
    }
    let mut first = [rig.runs(), rig.runs()].concat();
    first.sort_unstable();
    assert_eq!(first, [1, 2], "both run before either may go on");
    drop(rig.scheduler);
    for _ in 0..5 {
        rig.go.send("go").expect("it lives");
    }
    for _ in 0..5 {
        assert_eq!(rig.office.heard.recv().expect("an end").1, Ok(()));
    }
    // The threads let go of their ends of the channel as they end.
    while rig.ran.recv().is_ok() {}
}

#[test]
fn an_engine_that_cannot_be_made_at_the_start_is_said() {
    struct Never;
    impl BatchEngine<Job> for Never {
        fn run(&mut self, _: &mut Vec<Job>) -> Result<(), String> {
            Ok(())
        }
    }
    let scheduler = BatchScheduler::start("test", settings(1, 0, 1), |_| Err::<Never, _>("no model"));
    assert_eq!(scheduler.err(), Some("no model"));
}

#[tokio::test]
#[allow(clippy::disallowed_methods)]
async fn entries_that_wait_for_room_come_in_order_as_soon_as_there_is_some() {
    let rig = rig(settings(1, 0, 1));
    rig.submit(rig.office.job(0, 0, 0));
    assert_eq!(rig.runs(), [0]);
    let mut waiters = Vec::new();
    for name in 1..5 {
        let scheduler = rig.scheduler.clone();
        let job = rig.office.job(name, 0, 0);
        waiters.push((job.abandoned.clone(), tokio::spawn(async move { scheduler.enqueue(job).await })));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(rig.scheduler.waiting(), 1, "the first has the place, the others wait for it");
    // One that is abandoned in the queue makes room; one that leaves before it has a place gives its turn up.
    waiters[0].0.store(true, Ordering::Relaxed);
    rig.scheduler.has_abandoned();
    waiters[2].1.abort();
    (&mut waiters[1].1).await.expect("there is room");
    for _ in 0..3 {
        rig.go.send("go").expect("it lives");
    }
    (&mut waiters[3].1).await.expect("there is room");
    assert_eq!((rig.runs(), rig.runs()), (vec![2], vec![4]));
}
