//! `antiphon cluster`: the NATS server's configuration, and the hubs and workers that a running hub sees.

use super::target::{HubArgs, printable};
use super::{CliError, print};
use antiphon_cluster::SealingKey;
use antiphon_cluster::permissions::{Environment, Permissions, PermissionsError, configuration};
use clap::{Args, Subcommand};
use nkeys::KeyPair;
use reqwest::Method;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What to do with a cluster.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Examples:
  antiphon cluster key hub.seed                     a key for hubs: the file stays here, the public key goes to NATS
  antiphon cluster permissions > nats.conf          users and limits; keys are variables of nats-server
  antiphon cluster permissions --hub UD3Q... --worker UBR7... > nats.conf
  antiphon cluster permissions --environment production --environment staging --hub staging=UD3Q...
  (umask 077; antiphon cluster sealing-key > sealing.key)   a key that all hubs share; cluster.sealing_key names the file
  antiphon cluster status                           hubs and workers, as the hub on this machine sees them")]
pub enum ClusterCommand {
    /// Print the NATS server's configuration: an account for each environment, with its users' permissions
    Permissions(PermissionsArgs),
    /// Make a key for hubs or workers: writes its secret half into a file and prints the public one
    Key(KeyArgs),
    /// Print a new key that seals what hubs share through JetStream, for the file of cluster.sealing_key
    #[command(after_help = SEALING_KEY)]
    SealingKey,
    /// Show the hubs and workers that a running hub sees
    Status(StatusArgs),
}

const SEALING_KEY: &str = "\
Example:
  (umask 077; antiphon cluster sealing-key > sealing.key)

All hubs of a cluster need the same file. The first one leaves a sealed record (sealing-key-check in the bucket antiphon-jobs);
a hub that cannot open it ends with 2.

To exchange the key:
  1. Stop all hubs.
  2. Remove the streams, with a NATS user that may do so; all stored sessions, short-lived keys and jobs are lost:
     for s in KV_antiphon-sessions KV_antiphon-keys KV_antiphon-jobs OBJ_antiphon-audio ANTIPHON_JOBS; do
       nats stream rm -f $s; done
     Without such a user: stop the NATS servers, remove the folders jetstream/ in their store_dir, and start them.
  3. Give all hubs the new file and start them.";

/// Whom the NATS server serves.
#[derive(Debug, Args)]
pub struct PermissionsArgs {
    /// An environment, whose hubs and workers see each other only [default: production]
    #[arg(long, value_name = "NAME")]
    environment: Vec<String>,
    /// The public nkey of a user for hubs; ENVIRONMENT=KEY where there are several
    #[arg(long, value_name = "KEY")]
    hub: Vec<String>,
    /// The public nkey of a user for workers; ENVIRONMENT=KEY where there are several
    #[arg(long, value_name = "KEY")]
    worker: Vec<String>,
}

/// Where the key goes.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// The file for the secret half, readable by its owner only; cluster.credentials names it
    file: PathBuf,
}

/// Which hub.
#[derive(Debug, Args)]
#[command(after_help = "\
Where the hub has keys, this takes an admin key (ANTIPHON_ADMIN_KEYS of the hub), by --key or ANTIPHON_API_KEY.

Model of STAGE: the model of all workers of the stage, in brackets the setting that names it; workers with the fallback model get
the requests that no worker with the model takes.

The last lines count on this hub, since its start:
  Requests         attempts: requests sent to workers; busy: attempts that a worker had no room for; retried: requests
                   that continued on another worker; failed: requests whose workers failed or were lost one after the
                   other; away: requests that found no worker or no connection to NATS
  Shared sessions  with cluster.jetstream: sessions of this hub that other hubs may resume, and those of which the last state
                   could not be stored so far; moves: released to other hubs, taken from other hubs, taken from the last
                   checkpoint of a hub that failed, lost to another hub")]
