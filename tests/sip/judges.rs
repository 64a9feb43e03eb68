//! Clients of others, as programs: SIPp's scenarios of `sipp/` and baresip, at a hub with fake engines, in real time.
//!
//! `make test-deps` installs both; without them these tests fail.

use super::{calling, calls, config, free_port, hub};
use crate::clips;
use crate::hub::Hub;
use crate::turns::turn;
use antiphon::config::Config;
use antiphon_audio::codec;
use antiphon_audio::{convert, wav};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_types::{Format, Pcm, SampleRate};
use futures_util::future::join_all;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sip/sipp");
/// Longer than any call here takes on a busy machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The certificate of baresip with its key, in PEM.
static PHONE_PEM: OnceLock<String> = OnceLock::new();
/// What baresip needs for TLS and SRTP.
const SECURE: &str = "module srtp.so\nsip_certificate FOLDER/pem\n";
const BARESIP_MODULES: &str = "/usr/lib/baresip/modules";

/// 0.9 s of a person who reads, without a pause, then silence, at 8 kHz.
fn speech() -> Vec<i16> {
    let (name, _) = clips::texts().swap_remove(0);
    let mut samples = convert(&clips::samples(&name), SampleRate::HZ_16000, SampleRate::HZ_8000);
    samples.truncate(7_200);
    samples.resize(7_200 + 8_000 * 30, 0);
    samples
}

/// A WAV file with the same sound in two channels.
fn stereo(mono: &Pcm) -> Vec<u8> {
    let samples = mono.samples.iter().flat_map(|sample| [*sample, *sample]).collect();
    let mut file = wav::write(&Pcm { samples, rate: mono.rate });
    // Channels, bytes a second, bytes of all channels' samples.
    file[22] = 2;
    file[28..32].copy_from_slice(&(4 * mono.rate.hz()).to_le_bytes());
    file[32] = 4;
    file
}

/// Runs a scenario of SIPp at the hub until it ends.
async fn sipp(scenario: &str, sip: SocketAddr, more: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bytes = Vec::new();
    codec::encode(Format::Ulaw, &speech(), &mut bytes);
    std::fs::write(folder.path().join("speech.ulaw"), bytes).expect("written");
    let ran = Command::new("sipp")
        .arg(sip.to_string())
        .args(["-sf", &format!("{SCENARIOS}/{scenario}.xml"), "-s", "+15550100", "-m", "1", "-nostdin"])
        .args(["-i", "127.0.0.1", "-mi", "127.0.0.1", "-p", &free_port().to_string()])
        .args(["-mp", &free_port().to_string(), "-timeout", "50", "-timeout_error"])
        .args(["-trace_err", "-error_file", "errors.log"])
        .args(more)
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(TEST_TIMEOUT, ran).await.expect("it ends").expect("sipp is installed (make test-deps)");
    let errors = std::fs::read_to_string(folder.path().join("errors.log")).unwrap_or_default();
    let screen = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{scenario}: {}\n{errors}\n{screen}", output.status);
}

/// Waits until the hub listens for SIP.
async fn listening(sip: SocketAddr) {
    let connected = async {
        while TcpStream::connect(sip).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, connected).await.expect("the hub listens");
}

async fn judged(heard: &[&str], llm: &FakeLlm) -> (Hub, SocketAddr) {
    let (config, sip) = config();
    let hub = hub(heard, llm, config).await;
    listening(sip).await;
    (hub, sip)
}

#[tokio::test]
async fn sipp_speaks_is_answered_and_hangs_up_by_udp_and_tcp() {
    let call = async |transport: &str| {
        let (hub, sip) = judged(&["a question"], &FakeLlm::says(["Yes."])).await;
        sipp("speaks", sip, &["-t", transport]).await;
        let turn = turn(&hub, |turn| turn["settled"] == true).await;
        assert_eq!((&turn["transcript"], &turn["heard"]), (&json!("a question"), &json!("Yes.")), "{transport} {turn}");
        hub.until("antiphon_sessions_active ", 0.0).await;
        hub.stop().await;
    };
    tokio::join!(call("u1"), call("t1"));
}

