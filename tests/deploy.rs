//! What `deploy/` says about the program: settings, their variables, metrics, and the secrets that `deploy/make-secrets` makes with
//! it. `.ci/check-deploy` checks the rest.

use antiphon::config::{self, Sources};
use antiphon_cluster::testing::program as nats_server;
use antiphon_types::setting::Key;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// The text files below `folder`, secrets left out.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("secrets") {
            found.extend(files(&path));
        } else if path.is_file() {
            found.push((path.clone(), fs::read_to_string(&path).expect("text")));
        }
    }
    found
}

/// The words of a text that begin with `prefix`.
fn words(text: &str, prefix: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

/// The metrics that KEDA asks Prometheus for. `tests/cluster.rs` compares them with what a hub and a worker export.
pub fn asked_metrics() -> BTreeSet<String> {
    let of_keda = files(&root().join("kubernetes")).into_iter().filter(|(path, _)| path.ends_with("autoscaling.yaml"));
    let asked: BTreeSet<_> = of_keda.flat_map(|(_, text)| words(&text, "antiphon_")).collect();
    assert!(asked.len() >= 4, "{asked:?}");
    asked
}

#[test]
fn every_settings_file_loads() {
    let settings = files(&root()).into_iter().filter(|(path, _)| path.extension().is_some_and(|ext| ext == "toml"));
    let settings: Vec<_> = settings.collect();
    assert!(settings.len() >= 6, "{settings:?}");
    for (path, _) in settings {
        let sources = Sources { file: Some(path.clone()), ..Sources::default() };
        config::load(&sources).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

#[test]
fn every_variable_is_a_setting() {
    let mut n_found = 0;
    for (path, text) in files(&root()) {
        for variable in words(&text, "ANTIPHON_") {
            let Some((section, key)) = variable["ANTIPHON_".len()..].split_once("__") else { continue };
            n_found += 1;
            let is_it =
                |known: &Key| known.section.eq_ignore_ascii_case(section) && known.name.eq_ignore_ascii_case(key);
            assert!(config::keys().any(is_it), "{}: {variable}", path.display());
        }
    }
    assert!(n_found >= 4, "{n_found}");
}

/// Runs `deploy/make-secrets` into `folder`.
fn make_secrets(folder: &Path) -> Output {
    let mut command = Command::new(root().join("make-secrets"));
    command.arg(folder).env("ANTIPHON", env!("CARGO_BIN_EXE_antiphon")).output().expect("a shell runs it")
}

fn contents(folder: &Path) -> BTreeMap<PathBuf, String> {
    files(folder).into_iter().collect()
}

#[test]
fn nats_accepts_the_secrets_with_both_configurations() {
    let parent = tempfile::tempdir().expect("a folder");
    let folder = parent.path().join("made");
    let made = make_secrets(&folder);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(fs::metadata(&folder).expect("made").permissions().mode() & 0o777, 0o700);
    let before = contents(&folder);

    // Again: nothing is replaced. A certificate that is missing is made, and the folder is closed to others.
    fs::remove_file(folder.join("nats.crt")).expect("removed");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("opened");
    let made = make_secrets(&folder);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert_eq!(fs::metadata(&folder).expect("it stays").permissions().mode() & 0o777, 0o700);
    let after = contents(&folder);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (path, text) in &before {
        let is_renewed = path.starts_with(&folder) && path.file_stem().is_some_and(|stem| stem == "nats");
        assert_eq!(&after[path] != text, is_renewed, "{}", path.display());
    }

    let at = |name: &str| folder.join(name);
    let certificate =
        Command::new("openssl").arg("verify").arg("-CAfile").arg(at("ca.crt")).arg(at("nats.crt")).output();
    assert!(certificate.expect("openssl runs").status.success());
    for file in ["compose/nats.conf", "kubernetes/base/nats.conf"] {
        let text = fs::read_to_string(root().join(file)).expect("text");
        let text = text
            .replace("/etc/nats/secrets", &folder.display().to_string())
            .replace("/etc/nats/authority", &folder.display().to_string())
            .replace("./secrets/", "./made/")
            .replace("./accounts.conf", "./made/accounts.conf")
            .replace("/data", &parent.path().join("data").display().to_string());
        let copy = parent.path().join("nats.conf");
        fs::write(&copy, text).expect("written");
        let mut check = Command::new(nats_server().expect("nats-server"));
        let checked = check.args(["-t", "-c"]).arg(&copy).env("POD_NAME", "nats-0").output().expect("it runs");
        assert!(checked.status.success(), "{file}: {}", String::from_utf8_lossy(&checked.stderr));
    }
}
