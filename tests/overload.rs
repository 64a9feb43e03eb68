//! A hub under more load than it may take: it climbs all brownout levels, serves those that are in, and returns.

use crate::hub::{Hub, engines, loud, quiet};
use crate::turns::get;
use antiphon::config::Config;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longer than the climb through all levels, or the return, takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// The processor's time, used by this process until it is dropped.
struct Burning(Arc<AtomicBool>);

impl Burning {
    fn start() -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let burns = goes_on.clone();
        std::thread::spawn(move || while burns.load(Ordering::Relaxed) {});
        Self(goes_on)
    }
}

impl Drop for Burning {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

async fn until_level(hub: &Hub, level: &str) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    let reached = async {
        loop {
            let (_, ready) = get(hub, "/readyz").await;
            let now = ready["load"]["level"].as_str().expect("a level").to_owned();
            if seen.last() != Some(&now) {
                seen.push(now.clone());
            }
            if now == level {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(DEADLINE, reached).await.unwrap_or_else(|_| panic!("{level} is not reached: {seen:?}"));
    seen
}

#[tokio::test]
async fn an_overloaded_hub_climbs_all_levels_serves_who_is_in_and_returns() {
    let mut config = Config::default();
    config.slo.processor_share = 0.2;
    let llm = FakeLlm::says(["Noon."]);
    let hub = Hub::start(engines(FakeStt::hears(["what time is it"]), llm.clone(), FakeTts::default()), config).await;
    let mut talking = hub.connect("").await;
    let _other = hub.connect("").await;
    let burning = Burning::start();
    let up = until_level(&hub, "no_sessions").await;
    assert!(up.contains(&"no_speculation".to_owned()) && up.contains(&"no_jobs".to_owned()), "{up:?}");

    let (status, ready) = get(&hub, "/readyz").await;
    assert_eq!((status, &ready["ready"], &ready["load"]["brownout"]), (503, &json!(false), &json!(6)));
    let pressure = ready["load"]["pressure"].as_object().expect("signals");
    assert!(pressure.values().any(|share| share.as_f64().is_some_and(|share| share >= 0.8)), "{ready}");
    let client = reqwest::Client::new();
    let upgrade = client
        .get(format!("http://{}/v1/realtime", hub.address))
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    let refused = upgrade.send().await.expect("an answer");
    assert_eq!(refused.status(), 503);
    let wait: u64 = refused.headers()["retry-after"].to_str().expect("text").parse().expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(refused.json::<Value>().await.expect("JSON")["error"]["code"], "server_overloaded");
    for path in ["/v1/audio/speech", "/v1/audio/speech/jobs"] {
        let asked =
            client.post(format!("http://{}{path}", hub.address)).json(&json!({"input": "Hi.", "voice": "tone"}));
        let refused = asked.send().await.expect("an answer");
        assert_eq!(refused.status(), 503, "{path}");
        assert!(refused.headers().contains_key("retry-after"), "{path}");
    }

    // The conversation that is in goes on, without speculation.
    talking.append(&loud(500)).await;
    talking.append(&quiet(1_000)).await;
    talking.until("response.done").await;
    let turn = crate::turns::turn(&hub, |turn| turn["status"] == "completed").await;
    assert_eq!((&turn["speculations"], &turn["brownout"]), (&json!([]), &json!("no_sessions")), "{turn}");
    assert_eq!(llm.requests().len(), 1);

    drop(burning);
    until_level(&hub, "normal").await;
    drop(hub.connect("").await);
    let asked = client.post(format!("http://{}/v1/audio/speech", hub.address));
    let spoken = asked.json(&json!({"input": "Hi.", "voice": "tone"})).send().await.expect("an answer");
    assert_eq!(spoken.status(), 200);
    let metrics = client.get(format!("http://{}/metrics", hub.address)).send().await.expect("an answer");
    let text = metrics.text().await.expect("text");
    assert!(text.contains("antiphon_brownout_level 0") && text.contains("antiphon_brownout_changes_total 1"), "{text}");
    hub.stop().await;
}

#[tokio::test]
async fn where_brownout_is_off_nothing_is_refused() {
    let mut config = Config::default();
    // Little enough that a process beside others, which gets a share of the processors only, is above it.
    config.slo.processor_share = 0.05;
    config.slo.brownout = false;
    let hub = Hub::start(engines(FakeStt::hears(["hi"]), FakeLlm::says(["Hi."]), FakeTts::default()), config).await;
    let _one = hub.connect("").await;
    let _other = hub.connect("").await;
    let _burning = Burning::start();
    let over = async {
        loop {
            let (status, ready) = get(&hub, "/readyz").await;
            assert_eq!((status, &ready["load"]["level"]), (200, &json!("normal")));
            if ready["load"]["pressure"]["processor"].as_f64().is_some_and(|share| share > 1.5) {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(DEADLINE, over).await.expect("the load is measured");
    hub.connect("").await;
    hub.stop().await;
}
