//! Names to the linker whose function computes whisper.cpp's graphs.
//!
//! A link argument reaches only the targets of the package whose build script gives it, so it is handed on as metadata: the
//! build script of each package with a program or test that runs Whisper passes `DEP_ANTIPHON_ENGINES_LINK_ARG` on. Where
//! one forgets to, `stt::whisper::open` refuses to start.
//!
//! `make dist` names a folder that has libgomp and libstdc++ as archives only: the linker finds them there first, and the programs
//! contain them.

use std::env;

/// `stt/whisper/ffi.rs` has a function that can be cancelled in the place of this one of ggml's.
const LINK_ARG: &str = "-Wl,--wrap=ggml_backend_sched_graph_compute";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=ANTIPHON_STATIC_LIBRARIES");
    if let Ok(folder) = env::var("ANTIPHON_STATIC_LIBRARIES") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if is_linux && env::var_os("CARGO_FEATURE_WHISPER").is_some() {
        println!("cargo::rustc-link-arg={LINK_ARG}");
        println!("cargo::metadata=LINK_ARG={LINK_ARG}");
    }
}
