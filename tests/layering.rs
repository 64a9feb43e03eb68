//! The floors hold: imports point down only, files stay short, each says what it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The modules of `src` by floor, lowest first.
const FLOORS: &[&[&str]] = &[
    &["telemetry", "units"],
    &["audio", "lane", "onnx", "remote", "text", "wire"],
    &["llm", "mcp", "stt", "tts", "turn", "vad"],
    &["dialog"],
    &["session"],
    &["client", "config", "engines", "registry"],
    &["bench", "replay", "server"],
    &["cli"],
];

/// Sideways imports that are meant: who, whom, why.
const MEANT: &[(&str, &str, &str)] = &[
    ("engines", "config", "engines are made from the configuration, which knows no engine"),
    ("config", "registry", "a section is the struct of the module it configures"),
    ("engines", "registry", "an engine is made of a model that the registry finds on the disk"),
];

/// Downward imports that are still forbidden: who, whom, why.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("dialog", "wire", "the reducer knows no protocol; session/project.rs maps its actions"),
    ("dialog", "lane", "the reducer runs nothing"),
];

/// Words the reducer's code must not hold: it has no runtime, no clock, no IO, and samples never enter it (of `audio` it
/// knows the format's name and the playhead).
const NOT_IN_DIALOG: &[&str] =
    &["tokio", "async ", "Instant", "SystemTime", "std::fs", "std::net", "std::thread", "Pcm {", "[i16]", "Vec<i16>"];

/// Lines a file may have before it is split.
const MAX_LINES: usize = 400;

