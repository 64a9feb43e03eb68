//! From the configuration to the engines all sessions share.
//!
//! `cli` calls [`build`] once at start, or one of [`stt`], [`llm`], [`tts`] where a command needs a single stage. What
//! cannot start is said with what is missing and how to get it; nothing is replaced by something else in silence. This
//! module keeps no engine and talks to no client.

mod error;
mod make;

pub use error::{EnginesError, StageFailure};
pub use make::{llm, stt, tts, turn, vad};

use crate::config::Config;
use crate::session::Engines;
use std::sync::Arc;
use std::thread;

/// Starts the engine of each stage, the slow ones at the same time, each on a thread of its own. Blocks until all are
/// loaded, for seconds where models are large. Progress is logged.
///
/// # Errors
/// Every stage that could not start, not only the first.
pub fn build(config: &Config) -> Result<Engines, EnginesError> {
    // A remote engine may want the runtime's reactor while it is made; threads do not inherit it.
    let runtime = tokio::runtime::Handle::try_current().ok();
    let (stt, tts, llm, vad, turn) = thread::scope(|scope| {
        let enter = || runtime.as_ref().map(|runtime| runtime.enter());
        let stt = scope.spawn(move || {
            let _context = enter();
            logged("stt", &config.stt.engine, || make::stt(config))
        });
        let tts = scope.spawn(move || {
            let _context = enter();
            logged("tts", &config.tts.engine, || make::tts(config))
        });
        let llm = logged("llm", &config.llm.engine, || make::llm(config));
        let vad = logged("vad", &config.vad.engine, || make::vad(config));
        let turn = make::turn(config);
        (joined("stt", stt), joined("tts", tts), llm, vad, turn)
    });
    match (vad, turn, stt, llm, tts) {
        (Ok(vad), Ok(turn), Ok(stt), Ok(llm), Ok(tts)) => Ok(Engines { vad, turn, stt, llm, tts }),
        (vad, turn, stt, llm, tts) => {
            let failures = [vad.err(), turn.err(), stt.err(), llm.err(), tts.err()];
            Err(EnginesError(failures.into_iter().flatten().collect()))
        }
    }
}

fn logged<T: ?Sized>(
    stage: &'static str,
    engine: &str,
    make: impl FnOnce() -> Result<Arc<T>, StageFailure>,
) -> Result<Arc<T>, StageFailure> {
    tracing::info!(stage, engine, "loading");
    let made = make()?;
    tracing::info!(stage, engine, "ready");
    Ok(made)
}

/// An engine that panics while it is made is a failure of its stage, as any other.
fn joined<T>(
    stage: &'static str,
    thread: thread::ScopedJoinHandle<'_, Result<T, StageFailure>>,
) -> Result<T, StageFailure> {
    thread.join().unwrap_or_else(|_| Err(StageFailure::new(stage, "", "it panicked while it was made")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KEYS, Rule};

    #[test]
    fn an_unknown_engine_is_refused_by_name() {
        let mut config = Config::default();
        config.tts.engine = "gramophone".into();
        let error = tts(&config).err().expect("refused").to_string();
        assert_eq!(error, "tts: the engine \"gramophone\" cannot start: there is no such engine");
    }

    #[test]
    fn all_stages_that_fail_are_reported_together() {
        let mut config = Config::default();
        for engine in [&mut config.stt.engine, &mut config.llm.engine, &mut config.tts.engine, &mut config.vad.engine] {
            *engine = "none".into();
        }
        let Err(EnginesError(failures)) = build(&config) else { panic!("refused") };
        let stages: Vec<_> = failures.iter().map(|failure| failure.stage).collect();
        assert_eq!(stages, ["vad", "stt", "llm", "tts"]);
    }

    #[test]
    fn every_engine_the_configuration_lets_through_is_known_here() {
        for key in KEYS.iter().filter(|key| key.name == "engine") {
            let Rule::OneOf(names) = key.rule else { panic!("{}: a list of names", key.section) };
            assert_eq!(names, make::names(key.section), "{}", key.section);
        }
    }
}
