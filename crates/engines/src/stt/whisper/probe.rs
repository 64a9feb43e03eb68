//! The engine and whisper.cpp itself on the same audio, for the benchmark; whether a decoding can be cancelled, for tests.

use super::decoder::Decoder;
use super::ffi;
use super::model::Model;
use super::stream::WhisperStream;
use crate::stt::{SttConfig, SttStream};
use antiphon_engine_api::stt::{SttError, SttOptions};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use whisper_rs::{FullParams, SamplingStrategy, WhisperState};

/// A model with two working memories: the engine's, and one for whisper.cpp alone. Both decode as many tokens, at one
/// temperature, in English.
pub struct Probe {
    model: Arc<Model>,
    stream: WhisperStream,
    alone: WhisperState,
    n_tokens: usize,
}

impl Probe {
    /// Loads the model that `config` names. Blocks.
    pub fn open(config: &SttConfig, n_tokens: usize) -> Result<Self, SttError> {
        let config = SttConfig { temperature_step: 0.0, beam_size: 1, language: "en".into(), ..config.clone() };
        let mut model = Model::load(&config)?;
        model.settings.n_tokens = Some(n_tokens);
        model.settings.repeats_suspect = false;
        let model = Arc::new(model);
        let stream = WhisperStream::new(Decoder::new(model.clone())?);
        let alone = model.context.create_state().map_err(failed)?;
        Ok(Self { model, stream, alone, n_tokens })
    }

    /// An utterance from its first sample to its final transcript, through the engine. Blocks.
    pub fn by_engine(&mut self, pcm: &[i16]) -> Result<(), SttError> {
        let never = CancellationToken::new();
        self.stream.begin(&SttOptions::default())?;
        self.stream.push(pcm, &never)?;
        self.stream.finish(&never).map(drop)
    }

    /// The same audio through whisper.cpp's one call: in the engine's window, or in the full one of 30 s, which is its
    /// default. Blocks.
    pub fn by_whisper_cpp(&mut self, pcm: &[i16], whole_window: bool) -> Result<(), SttError> {
        let mut params = FullParams::new(SamplingStrategy::Greedy { best_of: 1 });
        params.set_n_threads(self.model.settings.n_threads as i32);
        params.set_no_timestamps(true);
        params.set_single_segment(true);
        params.set_temperature_inc(0.0);
        params.set_max_tokens(self.n_tokens as i32);
        params.set_print_progress(false);
        params.set_print_timestamps(false);
        if !whole_window {
            params.set_audio_ctx(self.model.positions(pcm.len()) as i32);
        }
        let samples: Vec<f32> = pcm.iter().map(|sample| f32::from(*sample) / 32_768.0).collect();
        ffi::run(&mut self.alone, params, &samples, &CancellationToken::new()).map_err(failed)
    }
}

/// For tests: how many graphs of ggml a decoding begins whose token is cancelled before. One where it can be cancelled, none
/// where the program is linked so that it cannot: the graphs that it runs to the end are not counted then. Blocks.
#[doc(hidden)]
pub fn graphs_of_cancelled_decoding(config: &SttConfig, pcm: &[i16]) -> Result<usize, SttError> {
    let mut stream = WhisperStream::new(Decoder::new(Arc::new(Model::load(config)?))?);
    let cancel = CancellationToken::new();
    stream.begin(&SttOptions::default())?;
    stream.push(pcm, &cancel)?;
    cancel.cancel();
    let before = ffi::N_GRAPHS.get();
    match stream.finish(&cancel) {
        Err(SttError::Cancelled) => Ok(ffi::N_GRAPHS.get() - before),
        Err(error) => Err(error),
        Ok(_) => Err(SttError::Engine { message: "a cancelled decoding has ended".into(), source: None }),
    }
}

fn failed(error: whisper_rs::WhisperError) -> SttError {
    SttError::Engine { message: "whisper.cpp failed".into(), source: Some(Box::new(error)) }
}
