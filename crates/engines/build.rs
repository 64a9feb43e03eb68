//! Names to the linker whose functions compute whisper.cpp's graphs and its matrix products.
//!
//! A link argument reaches only the targets of the package whose build script gives it, so it is handed on as metadata: the
//! build script of each package with a program or test that runs Whisper passes `DEP_ANTIPHON_ENGINES_LINK_ARG` on. Where
//! one forgets to, `stt::whisper::open` refuses to start.
//!
//! `make dist` names a folder that has libgomp and libstdc++ as archives only: the linker finds them there first, and the programs
//! contain them.

use std::env;

/// `stt/whisper/ffi.rs` has a function that can be cancelled in the place of this one of ggml's.
const GRAPHS: &str = "-Wl,--wrap=ggml_backend_sched_graph_compute";

/// `stt/whisper/product.rs` has a faster one in the place of this. It is there where `GGML_LLAMAFILE` is on
/// (`.cargo/config.toml`).
const PRODUCTS: &str = ",--wrap=llamafile_sgemm";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=GGML_LLAMAFILE");
    println!("cargo::rustc-check-cfg=cfg(wraps_products)");
    println!("cargo::rerun-if-env-changed=ANTIPHON_STATIC_LIBRARIES");
    if let Ok(folder) = env::var("ANTIPHON_STATIC_LIBRARIES") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    let is_linux = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux");
    if !is_linux || env::var_os("CARGO_FEATURE_WHISPER").is_none() {
        return;
    }
    let is_x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture == "x86_64");
    let has_products = is_x86 && env::var("GGML_LLAMAFILE").is_ok_and(|value| value == "ON");
    let products = if has_products { PRODUCTS } else { "" };
    if has_products {
        println!("cargo::rustc-cfg=wraps_products");
    }
    println!("cargo::rustc-link-arg={GRAPHS}{products}");
    println!("cargo::metadata=LINK_ARG={GRAPHS}{products}");
}
