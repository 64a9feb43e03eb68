//! Replicas on two devices, of which one goes and comes back: a pool, an elastic pool and both schedulers.

use super::batch::{BatchEngine, BatchFailure, BatchScheduler, BatchSettings, Entry};
use super::slots::{ActiveSequence, Admission, SlotEngine, SlotEntry, SlotScheduler};
use super::*;
use std::sync::Condvar;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

/// Two devices, and the engines that were started on them.
#[derive(Default)]
struct Devices {
    is_gone: [AtomicBool; 2],
    /// Engines start on it, and each run fails.
    is_broken: [AtomicBool; 2],
    /// The device of each start, also of those that failed.
    starts: Mutex<Vec<usize>>,
    started: Condvar,
}

impl Devices {
    /// Starts a replica's engine on the replica's device.
    fn start(&self, replica: usize) -> Result<usize, String> {
        let result = match self.is_gone[replica].load(Ordering::Acquire) {
            true => Err(format!("device {replica} is gone")),
            false => Ok(replica),
        };
        self.starts.lock().expect("no panic while locked").push(replica);
        self.started.notify_all();
        result
    }

    /// Waits for this number of starts.
    fn wait_for_starts(&self, n: usize) {
        let starts = self.starts.lock().expect("no panic while locked");
        drop(self.started.wait_while(starts, |starts| starts.len() < n).expect("no panic while locked"));
    }

    /// Runs something on a device.
    fn run(&self, device: usize) -> Result<(), String> {
        match (&self.is_gone[device], &self.is_broken[device]) {
            (gone, _) if gone.load(Ordering::Acquire) => Err(format!("device {device} is gone")),
            (_, broken) if broken.load(Ordering::Acquire) => Err(format!("device {device} is broken")),
            _ => Ok(()),
        }
    }

    fn set_gone(&self, device: usize, is_gone: bool) {
        self.is_gone[device].store(is_gone, Ordering::Release);
    }

    /// Each device was started once, then the second one only, again and again.
    fn assert_only_the_second_was_restarted(&self) {
        let starts = self.starts.lock().expect("no panic while locked").clone();
        let mut first = starts[..2].to_vec();
        first.sort_unstable();
        assert_eq!(first, [0, 1]);
        assert!(starts.len() > 3, "restarted in vain, then with success: {starts:?}");
        assert!(starts[2..].iter().all(|device| *device == 1), "{starts:?}");
    }
}

/// The pools that one may start with `n` engines: replicas side by side, in turn, and on demand.
fn pools<E: 'static, F>(n: usize, make: F) -> [Pool<E>; 3]
where
    F: Fn(usize) -> Result<E, String> + Clone + Send + Sync + 'static,
{
    let hour = Duration::from_secs(3_600);
    [
        Pool::start("test", n, 8, make.clone()).expect("it starts"),
        Pool::start_in_turn("test", n, 8, make.clone()).expect("it starts"),
        Pool::start_elastic("test", n, 8, hour, make).expect("it starts"),
    ]
}

#[tokio::test]
async fn each_replica_of_a_pool_has_its_own_number_at_the_start_and_after_a_failure() {
    for pool in pools(3, Ok) {
        let mut leases = [pool.lease().await, pool.lease().await, pool.lease().await].map(|lease| lease.expect("free"));
        let mut numbers = Vec::new();
        for lease in &mut leases {
            let number = lease.run(|number| *number).await.expect("it runs");
            assert_eq!(lease.run(|_| panic!("on purpose")).await, Err::<(), _>(PoolError::Panicked));
            assert_eq!(lease.run(|number| *number).await, Ok(number));
            numbers.push(number);
        }
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2]);
    }
}

