//! Probes of this machine: keys, certificate, engines, models, language models, libraries, devices, disk and limits.

use super::{Finding, Kind};
use crate::assembly::{BuiltIn, EngineManager, recommended};
use crate::cli::{blocking, sound};
use crate::config::Config;
use crate::server::{Keys, Tls};
use antiphon_engines::llm::discovery;
use antiphon_engines::stt::none;
use antiphon_engines::table::{EngineKind, EngineStage};
use antiphon_registry::{Catalog, OnDisk, Stage, on_disk};
use antiphon_telemetry::with_causes;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::timeout;

/// Free space below which pulls and recordings soon fail, in bytes.
const LITTLE_DISK: u64 = 2_000_000_000;
/// Descriptors that a session may need: its socket, and one for a request to each stage (`server/edge/parts.rs`).
const DESCRIPTORS_PER_SESSION: u64 = 4;
/// A certificate that ends within this is to be renewed: automatic renewal (ACME) comes well before.
const RENEW: Duration = Duration::from_hours(14 * 24);
/// The longest wait for the server behind an engine.
const REACH: Duration = Duration::from_secs(5);

/// Work that blocks, as findings. A panic of it is one.
async fn apart(part: &'static str, work: impl FnOnce() -> Vec<Finding> + Send + 'static) -> Vec<Finding> {
    let failed = |error| vec![Finding::fail(part, Kind::Other, format!("{error}"), "See the lines above.")];
    blocking(work).await.unwrap_or_else(failed)
}

/// The API keys, and whether they suffice for the address.
pub(super) async fn keys(config: Arc<Config>) -> Vec<Finding> {
    let keys = match Keys::load(&config.server) {
        Ok(keys) => keys,
        Err(error) => {
            return vec![Finding::fail("keys", Kind::Setting, with_causes(&error), "Correct the key or its file.")];
        }
    };
    let address = tokio::net::lookup_host(&config.server.listen).await.ok().and_then(|mut found| found.next());
    let refused = address.and_then(|address| keys.allow_listening(address).err());
    vec![match refused {
        Some(error) => Finding::fail("keys", Kind::Setting, with_causes(&error), "`antiphon keys new` makes one."),
        None if !keys.are_on() => Finding::ok("keys", "none: the hub serves this machine only"),
        None => Finding::ok("keys", "configured"),
    }]
}

/// The certificate, and whether browsers of other devices may use the microphone.
pub(super) async fn certificate(config: Arc<Config>) -> Vec<Finding> {
    let listen = &config.server.listen;
    let is_loopback = |address: SocketAddr| address.ip().is_loopback();
    let is_local = listen.starts_with("localhost:") || listen.parse::<SocketAddr>().is_ok_and(is_loopback);
    vec![match Tls::load(&config.server) {
        Ok(Some(tls)) => expiry(&config.server.tls_cert, tls.expires(), SystemTime::now()),
        Ok(None) if is_local => Finding::ok("certificate", "none: http, on this machine only"),
        Ok(None) => Finding::warn(
            "certificate",
            "none: browsers on other devices get no microphone by http",
            "Set server.tls_cert and server.tls_key, use --tls-self-signed, or put a proxy with a certificate in front.",
        ),
        Err(error) => Finding::fail(
            "certificate",
            Kind::Setting,
            with_causes(&error),
            "Correct server.tls_cert and server.tls_key.",
        ),
    }]
}

/// How long the certificate in this file is accepted.
fn expiry(file: &str, expires: Option<SystemTime>, now: SystemTime) -> Finding {
    let advice = "Renew it, then send SIGHUP: the hub loads the new one, and conversations go on.";
    let days = |time: Duration| match time.as_secs() / 86_400 {
        1 => "1 day".to_owned(),
        n => format!("{n} days"),
    };
    match expires.map(|end| end.duration_since(now)) {
        None => Finding::warn("certificate", format!("{file} is usable, its end cannot be read"), advice),
        Some(Err(past)) => {
            Finding::fail("certificate", Kind::Setting, format!("{file} expired {} ago", days(past.duration())), advice)
        }
        Some(Ok(left)) if left < RENEW => {
            Finding::warn("certificate", format!("{file} expires in {}", days(left)), advice)
        }
        Some(Ok(left)) => {
            Finding::ok("certificate", format!("{file} and its key are usable, for another {}", days(left)))
        }
    }
}

