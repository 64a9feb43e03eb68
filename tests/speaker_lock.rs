//! One speaker over a real socket: another voice than the user's neither interrupts nor is transcribed, once the hub knows
//! the user's, and the client can have that forgotten.

use crate::framed::speak;
use crate::hub::{Hub, Socket, engines, quiet};
use crate::semantic_vad::set;
use antiphon::config::Config;
use antiphon_engine_api::Engines;
use antiphon_engine_api::fakes::llm::FakeLlm;
use antiphon_engine_api::fakes::speaker::FakeSpeakerModel;
use antiphon_engine_api::fakes::stt::FakeStt;
use antiphon_engine_api::fakes::tts::FakeTts;
use antiphon_engine_api::speaker::SpeakerModel;
use antiphon_engines::speaker::Loudness;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The user is louder than this, the television is not.
const LOUD: u16 = 6_000;

fn user(ms: usize) -> Vec<i16> {
    tone(8_000.0, ms)
}

fn television(ms: usize) -> Vec<i16> {
    tone(4_000.0, ms)
}

fn tone(peak: f32, ms: usize) -> Vec<i16> {
    (0..ms * 24).map(|i| (peak * (i as f32 * 0.1).sin()) as i16).collect()
}

/// A client that has spoken for 4 s to a hub with this speaker model, was answered, and hears nothing any more.
struct Conversation {
    hub: Hub,
    socket: Socket,
    sequence: u32,
}

impl Conversation {
    async fn enrolled(model: impl SpeakerModel + 'static) -> Self {
        let stt = FakeStt::hears(["tell me something", "what is next", "and then"]);
        let answer = "A long answer to what was asked, with many words, which takes some seconds to be said.";
        let engines = Engines {
            speaker: Some(Arc::new(model)),
            ..engines(stt, FakeLlm::says([answer, answer, answer]), FakeTts::default())
        };
        let hub = Hub::start(engines, Config::default()).await;
        let socket = hub.connect("?audio=pcm16").await;
        let mut conversation = Self { hub, socket, sequence: 0 };
        conversation.lock(true).await;
        conversation.says(&quiet(1_000)).await;
        conversation.says(&[user(4_000), quiet(800)].concat()).await;
        conversation.socket.until("antiphon.output_audio.sent").await;
        // What was sent ahead sounds.
        conversation.says(&quiet(800)).await;
        conversation
    }

    async fn lock(&mut self, speaker_lock: bool) {
        let detection = json!({"type": "server_vad", "speaker_lock": speaker_lock});
        let shown = set(&mut self.socket, detection).await;
        assert_eq!(shown["speaker_lock"], speaker_lock);
    }

    /// Sends sound in real time, which is the paused clock's.
    async fn says(&mut self, sound: &[i16]) {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        for frame in sound.chunks(480) {
            tick.tick().await;
            speak(&mut self.socket, &mut self.sequence, frame).await;
        }
    }

    /// The next event of one of these types.
    async fn next_of(&mut self, types: &[&str]) -> Value {
        loop {
            let event = self.socket.next().await;
            if types.contains(&event["type"].as_str().expect("a type")) {
                return event;
            }
        }
    }
}

const STARTED: &str = "input_audio_buffer.speech_started";
const IGNORED: &str = "antiphon.speech.ignored";
const TRANSCRIBED: &str = "conversation.item.input_audio_transcription.completed";
const CLEARED: &str = "output_audio_buffer.cleared";

