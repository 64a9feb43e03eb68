//! One engine that blocks: how it is started, run, stopped and restarted.
//!
//! Both kinds of engine threads have one: the replicas of a [`Pool`](crate::pool::Pool) and those of a
//! [`BatchScheduler`](crate::pool::batch::BatchScheduler). A panic of the engine ends its job, never the thread. The owner
//! decides when an engine is restarted; a start that fails is logged and reported through [`Health`], and the next request
//! tries again. The supervisor knows no queue.

use crate::memory;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

/// Whether an engine can serve, readable from any thread. An engine counts as healthy until a start of it has failed:
/// while it is restarted, and while it is stopped because it is not needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health(Arc<AtomicBool>);

impl Health {
    /// Whether the last start failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn set_failed(&self, has_failed: bool) {
        self.0.store(has_failed, Ordering::Release);
    }
}

/// The engine panicked while it ran a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EnginePanic;

/// An engine on its thread. `make` starts one; it is called again after [`stop`](Self::stop).
pub(crate) struct Supervisor<E, F> {
    engine: Option<E>,
    make: F,
    health: Health,
    /// The next start follows a failure.
    is_restart: bool,
}

/// The first start of an engine on its own thread.
pub(crate) struct FirstStart<X>(Receiver<Result<(), X>>);

impl<X> FirstStart<X> {
    /// Blocks until the engine runs. The error is the engine's own.
    pub(crate) fn wait(self) -> Result<(), X> {
        self.0.recv().expect("the thread reports before it ends")
    }
}

impl<E, X, F> Supervisor<E, F>
where
    E: 'static,
    X: Display + Send + 'static,
    F: Fn() -> Result<E, X> + Send + 'static,
{
    /// Spawns a thread, which starts the engine, reports the result and runs `body`. Where the start fails, the thread ends.
    pub(crate) fn spawn(
        name: &str,
        health: Health,
        make: F,
        body: impl FnOnce(Self) + Send + 'static,
    ) -> FirstStart<X> {
        let (report, started) = sync_channel(1);
        spawn_thread(name, move || {
            let engine = match make() {
                Ok(engine) => engine,
                // The owner may have given up and not wait.
                Err(error) => return drop(report.send(Err(error))),
            };
            drop(report.send(Ok(())));
            body(Self { engine: Some(engine), make, health, is_restart: false });
        });
        FirstStart(started)
    }

    /// Spawns a thread that runs `body` without an engine: it is started on demand.
    pub(crate) fn spawn_stopped(name: &str, health: Health, make: F, body: impl FnOnce(Self) + Send + 'static) {
        spawn_thread(name, move || body(Self { engine: None, make, health, is_restart: false }));
    }
}

impl<E, X: Display, F: Fn() -> Result<E, X>> Supervisor<E, F> {
    /// Whether there is an engine.
    pub(crate) fn is_running(&self) -> bool {
        self.engine.is_some()
    }

    /// The engine, started where there is none. The error says why the start failed. Blocks for as long as a start takes.
    pub(crate) fn engine(&mut self) -> Result<&mut E, String> {
        if self.engine.is_none() {
            self.start()?;
        }
        Ok(self.engine.as_mut().expect("it was just started"))
    }

    /// Drops the engine, which is not needed, and gives its memory back to the system.
    pub(crate) fn stop(&mut self) {
        self.drop_engine();
        memory::give_back();
    }

    /// Stops the engine after a failure: the next start is a restart, which uses the memory again. The old engine is dropped
    /// first, since two may not fit into a device's memory.
    pub(crate) fn stop_failed(&mut self) {
        self.drop_engine();
        self.is_restart = true;
    }

    /// One that panics while it is dropped is gone all the same.
    fn drop_engine(&mut self) {
        drop(catch_unwind(AssertUnwindSafe(|| drop(self.engine.take()))));
    }

    /// The engine, which is stopped, counts as failed until its next start.
    pub(crate) fn set_failed(&self) {
        self.health.set_failed(true);
    }

