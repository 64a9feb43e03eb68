//! The reference pages say what the program does: settings, metrics, commands and options.
//!
//! `docs/reference/settings.md` is generated from `configs/default.toml`, whose comments are the documentation:
//! `UPDATE_EXPECT=1 cargo nextest run the_settings_page` writes it. `.ci/check-links` checks links and sizes.

use crate::hub::hub;
use antiphon::cli::Cli;
use antiphon::config::{self, DEFAULT_TOML};
use clap::{Command, CommandFactory};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

const SETTINGS_HEAD: &str = "\
<!-- Generated from configs/default.toml by tests/docs.rs: UPDATE_EXPECT=1 cargo nextest run the_settings_page -->

# Settings

This page is generated from `configs/default.toml`, which `antiphon config default` prints.

";

const SETTINGS_TAIL: &str = "
Later sources override earlier ones: the built-in defaults, the file given by `--config`, the environment, options.
";

fn path(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(page)
}

fn read(page: &str) -> String {
    fs::read_to_string(path(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// A comment as Markdown: what would be taken for markup is escaped, outside of code.
fn prose(comment: &[&str]) -> String {
    let text = comment.join("\n");
    let parts = text.split('`').enumerate().map(|(n, part)| match n % 2 {
        0 => part.replace('<', "\\<").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The page: a heading for each section and key, below it what the comments above them say.
fn settings() -> String {
    let mut page = SETTINGS_HEAD.to_owned();
    let mut section = String::new();
    let mut comment = Vec::new();
    for line in DEFAULT_TOML.lines().chain([""]) {
        if let Some(text) = line.strip_prefix("# ") {
            comment.push(text);
        } else if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
            page += &format!("\n## \\[{section}\\]\n");
            if !comment.is_empty() {
                page += &format!("\n{}\n", prose(&comment));
            }
            comment.clear();
        } else if let Some((key, default)) = line.split_once(" = ") {
            page += &format!("\n### `{section}.{key}`\n\n{}\n", prose(&comment));
            page += &format!("\nDefault: `{default}`{}\n", values(&section, key));
            comment.clear();
        } else if !comment.is_empty() {
            // What stands by itself, at the head of the file.
            page += &format!("{}\n{SETTINGS_TAIL}", prose(&comment));
            comment.clear();
        }
    }
    page
}

/// The words that a key may hold, where only some are right.
fn values(section: &str, key: &str) -> String {
    let found = config::keys().find(|one| one.section == section && one.name == key);
    let words = config::words(found.unwrap_or_else(|| panic!("{section}.{key} has no rule")));
    if words.is_empty() {
        return String::new();
    }
    format!("; one of {}", words.iter().map(|word| format!("`\"{word}\"`")).collect::<Vec<_>>().join(", "))
}

#[test]
fn the_settings_page_is_what_default_toml_says() {
    let path = path("settings.md");
    let expect = settings();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &expect).expect("written");
    }
    let page = fs::read_to_string(&path).unwrap_or_default();
    let other = page.lines().zip(expect.lines()).find(|(is, should)| is != should);
    assert!(page == expect, "{} is old ({other:?}); run this test with UPDATE_EXPECT=1", path.display());
    for key in config::keys() {
        let heading = format!("\n### `{}.{}`\n", key.section, key.name);
        assert_eq!(page.matches(&heading).count(), 1, "{heading}");
    }
}

/// The names that stand in backticks in a page's first columns.
fn names_in(page: &str) -> Vec<String> {
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_metrics_page_names_what_the_hub_exports() {
    let hub = hub("Hello.", "Hi.").await;
    // An error's series begins with its first error.
    let mut socket = hub.connect("").await;
    socket.send(json!({"type": "no.such.event"})).await;
    socket.until("error").await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let exported = reqwest::Client::new().get(format!("http://{}/metrics", hub.address)).send().await;
    let exported = exported.expect("an answer").text().await.expect("a body");
    let exported: Vec<_> =
        exported.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(exported.len() > 10, "{exported:?}");
    // The first table; the others explain labels.
    let named = names_in(read("metrics.md").split("\n\nStages of").next().expect("a beginning"));
    for name in &exported {
        assert!(named.iter().any(|one| one == name), "docs/reference/metrics.md does not name {name}");
    }
    let expected = named.iter().filter(|name| name.starts_with("antiphon_") || name.starts_with("voice_"));
    // Those of graphics cards begin where there is one, those of slots where the engine has them.
    // Those of servers behind the engines where an engine has one.
    const CONDITIONAL: [&str; 5] = [
        "voice_gpu_",
        "antiphon_tts_slots",
        "antiphon_breaker_state",
        "antiphon_fallback_total",
        "antiphon_hedged_total",
    ];
    let is_conditional = |name: &str| CONDITIONAL.iter().any(|prefix| name.starts_with(prefix));
    for name in expected.filter(|name| !is_conditional(name)) {
        assert!(exported.contains(&name.as_str()), "docs/reference/metrics.md names {name}, which is not exported");
    }
}

/// The text below the heading of a command, to the next heading of another one.
fn section_of<'a>(page: &'a str, command: &str) -> &'a str {
    let heading = format!("# `{command}`\n");
    let from = page.find(&heading).unwrap_or_else(|| panic!("docs/reference/cli.md has no heading `{command}`"));
    let rest = &page[from + heading.len()..];
    &rest[..rest.find("\n## ").into_iter().chain(rest.find("\n### ")).min().unwrap_or(rest.len())]
}

/// What `page` lacks of a command and the commands below it.
fn lacking(page: &str, command: &Command, name: &str, found: &mut Vec<String>) {
    let section = section_of(page, name);
    let options = command.get_arguments().filter(|option| !option.is_global_set());
    for long in options.filter_map(|option| option.get_long()).filter(|long| *long != "help") {
        if !section.contains(&format!("`--{long} ")) && !section.contains(&format!("`--{long}`")) {
            found.push(format!("{name} --{long}"));
        }
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        lacking(page, below, &format!("{name} {}", below.get_name()), found);
    }
}

#[test]
fn the_command_line_page_names_every_command_and_option() {
    let page = read("cli.md");
    let cli = Cli::command();
    let mut found = Vec::new();
    for option in cli.get_arguments().filter_map(|option| option.get_long()) {
        assert!(page.contains(&format!("`--{option}`")), "--{option}");
    }
    // The benchmarks are a program of their own, with a page of their own.
    let commands = cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "bench");
    for command in commands {
        lacking(&page, command, &format!("antiphon {}", command.get_name()), &mut found);
    }
    assert!(found.is_empty(), "docs/reference/cli.md does not name {found:?}");
}

#[test]
fn a_planted_option_is_missed() {
    let page = "## `a b`\n\n| `--one FILE` | x |\n\n### `a b c`\n\n`--two`\n";
    let below = Command::new("c").arg(clap::Arg::new("two").long("two")).arg(clap::Arg::new("one").long("one"));
    let command = Command::new("b").arg(clap::Arg::new("one").long("one")).subcommand(below);
    let mut found = Vec::new();
    lacking(page, &command, "a b", &mut found);
    assert_eq!(found, ["a b c --one"]);
}

#[test]
fn planted_faults_of_links_and_pages_are_found() {
    let root = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = root.path().join(name);
        fs::create_dir_all(file.parent().expect("a folder")).expect("made");
        fs::write(file, text).expect("written");
    };
    let others = ["models/README.md", "models/export/README.md", "models/export/LAYOUT.md", "web/sdk/README.md"];
    for page in ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "src/ARCHITECTURE.md"].iter().chain(&others) {
        write(page, "# A page\n");
    }
    write("README.md", "# Antiphon\n\n[a](docs/a.md#one-heading) `[code](x.md)`\n");
    write("docs/SUMMARY.md", "# Summary\n\n- [A](a.md)\n");
    write("docs/a.md", "# A\n\n## One `heading`\n\n[it](#one-heading)\n\n```text\n[no](link.md)\n```\n");
    let check = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/check-links");
        let output = std::process::Command::new(script).arg(root.path()).output().expect("Python 3 runs it");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    assert_eq!(check(), (Some(0), String::new()));
    write("docs/a.md", "# A\n\n[gone](gone.md) [no](#heading) [out](../README.md)\n");
    write("docs/b.md", &format!("# B\n\n{}\n", "long ".repeat(30)));
    write("README.md", &format!("# Antiphon\n\n{}", "much\n".repeat(2_000)));
    let (code, said) = check();
    assert_eq!(code, Some(1));
    for fault in [
        "README.md: 10012 bytes, and may have at most 9000",
        "docs/a.md:3: links to gone.md, which does not exist",
        "docs/a.md:3: links to #heading: there is no such heading",
        "docs/a.md:3: links to ../README.md, outside docs/",
        "docs/b.md:3: 150 columns, and may have at most 120",
        "docs/b.md: is not in docs/SUMMARY.md",
    ] {
        assert!(said.contains(fault), "{fault:?} is not in {said}");
    }
}

