//! The stress test and the planner as commands: phases and files, not figures.

use super::cli::{bench, plan};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).expect("it was written")).expect("JSON")
}

#[test]
fn a_plan_has_machines_latency_and_files() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out");
    let prices = folder.path().join("prices.toml");
    let machine = |name: &str, rest: &str| format!("{name} = {{ cores = 16, memory_gib = 64, {rest} }}\n");
    let table = [machine("hub", "price_per_hour = 1"), machine("nats", "price_per_hour = 1")].concat()
        + &machine("gpu", "accelerators = 1, price_per_hour = 2");
    std::fs::write(&prices, format!("currency = \"EUR\"\n[machines]\n{table}")).expect("room");
    let out_text = out.to_str().expect("plain");
    let prices_text = prices.to_str().expect("plain");
    let args =
        ["--users", "50000", "--peak", "0.1", "--objective-ms", "800", "--prices", prices_text, "--out", out_text];
    let output = plan(&[&args[..], &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let planned: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&planned["feasible"], &planned["plan"]["sessions"]), (&true.into(), &5_000.into()));
    assert!(planned["plan"]["latency"]["p95_ms"].as_f64().expect("a number") <= 800.0);
    assert!(planned["cost"]["per_hour"].as_f64().expect("a number") > 0.0);
    for name in ["hub.toml", "worker-stt.toml", "worker-tts.toml"] {
        assert!(out.join(name).is_file(), "{name}");
    }
    // The same input gives the same plan.
    assert_eq!(plan(&[&args[..], &["--json"]].concat()).stdout, output.stdout);
}

#[test]
fn what_cannot_be_planned_says_why() {
    let ends = |args: &[&str], code: i32, expect: &str| {
        let output = match args {
            ["plan", args @ ..] => plan(args),
            args => bench(args, &[], b""),
        };
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(expect), "{args:?}: {said}");
    };
    ends(&["plan", "--profile", "processor"], 1, "INFEASIBLE");
    ends(&["plan", "--profile", "nowhere.json"], 1, "nowhere.json: cannot be read");
    ends(&["plan", "--peak", "0"], 2, "write a share above 0.0");
    ends(&["stress", "--slow-readers", "0.5", "--bad-network", "0.5"], 2, "leave too few sessions");
    let of_phases = ["--html", "--objective-ms", "--sessions-from", "--most", "--step", "--spike", "--spike-seconds"];
    for option in of_phases.into_iter().chain(["--soak", "--barge-in", "--slow-readers", "--bad-network"]) {
        ends(&["stress", "--calibrate", "--quick", option, "1"], 2, "cannot be used with");
    }
    ends(&["stress", "--quick", "--fit", "1"], 2, "--calibrate");
    ends(&["plan", "--card", "help"], 2, "A10G       24 GB,   600 GB/s");
    ends(&["plan", "--card", "H200", "--profile", "processor"], 1, "does not say of which card its times are");
}

#[test]
fn a_stress_test_has_all_phases_and_its_profile_can_be_planned_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("plain").to_owned();
    let report = path("stress.json");
    let page = path("stress.html");
    let profile = path("profile.json");
    let load = ["stress", "--quick", "--sessions-from", "4", "--reply-words", "6", "--objective-ms", "20000"];
    let mix = ["--barge-in", "0.2", "--slow-readers", "0.25", "--bad-network", "0.25"];
    let files = ["--json", &report, "--html", &page, "--profile-out", &profile];
    let output = bench(&[&load[..], &mix[..], &files[..]].concat(), &[], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    for expect in [
        "requests/min",
        "success 100.00 %",
        "spike: goodput during",
        "slow readers",
        "hold: bad network",
        "spike: bad network",
    ] {
        assert!(table.contains(expect), "{expect}: {table}");
    }
    let stress = json(Path::new(&report))["stress"].take();
    assert_eq!(stress["climb"].as_array().map(Vec::len), Some(1));
    let turns = |phase: &Value| phase["turns"].as_array().map_or(0, Vec::len);
    assert!(turns(&stress["hold"]["load"]) > 0 && turns(&stress["hold"]["bad_network"]) > 0);
    let hold = &stress["hold"];
    let base = &stress["spike"]["base"];
    assert!(turns(&base["load"]) > 0 && turns(&base["bad_network"]) > 0 && turns(&stress["spike"]["crowd"]) > 0);
    for phase in [hold, base] {
        assert!(phase["slow_readers"]["messages"].as_u64().expect("a number") > 0, "{phase}");
    }
    let html = std::fs::read_to_string(&page).expect("it was written");
    assert!(html.contains("<svg") && !html.contains("<script") && !html.contains("src="), "it stands alone");
    let output = plan(&["--profile", &profile, "--users", "1000", "--json"]);
    let planned: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let measured: Vec<_> = planned["measured"].as_array().expect("a list").iter().map(|one| &one["figure"]).collect();
    for figure in ["stt.service", "tts.service", "turn.rest_ms", "hub.base_mib"] {
        assert!(measured.iter().any(|path| **path == figure), "{figure}: {measured:?}");
    }
}