    /// Starts the engine. A panic is a failure like any other.
    fn start(&mut self) -> Result<(), String> {
        let started = match catch_unwind(AssertUnwindSafe(&self.make)) {
            Ok(started) => started.map_err(|error| error.to_string()),
            Err(_) => Err("it panicked".into()),
        };
        self.health.set_failed(started.is_err());
        let current = thread::current();
        let engine = current.name().unwrap_or_default();
        match started {
            Ok(started) => {
                self.engine = Some(started);
                if std::mem::take(&mut self.is_restart) {
                    tracing::warn!(engine, "the engine failed and was restarted");
                }
                Ok(())
            }
            Err(message) => {
                self.is_restart = true;
                tracing::error!(engine, "the engine cannot be started: {message}");
                Err(message)
            }
        }
    }
}

/// Runs `job`; a panic is an error.
pub(crate) fn catch_panic<R>(job: impl FnOnce() -> R) -> Result<R, EnginePanic> {
    catch_unwind(AssertUnwindSafe(job)).map_err(|_| EnginePanic)
}

fn spawn_thread(name: &str, body: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_owned()).spawn(body).expect("the system gives a thread");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    /// An engine that counts the starts before it; the third start fails and the fourth panics.
    fn counting() -> impl Fn() -> Result<u32, String> + Send + 'static {
        let n_starts = std::sync::atomic::AtomicU32::new(0);
        move || match n_starts.fetch_add(1, Ordering::Relaxed) {
            2 => Err("no device".into()),
            3 => panic!("on purpose"),
            n => Ok(n),
        }
    }

    #[test]
    fn an_engine_is_restarted_after_a_failure_and_tried_again_where_that_fails() {
        let (health, (done, wait)) = (Health::default(), channel());
        let seen = health.clone();
        let starting = Supervisor::spawn("test", health, counting(), move |mut supervisor| {
            let mut states = Vec::new();
            for _ in 0..5 {
                states.push((supervisor.engine().copied(), supervisor.is_running(), seen.has_failed()));
                supervisor.stop_failed();
            }
            done.send(states).expect("the test listens");
        });
        assert_eq!(starting.wait(), Ok(()));
        let expected = [
            (Ok(0), true, false),
            (Ok(1), true, false),
            (Err("no device".to_owned()), false, true),
            (Err("it panicked".to_owned()), false, true),
            (Ok(4), true, false),
        ];
        assert_eq!(wait.recv().expect("the thread ends"), expected);
    }

    /// Memory of this process that is no file's, in MiB.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn anonymous_mib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").expect("there is /proc");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("the kernel counts it");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn an_engine_that_is_stopped_gives_its_memory_back() {
        const PIECE: usize = 4 << 10;
        const N_PIECES: usize = (64 << 20) / PIECE;
        let (done, wait) = channel();
        let make = || Ok::<_, String>(vec![vec![1_u8; PIECE]; N_PIECES]);
        Supervisor::spawn_stopped("test", Health::default(), make, move |mut supervisor| {
            supervisor.engine().expect("it starts");
            // What is in use above the engine's memory keeps the allocator from giving it back by itself.
            let above = vec![1_u8; PIECE];
            let held = anonymous_mib();
            supervisor.stop();
            done.send((held, anonymous_mib())).expect("the test listens");
            drop(above);
        });
        let (held, left) = wait.recv().expect("the thread ends");
        assert!(held >= 64 && left + 48 <= held, "{held} MiB with the engine, {left} MiB without");
    }

    #[test]
    fn the_first_failure_is_the_engines_own() {
        let health = Health::default();
        let starting = Supervisor::spawn("test", health, || Err::<u32, _>("no model"), |_| unreachable!());
        assert_eq!(starting.wait(), Err("no model"));
    }

    #[test]
    fn an_engine_that_panics_while_it_is_dropped_is_gone() {
        struct Clings;
        impl Drop for Clings {
            fn drop(&mut self) {
                panic!("on purpose");
            }
        }
        let (done, wait) = channel();
        Supervisor::spawn_stopped(
            "test",
            Health::default(),
            || Ok::<_, String>(Clings),
            move |mut supervisor| {
                let was_running = supervisor.engine().is_ok();
                supervisor.stop();
                done.send((was_running, supervisor.is_running())).expect("the test listens");
            },
        );
        assert_eq!(wait.recv().expect("the thread lives on"), (true, false));
    }
}
