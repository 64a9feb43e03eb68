//! `antiphon health`: whether a hub or worker lives, or takes requests, as its exit code. The health check of a container runs it.

use super::target::{printable, trusting};
use super::{CliError, print};
use antiphon_telemetry::with_causes;
use clap::Args;
use reqwest::{Client, Url};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait for the whole answer: less than health checks of containers usually wait.
const WAIT: Duration = Duration::from_secs(4);

/// Which hub or worker, and what about it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon health                                        the hub on this machine lives
  antiphon health --ready                                it admits another session
  antiphon health --url http://127.0.0.1:8081 --ready    the same of a hub or worker with server.probe_listen
  antiphon health --url https://localhost:8443 --ca-file hub.pem

No key is needed. Exit codes: 0 yes, 1 no, 4 it cannot be reached or does not answer within 4 s.")]
pub struct HealthArgs {
    /// The hub, or the address of server.probe_listen
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
    /// Trust the certificates in this PEM file, and no others
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca_file: Option<PathBuf>,
    /// Trust any certificate: a program in between can answer
    #[arg(long)]
    insecure: bool,
    /// Whether it takes requests (/readyz) instead of whether it lives (/healthz)
    #[arg(long)]
    ready: bool,
}

pub(super) async fn run(args: HealthArgs) -> Result<(), CliError> {
    let wrong = || CliError::Usage(format!("{:?} is no address of a hub, such as http://127.0.0.1:8080", args.url));
    let mut url = Url::parse(&args.url).map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong());
    }
    url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().push(if args.ready { "readyz" } else { "healthz" });
    // A proxy's answer would say nothing about the hub.
    let builder = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).timeout(WAIT);
    let builder = trusting(builder, args.ca_file.as_deref(), args.insecure)?;
    let client = builder.build().map_err(|error| CliError::failed(&error))?;
    let unreachable = |error: reqwest::Error| {
        CliError::Unreachable(format!("{} cannot be reached: {}", args.url, with_causes(&error.without_url())))
    };
    let answer = client.get(url).send().await.map_err(unreachable)?;
    let status = answer.status();
    let body = answer.text().await.map_err(unreachable)?;
    if status.is_success() {
        return print::line(if args.ready { "ready" } else { "ok" });
    }
    let body = serde_json::from_str(&body).unwrap_or(Value::Null);
    let reason = match body["reason"].as_str() {
        Some(reason) => format!(": {}", printable(reason)),
        None if body["loading"] == true => ": its engines are being loaded".into(),
        None => String::new(),
    };
    Err(CliError::Failed(format!("{} answered {status}{reason}", args.url)))
}