/// The tests, files and targets of `make` that SECURITY.md names for each point.
#[test]
fn the_tests_that_security_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("SECURITY.md")).expect("the page");
    let checklists = &page[page.find("## Checklists").expect("a section")..];
    let checklists = &checklists[..checklists.find("\n## What is not").expect("the next section")];
    let named = checklists.lines().filter(|line| line.starts_with("| ")).flat_map(|line| {
        let cell = line.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        cell.split(", ").filter_map(|name| name.strip_prefix('`')?.strip_suffix('`')).collect::<Vec<_>>()
    });
    let (tests, others): (Vec<&str>, Vec<&str>) = named.partition(|name| !name.contains(['/', '.', ' ']));
    assert!(tests.len() > 25, "{tests:?}");
    let makefile = fs::read_to_string(root.join("Makefile")).expect("the file");
    for name in others {
        let exists = match name.strip_prefix("make ") {
            Some(target) => makefile.contains(&format!("\n{target}:")),
            None => root.join(name).is_file(),
        };
        assert!(exists, "SECURITY.md names {name}, which does not exist");
    }
    let mut code = String::new();
    let mut folders = vec![root.join("tests"), root.join("src"), root.join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true if path.ends_with("node_modules") => {}
                true => folders.push(path),
                false if path.extension().is_some_and(|extension| extension == "rs") => {
                    code += &fs::read_to_string(path).expect("a source");
                }
                false => {}
            }
        }
    }
    for name in tests {
        assert!(code.contains(&format!("fn {name}()")), "SECURITY.md names the test {name}, which does not exist");
    }
}

