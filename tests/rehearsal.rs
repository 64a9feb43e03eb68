//! Rehearsals with a hub over a real socket: what it does is held against a scenario.

use crate::hub::{Hub, engines};
use antiphon::config::Config;
use antiphon_client::{AudioMode, ConnectOptions};
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_rehearsal::{Caller, Report, Scenario, rehearse};
use std::sync::Arc;

/// Rehearses with a hub that hears and says this.
async fn report(script: &str, heard: &[&str], said: &[&str], mode: AudioMode) -> Report {
    let engines = engines(FakeStt::hears(heard.to_vec()), FakeLlm::says(said.to_vec()), FakeTts::default());
    let hub = Hub::start(engines, Config::default()).await;
    let mut options = ConnectOptions::new(format!("ws://{}/v1/realtime", hub.address));
    options.mode = mode;
    let caller = Caller::new(Arc::new(FakeTts::default()), "tone".into(), None);
    let scenario = Scenario::parse(script, "scripted").expect("a scenario");
    let report = rehearse(antiphon_client::connect(&options), &scenario, &caller).await.expect("a report");
    hub.stop().await;
    report
}

fn failed(report: &Report) -> Vec<&str> {
    report.checks.iter().filter(|check| !check.passed).map(|check| check.expected.as_str()).collect()
}

const TWO_TURNS: &str = r#"
    [[turns]]
    say = "A table for two, please."
    expect.words = ["for how many evenings"]
    expect.not_words = ["sorry"]

    [[turns]]
    say = "For one."
    # The caller's voice is the agent's: sooner it might be the reply's echo.
    after_ms = 1500
    expect.words = ["booked"]
"#;

#[tokio::test(start_paused = true)]
async fn a_conversation_is_held_and_judged_in_each_way_of_audio() {
    for mode in [AudioMode::Ga, AudioMode::Pcm16] {
        let heard = ["a table for two please", "for one"];
        let report = report(TWO_TURNS, &heard, &["For how many evenings?", "It is booked."], mode).await;
        assert_eq!(failed(&report), Vec::<&str>::new(), "{mode:?}: {:?}", report.checks);
        assert_eq!(report.turns[0].understood, "a table for two please", "{mode:?}");
        assert_eq!(report.turns[1].reply, "It is booked.", "{mode:?}");
        assert!(report.turns.iter().all(|turn| turn.answer_ms.is_some_and(|ms| ms < 1_500)), "{:?}", report.turns);
        assert!(report.sound.samples.iter().any(|sample| *sample != 0), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_does_otherwise_fails() {
    let heard = ["a table for two please", "for one"];
    let report = report(TWO_TURNS, &heard, &["Sorry, we are closed.", "Goodbye."], AudioMode::Ga).await;
    let expected = [
        r#"the agent says "for how many evenings""#,
        r#"the agent does not say "sorry""#,
        r#"the agent says "booked""#,
    ];
    assert_eq!(failed(&report), expected);
    assert!(!report.passed);
}
