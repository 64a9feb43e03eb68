//! Boundaries that Cargo cannot enforce: permitted dependencies between crates, the order of the root's modules, the
//! purity of the reducer, and that each file has a module description.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each library with the libraries it may depend on (except in tests), bottom up. `src/ARCHITECTURE.md` shows them as a
/// diagram.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("telemetry", &[]),
    ("registry", &["types"]),
    ("audio", &["types"]),
    ("text", &["types"]),
    ("protocol", &["types"]),
    ("engine-api", &["types"]),
    ("inference", &["types"]),
    ("dialog", &["types", "text"]),
    ("client", &["protocol", "audio", "types"]),
    ("assistant", &["types", "engine-api", "text"]),
    ("cluster", &["types", "telemetry", "engine-api"]),
    ("engines", &["types", "engine-api", "inference", "audio", "text"]),
    ("session", &["types", "dialog", "protocol", "engine-api", "audio", "text", "telemetry"]),
];

/// The modules of the root package, lowest first: each may use those before it.
const ROOT: &[&str] = &["load", "config", "assembly", "replay", "server", "cli"];

/// Words forbidden in the reducer's code: it has no runtime, clock or IO, and processes no samples.
const NOT_IN_DIALOG: &[&str] =
    &["tokio", "async ", "Instant", "SystemTime", "std::fs", "std::net", "std::thread", "Pcm {", "[i16]", "Vec<i16>"];

#[test]
fn crates_depend_on_what_they_may() {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("crates")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        found.insert(name, dependencies(&manifest));
    }
    // The benchmarks may depend on everything, including the root package.
    assert!(found.remove("bench").is_some_and(|bench| bench.contains("antiphon")));
    let known: BTreeSet<&str> = MAY_DEPEND_ON.iter().map(|(name, _)| *name).collect();
    assert_eq!(found.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
    for (name, allowed) in MAY_DEPEND_ON {
        let forbidden: Vec<_> = found[*name].iter().filter(|used| !allowed.contains(&used.as_str())).collect();
        assert!(forbidden.is_empty(), "crates/{name} depends on {forbidden:?}; it may on {allowed:?}");
    }
}

#[test]
fn a_planted_dependency_is_found() {
    let manifest = "[dependencies]\nantiphon-types.workspace = true\nantiphon-session = { path = \"..\" }\nserde = \"1\"\n\n\
                    [dev-dependencies]\nantiphon-engines.workspace = true\n";
    assert_eq!(dependencies(manifest), BTreeSet::from(["types".into(), "session".into()]));
}

#[test]
fn the_roots_modules_use_only_those_below() {
    for (at, module) in ROOT.iter().enumerate() {
        for (path, text) in sources("src").iter().filter(|(path, _)| path.starts_with(format!("src/{module}"))) {
            for above in &ROOT[at + 1..] {
                let used = code_of(text).contains(&format!("crate::{above}"));
                assert!(!used, "{}: {module} uses {above}, which is above it", path.display());
            }
        }
    }
    let modules: BTreeSet<String> = std::fs::read_dir(root().join("src"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(modules, ROOT.iter().map(|module| (*module).to_owned()).collect());
}

#[test]
fn the_reducer_has_no_runtime_clock_or_io() {
    let sources = sources("crates/dialog/src");
    assert!(sources.len() > 10);
    for (path, text) in sources {
        let code = code_of(&text);
        for word in NOT_IN_DIALOG {
            assert!(!code.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn each_file_says_what_it_is() {
    let sources = ["src", "crates", "tests", "fuzz/targets", "examples"].into_iter().flat_map(sources);
    let without: Vec<_> = sources.filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path).collect();
    assert!(without.is_empty(), "begin with no //! head: {without:?}");
}

/// The workspace libraries in a manifest's `[dependencies]`, without their prefix; `antiphon` is the root.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let manifest: toml::Table = manifest.parse().expect("a manifest");
    let names = manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys());
    let ours = names.filter(|name| name.starts_with("antiphon"));
    ours.map(|name| name.strip_prefix("antiphon-").unwrap_or(name).to_owned()).collect()
}

/// The text without comments and string literals.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let mut in_string = false;
        let mut escaped = false;
        let mut last = ' ';
        for c in line.chars() {
            if in_string {
                in_string = escaped || c != '"';
                escaped = c == '\\' && !escaped;
                continue;
            }
            if c == '/' && last == '/' {
                break;
            }
            in_string = c == '"' && last != '\'' && last != '\\';
            code.push(c);
            last = c;
        }
        code.push('\n');
    }
    code
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder of the repository: path and text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut folders = vec![root().join(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a text");
                files.push((path.strip_prefix(root()).expect("below the root").into(), text));
            }
        }
    }
    files.sort();
    files
}
