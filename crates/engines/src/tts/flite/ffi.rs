//! What of flite 2.2 is called, opened at run time.
//!
//! The libraries are opened once in a process and never closed: voices are static data inside them and registering one
//! writes to that data, so [`library`] does it once, under a lock. Used by the engine beside it only. Layouts follow
//! `flite/cst_utterance.h`, `cst_voice.h`, `cst_wave.h` and `cst_audio.h` of flite 2.2.
#![allow(unsafe_code)]

use antiphon_engine_api::tts::TtsError;
use libloading::Library;
use std::ffi::{CStr, c_char, c_float, c_int, c_void};
use std::sync::Mutex;

/// The libraries below the voices, each after those it needs.
const BASE: [&str; 3] = ["libflite.so.1", "libflite_usenglish.so.1", "libflite_cmulex.so.1"];

/// A voice: its id, the library it is in, the function that registers it.
type VoiceSource = (&'static str, &'static str, &'static CStr);

/// The voices, in the order they are listed in.
const VOICES: [VoiceSource; 4] = [
    ("slt", "libflite_cmu_us_slt.so.1", c"register_cmu_us_slt"),
    ("rms", "libflite_cmu_us_rms.so.1", c"register_cmu_us_rms"),
    ("awb", "libflite_cmu_us_awb.so.1", c"register_cmu_us_awb"),
    ("kal16", "libflite_cmu_us_kal16.so.1", c"register_cmu_us_kal16"),
];

/// What a stream callback answers to go on (`CST_AUDIO_STREAM_CONT`).
pub(super) const CONTINUE: c_int = 0;
/// What a stream callback answers to end the synthesis (`CST_AUDIO_STREAM_STOP`).
pub(super) const STOP: c_int = -1;

/// `cst_features`, never looked into.
#[repr(C)]
pub(super) struct Features {
    _opaque: [u8; 0],
}

/// `cst_val`, never looked into.
#[repr(C)]
pub(super) struct Val {
    _opaque: [u8; 0],
}

/// `cst_voice`, never looked into.
#[repr(C)]
pub(super) struct CVoice {
    _opaque: [u8; 0],
}

/// `cst_utterance`: only its first field is touched.
#[repr(C)]
pub(super) struct Utterance {
    pub(super) features: *mut Features,
}

/// `cst_wave`.
#[repr(C)]
pub(super) struct Wave {
    pub(super) kind: *const c_char,
    pub(super) sample_rate: c_int,
    pub(super) num_samples: c_int,
    pub(super) num_channels: c_int,
    pub(super) samples: *mut i16,
}

/// `cst_audio_stream_callback`: wave, first sample, number of samples, whether these are the last, the info itself.
pub(super) type StreamCallback = unsafe extern "C" fn(*const Wave, c_int, c_int, c_int, *mut StreamingInfo) -> c_int;

/// `cst_audio_streaming_info`.
#[repr(C)]
pub(super) struct StreamingInfo {
    pub(super) min_buffsize: c_int,
    pub(super) callback: Option<StreamCallback>,
    pub(super) utterance: *const Utterance,
    pub(super) item: *const c_void,
    pub(super) userdata: *mut c_void,
}

type SynthFn = unsafe extern "C" fn(*mut Utterance) -> *mut Utterance;

/// The functions, valid for the life of the process.
pub(super) struct Flite {
    pub(super) new_utterance: unsafe extern "C" fn() -> *mut Utterance,
    pub(super) delete_utterance: unsafe extern "C" fn(*mut Utterance),
    pub(super) utt_synth: SynthFn,
    pub(super) do_synth: unsafe extern "C" fn(*mut Utterance, *const CVoice, SynthFn) -> *mut Utterance,
    pub(super) feat_set_string: unsafe extern "C" fn(*mut Features, *const c_char, *const c_char),
    pub(super) feat_set_float: unsafe extern "C" fn(*mut Features, *const c_char, c_float),
    pub(super) feat_set: unsafe extern "C" fn(*mut Features, *const c_char, *const Val),
    pub(super) new_streaming_info: unsafe extern "C" fn() -> *mut StreamingInfo,
    pub(super) streaming_info_val: unsafe extern "C" fn(*mut StreamingInfo) -> *mut Val,
    /// Ids and the voices behind them, in the order of [`VOICES`].
    pub(super) voices: Vec<(&'static str, *const CVoice)>,
}

// SAFETY: the function pointers are code. The voices are only read after `open` has registered them: utterances link to
// a voice's features and never write them, which helgrind confirmed on Debian's 2.2-5 with four threads on each voice.
unsafe impl Send for Flite {}
// SAFETY: as above.
unsafe impl Sync for Flite {}

/// The one flite of this process, opened at the first call. A failure is not remembered.
pub(super) fn library() -> Result<&'static Flite, TtsError> {
    static OPENED: Mutex<Option<&'static Flite>> = Mutex::new(None);
    let mut opened = OPENED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match *opened {
        Some(flite) => Ok(flite),
        None => Ok(*opened.insert(Box::leak(Box::new(open(&BASE, &VOICES)?)))),
    }
}

/// Opens the libraries and registers the voices.
pub(super) fn open(base: &[&str], sources: &[VoiceSource]) -> Result<Flite, TtsError> {
    let libraries = base.iter().map(|file| open_library(file)).collect::<Result<Vec<_>, _>>()?;
    let core = libraries[0];
    let init: unsafe extern "C" fn() -> c_int = symbol(core, c"flite_init")?;
    // SAFETY: no arguments; it fills flite's table of regular expressions, and the caller holds the lock.
    unsafe { init() };
    let mut voices = Vec::with_capacity(sources.len());
    for &(id, file, register) in sources {
        let library = open_library(file)?;
        let register: unsafe extern "C" fn(*const c_char) -> *const CVoice = symbol(library, register)?;
        // SAFETY: the argument is a directory of voice data, NULL where the data is compiled in.
        let voice = unsafe { register(std::ptr::null()) };
        if voice.is_null() {
            return Err(TtsError::Unavailable(format!("flite's voice {id} in {file} cannot be used")));
        }
        voices.push((id, voice));
    }
    Ok(Flite {
        new_utterance: symbol(core, c"new_utterance")?,
        delete_utterance: symbol(core, c"delete_utterance")?,
        utt_synth: symbol(core, c"utt_synth")?,
        do_synth: symbol(core, c"flite_do_synth")?,
        feat_set_string: symbol(core, c"flite_feat_set_string")?,
        feat_set_float: symbol(core, c"flite_feat_set_float")?,
        feat_set: symbol(core, c"flite_feat_set")?,
        new_streaming_info: symbol(core, c"new_audio_streaming_info")?,
        streaming_info_val: symbol(core, c"audio_streaming_info_val")?,
        voices,
    })
}

/// Opens one library for good.
fn open_library(file: &str) -> Result<&'static Library, TtsError> {
    // SAFETY: flite's libraries have no initializers beyond the C runtime's.
    match unsafe { Library::new(file) } {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            tracing::debug!(%error, file, "a library of flite cannot be opened");
            Err(TtsError::Unavailable(missing(file, &error.to_string())))
        }
    }
}