#[tokio::test]
async fn sipp_is_hung_up_on() {
    let (hub, sip) = judged(&[], &FakeLlm::default()).await;
    let hung_up = async {
        let id = loop {
            let list = calls(&hub).await;
            if let Some(id) = list["data"][0]["id"].as_str() {
                break id.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let url = format!("http://{}/v1/realtime/calls/{id}/hangup", hub.address);
        assert_eq!(reqwest::Client::new().post(url).send().await.expect("an answer").status(), 200);
    };
    tokio::join!(sipp("hung_up", sip, &[]), hung_up);
    hub.stop().await;
}

#[tokio::test]
async fn sipp_holds_cancels_asks_and_presses_keys() {
    let llm = FakeLlm::says(["Thank you."]);
    let (hub, sip) = judged(&[], &llm).await;
    let scenarios = ["hold", "cancel", "options", "keys"];
    join_all(scenarios.map(|scenario| sipp(scenario, sip, &[]))).await;
    let history = format!("{:?}", llm.requests()[0].messages);
    assert!(history.contains(": 42#)"), "{history}");
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

#[tokio::test]
async fn sipp_makes_twenty_calls_at_once() {
    let (hub, sip) = judged(&[], &FakeLlm::default()).await;
    sipp("speaks", sip, &["-m", "20", "-l", "20", "-r", "20"]).await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    hub.stop().await;
}

fn certificate() -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    made.cert.pem() + &made.signing_key.serialize_pem()
}

/// A running baresip that is told what to do by TCP.
struct Baresip {
    _program: Child,
    control: TcpStream,
    folder: TempDir,
}

impl Baresip {
    /// `codec`: a module of its; `port`: where it listens.
    async fn start(codec: &str, account: &str, port: u16) -> Self {
        Self::start_with(codec, account, port, "").await
    }

    /// `more`: lines of its configuration, in which `FOLDER` is its folder.
    async fn start_with(codec: &str, account: &str, port: u16, more: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let shown = folder.path().to_string_lossy().into_owned();
        let more = more.replace("FOLDER", &shown);
        std::fs::write(folder.path().join("pem"), PHONE_PEM.get_or_init(certificate)).expect("written");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let microphone = Pcm { samples: speech(), rate: SampleRate::HZ_8000 };
        let rate = SampleRate::new(match codec {
            "opus" => 48_000,
            "g722" => 16_000,
            _ => 8_000,
        });
        let microphone = Pcm { samples: convert(&microphone.samples, microphone.rate, rate), rate };
        // baresip's Opus has two channels.
        let file = if codec == "opus" { stereo(&microphone) } else { wav::write(&microphone) };
        std::fs::write(path("speech.wav"), file).expect("written");
        let tcp = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let text = format!(
            "module_path {BARESIP_MODULES}\nmodule {codec}.so\nmodule aufile.so\nmodule sndfile.so\n\
             module_tmp account.so\nmodule_app menu.so\nmodule_app ctrl_tcp.so\nctrl_tcp_listen {tcp}\n\
             sip_listen 127.0.0.1:{port}\naudio_source aufile,{}\naudio_player aufile,{}\nsnd_path {}\n\
             rtp_ports 30000-39998\naudio_buffer 20-160\nopus_bitrate 28000\n{more}",
            path("speech.wav"),
            path("player.wav"),
            folder.path().display(),
        );
        std::fs::write(path("config"), text).expect("written");
        std::fs::write(path("accounts"), format!("{account}\n")).expect("written");
        std::fs::write(path("contacts"), "").expect("written");
        let log = std::fs::File::create(path("log")).expect("a file");
        let program = Command::new("baresip")
            .args(["-f", &folder.path().to_string_lossy()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file"))
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .expect("baresip is installed (make test-deps)");
        let connected = async {
            loop {
                match TcpStream::connect(tcp).await {
                    Ok(stream) => return stream,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let Ok(control) = timeout(TEST_TIMEOUT, connected).await else {
            panic!("baresip does not start: {}", std::fs::read_to_string(path("log")).unwrap_or_default())
        };
        Self { _program: program, control, folder }
    }

    /// Gives a command, a netstring of JSON.
    async fn tell(&mut self, command: &str, params: &str) {
        let text = json!({"command": command, "params": params}).to_string();
        let framed = format!("{}:{text},", text.len());
        self.control.write_all(framed.as_bytes()).await.expect("it listens");
    }

    /// Waits for an event of this type.
    async fn until(&mut self, kind: &str) {
        let mut seen = String::new();
        let mut block = [0; 4_096];
        let wanted = format!("\"type\":\"{kind}\"");
        let found = async {
            while !seen.contains(&wanted) {
                let n = self.control.read(&mut block).await.expect("it runs");
                assert!(n > 0, "baresip has ended: {}", log_of(self.folder.path()));
                seen.push_str(&String::from_utf8_lossy(&block[..n]));
            }
        };
        if timeout(TEST_TIMEOUT, found).await.is_err() {
            panic!("no {kind} in {seen}: {}", log_of(self.folder.path()));
        }
    }

    /// Sound of the loudest kind that was heard, in milliseconds, in its recording of what it decoded.
    fn heard_ms(&self) -> u64 {
        let files =
            std::fs::read_dir(self.folder.path()).expect("a folder").filter_map(|entry| Some(entry.ok()?.path()));
        let recorded = files.filter(|path| path.to_string_lossy().ends_with("-dec.wav"));
        let heard = recorded.map(|path| {
            let bytes = std::fs::read(path).expect("a recording");
            let samples =
                bytes[44.min(bytes.len())..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]]));
            let rate = bytes.get(24..28).map_or(8_000, |rate| u32::from_le_bytes([rate[0], rate[1], rate[2], rate[3]]));
            let channels = bytes.get(22).map_or(1, |channels| u64::from(*channels));
            let n_loud = samples.filter(|sample| sample.unsigned_abs() > 1_000).count() as u64;
            n_loud * 1_000 / u64::from(rate) / channels.max(1)
        });
        heard.sum()
    }
}

fn log_of(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

/// A hub and a baresip that calls it with this codec.
struct CodecCall {
    codec: &'static str,
    llm: FakeLlm,
    hub: Hub,
    sip: SocketAddr,
    baresip: Baresip,
}

impl CodecCall {
    async fn prepare(codec: &'static str) -> Self {
        let llm = FakeLlm::says(["This is the answer.", "Thank you."]);
        let (mut config, sip) = config();
        config.sip.codecs = vec!["opus".into(), "g722".into(), "pcma".into(), "pcmu".into()];
        let hub = hub(&["a question", "another", "a third"], &llm, config).await;
        listening(sip).await;
        let baresip = Baresip::start(codec, "<sip:phone@127.0.0.1>;regint=0", free_port()).await;
        Self { codec, llm, hub, sip, baresip }
    }

    async fn talk(self) {
        let Self { codec, llm, hub, sip, mut baresip } = self;
        baresip.tell("dial", &format!("sip:+15550100@{sip}")).await;
        baresip.until("CALL_ESTABLISHED").await;
        let turn = turn(&hub, |turn| turn["settled"] == true).await;
        assert_eq!(turn["heard"], "This is the answer.", "{codec} {turn}");
        baresip.tell("hold", "").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        baresip.tell("resume", "").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        baresip.tell("sndcode", "7").await;
        let answered = async {
            while llm.requests().len() < 2 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(TEST_TIMEOUT, answered).await.is_err() {
            panic!("{codec}: no key: {}", log_of(baresip.folder.path()));
        }
        assert!(format!("{:?}", llm.requests()[1].messages).contains(": 7)"), "{codec}");
        baresip.tell("hangup", "").await;
        hub.until("antiphon_sessions_active ", 0.0).await;
        let heard_ms = baresip.heard_ms();
        assert!(heard_ms > 700, "{codec}: {heard_ms} ms of 950: {}", log_of(baresip.folder.path()));
        hub.stop().await;
    }
}

#[tokio::test]
async fn baresip_speaks_hears_the_answer_holds_presses_keys_and_hangs_up() {
    // All are ready before the first call: what they do to begin would hold the sound of a call up.
    let calls = join_all(["g711", "g722", "opus"].map(CodecCall::prepare)).await;
    join_all(calls.into_iter().map(CodecCall::talk)).await;
}

#[tokio::test]
async fn baresip_is_called_and_talks() {
    let (mut config, sip): (Config, SocketAddr) = config();
    let port = free_port();
    if let Some(trunk) = config.sip.trunks.get_mut("here") {
        trunk.host = format!("127.0.0.1:{port}");
    }
    config.sip.call_to = vec!["sip:phone@127.0.0.1*".into()];
    let hub = hub(&["who is there"], &FakeLlm::default(), config).await;
    listening(sip).await;
    let mut baresip = Baresip::start("g722", "<sip:phone@127.0.0.1>;regint=0;answermode=auto", port).await;
    let to = format!("sip:phone@127.0.0.1:{port}");
    let called = calling::call(&hub, json!({"to": to, "greeting": "Good morning."})).await;
    assert_eq!((called.0, &called.1["state"]), (201, &json!("calling")), "{}", called.1);
    baresip.until("CALL_ESTABLISHED").await;
    let turn = turn(&hub, |turn| turn["settled"] == true && turn["transcript"] == "who is there").await;
    assert_eq!(turn["heard"], "You said: who is there", "{turn}");
    let id = called.1["id"].as_str().expect("an id");
    assert_eq!(calling::state(&hub, id).await, "in_progress");
    baresip.tell("hangup", "").await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    assert_eq!(calling::state(&hub, id).await, "ended");
    let heard_ms = baresip.heard_ms();
    assert!(heard_ms > 700, "{heard_ms} ms of 1,100: {}", log_of(baresip.folder.path()));
    hub.stop().await;
}

#[tokio::test]
async fn baresip_proves_its_password_and_hears_that_the_hub_hangs_up() {
    let (mut config, sip): (Config, SocketAddr) = config();
    let trunk = antiphon::config::SipTrunk {
        username: "phone".into(),
        // A variable that cargo sets.
        password_env: "CARGO_PKG_NAME".into(),
        ..antiphon::config::SipTrunk::default()
    };
    config.sip.trunks = [("phones".to_owned(), trunk)].into();
    let hub = hub(&[], &FakeLlm::default(), config).await;
    listening(sip).await;
    let account = format!("<sip:phone@{sip}>;regint=0;auth_user=phone;auth_pass=antiphon");
    let mut baresip = Baresip::start("g711", &account, free_port()).await;
    baresip.tell("dial", &format!("sip:+15550100@{sip}")).await;
    baresip.until("CALL_ESTABLISHED").await;
    let list = calls(&hub).await;
    let id = list["data"][0]["id"].as_str().expect("an id").to_owned();
    let url = format!("http://{}/v1/realtime/calls/{id}/hangup", hub.address);
    assert_eq!(reqwest::Client::new().post(url).send().await.expect("an answer").status(), 200);
    baresip.until("CALL_CLOSED").await;
    hub.stop().await;
}

/// A hub that listens by TLS too.
async fn judged_by_tls(heard: &[&str], change: impl FnOnce(&mut Config)) -> (Hub, SocketAddr, TempDir) {
    let (mut config, sip): (Config, SocketAddr) = config();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    std::fs::write(path("cert"), made.cert.pem()).expect("written");
    std::fs::write(path("key"), made.signing_key.serialize_pem()).expect("written");
    std::fs::write(path("phones"), PHONE_PEM.get_or_init(certificate)).expect("written");
    let by_tls = SocketAddr::from(([127, 0, 0, 1], free_port()));
    config.sip.tls_listen = by_tls.to_string();
    config.sip.tls_cert = path("cert");
    config.sip.tls_key = path("key");
    config.sip.tls_ca = path("phones");
    change(&mut config);
    let hub = hub(heard, &FakeLlm::says(["This is the answer."]), config).await;
    listening(sip).await;
    (hub, by_tls, folder)
}

/// A hub and a baresip that calls it by TLS with this encryption.
struct SecureCall {
    encryption: &'static str,
    hub: Hub,
    sip: SocketAddr,
    _folder: TempDir,
    baresip: Baresip,
}

impl SecureCall {
    async fn prepare((encryption, is_required, codec): (&'static str, bool, &str)) -> Self {
        let (hub, sip, _folder) = judged_by_tls(&["a question"], |config| {
            if let Some(trunk) = config.sip.trunks.get_mut("here").filter(|_| is_required) {
                trunk.srtp = antiphon::config::SrtpUse::Required;
            }
        })
        .await;
        let account = format!("<sip:phone@127.0.0.1;transport=tls>;regint=0;mediaenc={encryption}");
        let baresip = Baresip::start_with(codec, &account, free_port(), SECURE).await;
        Self { encryption, hub, sip, _folder, baresip }
    }

    async fn talk(self) {
        let Self { encryption, hub, sip, _folder, mut baresip } = self;
        baresip.tell("dial", &format!("sip:+15550100@{sip};transport=tls")).await;
        baresip.until("CALL_ESTABLISHED").await;
        let turn = turn(&hub, |turn| turn["settled"] == true).await;
        assert_eq!(turn["heard"], "This is the answer.", "{encryption} {turn}");
        baresip.tell("hold", "").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        baresip.tell("resume", "").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        baresip.tell("hangup", "").await;
        hub.until("antiphon_sessions_active ", 0.0).await;
        let heard_ms = baresip.heard_ms();
        let log = log_of(baresip.folder.path());
        assert!(heard_ms > 700, "{encryption}: {heard_ms} ms of 950: {log}");
        assert!(log.to_lowercase().contains("srtp"), "{encryption}: {log}");
        hub.stop().await;
    }
}

#[tokio::test]
async fn baresip_talks_by_tls_and_srtp() {
    let ways = [("srtp-mand", true, "opus"), ("srtp-mandf", true, "g711"), ("srtp", false, "g722")];
    let calls = join_all(ways.map(SecureCall::prepare)).await;
    join_all(calls.into_iter().map(SecureCall::talk)).await;
}

#[tokio::test]
async fn baresip_is_called_by_tls_and_srtp() {
    let port = free_port();
    let (hub, _, _folder) = judged_by_tls(&["who is there"], |config| {
        if let Some(trunk) = config.sip.trunks.get_mut("here") {
            // Its port of TLS is the next one.
            trunk.host = format!("127.0.0.1:{}", port + 1);
            trunk.transport = antiphon::config::SipTransport::Tls;
            trunk.srtp = antiphon::config::SrtpUse::Required;
        }
        config.sip.call_to = vec!["sip:phone@127.0.0.1*".into()];
    })
    .await;
    let account = "<sip:phone@127.0.0.1;transport=tls>;regint=0;answermode=auto;mediaenc=srtp-mand";
    let mut baresip = Baresip::start_with("g711", account, port, SECURE).await;
    let to = format!("sip:phone@127.0.0.1:{}", port + 1);
    let called = calling::call(&hub, json!({"to": to, "greeting": "Good morning."})).await;
    assert_eq!(called.0, 201, "{}", called.1);
    baresip.until("CALL_ESTABLISHED").await;
    let turn = turn(&hub, |turn| turn["settled"] == true && turn["transcript"] == "who is there").await;
    assert_eq!(turn["heard"], "You said: who is there", "{turn}");
    baresip.tell("hangup", "").await;
    hub.until("antiphon_sessions_active ", 0.0).await;
    let heard_ms = baresip.heard_ms();
    assert!(heard_ms > 700, "{heard_ms} ms: {}", log_of(baresip.folder.path()));
    hub.stop().await;
}