pub struct StatusArgs {
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(command: ClusterCommand) -> Result<(), CliError> {
    match command {
        ClusterCommand::Permissions(args) => print::bytes(permissions(&args)?.as_bytes()),
        ClusterCommand::Key(args) => key(&args.file),
        ClusterCommand::SealingKey => print::line(&SealingKey::generate().encoded()),
        ClusterCommand::Status(args) => status(&args.hub).await,
    }
}

fn permissions(args: &PermissionsArgs) -> Result<String, CliError> {
    let wrong = |error: PermissionsError| CliError::Usage(error.to_string());
    let names = match args.environment.as_slice() {
        [] => vec!["production".to_owned()],
        names => names.to_vec(),
    };
    let mut environments = Vec::new();
    for name in &names {
        let mut environment = Environment::new(name).map_err(wrong)?;
        for key in of_environment(&args.hub, name, &names)? {
            environment = environment.with_hub(key).map_err(wrong)?;
        }
        for key in of_environment(&args.worker, name, &names)? {
            environment = environment.with_worker(key).map_err(wrong)?;
        }
        environments.push(environment);
    }
    Ok(configuration(&Permissions::new(environments).map_err(wrong)?))
}

/// The keys that belong to the environment `name` of `names`.
fn of_environment<'a>(keys: &'a [String], name: &str, names: &[String]) -> Result<Vec<&'a str>, CliError> {
    let mut own = Vec::new();
    for key in keys {
        match key.split_once('=') {
            Some((of, key)) if of == name => own.push(key),
            Some((of, _)) if !names.iter().any(|name| name == of) => {
                return Err(CliError::Usage(format!("there is no environment {of:?}; name it with --environment")));
            }
            Some(_) => {}
            None if names.len() == 1 => own.push(key),
            None => {
                let message = "with several environments a key is written ENVIRONMENT=KEY";
                return Err(CliError::Usage(message.into()));
            }
        }
    }
    Ok(own)
}

/// Never replaces a file: a hub or worker may need the key that is in it.
fn key(path: &Path) -> Result<(), CliError> {
    let key = KeyPair::new_user();
    let seed = key.seed().map_err(|error| CliError::failed(&error))?;
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            CliError::Failed(format!("{} exists already: a key is never replaced; name another file", path.display()))
        }
        _ => CliError::file("written", path, &error),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(format!("{seed}\n").as_bytes()).map_err(failed)?;
    print::line(&key.public_key())
}

async fn status(hub: &HubArgs) -> Result<(), CliError> {
    let state = hub.answer(hub.request(Method::GET, &["api", "state"])?).await?;
    let cluster = &state["cluster"];
    if !cluster.is_object() {
        return Err(CliError::Failed(unseen(&state).into()));
    }
    if hub.is_json() { print::json(cluster) } else { print::line(&table(cluster)) }
}

/// Why the state of the hub has no cluster: the hub has none, or the caller may not see it. A caller that may see the cluster
/// also gets the hub's counters.
fn unseen(state: &Value) -> &'static str {
    match state["counters"].is_object() {
        true => "the hub is in no cluster: cluster.servers is empty in its settings",
        false => {
            "this key may not see the cluster: use an admin key, one of those in the hub's ANTIPHON_ADMIN_KEYS, with --key or \
             ANTIPHON_API_KEY"
        }
    }
}