/// Files of Rust below a folder, by their path from the root without `crates/` and `/src`, as the pages name them.
fn sources(root: &Path) -> Vec<String> {
    let mut sources = Vec::new();
    let mut folders = vec![root.join("src"), root.join("crates"), root.join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("below the root").to_str().expect("a name").to_owned();
                sources.push(format!("/{}", name.replace("crates/", "").replace("/src/", "/")));
            }
        }
    }
    sources
}

/// "a/{b,c}.rs" is a/b.rs and a/c.rs.
fn spelled_out(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (names, tail) = rest.split_once('}').expect("a brace that is closed");
    names.split(',').map(|name| format!("{head}{name}{tail}")).collect()
}

/// These pages lead to files: a file that moved takes its name there along.
#[test]
fn the_files_that_the_pages_of_the_code_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(root);
    let mut n_named = 0;
    let pages =
        ["src/ARCHITECTURE.md", "docs/developing/where.md", "docs/developing/glossary.md", "docs/reference/bounds.md"];
    for page in pages {
        let text = fs::read_to_string(root.join(page)).expect("the page");
        for name in text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && name.contains('/')) {
            n_named += 1;
            for name in spelled_out(name) {
                let name = name.trim_start_matches("src/").trim_start_matches("crates/");
                let exists = sources.iter().any(|source| source.ends_with(&format!("/{name}")));
                assert!(exists, "{page} names {name}, which does not exist");
            }
        }
    }
    assert!(n_named > 100, "{n_named}");
}
