//! How fast a model is on this machine: [`measure_stt`] and [`measure_tts`] let it work for two conversations at once, and
//! [`Trials`] keeps the figures beside the model.
//!
//! [`super::EngineManager`] measures the models among which "auto" selects, each once, and `antiphon models measure` those that the
//! operator names. `choose` compares the figures with the objective ([`Trial::verdict`]). Both measurements block, for
//! [`DEADLINE`] at most; sessions never wait for one.

mod store;

pub use store::Trials;

use antiphon_audio::decode;
use antiphon_engine_api::stt::{self, Stt, SttError, SttOptions};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError};
use antiphon_registry::Stage;
use antiphon_types::Pcm;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Conversations at once: a hub on which a second caller always has to wait is none that one would choose.
const N_AT_ONCE: usize = 2;
/// How much longer a model may take where two wait at the same moment, which is rare: a turn ends every few seconds.
const MAX_SLOWDOWN: u32 = 2;
/// The longest first sound that "auto" accepts of a voice, in milliseconds.
const MAX_FIRST_SOUND_MS: u32 = 300;
/// The longest time that a voice may take for a second of sound, for each of the conversations: beyond it replies run dry as soon
/// as something else happens on the machine.
const MAX_SHARE: f32 = 0.8;
/// Voice-to-voice latency that is kept where the operator set no objective, in milliseconds: the default of
/// `slo.voice_to_voice_ms`.
const USUAL_OBJECTIVE_MS: u32 = 800;
/// The longest measurement. A model that takes longer has this as its figure.
const DEADLINE: Duration = Duration::from_secs(20);

/// What a recognizer is measured with: "what your country can do for you", 2.8 s, Opus at 32 kbit/s. From a speech of John F.
/// Kennedy, 20 January 1961, public domain.
const UTTERANCE: &[u8] = include_bytes!("utterance.opus");
/// What a voice begins with, so that what it does at its first run only is not measured.
const WARMING: &str = "Hello.";
/// What a voice is measured with: clauses as long as those that a reply begins with, one for each conversation.
const CLAUSES: [&str; N_AT_ONCE] = ["Sure, I can help you with that.", "The next train leaves at noon."];

/// How fast a model was on this machine. A conversation waits for the transcript after the end of an utterance of 2.8 s, or for the
/// first sound of a clause of about 2 s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Milliseconds that one conversation waited.
    pub wait_ms: u32,
    /// Milliseconds until both of two that began at the same moment had what they wait for.
    pub both_ms: u32,
    /// Time until these two had everything, as a share of the length of the sound of one.
    pub share: f32,
}

impl Trial {
    /// Whether the model keeps the objective (`slo.voice_to_voice_ms`, in milliseconds; 0: none is set).
    ///
    /// # Errors
    /// Why it does not, for the operator.
    pub fn verdict(&self, stage: Stage, objective_ms: u32) -> Result<(), String> {
        let bound = bound_ms(stage, objective_ms);
        let both_bound = bound.saturating_mul(MAX_SLOWDOWN);
        let Self { wait_ms, both_ms, share } = self;
        let output = output(stage);
        if *wait_ms > bound {
            return Err(format!("{output} after {wait_ms} ms, and {bound} ms are allowed"));
        }
        if *both_ms > both_bound {
            return Err(format!("{output} after {both_ms} ms where two wait at once, and {both_bound} ms are allowed"));
        }
        if stage == Stage::Tts && *share > MAX_SHARE {
            return Err(format!(
                "two conversations at once take it {share:.1} s for a second of sound, and {MAX_SHARE} s are allowed"
            ));
        }
        Ok(())
    }

    /// The figures in words, for the operator.
    pub fn described(&self, stage: Stage) -> String {
        format!("{} after {} ms, {} ms where two wait at once", output(stage), self.wait_ms, self.both_ms)
    }
}

/// What a conversation waits for.
fn output(stage: Stage) -> &'static str {
    if stage == Stage::Tts { "first sound" } else { "transcript" }
}

/// The longest wait for a model of the stage, in milliseconds. A voice's is fixed, and a recognizer has the rest: the pause that
/// ends a turn runs while it decodes.
fn bound_ms(stage: Stage, objective_ms: u32) -> u32 {
    let objective_ms = if objective_ms == 0 { USUAL_OBJECTIVE_MS } else { objective_ms };
    match stage {
        Stage::Tts => MAX_FIRST_SOUND_MS,
        _ => objective_ms.saturating_sub(MAX_FIRST_SOUND_MS),
    }
}

/// Measures a recognizer. Blocks for the time of four decodings.
///
/// # Errors
/// It cannot transcribe.
#[allow(clippy::disallowed_methods)] // It reads the clock to measure.
pub(super) fn measure_stt(engine: &Arc<dyn Stt>) -> Result<Trial, SttError> {
    let utterance = utterance();
    let heard = || async {
        // Where the engine has one decoder, the second conversation waits for it.
        let begun = Instant::now();
        let mut decoding = engine.open(SttOptions::default()).await?;
        decoding.push(utterance.samples.clone()).await?;
        decoding.finish().await?;
        Ok(begun.elapsed())
    };
    within_deadline(async {
        heard().await?;
        let alone = heard().await?;
        let both = futures_util::future::try_join_all((0..N_AT_ONCE).map(|_| heard())).await?;
        let slower = both.into_iter().max().unwrap_or_default();
        let share = share(slower, utterance.duration());
        Ok(Trial { wait_ms: millis(alone), both_ms: millis(slower), share })
    })
}

