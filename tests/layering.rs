//! Boundaries that Cargo cannot enforce: permitted dependencies between crates, the order of the root's modules and of the
//! server's rooms, that files do not use each other in circles, the purity of the reducer, and that each file has a module
//! description.

mod uses;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use uses::{Package, code_of};

/// Each library with the libraries it may depend on (except in tests), bottom up. `src/ARCHITECTURE.md` shows them as a
/// diagram.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("telemetry", &["types"]),
    ("sip", &[]),
    ("planner", &[]),
    ("test-server", &[]),
    ("registry", &["types"]),
    ("audio", &["types"]),
    ("matmul", &[]),
    ("text", &["types"]),
    ("protocol", &["types"]),
    ("engine-api", &["types"]),
    ("inference", &["types"]),
    ("dialog", &["types", "text"]),
    ("client", &["protocol", "audio", "types"]),
    ("assistant", &["types", "engine-api", "text"]),
    ("rehearsal", &["client", "engine-api", "audio", "text", "types"]),
    ("cluster", &["types", "telemetry", "engine-api"]),
    ("engines", &["types", "engine-api", "inference", "matmul", "audio", "text", "assistant"]),
    ("session", &["types", "dialog", "protocol", "engine-api", "audio", "text", "telemetry"]),
];

/// The modules of the root package, lowest first: each may use those before it.
const ROOT: &[&str] = &["load", "config", "assembly", "replay", "server", "cli"];

/// The rooms of the server, lowest first: each may use those before it, and none what composes them ([`ON_TOP`]).
const ROOMS: &[&str] = &["edge", "access", "sessions", "speech", "transport", "api"];

/// The files of the server that compose the rooms.
const ON_TOP: &[&str] = &["mod.rs", "app.rs", "preflight.rs"];

/// Files that may use each other in a circle, in `src` and in a session.
const MAX_CIRCLE: usize = 3;

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
    // They may depend on everything, including the root package.
    for program in ["bench", "simulation"] {
        assert!(found.remove(program).is_some_and(|used| used.contains("antiphon")));
    }
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
fn the_servers_rooms_use_only_those_below() {
    let sources = sources_below("src");
    let of_server = sources.iter().filter_map(|(path, _)| path.strip_prefix("server/"));
    let found: BTreeSet<&str> = of_server.filter_map(|path| path.split('/').next()).collect();
    let known: BTreeSet<&str> = ROOMS.iter().chain(ON_TOP).copied().collect();
    assert_eq!(found, known, "each file of the server is in a room, or composes them");
    let package = Package::read(sources.iter().map(|(path, text)| (path.as_str(), text.as_str())), true);
    let upward: Vec<String> = sources.iter().flat_map(|(path, _)| upward_of(&package, path)).collect();
    assert!(upward.is_empty(), "a room uses what is above it:\n{}", upward.join("\n"));
}

#[test]
fn a_planted_use_of_a_room_above_is_found() {
    let files = [
        ("server/edge/client.rs", "use crate::server::access::keys::Keys;\nuse super::tls::Tls;\n"),
        ("server/edge/tls.rs", "fn a() { crate::server::app::App::new(); }\n"),
        ("server/access/keys.rs", "use crate::server::edge::client::Client;\n// use crate::server::api::state;\n"),
        ("server/api/state.rs", "use super::super::sessions::load;\nconst A: &str = \"use crate::server::app;\";\n"),
    ];
    let package = Package::read(files.into_iter(), true);
    let upward: Vec<String> = files.iter().flat_map(|(path, _)| upward_of(&package, path)).collect();
    assert_eq!(
        upward,
        ["server/edge/client.rs: server::access::keys::Keys", "server/edge/tls.rs: server::app::App::new"]
    );
}

#[test]
fn files_do_not_use_each_other_in_large_circles() {
    for folder in ["src", "crates/session/src"] {
        let sources = sources_below(folder);
        let package = Package::read(sources.iter().map(|(path, text)| (path.as_str(), text.as_str())), false);
        let circles = package.circles();
        assert!(!circles.is_empty(), "that of a module and its child, at least");
        let large: Vec<_> = circles.iter().filter(|circle| circle.len() > MAX_CIRCLE).collect();
        assert!(large.is_empty(), "{folder}: circles of more than {MAX_CIRCLE} files: {large:#?}");
    }
}

#[test]
fn a_planted_circle_is_found() {
    let files = [
        ("a/mod.rs", "mod b;\nmod c;\npub use b::B;\npub use c::C;\nfn a() -> C { c::make() }\n"),
        // By a re-export, which leads past `a/mod.rs`.
        ("a/b.rs", "use super::C;\n"),
        ("a/c.rs", "use crate::d;\n"),
        ("d.rs", "fn d(b: crate::a::B) {}\n#[cfg(test)]\nmod tests { use crate::e; }\n"),
        ("e.rs", "use crate::{a::{self, B}, d::D};\n"),
    ];
    let package = Package::read(files.into_iter(), false);
    assert_eq!(package.circles(), [["a/b.rs", "a/c.rs", "d.rs"]]);
    let with_tests = Package::read(files.into_iter(), true);
    assert_eq!(with_tests.circles(), [["a/b.rs", "a/c.rs", "a/mod.rs", "d.rs", "e.rs"]]);
}

#[test]
fn the_reducer_has_no_runtime_clock_or_io() {
    let sources = sources("crates/dialog/src");
    assert!(sources.len() > 10);
    for (path, text) in sources {
        // A test, which writes the weights that it trains.
        if path.ends_with("completeness/training.rs") {
            continue;
        }
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

/// The paths by which a file of a room names what is above its room.
fn upward_of(package: &Package, file: &str) -> Vec<String> {
    let room_of = |name: &str| ROOMS.iter().position(|room| *room == name);
    let room = file.strip_prefix("server/").and_then(|rest| room_of(rest.split('/').next()?));
    let Some(room) = room else { return Vec::new() };
    let is_above = |path: &&Vec<String>| {
        let name = path.get(1).map_or("", String::as_str);
        path[0] == "server" && room_of(name).is_none_or(|other| other > room)
    };
    package.paths_of(file).filter(is_above).map(|path| format!("{file}: {}", path.join("::"))).collect()
}

/// The files of a package by their path below `folder`, its sources.
fn sources_below(folder: &str) -> Vec<(String, String)> {
    let below = |path: &Path| path.strip_prefix(folder).expect("in the folder").to_string_lossy().into_owned();
    sources(folder).into_iter().map(|(path, text)| (below(&path), text)).collect()
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
