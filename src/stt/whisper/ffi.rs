//! The two callbacks into whisper.cpp: its log, and the question whether to go on.
//!
//! The only unsafe code of the engine; whisper-rs is the binding for all else. Its own closures for aborting are leaked
//! with each decoding, and its own log hooks keep whisper.cpp's levels, which call progress information.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};
use std::sync::Once;
use tokio_util::sync::CancellationToken;
use whisper_rs::whisper_rs_sys::{ggml_log_level, ggml_log_set, whisper_log_set};
use whisper_rs::{FullParams, WhisperError, WhisperState};

/// Sends what whisper.cpp and ggml say to `tracing` at debug, from the first call on, for the whole process: they know
/// one log only.
pub(super) fn log_to_tracing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the process and takes any text and no data.
        unsafe {
            whisper_log_set(Some(log), std::ptr::null_mut());
            ggml_log_set(Some(log), std::ptr::null_mut());
        }
    });
}

unsafe extern "C" fn log(_: ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: whisper.cpp gives a C string that lives until this returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim();
    if !text.is_empty() {
        tracing::debug!(target: "antiphon::whisper_cpp", "{text}");
    }
}

/// Decodes `pcm`, and stops within milliseconds once `cancel` is cancelled (whisper.cpp asks between two nodes of its
/// graph). Blocks.
pub(super) fn run(
    state: &mut WhisperState,
    mut params: FullParams<'_, '_>,
    pcm: &[f32],
    cancel: &CancellationToken,
) -> Result<(), WhisperError> {
    // SAFETY: `params` is used up by the call below, during which `cancel` is borrowed; the callback only reads it, as
    // any thread may.
    unsafe {
        params.set_abort_callback(Some(is_cancelled));
        params.set_abort_callback_user_data(std::ptr::from_ref(cancel).cast_mut().cast());
    }
    state.full(params, pcm)
}

unsafe extern "C" fn is_cancelled(cancel: *mut c_void) -> bool {
    // SAFETY: see `run`.
    let cancel = unsafe { &*cancel.cast_const().cast::<CancellationToken>() };
    cancel.is_cancelled()
}