#[tokio::test(start_paused = true)]
async fn another_speaker_in_silence_gets_no_transcript_and_no_reply() {
    let mut talk = Conversation::enrolled(FakeSpeakerModel::parts_at(LOUD)).await;
    talk.says(&[television(1_500), quiet(800)].concat()).await;
    let ignored = talk.next_of(&[STARTED, TRANSCRIBED, IGNORED]).await;
    assert_eq!((&ignored["type"], &ignored["similarity"]), (&json!(IGNORED), &json!(0.0)), "{ignored}");
    assert!(ignored["audio_end_ms"].as_u64() > ignored["audio_start_ms"].as_u64(), "{ignored}");
    assert_eq!(talk.hub.metric("antiphon_ignored_speech_total"), 1.0);
    talk.says(&[user(1_500), quiet(800)].concat()).await;
    let heard = talk.next_of(&[TRANSCRIBED, IGNORED]).await;
    assert_eq!(heard["transcript"], "what is next", "the other's words were dropped: {heard}");
}

#[tokio::test(start_paused = true)]
async fn another_speaker_over_a_reply_does_not_stop_it_and_the_user_does() {
    let mut talk = Conversation::enrolled(FakeSpeakerModel::parts_at(LOUD)).await;
    talk.says(&[user(1_000), quiet(700)].concat()).await;
    talk.socket.until_frames(3).await;
    talk.says(&television(1_500)).await;
    let held = talk.next_of(&["output_audio_buffer.held"]).await;
    let next = talk.next_of(&["output_audio_buffer.resumed", CLEARED]).await;
    assert_eq!(next["type"], "output_audio_buffer.resumed", "after {held}");
    talk.says(&quiet(700)).await;
    assert_eq!(talk.next_of(&[IGNORED, CLEARED]).await["type"], IGNORED);
    talk.says(&user(1_200)).await;
    assert_eq!(talk.next_of(&[IGNORED, CLEARED]).await["type"], CLEARED);
}

#[tokio::test(start_paused = true)]
async fn another_speaker_is_the_user_where_the_voice_was_forgotten_or_the_model_fails() {
    let mut talk = Conversation::enrolled(FakeSpeakerModel::parts_at(LOUD)).await;
    talk.lock(false).await;
    talk.lock(true).await;
    talk.says(&[television(1_500), quiet(800)].concat()).await;
    assert_eq!(talk.next_of(&[IGNORED, TRANSCRIBED]).await["transcript"], "what is next");
    let mut talk = Conversation::enrolled(FakeSpeakerModel::fails()).await;
    talk.says(&[television(1_500), quiet(800)].concat()).await;
    assert_eq!(talk.next_of(&[IGNORED, TRANSCRIBED]).await["transcript"], "what is next");
}

#[tokio::test(start_paused = true)]
async fn a_speaker_who_says_one_short_word_is_the_user() {
    let mut talk = Conversation::enrolled(FakeSpeakerModel::parts_at(LOUD)).await;
    talk.says(&[television(500), quiet(800)].concat()).await;
    assert_eq!(talk.next_of(&[IGNORED, TRANSCRIBED]).await["transcript"], "what is next");
}

/// Without a speaker model the level decides: 7 dB below the user's is another's.
#[tokio::test(start_paused = true)]
async fn another_speaker_is_known_by_the_level_where_there_is_no_model() {
    let mut talk = Conversation::enrolled(Loudness).await;
    let across_the_room = tone(2_500.0, 1_500);
    talk.says(&[across_the_room.clone(), quiet(800)].concat()).await;
    let ignored = talk.next_of(&[STARTED, TRANSCRIBED, IGNORED]).await;
    assert_eq!(ignored["type"], IGNORED, "{ignored}");
    let quieter_db = ignored["quieter_db"].as_f64().expect("a number");
    assert!((quieter_db - 10.1).abs() < 0.2, "{ignored}");
    // The user leans back, is answered, and is not stopped by what is across the room.
    talk.says(&[tone(4_000.0, 1_500), quiet(800)].concat()).await;
    assert_eq!(talk.next_of(&[TRANSCRIBED, IGNORED]).await["transcript"], "what is next");
    talk.socket.until_frames(3).await;
    talk.says(&[across_the_room, quiet(700)].concat()).await;
    assert_eq!(talk.next_of(&[IGNORED, CLEARED]).await["type"], IGNORED);
}