/// Loads the engine of each stage, and reaches the servers behind remote ones.
pub(super) async fn engines(config: Arc<Config>) -> Vec<Finding> {
    let loading = config.clone();
    let loaded = blocking(move || {
        let manager = EngineManager::new(&loading).map_err(crate::assembly::EnginesError::from)?;
        manager.load()
    });
    let active = match loaded.await {
        Ok(Ok(active)) => active,
        Ok(Err(failures)) => {
            let fail = |failure| {
                let advice = "Install what is named, or choose another engine of the stage.";
                Finding::fail("engines", Kind::Missing, with_causes(&failure), advice)
            };
            return failures.0.into_iter().map(fail).collect();
        }
        Err(error) => return vec![Finding::fail("engines", Kind::Other, error.to_string(), "See the lines above.")],
    };
    let mut findings = Vec::new();
    for served in &active.served {
        let model = served.model.as_ref().map(|model| format!(" ({model})")).unwrap_or_default();
        let stage = if served.stage == "tts" { Stage::Tts } else { Stage::Stt };
        let measured = served.measured.map(|trial| format!(", {}", trial.described(stage)));
        let found = format!("{}: {}{model}{}", served.stage, served.engine, measured.unwrap_or_default());
        findings.push(if served.engine == none::NAME {
            Finding::warn("engines", found, "The hub hears nobody. Get a recognizer: antiphon models pull whisper-base")
        } else {
            Finding::ok("engines", found)
        });
        for passed in &served.passed_over {
            if passed.slow {
                let found = format!("{}: {} is here and too slow: {}", served.stage, passed.model, passed.why);
                findings.push(Finding::ok("engines", found));
                continue;
            }
            let found = format!("{}: {} is here and cannot be used: {}", served.stage, passed.model, passed.why);
            findings.push(Finding::warn("engines", found, "Pull it again, or remove it with `antiphon models rm`."));
        }
    }
    let engines = &active.engines;
    let reached = tokio::join!(
        reach("stt", engines.stt.name(), engines.stt.warm()),
        reach("llm", engines.llm.name(), engines.llm.warm()),
        reach("tts", engines.tts.name(), engines.tts.warm()),
    );
    findings.extend([reached.0, reached.1, reached.2].into_iter().flatten());
    if !findings.iter().any(|finding| finding.found.starts_with("llm:")) {
        findings.push(Finding::ok("engines", format!("llm: {}", engines.llm.name())));
    }
    findings
}

/// A finding where the server of an engine cannot be reached.
async fn reach<E: std::error::Error>(
    stage: &str,
    engine: &str,
    warm: impl Future<Output = Result<(), E>>,
) -> Option<Finding> {
    let why = match timeout(REACH, warm).await {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => with_causes(&error),
        Err(_) => format!("its server does not answer within {} s", REACH.as_secs()),
    };
    let advice = format!("Start that server, or correct {stage}.base_url and {stage}.api_key_env.");
    Some(Finding::fail("engines", Kind::Network, format!("{stage}: {engine}: {why}"), advice))
}

/// The models on the disk, those that are damaged, and those to begin with.
pub(super) async fn models(config: Arc<Config>) -> Vec<Finding> {
    apart("models", move || {
        let catalog = match Catalog::load(&config.models) {
            Ok(catalog) => catalog,
            Err(error) => {
                let advice = "Correct models.registry.";
                return vec![Finding::fail("models", Kind::Setting, with_causes(&error), advice)];
            }
        };
        let mut here = Vec::new();
        let mut findings = Vec::new();
        for entry in catalog.entries() {
            for variant in &entry.variants {
                match on_disk(&config.models, entry, variant) {
                    OnDisk::Whole { .. } => here.push(format!("{}:{}", entry.name, variant.precision)),
                    OnDisk::Damaged { .. } => findings.push(Finding::warn(
                        "models",
                        format!("{}:{} is damaged", entry.name, variant.precision),
                        format!("antiphon models pull {}:{}", entry.name, variant.precision),
                    )),
                    OnDisk::Absent | OnDisk::Partly { .. } => {}
                }
            }
        }
        let is_here = |name: &str| here.iter().any(|model| model.split(':').next() == Some(name));
        let missing: Vec<_> = recommended(&config, &catalog, &BuiltIn)
            .into_iter()
            .filter(|entry| !is_here(&entry.name))
            .map(|entry| entry.name.as_str())
            .collect();
        let list = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
        let found = format!("{list}, in {}", config.models.dir);
        findings.insert(
            0,
            match missing.as_slice() {
                [] => Finding::ok("models", found),
                some => Finding::warn("models", found, format!("antiphon models pull {}", some.join(" "))),
            },
        );
        findings
    })
    .await
}

