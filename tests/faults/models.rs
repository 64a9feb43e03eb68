//! Mirrors of models that misbehave, and callers who may not change models.

use super::harness::{Canary, Party, fault, run};
use super::process::{Settings, TEST_TIMEOUT};
use super::upstream::{Stage, Wrong};
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// Resident memory that pulls may cost the hub, in MiB.
const MEMORY_MIB: u64 = 64;

/// What a mirror does wrong. One that hangs is waited for longer than a test takes: [`hangs`].
const WRONG: [Wrong; 10] = [
    Wrong::NotFound,
    Wrong::OtherHash,
    Wrong::Endless,
    Wrong::Html,
    Wrong::Empty,
    Wrong::OtherRange,
    Wrong::Redirect,
    Wrong::Unauthorized,
    Wrong::NoContent,
    Wrong::Compressed,
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mirrors_that_misbehave_leave_no_model_behind() {
    let mut faults = Vec::new();
    for wrong in WRONG {
        let one =
            fault(format!("mirror: {wrong:?}"), "the pull fails with a message", move |party| pull_fails(party, wrong));
        let one = one.leaving_files();
        faults.push(if wrong == Wrong::OtherHash { one.short() } else { one });
    }
    faults.extend([
        fault("mirror: hangs, and the hub is stopped", "the pull ends with the hub", hangs)
            .beside(Canary::After)
            .alone(settings())
            .leaving_files(),
        fault("pull: a third one", "429", three_pulls).beside(Canary::After).alone(settings()).leaving_files(),
        fault("pull: through a proxy, without a key", "403", not_the_operator),
        fault("pull: names that are none", "404", bad_names),
        fault("model: removed while it is not there", "that nothing was removed", removes_nothing),
    ]);
    run("models", settings(), MEMORY_MIB, faults).await;
}

fn settings() -> Settings {
    // One model a fault: its file's name is the marker.
    let registry = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults-registry.toml");
    let model = |wrong: Wrong| {
        format!(
            "[[model]]\nname = \"m-{0}\"\nstage = \"stt\"\nfamily = \"whisper\"\ntitle = \"A model\"\n\
             base = \"https://models.invalid/\"\nlicence = \"MIT\"\nlanguages = []\nrate_hz = 16000\n[[model.variant]]\n\
             precision = \"f16\"\nfiles = [{{ role = \"model\", path = \"{1}\", bytes = 10, \
             sha1 = \"87acec17cd9dcd20a716cc2cf67417b71c8a7016\" }}]\n",
            format!("{wrong:?}").to_lowercase(),
            Stage::Path.marker(wrong),
        )
    };
    let all = WRONG.into_iter().chain([Wrong::Hang, Wrong::Stall, Wrong::Trickle]);
    std::fs::write(&registry, all.map(model).collect::<String>()).expect("written");
    Settings::default().with("MODELS__REGISTRY", registry.to_str().expect("Unicode")).with("MODELS__MIRROR", "OTHER")
}

fn name(wrong: Wrong) -> String {
    format!("m-{}", format!("{wrong:?}").to_lowercase())
}

async fn pull(party: &Party, wrong: Wrong) -> super::process::Answer {
    party.http("POST", &format!("/api/models/{}/pull", name(wrong)), "", b"").await
}

/// The model in the list.
async fn model(party: &Party, wrong: Wrong) -> Value {
    let list = party.http("GET", "/api/models", "", b"").await.json();
    let models = list["models"].as_array().cloned().unwrap_or_default();
    models.into_iter().find(|one| one["name"] == name(wrong)).unwrap_or_else(|| panic!("{wrong:?} in {list}"))
}

async fn pull_fails(party: Party, wrong: Wrong) {
    let answer = pull(&party, wrong).await;
    answer.is(&[200, 202]);
    let failed = async {
        loop {
            let model = model(&party, wrong).await;
            if model["pull"]["state"] == "failed" || model["pull"]["state"] == "done" {
                return model;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (model, ()) = tokio::join!(timeout(TEST_TIMEOUT, failed), party.beside());
    let model = model.expect("the pull ends");
    assert_eq!(model["pull"]["state"], "failed", "{model}");
    assert!(model["pull"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{model}");
    assert_ne!(model["variants"][0]["state"], "whole", "{model}");
}

async fn hangs(party: Party) {
    pull(&party, Wrong::Hang).await.is(&[200, 202]);
    pull(&party, Wrong::Trickle).await.is(&[200, 202]);
    party.hub.signal("TERM");
    assert_eq!(party.hub.ended().await, Some(0));
    party.hub.start_again().await.expect("it starts again");
    party.converse().await;
}

async fn three_pulls(party: Party) {
    pull(&party, Wrong::Hang).await.is(&[200, 202]);
    pull(&party, Wrong::Hang).await.is(&[409]);
    pull(&party, Wrong::Stall).await.is(&[200, 202]);
    pull(&party, Wrong::Trickle).await.is(&[429]);
    party.converse().await;
    party.hub.signal("TERM");
    assert_eq!(party.hub.ended().await, Some(0));
    party.hub.start_again().await.expect("it starts again");
}

async fn not_the_operator(party: Party) {
    for header in ["x-forwarded-for: 203.0.113.9\r\n", "forwarded: for=203.0.113.9\r\n", "via: 1.1 proxy\r\n"] {
        let path = format!("/api/models/{}/pull", name(Wrong::NotFound));
        party.http("POST", &path, header, b"").await.is(&[403]);
        party.http("DELETE", &format!("/api/models/{}", name(Wrong::NotFound)), header, b"").await.is(&[403]);
    }
    party.beside().await;
}

async fn bad_names(party: Party) {
    for name in ["nobody", "..%2F..%2Fetc", "m-notfound:f8", "%00", &"x".repeat(4_000)] {
        party.http("POST", &format!("/api/models/{name}/pull"), "", b"").await.is(&[404]);
    }
    party.beside().await;
}

async fn removes_nothing(party: Party) {
    let answer = party.http("DELETE", &format!("/api/models/{}", name(Wrong::Html)), "", b"").await;
    party.beside().await;
    answer.is(&[200, 404]);
    assert!(answer.status == 404 || answer.json()["bytes"] == 0, "{answer:?}");
}
