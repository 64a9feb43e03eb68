//! The configuration: built-in defaults, overridden by a file, the environment, and the command line, in this order.
//!
//! `cli` calls [`load`] once, before anything starts. Each section is the struct of the module it configures
//! ([`raw`](Config)). [`keys`] gives every key with its valid values, so that all problems are reported together, each
//! with its location and a correction. A hub loads with [`load_hub`], which also checks what its cluster needs. This module
//! starts nothing, keeps no key or secret, and rejects anything it does not understand.
//!
//! A key is a field of its section's struct, with meaning, default and rule ([`settings!`](antiphon_types::settings)).
//! `tests/configs.rs` writes `configs/default.toml` from these.

mod env;
mod error;
mod file;
mod former;
mod limits;
mod raw;
mod rtc;
mod rules;
mod server;
mod sip;
mod speech;
mod storage_key;
mod suggest;
mod telephony;
mod wyoming;

pub use error::{ConfigError, Origin, Problem};
pub use former::{FORMER_KEYS, FormerKey};
pub use limits::{KeyLimits, LimitsConfig};
pub use raw::{Config, SECTIONS};
pub use rtc::RtcConfig;
pub use rules::{keys, words};
pub use server::ServerConfig;
pub use sip::{
    MAX_VOICEMAIL_MESSAGE_BYTES, OnVoicemail, QuietHours, SipConfig, SipTransport, SipTrunk, SrtpUse, TransferKind,
    TransferTargets, UndecidedCall,
};
pub use speech::SpeechConfig;
pub use storage_key::StorageKey;
pub use telephony::{
    AccountKind, ConsentMethod, NUMBER_PLACEHOLDER, TelephonyAccount, TelephonyConfig, TelephonyRoute,
};
pub use wyoming::WyomingConfig;

use antiphon_cluster::{ClusterConfig, ClusterError};
use antiphon_types::setting::Key;
use antiphon_types::small_file;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// `configs/default.toml` as built into the binary; it selects the offline engines.
pub const DEFAULT_TOML: &str = include_str!("../../configs/default.toml");

/// The sources of settings; later ones override earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The models that the program was installed with, the value of `models.shipped_dir` where no other source has one.
    pub installed_models: Option<PathBuf>,
    /// The file named by `--config`.
    pub file: Option<PathBuf>,
    /// All environment variables, names and values. Those without the prefix `ANTIPHON_` are ignored.
    pub env: Vec<(String, String)>,
    /// Command-line options: section, key, text.
    pub options: Vec<(&'static str, &'static str, String)>,
}

impl Sources {
    /// This process's environment, the models beside its program and, if given, a file. Names and values that are not Unicode
    /// get replacement characters, and are rejected where they are used.
    pub fn of_process(file: Option<&Path>) -> Self {
        let text = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
        Self {
            installed_models: std::env::current_exe().ok().and_then(|program| models_beside(&program)),
            file: file.map(Path::to_path_buf),
            env: std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect(),
            options: Vec::new(),
        }
    }
}

/// The models that were installed with a program: of `/usr/bin/antiphon`, `/usr/share/antiphon/models`; the same for a folder
/// that was unpacked elsewhere. `None`: there are none.
fn models_beside(program: &Path) -> Option<PathBuf> {
    let folder = program.parent()?.parent()?.join("share/antiphon/models");
    folder.is_dir().then_some(folder)
}

/// Reads all sources and merges them. Blocks for one small file.
///
/// # Errors
/// [`ConfigError::Unreadable`] if the file cannot be read, [`ConfigError::Invalid`] with every problem found.
pub fn load(sources: &Sources) -> Result<Config, ConfigError> {
    collect(sources)?.into_config()
}

fn collect(sources: &Sources) -> Result<Layers, ConfigError> {
    let mut layers = Layers::default();
    if let Some(folder) = sources.installed_models.as_ref().and_then(|folder| folder.to_str()) {
        let key = rules::find("models", "shipped_dir").expect("a setting");
        layers.set(key, Value::String(folder.into()), Origin::Merged);
    }
    if let Some(path) = &sources.file {
        let text = small_file::read_text(path, small_file::MAX_SETTINGS_BYTES)
            .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        file::read(path, &text, &mut layers);
    }
    env::read(&sources.env, &mut layers);
    for (section, key, text) in &sources.options {
        let origin = Origin::Option(format!("--{key}"));
        let known = rules::find(section, key).expect("options name keys that exist");
        match env::parse(known, text) {
            Ok(value) => layers.set(known, value, origin),
            Err(written) => {
                layers.problems.push(Problem { origin, message: file::wrong_value(known, &written) });
            }
        }
    }
    Ok(layers)
}

/// Characters that a slow voice says in a second.
const SLOW_VOICE: usize = 10;

/// As [`load`], for a hub: also checks what its cluster needs, as far as it shows without a connection, and reads the files
/// of the credentials, of the sealing key and of the storage key for that.
///
/// # Errors
/// As [`load`]; problems of the cluster come after the others.
pub fn load_hub(sources: &Sources) -> Result<Config, ConfigError> {
    let mut layers = collect(sources)?;
    layers.check_cluster();
    layers.check_storage_key();
    layers.check_telephony();
    layers.check_sip();
    layers.into_config()
}

/// The settings collected so far, and the problems of the others.
#[derive(Default)]
struct Layers {
    settings: Table,
    /// Where each setting was found last, by section and key.
    origins: HashMap<(&'static str, &'static str), Origin>,
    problems: Vec<Problem>,
}

impl Layers {
    fn set(&mut self, key: &Key, value: Value, origin: Origin) {
        self.origins.insert((key.section, key.name), origin);
        let section = self.settings.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
        section.as_table_mut().expect("sections are tables").insert(key.name.into(), value);
    }

