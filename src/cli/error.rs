//! Errors that end a command, and their exit codes.

use super::sound::SoundError;
use crate::assembly::EnginesError;
#[cfg(feature = "whisper")]
use crate::assembly::import::ImportError;
use crate::config::ConfigError;
use crate::server::{KeysError, TlsError};
use antiphon_cluster::ClusterError;
use antiphon_registry::RegistryError;
use antiphon_telemetry::with_causes;
use std::error::Error;
use std::io;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command failed; the text names the operation and the cause.
    #[error("{0}")]
    Failed(String),
    /// The arguments are invalid or contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The keys are invalid, or missing although required.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// An engine, library or model is missing.
    #[error("{0}")]
    Engines(#[from] EnginesError),
    /// Something that the command needs is not installed; the text says how to get it.
    #[error("{0}")]
    Missing(String),
    /// The cluster cannot be joined.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A model cannot be found, pulled or removed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// Files cannot be imported as a model.
    #[cfg(feature = "whisper")]
    #[error(transparent)]
    Import(#[from] ImportError),
    /// The server cannot listen on this address.
    #[error("cannot listen on {address} ({setting}){}", hint(setting, source))]
    Listen {
        /// The setting of the address.
        setting: &'static str,
        /// The configured address.
        address: String,
        /// The I/O error.
        source: io::Error,
    },
    /// A server cannot be reached; the text names it.
    #[error("{0}")]
    Unreachable(String),
    /// A signal interrupted the command.
    #[error("interrupted")]
    Interrupted,
}

impl From<io::Error> for CliError {
    fn from(error: io::Error) -> Self {
        Self::failed(&error)
    }
}

impl From<SoundError> for CliError {
    fn from(error: SoundError) -> Self {
        match error {
            SoundError::NoLibrary(_) => Self::Missing(error.to_string()),
            error => Self::Failed(error.to_string()),
        }
    }
}

fn hint(setting: &str, error: &io::Error) -> String {
    // The other listeners have no option.
    let with = if setting == "server.listen" { "with --listen".to_owned() } else { format!("by {setting}") };
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(": another program does already; stop it, or choose another port {with}"),
        io::ErrorKind::PermissionDenied => {
            format!(": ports below 1024 require privileges; choose a higher one {with}")
        }
        io::ErrorKind::AddrNotAvailable => ": this machine does not have that address".into(),
        _ => String::new(),
    }
}

impl CliError {
    /// The process' exit code. `antiphon --help` and docs/reference/cli.md list them; 2 is also clap's.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) | Self::Config(_) | Self::Keys(_) | Self::Tls(_) => 2,
            Self::Engines(_) | Self::Missing(_) => 3,
            Self::Registry(error) => registry_code(error),
            #[cfg(feature = "whisper")]
            Self::Import(ImportError::Registry(error)) => registry_code(error),
            #[cfg(feature = "whisper")]
            Self::Import(ImportError::Name(..) | ImportError::Several(_)) => 2,
            #[cfg(feature = "whisper")]
            Self::Import(ImportError::Unknown(_) | ImportError::Incomplete { .. } | ImportError::Convert { .. }) => 1,
            Self::Cluster(error) => cluster_code(error),
            Self::Listen { .. } | Self::Unreachable(_) => 4,
            Self::Interrupted => 130,
        }
    }

    /// The error for a file that cannot be `what` ("read", "written").
    pub fn file(what: &str, path: &std::path::Path, error: &io::Error) -> Self {
        Self::Failed(format!("{}: cannot be {what}: {error}", path.display()))
    }

    /// An error with its chain of causes on one line.
    pub fn failed(error: &dyn Error) -> Self {
        Self::Failed(with_causes(error))
    }
}

/// 2 for an invalid name or setting, 3 for missing or damaged files, 4 for a network failure, else 1.
fn registry_code(error: &RegistryError) -> u8 {
    match error {
        RegistryError::Unknown { .. }
        | RegistryError::NoPrecision { .. }
        | RegistryError::Catalog { .. }
        | RegistryError::Setting(_) => 2,
        RegistryError::Absent { .. } | RegistryError::Damaged { .. } => 3,
        error if error.is_network() => 4,
        _ => 1,
    }
}

/// 2 for what only another setting changes; 4 for a NATS server that is not there, or does not serve this process now.
fn cluster_code(error: &ClusterError) -> u8 {
    match error {
        ClusterError::Interrupted => 130,
        error if error.is_lasting() => 2,
        _ => 4,
    }
}

#[cfg(test)]
pub(super) fn one_of_each() -> Vec<CliError> {
    let source = io::Error::from(io::ErrorKind::AddrInUse);
    vec![
        CliError::Failed(String::new()),
        CliError::Usage(String::new()),
        CliError::Config(ConfigError::Invalid(Vec::new())),
        CliError::Keys(KeysError::Open { address: String::new() }),
        CliError::Tls(TlsError::Half("server")),
        CliError::Engines(EnginesError(Vec::new())),
        CliError::Missing(String::new()),
        CliError::Listen { setting: "server.listen", address: String::new(), source },
        CliError::Unreachable(String::new()),
        CliError::Registry(RegistryError::Busy(String::new())),
        CliError::Cluster(ClusterError::Interrupted),
        CliError::Interrupted,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pass_by_itself_is_a_wrong_setting() {
        let servers = String::new;
        let name = || "KV_antiphon-keys".to_owned();
        let message = String::new;
        let code = |error| CliError::Cluster(error).exit_code();
        assert_eq!(code(ClusterError::NoJetStream { servers: servers(), message: message() }), 2);
        assert_eq!(code(ClusterError::Permission { role: "hub", message: message() }), 2);
        assert_eq!(code(ClusterError::Replicas { replicas: 3, name: name(), message: message() }), 2);
        assert_eq!(code(ClusterError::OtherSealingKey { file: "key".into(), message: message() }), 2);
        assert_eq!(code(ClusterError::Placement { replicas: 3, name: name(), message: message() }), 4);
        assert_eq!(code(ClusterError::Silent { servers: servers(), message: message() }), 4);
        assert_eq!(code(ClusterError::Unreachable { servers: servers(), message: message() }), 4);
    }

    #[test]
    fn a_taken_port_is_said_in_plain_words_and_causes_come_once() {
        let source = io::Error::from(io::ErrorKind::AddrInUse);
        let error = CliError::Listen { setting: "server.listen", address: "127.0.0.1:8080".into(), source };
        let said = with_causes(&error);
        assert!(
            said.starts_with("cannot listen on 127.0.0.1:8080 (server.listen): another program does already"),
            "{said}"
        );
        let config = CliError::Config(ConfigError::Unreadable {
            path: "my.toml".into(),
            source: io::Error::other("no such file"),
        });
        assert_eq!(with_causes(&config), "my.toml: cannot be read: no such file");
    }
}