/// The cluster as text: NATS, the hubs, the workers with a line for each stage, and those that were lost.
fn table(cluster: &Value) -> String {
    let text = |value: &Value| printable(value.as_str().unwrap_or_default());
    let n = |value: &Value| value.as_u64().unwrap_or(0);
    let connected = if cluster["connected"] == true { "connected to" } else { "NOT connected to" };
    let server = text(&cluster["server"]);
    let version = text(&cluster["server_version"]);
    let since = duration(n(&cluster["since_ms"]));
    let mut lines = vec![format!("NATS: {connected} {server} ({version}) for {since}"), String::new()];
    lines.push(row(["HUB", "SESSIONS", "", "UP", "BUILD", "STATE"]));
    for hub in list(&cluster["hubs"]) {
        let sessions = format!("{} of {}", n(&hub["sessions"]), n(&hub["max_sessions"]));
        let state = match (hub["draining"] == true, hub["is_this"] == true) {
            (true, _) => "draining",
            (false, true) => "this one",
            (false, false) => "",
        };
        let name = text(&hub["name"]);
        let up = duration(n(&hub["up_ms"]));
        let build = text(&hub["build"]);
        lines.push(row([&name, &sessions, "", &up, &build, state]));
    }
    lines.extend([String::new(), row(["WORKER", "IN USE", "SERVES", "UP", "BUILD", "STATE"])]);
    for worker in list(&cluster["workers"]) {
        let state = match (worker["refused"].as_str(), worker["draining"] == true) {
            (Some(why), _) => format!("not used: {}", printable(why)),
            (None, true) => "draining".into(),
            (None, false) => String::new(),
        };
        let name = text(&worker["name"]);
        let up = duration(n(&worker["up_ms"]));
        let build = text(&worker["build"]);
        for (at, stage) in list(&worker["stages"]).iter().enumerate() {
            let used = format!("{} of {}", n(&stage["in_flight"]), n(&stage["slots"]));
            let mark = if stage["is_fallback"] == true { " (fallback)" } else { "" };
            let serves = format!("{} {}{mark}", text(&stage["stage"]), text(&stage["model"]));
            let first = |text: &str| if at == 0 { text.to_owned() } else { String::new() };
            lines.push(row([&first(&name), &used, &serves, &first(&up), &first(&build), &first(&state)]));
        }
        if list(&worker["stages"]).is_empty() {
            lines.push(row([&name, "", "", &up, &build, &state]));
        }
    }
    if list(&cluster["workers"]).is_empty() {
        lines.push("there is none; start one with `antiphon worker`".into());
    }
    for lost in list(&cluster["lost"]) {
        let name = text(&lost["name"]);
        let ago = duration(n(&lost["ago_ms"]));
        lines.push(format!("lost {ago} ago: {name} ({})", text(&lost["why"])));
    }
    if !list(&cluster["stage_models"]).is_empty() {
        lines.push(String::new());
        lines.extend(list(&cluster["stage_models"]).iter().map(stage_model));
    }
    let counts = ["attempts", "busy", "retried", "failed", "away"].map(|name| format!("{name} {}", n(&cluster[name])));
    lines.extend([String::new(), format!("Requests: {}", counts.join(", "))]);
    let sessions = &cluster["sessions"];
    if sessions.is_object() {
        let moves = ["released", "taken", "taken_from_checkpoint", "lost"]
            .map(|name| format!("{} {}", name.replace('_', " "), n(&sessions[name])));
        let shared = n(&sessions["shared"]);
        let unstored = n(&sessions["unstored"]);
        lines.push(format!("Shared sessions: {shared}, {unstored} of them not stored; moves: {}", moves.join(", ")));
    }
    lines.join("\n")
}

/// The model of a stage that has one for all workers, what decides it, and whether workers serve it.
fn stage_model(stage: &Value) -> String {
    let text = |value: &Value| value.as_str().map(printable);
    let name = text(&stage["stage"]).unwrap_or_default();
    let model = text(&stage["model"]).unwrap_or_default();
    let setting = text(&stage["setting"]).unwrap_or_else(|| "the first worker's".into());
    let unserved = if stage["is_served"] == true { "" } else { ", which no worker serves now" };
    let mut line = format!("Model of {name}: {model} ({setting}){unserved}");
    if let Some(fallback) = text(&stage["fallback"]) {
        let unserved = if stage["is_fallback_served"] == true { "" } else { ", which no worker serves now" };
        let requests = stage["fallback_requests"].as_u64().unwrap_or(0);
        line += &format!("; fallback: {fallback}{unserved}; requests to the fallback: {requests}");
    }
    line
}