    /// Adds the problems that the cluster's settings have together, and those of the files they name.
    fn check_cluster(&mut self) {
        const SECTION: &str = "cluster";
        let Some(settings) = self.settings.get(SECTION).cloned() else { return };
        // The structs accept whatever the rules allow.
        let Ok(cluster) = ClusterConfig::deserialize(settings) else { return };
        for error in cluster.problems() {
            let ClusterError::Setting { setting, .. } = &error else { continue };
            // What was rejected is missing here.
            let is_known = format!("{SECTION}.{setting} = ");
            if self.problems.iter().any(|problem| problem.message.starts_with(&is_known)) {
                continue;
            }
            let origin = self.origins.get(&(SECTION, *setting)).or_else(|| self.origins.get(&(SECTION, "jetstream")));
            let origin = origin.cloned().unwrap_or(Origin::Merged);
            self.problems.push(Problem { origin, message: error.to_string() });
        }
    }

    /// Adds the problem of the file of `server.storage_key`.
    fn check_storage_key(&mut self) {
        const KEY: (&str, &str) = ("server", "storage_key");
        let path = self.settings.get(KEY.0).and_then(|server| server.get(KEY.1)).and_then(Value::as_str);
        let Some(path) = path.filter(|path| !path.is_empty()) else { return };
        if let Err(error) = StorageKey::read(Path::new(path)) {
            let origin = self.origins.get(&KEY).cloned().unwrap_or(Origin::Merged);
            self.problems.push(Problem { origin, message: format!("server.storage_key: {error}") });
        }
    }

    /// Adds the problems of `telephony.routes`, `telephony.accounts` and the notice of a recording.
    fn check_telephony(&mut self) {
        const SECTION: &str = "telephony";
        let Some(settings) = self.settings.get(SECTION).cloned() else { return };
        // The struct accepts whatever the rules allow.
        let Ok(telephony) = TelephonyConfig::deserialize(settings) else { return };
        if telephony.needs_public_url() && self.lacks_public_url() {
            let origin = self.origins.get(&(SECTION, "accounts")).cloned().unwrap_or(Origin::Merged);
            let message = "telephony.accounts needs server.public_url: the address under which the provider reaches \
                           the hub";
            self.problems.push(Problem { origin, message: message.into() });
        }
        for message in telephony.problems() {
            let keys = ["accounts", "recording_notice", "recording_consent"];
            let is_of = |key: &&str| message.strip_prefix("telephony.").is_some_and(|rest| rest.starts_with(*key));
            let key = keys.into_iter().find(is_of).unwrap_or("routes");
            let origin = self.origins.get(&(SECTION, key)).cloned().unwrap_or(Origin::Merged);
            self.problems.push(Problem { origin, message });
        }
        self.check_notice(&telephony);
    }

    /// Adds the problem of a limit that may cut off the notice of a recording.
    fn check_notice(&mut self, telephony: &TelephonyConfig) {
        const LIMIT: (&str, &str) = ("session", "max_answer_seconds");
        let session = self.settings.get(LIMIT.0);
        let is_recorded =
            session.and_then(|session| session.get("record")).and_then(Value::as_str).is_some_and(|it| !it.is_empty());
        let seconds = session.and_then(|session| session.get(LIMIT.1)).and_then(Value::as_integer).unwrap_or_default();
        let needed = telephony.recording_notice.trim().chars().count().div_ceil(SLOW_VOICE);
        let is_short = usize::try_from(seconds).is_ok_and(|seconds| (1..needed).contains(&seconds));
        if is_short && is_recorded {
            let origin = self.origins.get(&LIMIT).cloned().unwrap_or(Origin::Merged);
            let message = format!(
                "session.max_answer_seconds may cut off telephony.recording_notice, and calls are not recorded then: \
                 write 0 or at least {needed}"
            );
            self.problems.push(Problem { origin, message });
        }
    }

    /// Whether `server.public_url` is empty; an address that was rejected is not missing as well.
    fn lacks_public_url(&self) -> bool {
        let url = self.settings.get("server").and_then(|server| server.get("public_url")).and_then(Value::as_str);
        let is_rejected = self.problems.iter().any(|problem| problem.message.starts_with("server.public_url = "));
        url.is_none_or(str::is_empty) && !is_rejected
    }

    /// Adds the problems of `[sip]`.
    fn check_sip(&mut self) {
        let Some(settings) = self.settings.get("sip").cloned() else { return };
        // The struct accepts whatever the rules allow.
        let Ok(sip) = SipConfig::deserialize(settings) else { return };
        for message in sip.problems() {
            let keys = [
                "quiet_hours",
                "tls_listen",
                "tls_cert",
                "trunks",
                "webhook_url",
                "transfer_to",
                "call_to",
                "tool_transfer_call",
                "voicemail_message",
            ];
            let is_of = |key: &&str| message.strip_prefix("sip.").is_some_and(|rest| rest.starts_with(*key));
            let key = keys.into_iter().find(is_of).unwrap_or("rtp_port_max");
            let origin = self.origins.get(&("sip", key)).cloned().unwrap_or(Origin::Merged);
            self.problems.push(Problem { origin, message });
        }
    }

    fn into_config(self) -> Result<Config, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError::Invalid(self.problems));
        }
        // The structs accept whatever the rules allow, which a test checks. A discrepancy is reported as an error.
        Config::deserialize(self.settings).map_err(|error| {
            let message = error.message().to_owned();
            ConfigError::Invalid(vec![Problem { origin: Origin::Merged, message }])
        })
    }
}
