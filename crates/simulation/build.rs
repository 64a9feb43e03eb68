//! Forwards the linker settings for Whisper; see `crates/engines/build.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(argument) = std::env::var("DEP_ANTIPHON_ENGINES_LINK_ARG") {
        println!("cargo::rustc-link-arg={argument}");
    }
}
