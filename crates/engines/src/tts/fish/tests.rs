//! The engine against a real server on loopback that answers as fish-speech does.

use super::*;
use antiphon_audio::wav;
use antiphon_test_server::{Answer, TestServer};
use antiphon_types::SampleRate;
use futures_util::StreamExt;
use tokio::sync::mpsc;

fn serve(voice: &str, answers: impl IntoIterator<Item = Answer>) -> (TestServer, Fish) {
    let server = TestServer::script("/v1/tts", answers);
    let base_url = server.url("/v1");
    let voice = voice.to_owned();
    let model = "s1".to_owned();
    let api_key_env = String::new();
    let config = TtsConfig { base_url, voice, model, api_key_env, ..TtsConfig::default() };
    let fish = Fish::new(&config).expect("right settings");
    fish.voices.without_list();
    (server, fish)
}

fn wav_body(body: impl Into<Vec<u8>>) -> Answer {
    Answer::of("audio/wav", body.into())
}

fn say(voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: "Hello there.".into(), voice: voice.into(), speed, ..SpeechRequest::default() }
}

#[tokio::test]
async fn a_growing_wav_file_is_passed_on_as_it_arrives() {
    let (feed, pieces) = mpsc::channel(8);
    let (server, fish) = serve("marvin", [wav_body("").fed(pieces)]);
    let mut stream = fish.speak(say("marvin", 1.0));
    feed.send(wav::header(SampleRate::new(44_100), None).to_vec()).await.unwrap();
    feed.send(vec![1, 0, 2]).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert_eq!((first.samples, first.rate.hz()), (vec![1], 44_100), "before the body has ended");
    feed.send(vec![0]).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().samples, [2]);
    drop(feed);
    assert!(stream.next().await.is_none());
    let expected =
        serde_json::json!({"text": "Hello there.", "format": "wav", "streaming": true, "reference_id": "marvin"});
    let requests = server.requests();
    assert_eq!((requests.len(), requests[0].json()), (1, expected));
    assert_eq!(requests[0].header("model"), Some("s1"));
}

#[tokio::test]
async fn without_a_voice_the_server_chooses_and_speed_is_asked_for() {
    let sound = wav::write(&Pcm { rate: SampleRate::HZ_24000, samples: vec![7] });
    let (server, fish) = serve("slt", [wav_body(sound)]);
    assert_eq!(fish.voices().iter().map(|voice| voice.id.as_str()).collect::<Vec<_>>(), ["default"]);
    let sound: Vec<_> = fish.speak(say("alloy", 1.5)).collect().await;
    assert_eq!(sound[0].as_ref().unwrap().samples, [7]);
    let expected = serde_json::json!({
        "text": "Hello there.", "format": "wav", "streaming": true, "prosody": {"speed": 1.5}
    });
    assert_eq!(server.requests()[0].json(), expected);
    assert_eq!(server.n_requests(), 1);
}

#[tokio::test]
async fn a_refusal_and_what_is_no_sound_are_told() {
    let failure = async |answer: Answer| {
        let (_server, fish) = serve("marvin", [answer]);
        let sound: Vec<_> = fish.speak(say("marvin", 1.0)).collect().await;
        sound.into_iter().last().expect("an answer").expect_err("a failure").to_string()
    };
    let refused = Answer::refusal(400, r#"{"detail":"Text is too long"}"#);
    assert!(failure(refused).await.ends_with("answered 400 Bad Request: Text is too long"));
    assert!(failure(Answer::of("audio/mpeg", "ID3")).await.contains("sent audio/mpeg where"));
    assert!(failure(wav_body("RIFF\0\0\0\0WAVE")).await.contains("ended before its sound began"));
    let header = wav::header(SampleRate::new(44_100), None);
    assert!(failure(wav_body(header.to_vec())).await.contains("without any sound"));
}