#[test]
fn imports_point_down() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let Some(module) = module_of(&path) else { continue };
        for import in imports(&path, &text) {
            if let Some(why) = objection(&module, &import) {
                found.push(format!("{}: {module} imports {import}: {why}", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn every_module_has_a_floor() {
    let floors: BTreeSet<&str> = FLOORS.iter().flat_map(|floor| floor.iter().copied()).collect();
    let modules: BTreeSet<String> = sources().iter().filter_map(|(path, _)| module_of(path)).collect();
    assert!(modules.len() > 10, "{modules:?}");
    let without: Vec<_> = modules.iter().filter(|module| !floors.contains(module.as_str())).collect();
    assert!(without.is_empty(), "no floor in tests/layering.rs for {without:?}");
}

#[test]
fn the_reducer_has_no_runtime_clock_or_io() {
    for (path, text) in sources().iter().filter(|(path, _)| module_of(path).as_deref() == Some("dialog")) {
        let code = code_of(text);
        for word in NOT_IN_DIALOG {
            assert!(!code.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let n_lines = text.lines().count();
        if n_lines > MAX_LINES {
            found.push(format!("{}: {n_lines} lines; split it at {MAX_LINES}", path.display()));
        }
        if !text.starts_with("//! ") {
            found.push(format!("{}: begins with no //! head", path.display()));
        }
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn a_planted_import_is_found() {
    let check = |file: &str, text: &str, expect: &[&str]| {
        let path = Path::new(file);
        let module = module_of(path).expect("a module");
        let bad: Vec<_> =
            imports(path, text).into_iter().filter(|import| objection(&module, import).is_some()).collect();
        assert_eq!(bad, expect, "{file}: {text}");
    };
    check("stt/openai.rs", "use crate::units::Pcm;\nuse crate::lane::Pool;", &[]);
    check("stt/openai.rs", "use crate::session::Engines;", &["session"]);
    check("stt/openai.rs", "use crate::llm;", &["llm"]);
    check("stt/mod.rs", "use crate::{units::{Pcm, Samples}, tts::Voice, vad};", &["tts", "vad"]);
    check("stt/sphinx/pool.rs", "fn f() { let x = super::super::super::llm::X; }", &["llm"]);
    check("stt/sphinx/pool.rs", "use super::super::SttError; use super::super::super::units::Pcm;", &[]);
    check("stt/mod.rs", "use super::tts::Voice;", &["tts"]);
    check("stt/mod.rs", "mod tests { use super::SttError; use super::super::llm::Llm; }", &["llm"]);
    check("session/mod.rs", "use crate::stt::Stt; mod tests { use super::config::SessionConfig; }", &[]);
    check("dialog/state.rs", "use crate::wire::Event;", &["wire"]);
    check("dialog/state.rs", "// as crate::wire does\nlet text = \"crate::server\";", &[]);
    check("engines/mod.rs", "use crate::config::Config;", &[]);
    check("config/mod.rs", "use crate::engines::build;", &["engines"]);
    check("units/mod.rs", "use crate::{\n    audio,\n};", &["audio"]);
    check("wire/mod.rs", "macro_rules! m { () => { $crate::session::X } }", &["session"]);
    check("wire/mod.rs", "use crate::*;", &["*"]);
}

/// Why `module` may not import `import`; `None` when it may.
fn objection(module: &str, import: &str) -> Option<String> {
    if import == module || MEANT.iter().any(|(who, whom, _)| (*who, *whom) == (module, import)) {
        return None;
    }
    if let Some((_, _, why)) = FORBIDDEN.iter().find(|(who, whom, _)| (*who, *whom) == (module, import)) {
        return Some((*why).into());
    }
    let floor = |name: &str| FLOORS.iter().position(|floor| floor.contains(&name));
    match (floor(module), floor(import)) {
        (Some(from), Some(to)) if to < from => None,
        (Some(from), Some(to)) if to == from => Some(format!("both stand on floor {from}")),
        (Some(from), Some(to)) => Some(format!("floor {from} must not know floor {to}")),
        _ => Some("it has no floor".into()),
    }
}

/// The top-level modules a file names: after `crate::`, in groups, or by climbing out with `super::`.
fn imports(path: &Path, text: &str) -> BTreeSet<String> {
    let code = code_of(text);
    let mut found = BTreeSet::new();
    for rest in after(&code, "crate::") {
        names(rest, &mut found);
    }
    // A file `stt/sphinx/pool.rs` is module stt::sphinx::pool, at depth 3: three `super::` reach the crate's root, and
    // from the tests at its end four.
    let tests = code.find("mod tests {").unwrap_or(code.len());
    for rest in after(&code, "super::") {
        let at = code.len() - rest.len() - "super::".len();
        if code[..at].ends_with("super::") {
            continue;
        }
        let depth = depth_of(path) + usize::from(at > tests);
        let (mut hops, mut rest) = (1, rest);
        while let Some(further) = rest.strip_prefix("super::") {
            (hops, rest) = (hops + 1, further);
        }
        let mut named = BTreeSet::new();
        names(rest, &mut named);
        let known = |name: &String| FLOORS.iter().any(|floor| floor.contains(&name.as_str()));
        if hops >= depth {
            found.extend(named.into_iter().filter(known));
        }
    }
    found
}

/// What follows each `marker` that stands at the beginning of a path.
fn after<'a>(code: &'a str, marker: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(marker).filter_map(move |(at, _)| {
        let before = code[..at].chars().next_back();
        (!before.is_some_and(|c| c.is_alphanumeric() || c == '_')).then(|| &code[at + marker.len()..])
    })
}

/// The first name of a path, or of each path in a `{group}`.
fn names(rest: &str, found: &mut BTreeSet<String>) {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = rest.strip_prefix('{') else {
        let first = name(rest);
        // A macro or an item of the root is no module; `*` would be all of them.
        if rest.starts_with('*') || !first.is_empty() {
            found.insert(if first.is_empty() { "*".into() } else { first });
        }
        return;
    };
    let (mut nested, mut start) = (0, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => nested += 1,
            '}' if nested == 0 => break,
            '}' => nested -= 1,
            ',' if nested == 0 => start = true,
            c if start && !c.is_whitespace() => {
                found.insert(name(&group[at..]));
                start = false;
            }
            _ => {}
        }
    }
}

/// The text without comments and without what stands in string literals.
fn code_of(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    for line in text.lines() {
        let (mut in_string, mut escaped, mut last) = (false, false, ' ');
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

fn depth_of(path: &Path) -> usize {
    let parts = path.components().count();
    if path.file_name().is_some_and(|name| name == "mod.rs") { parts - 1 } else { parts }
}

/// The top-level module a file belongs to; `None` for lib.rs and main.rs.
fn module_of(path: &Path) -> Option<String> {
    let mut parts = path.components();
    let first = parts.next()?.as_os_str().to_str()?;
    match parts.next() {
        Some(_) => Some(first.into()),
        None => first.strip_suffix(".rs").filter(|name| !["lib", "main"].contains(name)).map(Into::into),
    }
}

/// All Rust files below `src`: their path from there, their text.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("a text");
                files.push((path.strip_prefix(&root).expect("below src").into(), text));
            }
        }
    }
    files.sort();
    files
}
