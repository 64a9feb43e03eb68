//! What keeps a server from starting, as far as it shows without starting it: `antiphon config check` asks.
//!
//! Each part is checked by the function that the start calls, so that both refuse alike. Nothing is created, connected or kept;
//! ports are not taken, because a hub with these settings may be running.

use super::api::traces::Traces;
use super::transport::telephony::call_reports::CallWebhooks;
use super::transport::telephony::intake::Telephony;
use super::transport::telephony::sip;
use super::transport::wyoming;
use super::{Keys, Tls};
use crate::config::Config;
use antiphon_telemetry::with_causes;
use rustix::fs::{Access, access};
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::{TcpListener, lookup_host};

/// The reasons for which [`super::serve_loading`] and its caller would refuse these settings. Blocks for small files.
pub async fn problems(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    let server = &config.server;
    let keys = match Keys::load(server) {
        Ok(keys) => Some(keys),
        Err(error) => {
            problems.push(with_causes(&error));
            None
        }
    };
    for error in [Tls::load(server), Tls::load_sip(&config.sip)].into_iter().filter_map(Result::err) {
        problems.push(with_causes(&error));
    }
    let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
    for (setting, written) in [
        ("server.listen", &server.listen),
        ("server.probe_listen", &server.probe_listen),
        ("wyoming.listen", &config.wyoming.listen),
        ("telephony.audiosocket_listen", &config.telephony.audiosocket_listen),
        ("rtc.listen", &config.rtc.listen),
        ("sip.listen", &config.sip.listen),
        ("sip.tls_listen", &config.sip.tls_listen),
    ] {
        if written.is_empty() {
            continue;
        }
        let address = match local(written).await {
            Ok(address) => address,
            Err(why) => {
                problems.push(format!("{setting}: cannot listen on {written}: {why}"));
                continue;
            }
        };
        if setting == "server.listen" {
            problems.extend(
                keys.as_ref().and_then(|keys| keys.allow_listening(address).err()).map(|error| with_causes(&error)),
            );
        }
        if let Some((other, _)) = taken.iter().find(|(_, other)| overlap(*other, address)) {
            problems.push(format!("{setting}: {other} listens on {written} already: give one of them another port"));
        }
        taken.push((setting, address));
    }
    let endpoint = &config.telemetry.otlp_endpoint;
    if !endpoint.is_empty()
        && let Err(error) = Traces::to(endpoint, "")
    {
        problems.push(with_causes(&error));
    }
    if let Some(keys) = &keys {
        problems.extend(setting_problems(config, keys, !server.tls_cert.is_empty()));
    }
    problems.extend(unwritable_file("server.audit_log", &server.audit_log));
    problems.extend(uncreatable_folder("session.record", &config.session.record));
    problems
}

/// The reasons among them that are settings without their key, secret or certificate: `antiphon serve` asks before it
/// starts, so that it ends as with any other wrong setting. `has_certificate`: the pages have one. Blocks for small
/// files.
pub fn setting_problems(config: &Config, keys: &Keys, has_certificate: bool) -> Vec<String> {
    let mut problems = Telephony::problems(&config.telephony, keys);
    if !config.wyoming.listen.is_empty()
        && let Err(why) = wyoming::owner(keys, &config.wyoming.key)
    {
        problems.push(why.into());
    }
    if let Err(error) = CallWebhooks::open(config) {
        problems.push(error.to_string());
    }
    problems.extend(sip::problems(&config.sip, keys, has_certificate));
    problems
}

/// The first address that is meant, which this machine has.
async fn local(written: &str) -> Result<SocketAddr, String> {
    let found = lookup_host(written).await.map_err(|error| error.to_string())?.next();
    let address = found.ok_or("the name has no address")?;
    // Any free port: the one that is meant may be in use by the hub.
    TcpListener::bind(SocketAddr::new(address.ip(), 0)).await.map_err(|error| error.to_string())?;
    Ok(address)
}

/// Whether two listeners would need the same port.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let same_ip = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && one.port() != 0 && same_ip
}

/// Why a file cannot be appended to, which is created where it is absent.
fn unwritable_file(setting: &str, written: &str) -> Option<String> {
    let path = Some(Path::new(written)).filter(|_| !written.is_empty())?;
    let wrong = |why: String| Some(format!("{setting}: {written}: {why}"));
    if path.is_dir() {
        return wrong("it is a folder: name a file".into());
    }
    let checked = if path.exists() { path } else { parent(path) };
    if !checked.exists() {
        return wrong(format!("the folder {} does not exist", checked.display()));
    }
    access(checked, Access::WRITE_OK).err().and_then(|error| wrong(format!("it cannot be written: {error}")))
}

/// Why a folder cannot be created, with those above it.
fn uncreatable_folder(setting: &str, written: &str) -> Option<String> {
    let path = Some(Path::new(written)).filter(|_| !written.is_empty())?;
    let nearest = path.ancestors().map(non_empty).find(|folder| folder.exists())?;
    if !nearest.is_dir() {
        return Some(format!("{setting}: the folder {written:?} cannot be created: {} is a file", nearest.display()));
    }
    let error = (nearest != path).then(|| access(nearest, Access::WRITE_OK).err())??;
    Some(format!("{setting}: the folder {written:?} cannot be created: {}: {error}", nearest.display()))
}

fn parent(path: &Path) -> &Path {
    path.parent().map_or(Path::new("/"), non_empty)
}

/// The working directory is written as nothing.
fn non_empty(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}
