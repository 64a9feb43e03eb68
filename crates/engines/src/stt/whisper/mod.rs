//! The `whisper` engine: whisper.cpp through whisper-rs, any ggml model, on the processor or (feature `cuda`) a GPU.
//!
//! The root's assembly calls [`open`]; sessions see the port it returns. The model is in memory once a device; each replica
//! has its device and takes one utterance at a time. Working memories (`states`) are as many as decodings run at a time.
//! While the person speaks, the audio so far is decoded repeatedly from its beginning (`stream`): a partial transcript is
//! the latest hypothesis (what several agree on is reported: `dialog/captions.rs`), and the draft of the next one
//! (`search`). An energy gate (`voiced`) precedes a decoding, and `judge` decides afterwards whether the text was said at
//! all. A file is checked (`file`) before whisper.cpp reads it. The engine never decides when speech ends. Of an utterance
//! nothing is kept but its last words, as that draft, while it lasts, and whisper.cpp's working memory of its last
//! decoding, which the next one overwrites.

mod convert;
mod ctranslate2;
mod decoder;
mod ffi;
mod file;
mod hypothesis;
mod judge;
mod layout;
mod model;
pub mod probe;
#[cfg(wraps_products)]
mod product;
pub mod random;
mod search;
mod share;
mod states;
mod stream;
mod voiced;

pub use convert::FasterWhisper;
pub use ctranslate2::Ct2Error;
pub use layout::Sizes;

use super::SttConfig;
use super::local::Local;
use antiphon_engine_api::stt::SttError;
use decoder::Decoder;
use std::time::Duration;
use stream::WhisperStream;

/// The idle time after which a decoder ends, and with it a working memory that is one too many: longer than a conversation
/// pauses.
const IDLE: Duration = Duration::from_secs(300);

/// Loads the model for each device and makes `config.decoders` replicas, which take the devices in turn: on GPUs at once, on the
/// processor one, and more as utterances need them. Blocks until the first ones are made.
///
/// [`SttError::Unavailable`] says which file is missing or what is wrong with it, or which GPUs are missing.
pub fn open(config: &SttConfig) -> Result<Local<impl super::SttStream + use<>>, SttError> {
    if !ffi::is_linked() {
        let why = "this program is linked so that no decoding of Whisper can be cancelled: its package's build.rs must pass \
                   DEP_ANTIPHON_ENGINES_LINK_ARG on, as crates/engines/build.rs says";
        return Err(SttError::Unavailable(why.into()));
    }
    if !runs_here() {
        let why = "this program's Whisper needs a processor with AVX2, which this one does not have: use a server \
                   (stt.engine = \"openai\"), or build the program on this machine";
        return Err(SttError::Unavailable(why.into()));
    }
    let models = model::load_for(config)?;
    let model = &models[0];
    let n_copies = config.n_copies();
    tracing::debug!(threads = model.settings.n_threads, n_copies, sizes = ?model.sizes, "the Whisper model is loaded");
    let languages = model.languages();
    let make = move |replica: usize| Ok(WhisperStream::new(Decoder::new(models[replica % models.len()].clone())?));
    // On a GPU all working memory is taken at the start, so that a card that is too small shows then.
    let decoders = if uses_gpu(config) {
        Local::start("whisper", config.decoders, make)?
    } else {
        Local::start_elastic("whisper", config.decoders, IDLE, make)?
    };
    Ok(decoders.of_languages(languages).of_long_stretches())
}

/// Whether this processor has the instructions that whisper.cpp was compiled with. One that was built for another machine (`make
/// dist` sets GGML_NATIVE) is compiled with AVX2, FMA and F16C; without them it would end with an illegal instruction. One that was
/// built for its own machine asks nothing.
fn runs_here() -> bool {
    #[cfg(target_arch = "x86_64")]
    if option_env!("GGML_NATIVE") == Some("OFF") {
        return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
    }
    true
}

/// Whether decoders would run on a GPU: one is there, and the configuration does not exclude it.
pub fn uses_gpu(config: &SttConfig) -> bool {
    (config.gpu_device >= 0 || !config.gpu_devices.is_empty()) && !ffi::gpus().is_empty()
}

#[cfg(test)]
mod tests;
