//! The language model of an engine under load, without its vocoder: for `antiphon-bench`.

use super::contract::Contract;
use super::engine::{Request, Step};
use super::files::ModelFiles;
use super::text::{TextReader, TextToSpeak};
use super::{Conditioner, InstancePlace, hum, speech_engine, unavailable};
use crate::tts::TtsConfig;
use antiphon_engine_api::tts::TtsError;
use antiphon_inference::onnx::{OnnxConfig, Runtime};
use antiphon_inference::pool::slots::SlotScheduler;
use futures_util::future::join_all;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// What the steps of a language model cost.
#[derive(Clone, Copy, Debug)]
pub struct DecodeCosts {
    /// Tokens of all listeners.
    pub n_tokens: u64,
    /// Steps.
    pub n_steps: u64,
    /// From the first token of the last listener to the last token.
    pub wall: Duration,
    /// The graphs' own runs in all steps.
    pub in_runs: Duration,
    /// Sampling in all steps.
    pub sampling: Duration,
    /// The prefill of one listener who is alone.
    pub prefill: Duration,
}

/// Has `n_listeners` spoken to at once by the engine that `config` names, for as long as its contract lets a text be, and
/// measures the steps in which all of them take part. Blocks for seconds to minutes.
///
/// # Errors
/// As of starting the engine; [`TtsError::Engine`] where a speech fails.
pub fn decode(config: &TtsConfig, onnx: &OnnxConfig, n_listeners: usize, text: &str) -> Result<DecodeCosts, TtsError> {
    let main = Path::new(&config.model);
    let contract = Arc::new(Contract::find(&config.contract, main).map_err(unavailable)?);
    let files = ModelFiles::find(main, &contract).map_err(unavailable)?;
    let runtime = Runtime::open(onnx).map_err(unavailable)?;
    let reader = TextReader::open(&files.tokenizer, &contract).map_err(unavailable)?;
    let conditioner = Conditioner::load(&files, &contract, &runtime).map_err(unavailable)?;
    let voice = Arc::new(conditioner.condition(&hum(&contract, 10), None, [0; 32]).map_err(unavailable)?);
    drop(conditioner);
    let place = Arc::new(InstancePlace { n_sharing: 1, ..InstancePlace::default() });
    let counted = place.counted.clone();
    let make = {
        let contract = contract.clone();
        let place = place.clone();
        let config = config.clone();
        let widest = reader.widest_prompt().map_err(unavailable)?;
        let voice = voice.clone();
        move |_| speech_engine(&files, &contract, &runtime, &config, &widest, &voice, &place).map(|(engine, _)| engine)
    };
    let slots = SlotScheduler::start("measured", 1, 1, make).map_err(unavailable)?;
    let ids = reader.ids(TextToSpeak { text, language: &contract.languages[0], ..TextToSpeak::default() });
    let ids = ids.map_err(unavailable)?;
    let request =
        |seed: u64| Request::new(voice.clone(), ids.clone(), text.chars().count(), seed, Some(Duration::ZERO));
    let failed = || TtsError::Engine { message: "a listener got no speech".into(), source: None };

    let begun = Instant::now();
    let (alone, mut tokens) = request(0);
    slots.submit(alone).map_err(|_| failed())?;
    let first = futures_executor::block_on(tokens.next(|| slots.wake()));
    let prefill = begun.elapsed();
    if !matches!(first, Some(Step::Frame(_))) {
        return Err(failed());
    }
    drop(tokens);
    slots.wake();

    let mut listeners = Vec::with_capacity(n_listeners);
    for seed in 1..=n_listeners as u64 {
        let (job, tokens) = request(seed);
        slots.submit(job).map_err(|_| failed())?;
        listeners.push(tokens);
    }
    futures_executor::block_on(async {
        // All of them run once each has a token; the batch has been put together some steps later.
        const SETTLED: usize = 4;
        for listener in &mut listeners {
            for _ in 0..SETTLED {
                listener.next(|| slots.wake()).await.ok_or_else(failed)?;
            }
        }
        let at = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let read = || (at(&counted.n_steps), at(&counted.n_rows), at(&counted.in_runs_ns), at(&counted.sampling_ns));
        let before = read();
        let begun = Instant::now();
        let drained = join_all(listeners.iter_mut().map(|listener| async {
            loop {
                match listener.next(|| slots.wake()).await {
                    Some(Step::Frame(_)) => {}
                    Some(Step::End) => return Ok(()),
                    Some(Step::Failed(error)) => return Err(error),
                    None => return Err(failed()),
                }
            }
        }))
        .await;
        drained.into_iter().collect::<Result<Vec<()>, TtsError>>()?;
        let wall = begun.elapsed();
        let after = read();
        Ok(DecodeCosts {
            n_tokens: after.1 - before.1,
            n_steps: after.0 - before.0,
            wall,
            in_runs: Duration::from_nanos(after.2 - before.2),
            sampling: Duration::from_nanos(after.3 - before.3),
            prefill,
        })
    })
}
