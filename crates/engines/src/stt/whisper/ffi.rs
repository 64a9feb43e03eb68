//! What whisper-rs does not bind well: whisper.cpp's log, its GPUs, and cancellation.
//!
//! The only unsafe code of the engine; whisper-rs is the binding for all else. Its own closures for aborting are leaked
//! with each decoding, and its own log hooks keep whisper.cpp's levels, which call progress information.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::Once;
use tokio_util::sync::CancellationToken;
use whisper_rs::whisper_rs_sys as sys;
use whisper_rs::{FullParams, WhisperError, WhisperState, WhisperTokenId};

thread_local! {
    /// Of the decoding under way on this thread; null where there is none.
    static CANCEL: Cell<*const CancellationToken> = const { Cell::new(ptr::null()) };
    /// Graphs that decodings on this thread have begun; for tests.
    pub(super) static N_GRAPHS: Cell<usize> = const { Cell::new(0) };
    /// Where the output of this thread's next graph goes.
    static OUTPUT: RefCell<Option<Logits>> = const { RefCell::new(None) };
}

/// What a pass of the decoder expects behind each of its tokens.
#[derive(Debug, Default)]
pub(super) struct Logits {
    n_vocab: usize,
    values: Vec<f32>,
}

impl Logits {
    /// Of some tokens, one after the other.
    #[cfg(test)]
    pub(super) fn of(n_vocab: usize, values: Vec<f32>) -> Self {
        Self { n_vocab, values }
    }

    /// Behind the token of that number in the pass.
    pub(super) fn behind(&mut self, number: usize) -> &mut [f32] {
        &mut self.values[number * self.n_vocab..][..self.n_vocab]
    }

    /// Copies the output of a graph.
    ///
    /// # Safety
    /// The graph was computed.
    unsafe fn read(&mut self, graph: *mut sys::ggml_cgraph) {
        // SAFETY: whisper.cpp adds the logits last, a row of 32-bit floats for each token.
        unsafe {
            let output = sys::ggml_graph_node(graph, -1);
            let [n_vocab, n_tokens, ..] = (*output).ne;
            self.n_vocab = n_vocab as usize;
            self.values.resize(self.n_vocab * n_tokens as usize, 0.0);
            let values = self.values.as_mut_ptr().cast();
            sys::ggml_backend_tensor_get(output, values, 0, size_of_val(self.values.as_slice()));
        }
    }
}

/// Forwards the log of whisper.cpp and ggml to `tracing`, from the first call on, for the whole process: they have one log
/// only. Their errors and warnings are warnings, all else is for debugging.
pub(super) fn log_to_tracing() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as the process and takes any text and no data.
        unsafe {
            sys::whisper_log_set(Some(log), ptr::null_mut());
            sys::ggml_log_set(Some(log), ptr::null_mut());
        }
    });
}

unsafe extern "C" fn log(level: sys::ggml_log_level, text: *const c_char, _: *mut c_void) {
    if text.is_null() {
        return;
    }
    // SAFETY: whisper.cpp gives a C string that lives until this returns.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    let text = text.trim();
    if text.is_empty() {
        return;
    }
    let is_trouble =
        [sys::ggml_log_level_GGML_LOG_LEVEL_ERROR, sys::ggml_log_level_GGML_LOG_LEVEL_WARN].contains(&level);
    // A decoding that is given up is a failure to whisper.cpp.
    if is_trouble && !is_given_up() {
        tracing::warn!(target: "antiphon::whisper_cpp", "{text}");
    } else {
        tracing::debug!(target: "antiphon::whisper_cpp", "{text}");
    }
}

/// The GPUs that whisper.cpp could run on, in the order of `stt.gpu_device`; none where it was built without.
pub(super) fn gpus() -> Vec<String> {
    // SAFETY: devices are registered once and live as long as the process, and so do their descriptions.
    let name = |gpu| unsafe { CStr::from_ptr(sys::ggml_backend_dev_description(gpu)) };
    gpu_devices().map(|gpu| name(gpu).to_string_lossy().into_owned()).collect()
}

/// Free memory in bytes of the GPU of that number; `None` where there is no such GPU.
pub(super) fn free_bytes(number: usize) -> Option<u64> {
    let gpu = gpu_devices().nth(number)?;
    let mut free = 0;
    let mut total = 0;
    // SAFETY: the device lives as long as the process; both numbers are written before the function returns.
    unsafe { sys::ggml_backend_dev_memory(gpu, &raw mut free, &raw mut total) };
    Some(free as u64)
}

fn gpu_devices() -> impl Iterator<Item = sys::ggml_backend_dev_t> {
    let kinds = [
        sys::ggml_backend_dev_type_GGML_BACKEND_DEVICE_TYPE_GPU,
        sys::ggml_backend_dev_type_GGML_BACKEND_DEVICE_TYPE_IGPU,
    ];
    // SAFETY: devices are registered once and live as long as the process.
    let n_devices = unsafe { sys::ggml_backend_dev_count() };
    // SAFETY: as above; the number is below their count.
    let devices = (0..n_devices).map(|i| unsafe { sys::ggml_backend_dev_get(i) });
    // SAFETY: as above.
    devices.filter(move |device| kinds.contains(&unsafe { sys::ggml_backend_dev_type(*device) }))
}

/// Decodes `pcm`, and stops within milliseconds once `cancel` is cancelled: on a processor between two nodes of a graph
/// (where the linker is not GNU's or LLVM's, and on a GPU: behind the encoder and between two tokens). Blocks.
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
        params.set_abort_callback_user_data(ptr::from_ref(cancel).cast_mut().cast());
    }
    let _asked = CancelScope::of(cancel);
    state.full(params, pcm)
}