/// What a person reads when `file` cannot be opened: the library that is really missing, and its Debian package.
fn missing(file: &str, loader: &str) -> String {
    let culprit = loader.split(':').next().map(str::trim).filter(|name| name.contains(".so")).unwrap_or(file);
    let culprit = culprit.rsplit('/').next().unwrap_or(culprit);
    let package = if culprit.starts_with("libasound") { "libasound2" } else { "libflite1" };
    let needed_by = if culprit == file { String::new() } else { format!(", which {file} needs") };
    format!("the voice engine flite needs the library {culprit}{needed_by}; on Debian: apt-get install {package}")
}

/// The address of `name` in a library, as `T`.
fn symbol<T: Copy>(library: &'static Library, name: &CStr) -> Result<T, TtsError> {
    // SAFETY: the callers above give each name the type it has in flite 2.2's headers.
    match unsafe { library.get::<T>(name.to_bytes_with_nul()) } {
        Ok(found) => Ok(*found),
        Err(_) => Err(TtsError::Unavailable(format!(
            "the installed flite has no function {}; version 2.2 is needed; on Debian: apt-get install libflite1",
            name.to_string_lossy()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Flite, TtsError>) -> String {
        result.err().expect("a library is missing").to_string()
    }

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let text = message(open(&["libflite_of_no_system.so.1"], &VOICES));
        assert_eq!(
            text,
            "the voice engine flite needs the library libflite_of_no_system.so.1; on Debian: apt-get install libflite1"
        );
        let voice = ("x", "libflite_cmu_us_nobody.so.1", c"register_nobody");
        let text = message(open(&BASE, &[voice]));
        assert!(text.contains("libflite_cmu_us_nobody.so.1;") && !text.contains("cannot open"), "{text}");
    }

    #[test]
    fn a_library_needed_by_a_library_is_named() {
        let loader = "libasound.so.2: cannot open shared object file: No such file or directory";
        let text = missing("libflite.so.1", loader);
        assert!(
            text.contains("libasound.so.2, which libflite.so.1 needs; on Debian: apt-get install libasound2"),
            "{text}"
        );
    }

    #[test]
    fn a_missing_function_is_named() {
        let voice = ("x", "libflite_cmu_us_slt.so.1", c"register_nobody");
        assert!(message(open(&BASE, &[voice])).contains("no function register_nobody"));
    }
}