#[tokio::test]
async fn a_pool_goes_on_with_the_other_device_and_restarts_the_replica_on_its_own() {
    let devices: Arc<Devices> = Arc::default();
    let starts = devices.clone();
    let pool = Pool::start("test", 2, 8, move |replica| starts.start(replica)).expect("it starts");
    // The device of the next lease, and what came of a run on it.
    let run = async |lease: &mut Lease<usize>| {
        let on = devices.clone();
        let job = move |device: &mut usize| (*device, on.run(*device));
        lease.run_judged(job, |(_, result)| result.is_err()).await
    };
    let mut both = [pool.lease().await.expect("free"), pool.lease().await.expect("free")];
    devices.set_gone(1, true);
    let mut results = [run(&mut both[0]).await.expect("it ran"), run(&mut both[1]).await.expect("it ran")];
    results.sort_unstable();
    assert_eq!(results, [(0, Ok(())), (1, Err("device 1 is gone".into()))]);
    drop(both);
    // The failed one is back once there was an attempt to restart it.
    while pool.free() < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        assert_eq!(run(&mut pool.lease().await.expect("free")).await, Ok((0, Ok(()))));
    }
    devices.set_gone(1, false);
    let mut both = [pool.lease().await.expect("free"), pool.lease().await.expect("free")];
    let mut results = [run(&mut both[0]).await.expect("it ran"), run(&mut both[1]).await.expect("it ran")];
    results.sort_unstable();
    assert_eq!(results, [(0, Ok(())), (1, Ok(()))]);
    devices.assert_only_the_second_was_restarted();
}

#[tokio::test]
async fn a_pool_leases_a_replica_last_that_starts_and_breaks_with_each_job() {
    let devices: Arc<Devices> = Arc::default();
    let pool = Pool::start("test", 2, 8, Ok::<usize, String>).expect("it starts");
    devices.is_broken[1].store(true, Ordering::Release);
    let mut n_failed = 0;
    for _ in 0..20 {
        let on = devices.clone();
        let mut lease = pool.lease().await.expect("free");
        let result = lease.run_judged(move |device| on.run(*device), Result::is_err).await.expect("it ran");
        n_failed += usize::from(result.is_err());
        drop(lease);
        while pool.free() < 2 {
            tokio::task::yield_now().await;
        }
    }
    assert!((1..=2).contains(&n_failed), "{n_failed} of 20 failed");
    // It is leased where the healthy one is busy, and one job that it does well makes it like any other.
    devices.is_broken[1].store(false, Ordering::Release);
    let mut both = [pool.lease().await.expect("free"), pool.lease().await.expect("free")];
    for (lease, expected) in both.iter_mut().zip([0, 1]) {
        assert_eq!(lease.run(|device| *device).await, Ok(expected));
    }
    let [first, second] = both;
    drop(first);
    drop(second);
    while pool.free() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(pool.lease().await.expect("free").run(|device| *device).await, Ok(1), "used last, leased first");
}

/// What became of a job: the device's error where it failed.
type JobEnd = (u32, Result<(), BatchFailure>);

/// A job of one step, for either scheduler.
struct Job {
    name: u32,
    ended: Sender<JobEnd>,
}

impl Entry for Job {
    fn deadline(&self) -> Instant {
        Instant::now()
    }

    fn is_abandoned(&self) -> bool {
        false
    }

    fn fail(self, failure: BatchFailure) {
        drop(self.ended.send((self.name, Err(failure))));
    }
}

impl SlotEntry for Job {
    fn has_credit(&self) -> bool {
        true
    }
}

/// An engine of either scheduler: it says which job it runs on which device, and waits.
struct Engine {
    device: usize,
    devices: Arc<Devices>,
    runs: Sender<(usize, u32)>,
    go: Arc<Mutex<Receiver<()>>>,
}

impl Engine {
    fn run(&self, name: u32) -> Result<(), String> {
        self.runs.send((self.device, name)).expect("the test listens");
        self.go.lock().expect("no panic while locked").recv().expect("the test says go");
        self.devices.run(self.device)
    }
}

impl BatchEngine<Job> for Engine {
    fn run(&mut self, batch: &mut Vec<Job>) -> Result<(), String> {
        Self::run(self, batch[0].name)?;
        batch.drain(..).for_each(|job| drop(job.ended.send((job.name, Ok(())))));
        Ok(())
    }
}

impl SlotEngine<Job> for Engine {
    type State = ();

    fn n_slots(&self) -> usize {
        1
    }

    fn admit(&mut self, job: Job) -> Result<Admission<Job, ()>, (String, Job)> {
        Ok(Admission::Running(ActiveSequence { entry: job, state: (), is_done: false }))
    }

    fn step(&mut self, running: &mut [&mut ActiveSequence<Job, ()>]) -> Result<(), String> {
        for one in running {
            Self::run(self, one.entry.name)?;
            one.is_done = true;
            drop(one.entry.ended.send((one.entry.name, Ok(()))));
        }
        Ok(())
    }