/// What answers, and the servers of language models on this machine.
pub(super) async fn language_models(config: Arc<Config>) -> Vec<Finding> {
    let own = config.server.listen.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let servers = discovery::find(&config.llm, own.as_slice()).await;
    let is_offline = !EngineStage::Llm.kind(&config.llm.engine).is_some_and(EngineKind::is_remote);
    let mut findings: Vec<_> = servers
        .into_iter()
        .map(|server| match server.problem {
            Some(problem) => {
                Finding::warn("language model", format!("{} at {}", server.name, server.base_url), problem)
            }
            None => {
                let found = format!("{} at {}: {}", server.name, server.base_url, server.models.join(", "));
                match is_offline {
                    true => {
                        Finding::warn("language model", found, "It is not used: connect it on the page, or set [llm].")
                    }
                    false => Finding::ok("language model", found),
                }
            }
        })
        .collect();
    if findings.is_empty() && is_offline {
        findings.push(Finding::warn(
            "language model",
            "the offline assistant answers: time, date, arithmetic, counting",
            "Start Ollama, llama.cpp, LM Studio or vLLM on this machine, or set [llm] to a server.",
        ));
    }
    findings
}

/// The library that neural voices and detectors need.
pub(super) async fn onnx(config: Arc<Config>) -> Vec<Finding> {
    apart("onnx runtime", move || {
        vec![match antiphon_inference::onnx::Runtime::open(&config.onnx) {
            Ok(_) => Finding::ok("onnx runtime", format!("usable, provider {}", config.onnx.provider)),
            Err(error) => Finding::warn(
                "onnx runtime",
                with_causes(&error),
                "make onnxruntime, or set onnx.runtime. Without it there are no neural voices and no Silero.",
            ),
        }]
    })
    .await
}

/// NVIDIA's cards.
pub(super) async fn gpu(config: Arc<Config>) -> Vec<Finding> {
    apart("gpu", move || {
        let cards = antiphon_telemetry::gpu::Cards::open().map(|cards| cards.read()).unwrap_or_default();
        if cards.is_empty() {
            let found = "no NVIDIA card: engines run on the processor";
            return vec![match config.onnx.provider.as_str() {
                "cpu" | "auto" => Finding::ok("gpu", found),
                other => Finding::fail(
                    "gpu",
                    Kind::Missing,
                    format!("no NVIDIA card, and onnx.provider is {other:?}"),
                    "Install the driver, or set onnx.provider to \"cpu\".",
                ),
            }];
        }
        let free = |used: u64, total: u64| (total.saturating_sub(used)) as f64 / 1e9;
        let describe = |card: &antiphon_telemetry::gpu::Card| {
            let free = free(card.memory_bytes, card.memory_total_bytes);
            Finding::ok(
                "gpu",
                format!("{}, {free:.1} of {:.1} GB free", card.name, card.memory_total_bytes as f64 / 1e9),
            )
        };
        cards.iter().map(describe).collect()
    })
    .await
}

/// The microphone and the loudspeaker of this machine, for `chat` and `say`; browsers bring their own. Lists name devices without
/// a sound card, too, so both are opened.
pub(super) async fn sound() -> Vec<Finding> {
    let advice = "Only `antiphon chat` and `antiphon say` need it here; browsers and phones bring their own.";
    apart("sound", move || {
        let one = |what: &str, checked: Result<(), sound::SoundError>| match checked {
            Ok(()) => Finding::ok("sound", format!("the {what} \"{}\" opens", sound::DEFAULT)),
            Err(error) => Finding::warn("sound", error.to_string(), advice),
        };
        vec![
            one("microphone", sound::Microphone::check(sound::DEFAULT)),
            one("loudspeaker", sound::Loudspeaker::check(sound::DEFAULT)),
        ]
    })
    .await
}