/// Sets how many positions of the encoder [`encode`] computes, which whisper.cpp sets in whole decodings only: begins one, of
/// silence, and stops it before it computes anything. `params` has the number.
pub(super) fn set_positions(state: &mut WhisperState, params: FullParams<'_, '_>) {
    let stopped = CancellationToken::new();
    stopped.cancel();
    // The error is that of a decoding that was stopped.
    let _ = run(state, params, &[0.0; SHORTEST], &stopped);
}

/// The least samples that a decoding takes, 0.2 s.
const SHORTEST: usize = 3_200;

/// Encodes the spectrogram that `state` has. As [`run`].
pub(super) fn encode(
    state: &mut WhisperState,
    n_threads: usize,
    cancel: &CancellationToken,
) -> Result<(), WhisperError> {
    let _asked = CancelScope::of(cancel);
    state.encode(0, n_threads)
}

/// Passes tokens behind `n_past` others through the decoder, and reads what it expects behind each of them. As [`run`].
/// Needs [`has_outputs`].
pub(super) fn decode(
    state: &mut WhisperState,
    tokens: &[WhisperTokenId],
    n_past: usize,
    n_threads: usize,
    cancel: &CancellationToken,
    logits: &mut Logits,
) -> Result<(), WhisperError> {
    let _asked = CancelScope::of(cancel);
    OUTPUT.set(Some(std::mem::take(logits)));
    let done = state.decode(tokens, n_past, n_threads);
    *logits = OUTPUT.take().unwrap_or_default();
    done
}

/// Whether [`decode`] gets what the decoder expects: where [`__wrap_ggml_backend_sched_graph_compute`] is called.
pub(super) const fn has_outputs() -> bool {
    cfg!(target_os = "linux")
}

/// Whether the linker has put [`__wrap_ggml_backend_sched_graph_compute`] in the place of ggml's function, without which a
/// cancelled decoding runs on to the end of its encoder. Always true where the linker cannot.
pub(super) fn is_linked() -> bool {
    let called = sys::ggml_backend_sched_graph_compute as *const ();
    !cfg!(target_os = "linux") || called == __wrap_ggml_backend_sched_graph_compute as *const ()
}

/// Whether whisper.cpp has freed the state that it was called with, which must not be touched any more, not even to free
/// it: it does so where there is no memory for the cache of several hypotheses.
pub(super) fn has_freed_state(error: &WhisperError) -> bool {
    matches!(error, WhisperError::GenericError(-7))
}

/// While it lives, decodings on this thread ask a token.
struct CancelScope;

impl CancelScope {
    fn of(cancel: &CancellationToken) -> Self {
        CANCEL.set(ptr::from_ref(cancel));
        Self
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        CANCEL.set(ptr::null());
    }
}

fn is_given_up() -> bool {
    let cancel = CANCEL.get();
    // SAFETY: not null only while `run` borrows it.
    !cancel.is_null() && unsafe { is_cancelled(cancel.cast_mut().cast()) }
}

unsafe extern "C" fn is_cancelled(cancel: *mut c_void) -> bool {
    // SAFETY: see `run`.
    let cancel = unsafe { &*cancel.cast_const().cast::<CancellationToken>() };
    cancel.is_cancelled()
}

/// ggml's `ggml_backend_sched_graph_compute`, word for word, with the callback of the decoding under way around it, and a copy
/// of what a pass of the decoder expects.
///
/// whisper.cpp hands its callback to no backend, so that a whole encoder runs on whatever it says. On Linux `build.rs` has
/// the linker put this in that function's place ([`is_linked`]); elsewhere it is not called.
///
/// # Safety
/// As ggml's.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_ggml_backend_sched_graph_compute(
    sched: sys::ggml_backend_sched_t,
    graph: *mut sys::ggml_cgraph,
) -> sys::ggml_status {
    N_GRAPHS.set(N_GRAPHS.get() + 1);
    let cancel = CANCEL.get();
    if is_given_up() {
        return sys::ggml_status_GGML_STATUS_ABORTED;
    }
    // SAFETY: the caller gives a scheduler and its graph. `cancel` is borrowed by `run` longer than this lasts, and no
    // backend knows it afterwards.
    unsafe {
        if !cancel.is_null() {
            tell_backends(sched, Some(is_cancelled), cancel.cast_mut().cast());
        }
        let status = sys::ggml_backend_sched_graph_compute_async(sched, graph);
        sys::ggml_backend_sched_synchronize(sched);
        if !cancel.is_null() {
            tell_backends(sched, None, ptr::null_mut());
        }
        if status == sys::ggml_status_GGML_STATUS_SUCCESS {
            OUTPUT.with_borrow_mut(|logits| logits.as_mut().map(|logits| logits.read(graph)));
        }
        status
    }
}

/// Has those backends that can be stopped (the processor's) ask `callback` between two nodes.
///
/// # Safety
/// `sched` must be a scheduler, and `data` what the callback takes for as long as it is set.
unsafe fn tell_backends(sched: sys::ggml_backend_sched_t, callback: sys::ggml_abort_callback, data: *mut c_void) {
    // SAFETY: a scheduler's backends live as long as it does. The name stands for a function of this type (ggml-backend.h).
    unsafe {
        for i in 0..sys::ggml_backend_sched_get_n_backends(sched) {
            let backend = sys::ggml_backend_sched_get_backend(sched, i);
            let registry = sys::ggml_backend_dev_backend_reg(sys::ggml_backend_get_device(backend));
            let found = sys::ggml_backend_reg_get_proc_address(registry, c"ggml_backend_set_abort_callback".as_ptr());
            let set = std::mem::transmute::<*mut c_void, sys::ggml_backend_set_abort_callback_t>(found);
            if let Some(set) = set {
                set(backend, callback, data);
            }
        }
    }
}
