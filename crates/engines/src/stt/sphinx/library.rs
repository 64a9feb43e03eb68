//! The C library: the few functions of PocketSphinx 5prealpha (`libpocketsphinx.so.3`) that a decoder needs, opened at
//! run time so that the hub starts without it. Only `decoder` calls this. It holds no decoder and no logic.
//!
//! The declarations follow `pocketsphinx.h`, `cmd_ln.h`, `err.h`, `feat.h` and `cmn.h` of Debian's
//! `libpocketsphinx-dev` 0.8+5prealpha; the SONAME is fixed, because [`FeatHead`] depends on that version's layout.
#![allow(unsafe_code)]

use antiphon_engine_api::stt::SttError;
use libloading::Library;
use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

/// The SONAME of Debian's `libpocketsphinx3`, which brings `libsphinxbase.so.3` along.
const SONAME: &str = "libpocketsphinx.so.3";
/// How to get the library and the model.
pub(super) const INSTALL: &str = "`apt-get install libpocketsphinx3 pocketsphinx-en-us`";

/// `ps_decoder_t`.
pub(super) enum PsDecoder {}
/// `ps_seg_t`, an iterator over a hypothesis' words.
pub(super) enum PsSeg {}
/// `cmd_ln_t`, a decoder's settings.
pub(super) enum CmdLn {}
/// `arg_t`, the table of known settings.
pub(super) enum Arg {}

/// The head of `feat_t`, as far as the cepstral mean.
#[repr(C)]
pub(super) struct FeatHead {
    refcount: c_int,
    name: *mut c_char,
    cepsize: i32,
    n_stream: i32,
    stream_len: *mut u32,
    window_size: i32,
    n_sv: i32,
    sv_len: *mut u32,
    subvecs: *mut *mut i32,
    sv_buf: *mut f32,
    sv_dim: i32,
    cmn: c_int,
    varnorm: i32,
    agc: c_int,
    compute_feat: *mut c_void,
    /// The running cepstral mean.
    pub(super) cmn_struct: *mut Cmn,
}

/// `cmn_t`.
#[repr(C)]
pub(super) struct Cmn {
    /// What is taken from each vector, `[veclen]`.
    pub(super) mean: *mut f32,
    cmn_var: *mut f32,
    /// Of the vectors so far, `[veclen]`.
    pub(super) sum: *mut f32,
    /// How many vectors the sum holds.
    pub(super) n_frames: i32,
    /// Length of a cepstral vector.
    pub(super) veclen: i32,
}

/// The functions, by their C names. Valid for the life of the process: the library is never closed.
pub(super) struct Api {
    pub(super) cmd_ln_parse_r: unsafe extern "C" fn(*mut CmdLn, *const Arg, i32, *mut *mut c_char, i32) -> *mut CmdLn,
    pub(super) cmd_ln_free_r: unsafe extern "C" fn(*mut CmdLn) -> c_int,
    pub(super) err_set_logfp: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    pub(super) ps_args: unsafe extern "C" fn() -> *const Arg,
    pub(super) ps_end_utt: unsafe extern "C" fn(*mut PsDecoder) -> c_int,
    pub(super) ps_free: unsafe extern "C" fn(*mut PsDecoder) -> c_int,
    pub(super) ps_get_feat: unsafe extern "C" fn(*mut PsDecoder) -> *mut FeatHead,
    pub(super) ps_init: unsafe extern "C" fn(*mut CmdLn) -> *mut PsDecoder,
    pub(super) ps_process_raw: unsafe extern "C" fn(*mut PsDecoder, *const i16, usize, c_int, c_int) -> c_int,
    pub(super) ps_seg_frames: unsafe extern "C" fn(*mut PsSeg, *mut c_int, *mut c_int),
    pub(super) ps_seg_iter: unsafe extern "C" fn(*mut PsDecoder) -> *mut PsSeg,
    pub(super) ps_seg_next: unsafe extern "C" fn(*mut PsSeg) -> *mut PsSeg,
    pub(super) ps_seg_prob: unsafe extern "C" fn(*mut PsSeg, *mut i32, *mut i32, *mut i32) -> i32,
    pub(super) ps_seg_word: unsafe extern "C" fn(*mut PsSeg) -> *const c_char,
    pub(super) ps_start_stream: unsafe extern "C" fn(*mut PsDecoder) -> c_int,
    pub(super) ps_start_utt: unsafe extern "C" fn(*mut PsDecoder) -> c_int,
}

/// Opens the library once for the process and turns its logging off.
pub(super) fn open() -> Result<&'static Api, SttError> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| load(SONAME)).as_ref().map_err(|message| SttError::Unavailable(message.clone()))
}

fn load(soname: &str) -> Result<Api, String> {
    // SAFETY: PocketSphinx has no initializers that touch anything but its own data.
    let library = unsafe { Library::new(soname) }.map_err(|_| {
        format!("speech recognition needs PocketSphinx, but {soname} cannot be opened; install it with {INSTALL}")
    })?;
    // The functions' addresses are kept for the life of the process.
    let library: &'static Library = Box::leak(Box::new(library));
    macro_rules! functions {
        ($($name:ident),+ $(,)?) => { Api { $($name: symbol(library, soname, stringify!($name))?),+ } };
    }
    let api = functions! {
        cmd_ln_parse_r, cmd_ln_free_r, err_set_logfp, ps_args, ps_end_utt, ps_free, ps_get_feat,
        ps_init, ps_process_raw, ps_seg_frames, ps_seg_iter, ps_seg_next, ps_seg_prob, ps_seg_word,
        ps_start_stream, ps_start_utt,
    };
    let err_set_callback: unsafe extern "C" fn(*mut c_void, *mut c_void) = symbol(library, soname, "err_set_callback")?;
    // SAFETY: err.h: a null callback is no callback. The library's own messages, hypotheses among them, go nowhere.
    unsafe { err_set_callback(std::ptr::null_mut(), std::ptr::null_mut()) };
    Ok(api)
}

fn symbol<F: Copy>(library: &Library, soname: &str, name: &str) -> Result<F, String> {
    // SAFETY: the type at each use is the function's declaration in the headers named above.
    unsafe { library.get::<F>(name.as_bytes()) }.map(|symbol| *symbol).map_err(|_| {
        format!(
            "{soname} is not the PocketSphinx 5prealpha this hub knows: {name} is missing; install it with {INSTALL}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_the_way_to_get_it() {
        let message = load("libpocketsphinx-absent.so.3").err().expect("there is no such library");
        assert!(
            message.contains("libpocketsphinx-absent.so.3") && message.contains("apt-get install libpocketsphinx3")
        );
    }

    #[test]
    fn another_library_is_refused_by_its_missing_function() {
        let message = load("libc.so.6").err().expect("the C library is no PocketSphinx");
        assert!(message.contains("cmd_ln_parse_r is missing"), "{message}");
    }
}
