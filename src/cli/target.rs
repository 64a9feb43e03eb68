//! Connection options for commands that use a running server: key, trust and audio mode.

use super::{CliError, with_causes};
use antiphon_client::{AudioMode, ClientError, ConnectOptions, Trust};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// How to reach a server that runs already.
#[derive(Debug, Args)]
pub struct Target {
    /// The server's key; better in the environment, where other users of this machine do not see it
    #[arg(long, env = "ANTIPHON_API_KEY", hide_env_values = true, value_name = "KEY")]
    key: Option<String>,
    /// Another environment variable that holds the key
    #[arg(long, value_name = "NAME", conflicts_with = "key")]
    key_env: Option<String>,
    /// Trust the certificates in this PEM file, and no others
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca_file: Option<PathBuf>,
    /// Trust any certificate: whoever stands in between can listen
    #[arg(long)]
    insecure: bool,
    /// The model, for servers that want one
    #[arg(long)]
    model: Option<String>,
}

/// How audio travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Base64 in JSON events
    Ga,
    /// Binary frames of PCM
    Pcm16,
    /// Binary frames of Opus
    Opus,
}

impl Target {
    /// Connection options for `url`, without resuming after a disconnect. An error if `key_env` names a variable
    /// without a key.
    pub fn options(&self, url: String, mode: Mode) -> Result<ConnectOptions, CliError> {
        let mut options = ConnectOptions::new(url);
        options.mode = match mode {
            Mode::Ga => AudioMode::Ga,
            Mode::Pcm16 => AudioMode::Pcm16,
            Mode::Opus => AudioMode::Opus,
        };
        options.model = self.model.clone();
        options.trust = match &self.ca_file {
            Some(path) => Trust::File(path.clone()),
            None if self.insecure => Trust::Anyone,
            None => Trust::System,
        };
        options.key = match &self.key_env {
            Some(variable) => Some(key(variable)?),
            None => self.key.clone().filter(|key| !key.is_empty()),
        };
        Ok(options)
    }
}

fn key(variable: &str) -> Result<String, CliError> {
    let key = std::env::var(variable).ok().filter(|key| !key.is_empty());
    key.ok_or_else(|| CliError::Usage(format!("the environment variable {variable} holds no key")))
}

/// A client's failure with its exit code: usage, unreachable or failed.
pub fn failure(error: ClientError) -> CliError {
    let text = with_causes(&error);
    match error {
        ClientError::BadUrl { .. } | ClientError::BadCertificates { .. } => CliError::Usage(text),
        ClientError::CannotConnect { .. } | ClientError::Full { .. } | ClientError::Refused { .. } => {
            CliError::Unreachable(text)
        }
        ClientError::TimedOut { what: "connecting", .. } => CliError::Unreachable(text),
        _ => CliError::Failed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_out_of_reach_and_a_wrong_address_have_their_own_codes() {
        assert_eq!(failure(ClientError::Full { retry_after: None }).exit_code(), 4);
        let bad = ClientError::BadUrl { url: "x".into(), reason: "it names no host".into() };
        assert_eq!(failure(bad).exit_code(), 2);
        assert_eq!(failure(ClientError::Silent).exit_code(), 1);
    }
}
