//! A session under pressure, without a socket and on paused time: clients that read nothing, microphones that stall.

use crate::hub::{base64, engines, loud, quiet};
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_protocol::Dialect;
use antiphon_session::{
    AudioMode, Handle, Inbound, MAX_UNSENT_BYTES, Message, Opening, SessionConfig, Setup, SpeculationConfig,
    TurnHistory,
};
use antiphon_telemetry::Metrics;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub fn setup(engines: Engines) -> Arc<Setup> {
    Arc::new(Setup {
        turn_history: Arc::new(TurnHistory::new(100, true, engines.names())),
        engines,
        turn: TurnConfig::default(),
        speculation: SpeculationConfig::default(),
        session: SessionConfig::default(),
        voice: "tone".into(),
        speed: 1.0,
        instructions: String::new(),
        model: "test".into(),
        language: None,
        language_voices: Default::default(),
        stt_timeout: Duration::from_secs(5),
        mcp: Arc::new(antiphon_engines::mcp::http::Http::new(&Default::default())),
        mcp_config: Default::default(),
        hub_servers: Vec::new(),
        sealing: None,
        brownout: Default::default(),
        metrics: Metrics::new(),
        tasks: TaskTracker::new(),
        drain: CancellationToken::new(),
    })
}

pub async fn say(session: &Handle, event: Value) {
    let inbound = Inbound { payload: Dialect::default().parse(&event.to_string()).into(), budget: None };
    assert!(session.inbound.send(inbound).await.is_ok(), "the session lives");
}

async fn ask(session: &Handle) {
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go"}]});
    say(session, json!({"type": "conversation.item.create", "item": item})).await;
    say(session, json!({"type": "response.create"})).await;
}

/// Receives events up to and including the first of this type.
pub async fn until(session: &Handle, kind: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        if let Message::Text(text) = session.egress.next_message().await.expect("not closed") {
            events.push(serde_json::from_str::<Value>(&text).expect("JSON"));
            if events.last().expect("pushed")["type"] == kind {
                return events;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_closed_and_memory_stays_flat() {
    // More than eight minutes of speech: 24 MB.
    let llm = FakeLlm::says([&"long words. ".repeat(800)[..]]);
    let setup = setup(engines(FakeStt::default(), llm, FakeTts::default()));
    let session = setup.open(Opening::default());
    ask(&session).await;
    let begun = Instant::now();
    session.egress.closed().await;
    let waited = begun.elapsed();
    assert!((Duration::from_secs(10)..Duration::from_secs(11)).contains(&waited), "{waited:?}");
    let mut n_bytes = 0;
    let close = loop {
        match session.egress.next_message().await {
            Ok(Message::Text(text)) => n_bytes += text.len(),
            Ok(Message::Binary(bytes)) => n_bytes += bytes.len(),
            Err(close) => break close,
        }
    };
    assert_eq!(close.code, 1013);
    assert!(n_bytes < 2 * MAX_UNSENT_BYTES, "{n_bytes} bytes were kept for it");
    setup.tasks.close();
    setup.tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_that_reads_on_is_not_closed() {
    let llm = FakeLlm::says([&"long words. ".repeat(100)[..]]);
    let setup = setup(engines(FakeStt::default(), llm, FakeTts::default()));
    let session = setup.open(Opening::default());
    ask(&session).await;
    let mut n_taken = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let Message::Text(text) = session.egress.next_message().await.expect("not closed") else { panic!("text only") };
        n_taken += 1;
        if text.contains("\"response.done\"") {
            break;
        }
    }
    assert!(n_taken > 100);
}

#[tokio::test(start_paused = true)]
async fn a_microphone_that_stalls_ends_the_utterance() {
    let setup = setup(engines(FakeStt::hears(["hello"]), FakeLlm::says(["Hi."]), FakeTts::default()));
    let session = setup.open(Opening::default());
    say(&session, json!({"type": "input_audio_buffer.append", "audio": base64(&loud(800))})).await;
    until(&session, "input_audio_buffer.speech_started").await;
    let begun = Instant::now();
    let events = until(&session, "input_audio_buffer.speech_stopped").await;
    let waited = begun.elapsed().as_millis();
    assert!((1_000..=1_050).contains(&waited), "500 ms of silence and 500 more: {waited}");
    // Whole windows of 16 ms, less the 2 ms that the resampler delays.
    assert_eq!(events.last().expect("there")["audio_end_ms"], 784);
    let events = until(&session, "response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_slower_than_the_person_is_interrupted() {
    let llm = FakeLlm::says(["One two three.", "Yes?"]).delayed(Duration::from_millis(400));
    let setup = setup(engines(FakeStt::hears(["first", "second"]), llm.clone(), FakeTts::default()));
    let session = setup.open(Opening::default());
    let turn = [loud(400), quiet(600)].concat();
    say(&session, json!({"type": "input_audio_buffer.append", "audio": base64(&turn)})).await;
    until(&session, "response.created").await;
    say(&session, json!({"type": "input_audio_buffer.append", "audio": base64(&turn)})).await;
    let events = until(&session, "response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status_details"]["reason"], "turn_detected");
    let events = until(&session, "response.done").await;
    assert_eq!(events.last().expect("done")["response"]["status"], "completed");
    let history = format!("{:?}", llm.requests()[1].messages);
    assert!(history.contains("first") && history.contains("second"), "no word is lost: {history}");
    assert!(!history.contains("One two"), "nothing unheard is history: {history}");
}

#[tokio::test(start_paused = true)]
async fn paced_audio_keeps_its_lead_and_ends_behind_its_last_frame() {
    // 14 characters: 700 ms of tone, of which 300 ms may be sent immediately.
    let setup = setup(engines(FakeStt::default(), FakeLlm::says(["Seven hundred."]), FakeTts::default()));
    let session = setup.open(Opening { mode: AudioMode::Pcm16, ..Opening::default() });
    ask(&session).await;
    let mut begun = None;
    let mut n_frames = 0_u32;
    loop {
        match session.egress.next_message().await.expect("not closed") {
            Message::Binary(_) => {
                n_frames += 1;
                let begun = *begun.get_or_insert_with(Instant::now);
                let ahead_ms = f64::from(n_frames * 20) - begun.elapsed().as_secs_f64() * 1e3;
                assert!(ahead_ms <= 321.0, "frame {n_frames} left {ahead_ms} ms early");
            }
            Message::Text(text) if text.contains("\"antiphon.output_audio.sent\"") => break,
            Message::Text(_) => {}
        }
    }
    assert_eq!(n_frames, 35, "all frames before the news of their end");
    let took = begun.expect("audio came").elapsed().as_millis();
    assert!((360..=440).contains(&took), "the rest was paced: {took} ms");
}