#[test]
fn a_calibrated_profile_can_be_planned_with() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("profile.json");
    let profile = file.to_str().expect("plain");
    let args = ["stress", "--calibrate", "--quick", "--reply-words", "6", "--fit", "1", "--check", "2"];
    let output = bench(&[&args[..], &["--profile-out", profile]].concat(), &[], b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let from = json(&file)["sources"]["tts.service"]["from"].to_string();
    assert!(from.contains("fitted to 1 sessions"), "{from}");
    let output = plan(&["--profile", profile, "--users", "1000"]);
    let planned = String::from_utf8_lossy(&output.stdout);
    assert!(planned.contains("profile \"calibrated\"") && !planned.contains("no source is given"), "{planned}");
}

/// A hub that is killed when this is dropped.
struct Server(Child);

impl Server {
    /// With fake engines and these settings; its address.
    fn start(settings: &[&str]) -> (Self, String) {
        let settings = settings.iter().flat_map(|setting| ["--set", setting]);
        let mut command = Command::new(env!("CARGO_BIN_EXE_antiphon-bench"));
        command.args(["hub", "fake"]).args(settings).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Self(command.spawn().expect("the binary starts"));
        let mut address = String::new();
        let output = server.0.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut address).expect("it prints its address");
        (server, format!("http://{}", address.trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// 300 ms of a loud tone at 24 kHz as a WAV file.
fn tone() -> Vec<u8> {
    let samples = (0..7_200).flat_map(|i| (if i % 24 < 12 { 8_000_i16 } else { -8_000 }).to_le_bytes());
    let samples: Vec<u8> = samples.collect();
    let n_bytes = samples.len() as u32;
    let format =
        [16_u32.to_le_bytes(), [1, 0, 1, 0], 24_000_u32.to_le_bytes(), 48_000_u32.to_le_bytes(), [2, 0, 16, 0]];
    let head = [&b"RIFF"[..], &(36 + n_bytes).to_le_bytes(), b"WAVEfmt ", &format.concat(), b"data"].concat();
    [head, n_bytes.to_le_bytes().to_vec(), samples].concat()
}

#[test]
fn a_server_that_speculates_gives_no_profile() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("tone.wav"), tone()).expect("room");
    let clips = folder.path().to_str().expect("plain");
    let file = folder.path().join("profile.json");
    let profile = |setting: &str| {
        let (_server, url) = Server::start(&[setting]);
        // The objective is another test's.
        let load =
            ["stress", "--quick", "--sessions-from", "1", "--hold", "0", "--spike", "1", "--objective-ms", "10000"];
        let files = ["--url", &url, "--clips", clips, "--profile-out", file.to_str().expect("plain")];
        let output = bench(&[&load[..], &files[..]].concat(), &[], b"");
        let [out, said] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(out.contains("largest number of sessions"), "the report is shown: {out}{said}");
        (output.status.code(), said)
    };
    let (code, said) = profile("speculation.after_ms=80");
    assert!(code == Some(1) && said.contains("set speculation.after_ms = 0"), "{said}");
    assert!(!file.exists());
    let (code, said) = profile("speculation.after_ms=0");
    assert_eq!(code, Some(0), "{said}");
    // A recognizer holds its slot while the tone sounds.
    let stt = json(&file)["stt"]["service"]["points"][0].take();
    assert!(stt["hold_ms"].as_f64().expect("a number") > 250.0 + stt["first_ms"].as_f64().expect("a number"), "{stt}");
}

#[test]
fn a_missed_gate_is_an_error_and_the_profile_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("tone.wav"), tone()).expect("room");
    let clips = folder.path().to_str().expect("plain");
    let file = folder.path().join("profile.json");
    let (_server, url) = Server::start(&["speculation.after_ms=0"]);
    // The silence that ends a turn is longer than the objective.
    let load = ["stress", "--quick", "--strict", "--sessions-from", "1", "--objective-ms", "1"];
    let files = ["--url", &url, "--clips", clips, "--profile-out", file.to_str().expect("plain")];
    let output = bench(&[&load[..], &files[..]].concat(), &[], b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("not a single session keeps the objective"), "{said}");
    assert_eq!(json(&file)["name"], "measured");
}