fn row(cells: [&str; 6]) -> String {
    let [name, used, serves, up, build, state] = cells;
    format!("{name:<28}  {used:<10}  {serves:<30}  {up:<8}  {build:<10}  {state}").trim_end().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Milliseconds in the unit that a person would use.
fn duration(ms: u64) -> String {
    match ms / 1_000 {
        s @ 0..120 => format!("{s} s"),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_a_line_for_each_stage() {
        let stage = |stage: &str, model: &str| json!({"stage": stage, "model": model, "slots": 4, "in_flight": 1});
        let cluster = json!({
            "connected": true, "since_ms": 61_000, "server": "n1", "server_version": "2.15.1",
            "hubs": [{"name": "front", "sessions": 3, "max_sessions": 100, "up_ms": 7_300_000, "build": "0.1.0", "is_this": true}],
            "workers": [
                {"name": "w1", "up_ms": 5_000, "build": "0.1.0", "stages": [stage("stt", "openai"), stage("tts", "flite")]},
                {"name": "spare", "up_ms": 5_000, "build": "0.1.0", "stages": [
                    {"stage": "stt", "model": "moonshine", "slots": 4, "in_flight": 0, "is_fallback": true},
                ]},
                {"name": "w\u{1b}2", "refused": "it is too old", "up_ms": 5_000, "build": "0.1.0", "stages": []},
            ],
            "stage_models": [
                {"stage": "stt", "model": "openai", "setting": "cluster.stt_model", "fallback": "moonshine", "is_served": true,
                 "is_fallback_served": true, "fallback_requests": 3},
                {"stage": "turn", "model": "smart-turn", "setting": null, "fallback": null, "is_served": false,
                 "is_fallback_served": false, "fallback_requests": 0},
            ],
            "lost": [{"name": "w0", "ago_ms": 200_000, "why": "it is silent"}],
            "attempts": 7, "busy": 0, "retried": 1, "failed": 0, "away": 0,
        });
        let expect = "\
NATS: connected to n1 (2.15.1) for 61 s

HUB                           SESSIONS                                    UP        BUILD       STATE
front                         3 of 100                                    2 h       0.1.0       this one

WORKER                        IN USE      SERVES                          UP        BUILD       STATE
w1                            1 of 4      stt openai                      5 s       0.1.0
                              1 of 4      tts flite
spare                         0 of 4      stt moonshine (fallback)        5 s       0.1.0
w2                                                                        5 s       0.1.0       not used: it is too old
lost 3 min ago: w0 (it is silent)

Model of stt: openai (cluster.stt_model); fallback: moonshine; requests to the fallback: 3
Model of turn: smart-turn (the first worker's), which no worker serves now

Requests: attempts 7, busy 0, retried 1, failed 0, away 0";
        assert_eq!(table(&cluster), expect);
        let mut shares = cluster;
        shares["sessions"] = json!({
            "shared": 3, "unstored": 1, "released": 4, "taken": 5, "taken_from_checkpoint": 6, "lost": 7,
        });
        let last =
            "Shared sessions: 3, 1 of them not stored; moves: released 4, taken 5, taken from checkpoint 6, lost 7";
        assert_eq!(table(&shares), format!("{expect}\n{last}"));
    }

    #[test]
    fn a_key_without_rights_is_told_from_a_hub_without_a_cluster() {
        assert!(unseen(&json!({"counters": {"turns": 0}})).starts_with("the hub is in no cluster"));
        let said = unseen(&json!({"counters": null}));
        assert!(said.contains("admin key") && said.contains("ANTIPHON_ADMIN_KEYS"), "{said}");
    }

    #[test]
    fn a_key_goes_to_its_environment() {
        let keys = ["staging=A".to_owned(), "B".to_owned()];
        let names = ["production".to_owned(), "staging".to_owned()];
        assert_eq!(of_environment(&keys[..1], "staging", &names).unwrap(), ["A"]);
        assert!(of_environment(&keys[..1], "production", &names).unwrap().is_empty());
        assert_eq!(of_environment(&keys[1..], "production", &names[..1]).unwrap(), ["B"]);
        for (keys, expect) in [(&keys[1..], "ENVIRONMENT=KEY"), (&["test=A".to_owned()][..], "no environment \"test\"")]
        {
            let error = of_environment(keys, "staging", &names).unwrap_err();
            assert!(error.to_string().contains(expect), "{error}");
        }
    }
}