    fn end(&mut self, (): ()) {}
}

/// Starts a replica's engine.
type Make = Box<dyn Fn(usize) -> Result<Engine, String> + Send + Sync>;

/// Puts a job into a scheduler's queue.
type Submit = Box<dyn Fn(Job)>;

/// A scheduler on two devices, by what it is asked.
struct Rig {
    devices: Arc<Devices>,
    submit: Submit,
    go: Sender<()>,
    runs: Receiver<(usize, u32)>,
    ended: Sender<JobEnd>,
    ends: Receiver<JobEnd>,
}

/// A batch scheduler and a slot scheduler, of two replicas each, which take one job at a time.
fn rigs() -> [Rig; 2] {
    let rig = |start: fn(Make) -> Submit| {
        let devices: Arc<Devices> = Arc::default();
        let ((go, gate), (says, runs), (ended, ends)) = (channel(), channel(), channel());
        let gate = Arc::new(Mutex::new(gate));
        let says = Mutex::new(says);
        let on = devices.clone();
        let make = move |replica| {
            let runs = says.lock().expect("no panic while locked").clone();
            Ok(Engine { device: on.start(replica)?, devices: on.clone(), runs, go: gate.clone() })
        };
        Rig { devices, submit: start(Box::new(make)), go, runs, ended, ends }
    };
    let batch = rig(|make| {
        let settings = BatchSettings { n_replicas: 2, max_batch: 1, max_wait: Duration::ZERO, max_waiting: 64 };
        let scheduler = BatchScheduler::start("test", settings, make).expect("it starts");
        Box::new(move |job| assert!(scheduler.submit(job).is_ok(), "there is room"))
    });
    let slots = rig(|make| {
        let scheduler = SlotScheduler::start("test", 2, 64, make).expect("it starts");
        Box::new(move |job| assert!(scheduler.submit(job).is_ok(), "there is room"))
    });
    [batch, slots]
}

impl Rig {
    fn submit(&self, name: u32) {
        (self.submit)(Job { name, ended: self.ended.clone() });
    }

    /// Two jobs, each of which runs on a device of its own before either may go on: their names, by the device.
    fn run_on_both(&self, names: [u32; 2]) -> [u32; 2] {
        names.iter().for_each(|name| self.submit(*name));
        let mut runs = [(); 2].map(|()| self.runs.recv().expect("the engines live"));
        runs.sort_unstable();
        assert_eq!(runs.map(|(device, _)| device), [0, 1]);
        runs.map(|(_, name)| name)
    }

    fn go(&self) {
        self.go.send(()).expect("the engines live");
    }

    fn end(&self) -> JobEnd {
        self.ends.recv().expect("an end")
    }
}

#[test]
fn a_scheduler_goes_on_with_the_other_device_and_restarts_the_replica_on_its_own() {
    for rig in rigs() {
        let names = rig.run_on_both([1, 2]);
        rig.devices.set_gone(1, true);
        rig.go();
        rig.go();
        let mut ends = [rig.end(), rig.end()];
        ends.sort_unstable_by_key(|(name, _)| *name != names[0]);
        let failure = BatchFailure::Failed("device 1 is gone".into());
        assert_eq!(ends, [(names[0], Ok(())), (names[1], Err(failure))]);
        // It was restarted in vain.
        rig.devices.wait_for_starts(3);
        for name in 3..8 {
            rig.submit(name);
            assert_eq!(rig.runs.recv(), Ok((0, name)));
            rig.go();
            assert_eq!(rig.end(), (name, Ok(())));
        }
        rig.devices.set_gone(1, false);
        rig.run_on_both([8, 9]);
        rig.go();
        rig.go();
        assert!(rig.end().1.is_ok() && rig.end().1.is_ok());
        rig.devices.assert_only_the_second_was_restarted();
    }
}

#[test]
fn a_scheduler_gives_a_replica_that_starts_and_fails_each_run_ever_less() {
    for rig in rigs() {
        rig.devices.is_broken[1].store(true, Ordering::Release);
        let mut n_failed = 0;
        for name in 0..100 {
            rig.go();
            rig.submit(name);
            n_failed += usize::from(rig.end().1.is_err());
        }
        // Two, and one more after pauses of 1, 2, 4, 8 s and so on: this is no bound of the time it takes.
        assert!(n_failed <= 9, "{n_failed} of 100 failed");
    }
}
