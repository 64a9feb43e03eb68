//! Decides which web pages are embedded: `web/dist`, or a page that says how to build them, so that `cargo build` alone
//! works. Passes on how Whisper is linked.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const NOT_BUILT: &str = r#"<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Antiphon</title>
<style>body{font:1.1rem/1.6 system-ui,sans-serif;max-width:36rem;margin:15vh auto;padding:0 1rem}
code{background:#8883;padding:.1em .4em;border-radius:.3em}</style></head>
<body>
<h1>Antiphon is running</h1>
<p>The hub answers, but this binary was built without its web page.</p>
<p>Build both with <code>make build</code>, or <code>cd web &amp;&amp; npm ci &amp;&amp; npm run build</code>
and then <code>cargo build</code>.</p>
<p>Programs can connect already: <code>/v1/realtime</code>.</p>
</body></html>
"#;

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    let dist = root.join("web/dist");
    // Cargo reruns a script whose watched path is missing at every build, and with it rebuilds the crate: an empty
    // folder (git ignores it) can be watched. Where it cannot be made, that is the price, and the build goes on.
    let _ = fs::create_dir_all(&dist);
    println!("cargo::rerun-if-changed=web/dist");
    println!("cargo::rerun-if-changed=build.rs");
    let is_built = ["index.html", "dashboard.html", "inspector.html"].iter().all(|page| dist.join(page).is_file());
    let folder = if is_built { dist } else { placeholder(&out) };
    println!("cargo::rustc-env=ANTIPHON_WEB_DIR={}", folder.display());
    // How Whisper is linked: see `crates/engines/build.rs`.
    if let Ok(argument) = env::var("DEP_ANTIPHON_ENGINES_LINK_ARG") {
        println!("cargo::rustc-link-arg={argument}");
    }
}

fn placeholder(out: &Path) -> PathBuf {
    let folder = out.join("web");
    fs::create_dir_all(&folder).expect("OUT_DIR can be written");
    for page in ["index.html", "dashboard.html", "inspector.html"] {
        fs::write(folder.join(page), NOT_BUILT).expect("OUT_DIR can be written");
    }
    folder
}
