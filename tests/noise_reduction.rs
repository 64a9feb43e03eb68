//! `noise_reduction` over a real socket: it is accepted, reported, switchable during the session, applied to the
//! recognizer's input, and a turn spoken in noise still ends and is answered.

use crate::hub::{Hub, Socket};
use antiphon::config::Config;
use antiphon_audio::convert;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::tts::SpeechRequest;
use antiphon_engines::vad::Earshot;
use antiphon_types::SampleRate;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::sync::Arc;

/// A question by flite with 0.5 s of noise before it and 2 s after it, all in noise, at 24 kHz.
async fn question_in_noise() -> Vec<i16> {
    let voice = antiphon::assembly::tts(&crate::hub::offline()).expect("flite is built in");
    let text = "What time is it in London today?".into();
    let mut spoken = voice.speak(SpeechRequest { text, voice: "slt".into(), ..SpeechRequest::default() });
    let mut pcm = vec![0; 12_000];
    while let Some(piece) = spoken.next().await {
        let piece = piece.expect("it speaks");
        pcm.extend(convert(&piece.samples, piece.rate, SampleRate::HZ_24000));
    }
    pcm.extend(vec![0; 48_000]);
    let mut state = 1u32;
    for sample in &mut pcm {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *sample = sample.saturating_add((state >> 22) as i16 - 512);
    }
    pcm
}

async fn set(socket: &mut Socket, setting: &Value) {
    let session = json!({"type": "realtime", "audio": {"input": {"noise_reduction": setting}}});
    socket.send(json!({"type": "session.update", "session": session})).await;
    let events = socket.until("session.updated").await;
    assert_eq!(&events.last().expect("there")["session"]["audio"]["input"]["noise_reduction"], setting);
}

#[tokio::test]
async fn noise_reduction_is_switched_live_and_turns_in_noise_are_answered() {
    let stt = FakeStt::hears(["what time is it"; 4]).recording();
    let llm = FakeLlm::says(["Ten."; 8]);
    let tts = FakeTts::default();
    let engines = Engines {
        vad: Arc::new(Earshot),
        turn: None,
        speaker: None,
        stt: Arc::new(stt.clone()),
        llm: Arc::new(llm),
        tts: Arc::new(tts),
    };
    let mut config = Config::default();
    // Without speculation, so that the recorder receives each utterance completely.
    config.speculation.after_ms = 0;
    let hub = Hub::start(engines, config).await;
    let mut socket = hub.connect("").await;
    let question = question_in_noise().await;
    let mut left = Vec::new();
    for setting in [json!(null), json!({"type": "near_field"}), json!({"type": "far_field"}), json!(null)] {
        set(&mut socket, &setting).await;
        for piece in question.chunks(2_400) {
            socket.append(piece).await;
        }
        let events = socket.until("response.done").await;
        assert_eq!(events.last().expect("done")["response"]["status"], "completed", "{setting}");
        let pcm = stt.recordings().pop().expect("an utterance");
        // The silence that ended the turn contains only noise.
        let tail = &pcm[pcm.len() - 4_000..];
        left.push((tail.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / tail.len() as f64).sqrt());
    }
    let [off, near, far, off_again] = left[..] else { panic!("{left:?}") };
    assert!(near < off / 2.0 && far < near / 2.0 && off_again > off / 1.5, "{left:?}");
    socket
        .send(json!({"type": "session.update", "event_id": "e", "session":
        {"type": "realtime", "audio": {"input": {"noise_reduction": {"type": "outer_space"}}}}}))
        .await;
    assert_eq!(socket.until("error").await.pop().expect("there")["error"]["event_id"], "e");
}
