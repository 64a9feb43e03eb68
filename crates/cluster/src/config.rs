//! The section `[cluster]` of the configuration.

use crate::seal::SealingKey;
use crate::stage_models::StageModels;
use crate::{ClusterError, Stage, link};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// How a hub reaches its workers, and a worker its hubs. `configs/default.toml` documents each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Addresses of the NATS servers: `nats://HOST:PORT` or `tls://HOST:PORT`. Empty: no cluster.
    pub servers: Vec<String>,
    /// The stages that a hub leaves to workers.
    pub stages: Vec<String>,
    /// Model of the stage `stt`; workers with another one are refused. Empty: that of the first worker.
    pub stt_model: String,
    /// Model of the stage `stt` that is used where no worker with `stt_model` takes a request. Empty: none.
    pub stt_fallback_model: String,
    /// As `stt_model`, of the stage `turn`.
    pub turn_model: String,
    /// As `stt_fallback_model`, of the stage `turn`.
    pub turn_fallback_model: String,
    /// Whether a hub loads these engines itself, too, and uses them where no worker can be reached or all are busy.
    pub fallback: bool,
    /// Name of this process in dashboards and logs; empty: the machine's name.
    pub name: String,
    /// File with the credentials: a `.creds` file (JWT and seed), or an nkey seed. Empty: none.
    pub credentials: String,
    /// File with the certificates (PEM) that the servers' certificates are checked with. Empty: those of the system.
    pub tls_ca: String,
    /// File with this process's certificate (PEM), where the servers ask for one.
    pub tls_cert: String,
    /// File with its key.
    pub tls_key: String,
    /// Permits connections without TLS to other machines, for networks that are encrypted otherwise.
    pub insecure: bool,
    /// Whether hubs share sessions, short-lived keys and jobs through JetStream.
    pub jetstream: bool,
    /// File with the key that seals what hubs share: 32 bytes in base64. Required with `jetstream`.
    pub sealing_key: String,
    /// NATS servers that keep each record, 1 to 5.
    pub replicas: usize,
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            stages: ["stt", "tts"].map(str::to_owned).to_vec(),
            stt_model: String::new(),
            stt_fallback_model: String::new(),
            turn_model: String::new(),
            turn_fallback_model: String::new(),
            fallback: false,
            name: String::new(),
            credentials: String::new(),
            tls_ca: String::new(),
            tls_cert: String::new(),
            tls_key: String::new(),
            insecure: false,
            jetstream: false,
            sealing_key: String::new(),
            replicas: 1,
        }
    }
}

impl ClusterConfig {
    /// Whether there is a cluster. `jetstream` asks for one, too, so that a missing address is reported.
    pub fn is_set(&self) -> bool {
        !self.servers.is_empty() || self.jetstream
    }

    /// The key that seals what hubs share. Reads a file.
    ///
    /// # Errors
    /// No file is named, or it holds no key.
    pub fn sealing_key(&self) -> Result<SealingKey, ClusterError> {
        let wrong = |message: String| ClusterError::Setting { setting: "sealing_key", message };
        if self.sealing_key.is_empty() {
            let message = "no file is named, and cluster.jetstream needs one; `antiphon cluster sealing-key` prints a key \
                           for all hubs of the cluster";
            return Err(wrong(message.into()));
        }
        SealingKey::read(Path::new(&self.sealing_key)).map_err(|error| wrong(error.to_string()))
    }

    /// Everything that would keep a hub from connecting, as far as it shows without a connection; empty if nothing does, or if
    /// there is no cluster. Reads the files of the credentials and of the sealing key.
    #[must_use]
    pub fn problems(&self) -> Vec<ClusterError> {
        if !self.is_set() {
            return Vec::new();
        }
        let mut found = link::wrong_settings(self);
        found.extend(self.stages().err());
        found.extend(StageModels::problems(self));
        if self.jetstream {
            found.extend(self.sealing_key().err());
        }
        found
    }

    /// The stages that a hub leaves to workers.
    ///
    /// # Errors
    /// A name that is no stage of workers.
    pub fn stages(&self) -> Result<Vec<Stage>, ClusterError> {
        let stage = |name: &String| {
            Stage::of_name(name).ok_or_else(|| ClusterError::Setting {
                setting: "stages",
                message: format!("{name:?} is no stage of workers; those are stt, tts and turn"),
            })
        };
        self.stages.iter().map(stage).collect()
    }

    /// The addresses for messages, without credentials that the operator may have put into them.
    pub fn shown_servers(&self) -> String {
        let shown = |address: &String| {
            let (scheme, rest) = address.split_once("://").unwrap_or(("nats", address));
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        };
        self.servers.iter().map(shown).collect::<Vec<_>>().join(", ")
    }

    /// The name of this process.
    pub fn shown_name(&self) -> String {
        let machine = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
        let name = if self.name.is_empty() { machine() } else { self.name.clone() };
        let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
        if name.is_empty() { "unnamed".into() } else { name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_an_address_are_not_shown() {
        let servers = vec!["nats://user:secret@nats.example:4222".into(), "other:4222".into()];
        let config = ClusterConfig { servers, ..ClusterConfig::default() };
        assert_eq!(config.shown_servers(), "nats://nats.example:4222, nats://other:4222");
    }

    #[test]
    fn a_key_is_required_by_its_setting() {
        let said = ClusterConfig::default().sealing_key().unwrap_err().to_string();
        assert!(said.starts_with("cluster.sealing_key: no file is named"), "{said}");
        let config = ClusterConfig { sealing_key: "nowhere/key".into(), ..ClusterConfig::default() };
        let said = config.sealing_key().unwrap_err().to_string();
        assert!(said.starts_with("cluster.sealing_key: the file \"nowhere/key\" cannot be read"), "{said}");
    }

    #[test]
    fn a_stage_that_is_none_of_workers_is_refused_by_name() {
        let config = ClusterConfig { stages: vec!["stt".into(), "llm".into()], ..ClusterConfig::default() };
        let said = config.stages().unwrap_err().to_string();
        assert_eq!(said, "cluster.stages: \"llm\" is no stage of workers; those are stt, tts and turn");
    }
}