/// Free space where models, recordings and jobs go.
pub(super) async fn disk(config: Arc<Config>) -> Vec<Finding> {
    apart("disk", move || {
        let folders = [
            ("models.dir", &config.models.dir),
            ("session.record", &config.session.record),
            ("speech.jobs_dir", &config.speech.jobs_dir),
        ];
        let configured = folders.into_iter().filter(|(_, folder)| !folder.is_empty());
        configured.map(|(setting, folder)| space(setting, folder)).collect()
    })
    .await
}

fn space(setting: &str, folder: &str) -> Finding {
    // The folder may not be there yet.
    let full = std::path::absolute(folder).unwrap_or_else(|_| PathBuf::from(folder));
    let there = full.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    match rustix::fs::statvfs(there) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let found = format!("{setting}: {:.1} GB free at {}", free as f64 / 1e9, full.display());
            match free < LITTLE_DISK {
                true => Finding::warn("disk", found, format!("Free some, or set {setting} to another disk.")),
                false => Finding::ok("disk", found),
            }
        }
        Err(error) => {
            let found = format!("{setting}: {} cannot be read: {error}", there.display());
            Finding::fail("disk", Kind::Other, found, format!("Set {setting} to a folder of yours."))
        }
    }
}

/// How many files the process may have open; the hub raises its limit to the hard one.
pub(super) async fn limits(config: Arc<Config>) -> Vec<Finding> {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let wanted = config.server.max_sessions as u64 * DESCRIPTORS_PER_SESSION;
    let shown = hard.map_or("any number of".into(), |n| n.to_string());
    let found = format!("{shown} open files, for {} sessions", config.server.max_sessions);
    vec![match hard {
        Some(hard) if hard < wanted => {
            let advice =
                format!("Raise it to {wanted} (ulimit -Hn, LimitNOFILE= of systemd), or lower server.max_sessions.");
            Finding::warn("limits", found, advice)
        }
        _ => Finding::ok("limits", found),
    }]
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_certificate_is_to_be_renewed_two_weeks_before_its_end() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50);
        let hours = Duration::from_hours;
        let check = |expires: Option<SystemTime>, state: State, words: &str| {
            let finding = expiry("hub.pem", expires, now);
            assert_eq!((finding.state, finding.found.as_str()), (state, words));
            assert_eq!(finding.advice.is_some(), state != State::Ok);
        };
        check(Some(now + hours(90 * 24)), State::Ok, "hub.pem and its key are usable, for another 90 days");
        check(Some(now + hours(14 * 24)), State::Ok, "hub.pem and its key are usable, for another 14 days");
        check(Some(now + hours(14 * 24 - 1)), State::Warn, "hub.pem expires in 13 days");
        check(Some(now + hours(25)), State::Warn, "hub.pem expires in 1 day");
        check(Some(now - hours(49)), State::Fail, "hub.pem expired 2 days ago");
        check(None, State::Warn, "hub.pem is usable, its end cannot be read");
    }

    #[tokio::test]
    async fn a_hub_for_this_machine_alone_needs_no_certificate() {
        let local = ["127.0.0.1:8080", "[::1]:8080", "localhost:8080"].map(|listen| (listen, State::Ok));
        let others = ["0.0.0.0:8080", "[::]:8080"].map(|listen| (listen, State::Warn));
        for (listen, state) in local.into_iter().chain(others) {
            let mut config = Config::default();
            config.server.listen = listen.into();
            let [finding] = &certificate(Arc::new(config)).await[..] else { panic!("one finding") };
            assert_eq!(finding.state, state, "{listen}: {finding:?}");
        }
    }

    #[tokio::test]
    async fn the_end_of_a_chain_is_that_of_its_first_certificate_to_end() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = tempfile::tempdir().expect("a folder");
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = |year: i32| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            params.self_signed(&key).expect("a certificate").pem()
        };
        let cert = folder.path().join("cert.pem");
        let private = folder.path().join("key.pem");
        std::fs::write(&private, key.serialize_pem()).expect("written");
        let mut config = Config::default();
        config.server.tls_cert = cert.display().to_string();
        config.server.tls_key = private.display().to_string();
        let config = Arc::new(config);
        for (years, state) in [(vec![2400], State::Ok), (vec![2001], State::Fail), (vec![2400, 2001], State::Fail)] {
            let chain: String = years.iter().map(|year| certificate(*year)).collect();
            std::fs::write(&cert, chain).expect("written");
            let [finding] = &super::certificate(config.clone()).await[..] else { panic!("one finding") };
            assert_eq!(finding.state, state, "{years:?}: {finding:?}");
        }
    }
}