/// Measures a voice. Blocks for the time of four clauses.
///
/// # Errors
/// It cannot speak.
#[allow(clippy::disallowed_methods)] // It reads the clock to measure.
pub(super) fn measure_tts(engine: &Arc<dyn Tts>) -> Result<Trial, TtsError> {
    let spoken = |text: &str| {
        let mut sound = engine.speak(SpeechRequest { text: text.into(), ..SpeechRequest::default() });
        async move {
            let begun = Instant::now();
            let mut first = None;
            let mut length = Duration::ZERO;
            while let Some(pcm) = sound.next().await {
                let pcm = pcm?;
                first = first.or_else(|| (!pcm.is_empty()).then(|| begun.elapsed()));
                length += pcm.duration();
            }
            let whole = begun.elapsed();
            Ok((first.unwrap_or(whole), share(whole, length)))
        }
    };
    within_deadline(async {
        spoken(WARMING).await?;
        let (alone, _) = spoken(CLAUSES[0]).await?;
        let both = futures_util::future::try_join_all(CLAUSES.map(spoken)).await?;
        let slower = both.iter().map(|(first, _)| *first).max().unwrap_or_default();
        let share = both.iter().map(|(_, share)| *share).fold(0.0, f32::max);
        Ok(Trial { wait_ms: millis(alone), both_ms: millis(slower), share })
    })
}

/// Runs the measurement on a thread and a runtime of its own, since the caller may be a thread of a runtime.
fn within_deadline<E: Send>(measurement: impl Future<Output = Result<Trial, E>> + Send) -> Result<Trial, E> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime of one thread needs no more than a descriptor");
        runtime.block_on(async { tokio::time::timeout(DEADLINE, measurement).await })
    };
    let done = std::thread::scope(|scope| scope.spawn(run).join());
    match done {
        Ok(Ok(measured)) => measured,
        Ok(Err(_)) => {
            let wait_ms = millis(DEADLINE);
            Ok(Trial { wait_ms, both_ms: wait_ms, share: DEADLINE.as_secs_f32() })
        }
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// The utterance at the rate of recognizers.
fn utterance() -> Pcm {
    let mut samples = Vec::new();
    let longest = Duration::from_secs(10);
    let mut decoder = decode::Decoder::open(Bytes::from_static(UTTERANCE), stt::RATE, longest).expect("it is Opus");
    while decoder.next(&mut samples).expect("it is whole") {}
    Pcm { rate: stt::RATE, samples }
}

fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// 0 where there is no sound.
fn share(time: Duration, length: Duration) -> f32 {
    if length.is_zero() { 0.0 } else { time.as_secs_f32() / length.as_secs_f32() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::stt::FakeStt;
    use antiphon_engine_api::fakes::tts::FakeTts;

    #[test]
    fn a_recognizer_and_a_voice_are_measured_by_what_they_make() {
        let ears: Arc<dyn Stt> = Arc::new(FakeStt::hears(["what your country can do for you"; 3]));
        let voice: Arc<dyn Tts> = Arc::new(FakeTts::default());
        for trial in [measure_stt(&ears).unwrap(), measure_tts(&voice).unwrap()] {
            assert!(trial.wait_ms < 20_000 && trial.share < 1.0, "{trial:?}");
        }
    }

    #[test]
    fn the_utterance_is_as_long_as_it_is_said_to_be() {
        let seconds = utterance().duration().as_secs_f64();
        assert!((2.7..2.9).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_verdict_names_the_figure_and_the_bound() {
        let slow = Trial { wait_ms: 501, both_ms: 900, share: 0.2 };
        let why = slow.verdict(Stage::Stt, 800).unwrap_err();
        assert_eq!(why, "transcript after 501 ms, and 500 ms are allowed");
        assert_eq!(slow.verdict(Stage::Stt, 1_000), Ok(()));
        assert_eq!(
            slow.verdict(Stage::Stt, 0),
            slow.verdict(Stage::Stt, 800),
            "without an objective the default holds"
        );
        let alone = Trial { wait_ms: 300, both_ms: 601, share: 0.2 };
        let why = alone.verdict(Stage::Tts, 800).unwrap_err();
        assert_eq!(why, "first sound after 601 ms where two wait at once, and 600 ms are allowed");
        // A voice may begin in time and run dry.
        let dry = Trial { wait_ms: 200, both_ms: 300, share: 0.9 };
        let why = dry.verdict(Stage::Tts, 800).unwrap_err();
        assert_eq!(why, "two conversations at once take it 0.9 s for a second of sound, and 0.8 s are allowed");
        assert_eq!(dry.verdict(Stage::Stt, 800), Ok(()));
    }
}
