//! The configuration files of a plan: one for the hubs, one for the workers of each stage.
//!
//! They are complete except for what only the user knows: addresses, certificates and keys, which stand in them as comments.
//! Each passes `antiphon config check`, which a test runs on all of them.

use super::profile::{Profile, Service, StageProfile};
use super::size::{MAX_PER_WORKER, Sizing, StageSize, fitting};
use super::{Demand, PlanError};
use std::path::Path;
use toml::{Table, Value};

/// The most sessions of a hub: the bound of `server.max_sessions`.
const MOST_SESSIONS: u64 = 1_000_000;

/// What a user adds to each file.
const TO_ADD: &str = "\
# Add to [cluster], see docs/operating/cluster.md:
#   tls_ca = \"/etc/antiphon/secrets/ca.crt\"
#   credentials = \"/etc/antiphon/secrets/NAME.seed\"
";

/// A file of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The files for a plan.
pub fn files(profile: &Profile, demand: &Demand, sized: &Sizing) -> Vec<ConfigFile> {
    let on_workers: Vec<&'static str> =
        sized.stages.iter().filter(|stage| is_worker(stage)).map(|stage| stage.stage).collect();
    let mut files = vec![hub(profile, demand, sized, &on_workers)];
    for (sized_stage, (name, stage)) in sized.stages.iter().zip(profile.stages()) {
        if is_worker(sized_stage) {
            files.push(worker(profile, sized, name, stage, sized_stage));
        }
    }
    files
}

/// Writes the files into a folder, which is made if it is missing. Blocks.
///
/// # Errors
/// A file cannot be written.
pub fn write(folder: &Path, files: &[ConfigFile]) -> Result<(), PlanError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PlanError::Write { path, source }
    };
    std::fs::create_dir_all(folder).map_err(failed(folder))?;
    files.iter().try_for_each(|file| {
        let path = folder.join(&file.name);
        std::fs::write(&path, &file.text).map_err(failed(&path))
    })
}

/// Whether it runs on workers of this project: language models have servers of their own.
fn is_worker(stage: &StageSize) -> bool {
    stage.stage != "llm" && stage.machines > 0
}

fn hub(profile: &Profile, demand: &Demand, sized: &Sizing, on_workers: &[&str]) -> ConfigFile {
    let mut tables = vec![
        ("server", table([("listen", "0.0.0.0:8080".into()), ("max_sessions", sessions(sized.hubs.max_sessions))])),
        (
            "slo",
            table([
                ("voice_to_voice_ms", Value::Integer(demand.objective_ms.round() as i64)),
                ("share", Value::Float(demand.share)),
            ]),
        ),
    ];
    if !on_workers.is_empty() {
        let stages = Value::Array(on_workers.iter().map(|stage| Value::from(*stage)).collect());
        tables.push(("cluster", table([("servers", servers(sized)), ("stages", stages)])));
    }
    for (name, stage) in profile.stages() {
        if !on_workers.contains(&name) && !stage.settings.is_empty() {
            tables.push((name, settings(stage)));
        }
    }
    let n = sized.hubs.hubs;
    let mut head =
        format!("# Hubs of the plan \"{}\" for {} users: the same file on all {n}.\n", profile.name, demand.users);
    if !on_workers.is_empty() {
        head += &of_clusters(sized);
        head += TO_ADD;
        head += "#   jetstream = true\n#   sealing_key = \"/etc/antiphon/secrets/sealing.key\"\n#   replicas = 3\n";
    }
    head += "# Add to [server], see docs/operating/cluster.md: api_keys_file, allowed_hosts, trusted_proxies.\n";
    ConfigFile { name: "hub.toml".into(), text: text(&head, tables) }
}

fn worker(
    profile: &Profile,
    sized: &Sizing,
    name: &'static str,
    stage: &StageProfile,
    sized_stage: &StageSize,
) -> ConfigFile {
    // The plan has failed before where it is an error.
    let n_each = fitting(profile, name, stage).ok().flatten().unwrap_or(1);
    let mut of_stage = settings(stage);
    let slots = match stage.service {
        Service::Slots { slots, .. } | Service::Runs { slots, .. } => slots,
        Service::External { .. } => 1,
    };
    let number = |n: usize| Value::Integer(n as i64);
    match (name, of_stage.get("engine").and_then(Value::as_str)) {
        ("stt", _) => drop(of_stage.insert("decoders".into(), number((slots * n_each).min(MAX_PER_WORKER)))),
        ("tts", Some("speechlm")) => {
            of_stage.insert("slots".into(), number(slots));
            of_stage.insert("replicas".into(), number(n_each));
        }
        _ => {
            of_stage.insert("max_batch_size".into(), number(slots));
            of_stage.insert("replicas".into(), number(n_each));
        }
    }
    let has_gpu = stage.needs.as_ref().is_some_and(|needs| needs.accelerators > 0.0);
    let stages = Value::Array(vec![name.into()]);
    let mut tables = vec![("cluster", table([("servers", servers(sized)), ("stages", stages)])), (name, of_stage)];
    if has_gpu && name == "tts" {
        tables.push(("onnx", table([("provider", "cuda".into()), ("require", true.into())])));
    }
    let machines = sized_stage.machines;
    let head = format!(
        "# Workers of the plan \"{}\", stage {name}: the same file on all {machines}, one worker a machine.\n{}{TO_ADD}",
        profile.name,
        of_clusters(sized)
    );
    ConfigFile { name: format!("worker-{name}.toml"), text: text(&head, tables) }
}

fn sessions(max: u64) -> Value {
    Value::Integer(max.min(MOST_SESSIONS) as i64)
}

/// What differs between the files of several clusters; empty where there is one.
fn of_clusters(sized: &Sizing) -> String {
    match sized.clusters {
        0..=1 => String::new(),
        n => format!("# In each of {n} clusters with NATS servers of its own: write those into cluster.servers.\n"),
    }
}

/// The NATS servers of a cluster.
fn servers(sized: &Sizing) -> Value {
    let server = |n: usize| Value::from(format!("tls://nats-{n}.example.org:4222"));
    Value::Array((1..=sized.nats_servers / sized.parts).map(server).collect())
}

fn settings(stage: &StageProfile) -> Table {
    let value = |(name, value): (&String, &serde_json::Value)| Some((name.clone(), Value::try_from(value).ok()?));
    stage.settings.iter().filter_map(value).collect()
}

fn table<const N: usize>(entries: [(&str, Value); N]) -> Table {
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn text(head: &str, tables: Vec<(&str, Table)>) -> String {
    let mut text = head.to_owned();
    for (name, table) in tables {
        text += &format!("\n[{name}]\n{table}");
    }
    text
}
