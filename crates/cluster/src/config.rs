//! The section `[cluster]` of the configuration.

use crate::seal::SealingKey;
use crate::stage_models::StageModels;
use crate::{ClusterError, Stage, link};
use antiphon_types::setting::Rule;
use std::path::Path;

antiphon_types::settings! {
    /// Engine workers: processes on other machines (`antiphon worker`) that serve engines to hubs through a NATS
    /// server. The page docs/operating/cluster.md sets one up.
    #[derive(Eq)]
    pub struct ClusterConfig in "cluster" {
        /// The NATS servers: `nats://HOST:PORT`, or `tls://HOST:PORT` with TLS; a lost connection goes on at
        /// another one. Empty: no cluster.
        pub servers: Vec<String> = Vec::new(), Rule::NatsServers;
        /// The stages that a hub leaves to workers, of "stt", "tts" and "turn"; for a worker, what it serves
        /// without --stage.
        pub stages: Vec<String> = ["stt", "tts"].map(str::to_owned).to_vec(), Rule::Words(&["stt", "tts", "turn"]);
        /// The model of the stage stt, by the name that `antiphon cluster status` shows; the same on all hubs
        /// and workers. Empty: that of the first worker.
        pub stt_model: String = String::new(), Rule::Text;
        /// A second model of the stage stt, for requests that no worker with stt_model takes. Requires
        /// stt_model.
        pub stt_fallback_model: String = String::new(), Rule::Text;
        /// As stt_model, of the stage turn.
        pub turn_model: String = String::new(), Rule::Text;
        /// As stt_fallback_model, of the stage turn.
        pub turn_fallback_model: String = String::new(), Rule::Text;
        /// Whether a hub loads the engines of these stages, too, for requests that no worker can take; else it
        /// waits at start for their workers.
        pub fallback: bool = false, Rule::Switch;
        /// Name of this process; no two workers have the same. Empty: the machine's name, for a worker followed
        /// by its stages.
        pub name: String = String::new(), Rule::Text;
        /// File with the credentials: the seed of an nkey, or a .creds file.
        pub credentials: String = String::new(), Rule::Text;
        /// PEM file with the authorities of the servers' certificates. Empty: those of the system.
        pub tls_ca: String = String::new(), Rule::Text;
        /// PEM file with this process's certificate, for servers that require one.
        pub tls_cert: String = String::new(), Rule::Text;
        /// PEM file with that certificate's private key.
        pub tls_key: String = String::new(), Rule::Text;
        /// Permits `nats://` to other machines: only where the network is encrypted otherwise.
        pub insecure: bool = false, Rule::Switch;
        /// Whether the hubs share resumable sessions, short-lived keys and speech jobs, by NATS servers with
        /// JetStream.
        pub jetstream: bool = false, Rule::Switch;
        /// File with the key that seals what is stored in JetStream, the same for all hubs, as `antiphon
        /// cluster sealing-key` prints it.
        pub sealing_key: String = String::new(), Rule::Text;
        /// How many NATS servers keep each record: 1 where there is one server, 3 where there are three.
        pub replicas: usize = 1, Rule::Whole(1, 5, "servers");
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
