//! The engine with the tiny model: text in, sound out, through the port that sessions use.

use super::testing::{fixture, speech};
use super::*;
use antiphon_engine_api::tts::{Consent, NewVoice, Recording};
use futures_util::StreamExt;

/// The tiny model with a voice "anna", in a folder of its own.
struct Hub {
    config: TtsConfig,
    _folder: tempfile::TempDir,
}

impl Hub {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let voices = folder.path().join("voices");
        std::fs::create_dir(&voices).expect("made");
        write_wav(&voices.join("anna.wav"), &speech("The boat left early in the morning, and nobody saw it again."));
        let config = TtsConfig {
            engine: "speechlm".into(),
            model: fixture("language_model.onnx").display().to_string(),
            contract: fixture("contract.toml").display().to_string(),
            voices_dir: voices.display().to_string(),
            slots: 4,
            ..TtsConfig::default()
        };
        Self { config, _folder: folder }
    }

    fn start(&self) -> SpeechLm {
        SpeechLm::start(&self.config, &crate::testing::onnx(), None).expect("the tiny model starts")
    }
}

pub(super) fn write_wav(path: &Path, pcm: &Pcm) {
    let data: Vec<u8> = pcm.samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let rate = pcm.rate.hz();
    let n = data.len() as u32;
    let mut wav = [b"RIFF".as_slice(), &(36 + n).to_le_bytes(), b"WAVEfmt ", &16_u32.to_le_bytes()].concat();
    wav.extend([1_u16, 1].iter().flat_map(|number| number.to_le_bytes()));
    wav.extend([rate, 2 * rate].iter().flat_map(|number| number.to_le_bytes()));
    wav.extend([2_u16, 16].iter().flat_map(|number| number.to_le_bytes()));
    wav.extend([b"data".as_slice(), &n.to_le_bytes(), &data].concat());
    std::fs::write(path, wav).expect("written");
}

fn request(text: &str, seed: u64) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: "anna".into(), seed: Some(seed), ..SpeechRequest::default() }
}

/// All samples of a chunk, and in how many pieces they came.
async fn spoken(tts: &SpeechLm, request: SpeechRequest) -> Result<(Vec<i16>, usize), TtsError> {
    let mut samples = Vec::new();
    let mut pieces = 0;
    let mut stream = tts.speak(request);
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        assert_eq!(piece.rate, SampleRate::HZ_24000);
        samples.extend(piece.samples);
        pieces += 1;
    }
    Ok((samples, pieces))
}

const LONG: &str = "The next train to the coast leaves at nine, and you will find the keys on the kitchen table.";

#[tokio::test]
async fn a_text_is_spoken_in_pieces_and_its_seed_decides_how() {
    let hub = Hub::new();
    let tts = hub.start();
    let (sound, pieces) = spoken(&tts, request(LONG, 7)).await.expect("spoken");
    assert!(pieces > 1, "sound leaves before the speech is complete");
    assert_eq!(sound.len() % 960, 0);
    assert!(sound.iter().any(|sample| sample.abs() > 300), "it sounds");
    assert_eq!(spoken(&tts, request(LONG, 7)).await.expect("spoken").0, sound);
    assert_ne!(spoken(&tts, request(LONG, 8)).await.expect("spoken").0, sound);
}

#[tokio::test]
async fn many_listeners_share_the_slots_and_each_gets_its_own_speech() {
    let hub = Hub::new();
    let tts = hub.start();
    let texts: Vec<String> = (0..9).map(|i| format!("{} {LONG}", "Well, ".repeat(i))).collect();
    let mut alone = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        alone.push(spoken(&tts, request(text, i as u64)).await.expect("spoken").0);
    }
    let together = texts.iter().enumerate().map(|(i, text)| spoken(&tts, request(text, i as u64)));
    for (together, alone) in futures_util::future::join_all(together).await.into_iter().zip(alone) {
        let together = together.expect("spoken").0;
        assert_eq!(together.len(), alone.len());
        let worst = together.iter().zip(&alone).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or_default();
        assert!(worst <= 1, "{worst}");
    }
    let slots = tts.slots().expect("it has slots");
    assert_eq!((slots.n_slots, slots.waiting), (4, 0));
    assert_eq!(slots.bytes_per_token, 2 * 2 * 2 * 8 * 4);
}

#[tokio::test]
async fn two_instances_serve_side_by_side() {
    let hub = Hub::new();
    let config = TtsConfig { replicas: 2, ..hub.config.clone() };
    let tts = SpeechLm::start(&config, &crate::testing::onnx(), None).expect("two instances start");
    let text = LONG.repeat(4);
    // More sequences than one instance has slots for. No sequence ends before it is read.
    let mut streams: Vec<_> = (0..8).map(|seed| tts.speak(request(&text, seed))).collect();
    for stream in &mut streams {
        stream.next().await.expect("a piece").expect("sound");
    }
    let slots = tts.slots().expect("it has slots");
    assert_eq!((slots.n_slots, slots.in_use, slots.waiting), (8, 8, 0));
    assert!(slots.step_permille > 0, "{slots:?}");
    drop(streams);
    until(&tts, 0).await;
    assert_eq!(tts.slots().expect("it has slots").step_permille, 0, "without a listener there are no steps");
    let alone = spoken(&hub.start(), request(LONG, 5)).await.expect("spoken").0;
    for _ in 0..4 {
        let sound = spoken(&tts, request(LONG, 5)).await.expect("spoken").0;
        assert_eq!(sound, alone, "whichever instance speaks, the seed decides");
    }
}

/// Waits until this number of slots is in use: the scheduler's thread retires between two steps.
async fn until(tts: &SpeechLm, in_use: usize) {
    while tts.slots().expect("it has slots").in_use != in_use {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_graph_whose_rows_disturb_each_other_serves_each_listener_alone() {
    let mut hub = Hub::new();
    hub.config.model = fixture("language_model_mask.onnx").display().to_string();
    let text = std::fs::read_to_string(&hub.config.contract).expect("the contract");
    let path = Path::new(&hub.config.voices_dir).join("mask.toml");
    std::fs::write(&path, text.replace("language_model.onnx", "language_model_mask.onnx")).expect("written");
    hub.config.contract = path.display().to_string();
    let tts = hub.start();
    let texts = ["So.", "It is late, and the last train has left.", LONG];
    let mut alone = Vec::new();
    for text in texts {
        alone.push(spoken(&tts, request(text, 1)).await.expect("spoken").0);
    }
    let together = futures_util::future::join_all(texts.map(|text| spoken(&tts, request(text, 1)))).await;
    for (together, alone) in together.into_iter().zip(alone) {
        assert!(together.expect("spoken").0 == alone);
    }
}

#[tokio::test]
async fn who_stops_listening_gives_the_slot_back() {
    let hub = Hub::new();
    let tts = hub.start();
    let mut streams: Vec<_> = (0..4).map(|seed| tts.speak(request(LONG, seed))).collect();
    for stream in &mut streams {
        stream.next().await.expect("a piece").expect("sound");
    }
    drop(streams);
    until(&tts, 0).await;
    assert!(spoken(&tts, request("So.", 1)).await.is_ok());
}

#[tokio::test]
async fn a_listener_that_is_behind_pauses_its_own_speech_and_no_other() {
    let hub = Hub::new();
    let tts = hub.start();
    // Longer than the credit, by far.
    let text = LONG.repeat(2);
    let (whole, _) = spoken(&tts, request(&text, 3)).await.expect("spoken");
    assert!(whole.len() > 200 * 960, "{} tokens", whole.len() / 960);
    let mut slow = tts.speak(request(&text, 3));
    let mut heard = slow.next().await.expect("a piece").expect("sound").samples;
    for seed in 10..16 {
        spoken(&tts, request(LONG, seed)).await.expect("the others are served");
    }
    // The others give their slots back between two steps; this one sits out, and keeps its own.
    until(&tts, 1).await;
    while let Some(piece) = slow.next().await {
        heard.extend(piece.expect("sound").samples);
    }
    assert_eq!(heard, whole, "nothing was lost while it sat out");
}

#[tokio::test]
async fn a_full_queue_is_said_and_who_may_wait_does() {
    let hub = Hub::new();
    let tts = hub.start();
    let most = 4 + 4 * WAITING_PER_SLOT;
    let texts = (0..most as u64 + 60).map(|seed| spoken(&tts, request(LONG, seed)));
    let outcomes = futures_util::future::join_all(texts).await;
    // Those who were let in are spoken to to the end, though the vocoder is slower than the language model.
    let served = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(TtsError::Overloaded { .. }))).count();
    assert!(refused > 0 && served >= 4 * WAITING_PER_SLOT, "{refused} refused, {served} served");
    assert_eq!(served + refused, outcomes.len(), "{outcomes:?}");
    let queued = (0..most as u64).map(|seed| tts.speak_queued(request("Yes.", seed)));
    for mut stream in futures_util::future::join_all(queued).await {
        assert!(stream.next().await.expect("a piece").is_ok());
    }
}

#[tokio::test]
async fn voices_are_added_and_removed_while_the_engine_serves() {
    let hub = Hub::new();
    let tts = hub.start();
    assert_eq!(tts.voices()[0].id, "anna");
    let library = tts.voice_library().expect("it clones voices");
    let pcm = speech("Another voice, which speaks of something else for some seconds.");
    let voice = NewVoice {
        name: "Rev".into(),
        language: None,
        recording: Recording { pcm },
        transcript: None,
        consent: Consent { statement: "I agree.".into(), received_at: 1 },
        owner: None,
    };
    let added = library.add(voice).await.expect("added");
    assert_eq!(library.list().len(), 2);
    let own = SpeechRequest { voice: added.id.clone(), ..request(LONG, 7) };
    let (sound, _) = spoken(&tts, own.clone()).await.expect("spoken");
    assert_ne!(sound, spoken(&tts, request(LONG, 7)).await.expect("spoken").0, "another voice");
    library.remove(&added.id).await.expect("removed");
    let error = spoken(&tts, own).await.expect_err("gone").to_string();
    assert!(error.contains("may have been removed"), "{error}");
}

#[tokio::test]
async fn without_a_voice_the_engine_starts_and_says_how_to_get_one() {
    let hub = Hub::new();
    std::fs::remove_file(Path::new(&hub.config.voices_dir).join("anna.wav")).expect("removed");
    let tts = hub.start();
    assert_eq!(tts.voices()[0].id, NO_VOICE);
    let error = spoken(&tts, request("Hello.", 1)).await.expect_err("no voice").to_string();
    assert!(error.contains("put NAME.wav into the folder tts.voices_dir"), "{error}");
}

#[test]
fn what_does_not_fit_is_a_start_error_that_says_what_would_be_right() {
    let hub = Hub::new();
    let refused = |change: &dyn Fn(&mut TtsConfig)| {
        let mut config = hub.config.clone();
        change(&mut config);
        match SpeechLm::start(&config, &crate::testing::onnx(), None) {
            Err(TtsError::Unavailable(message)) => message,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it started"),
        }
    };
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("mine");
    std::fs::create_dir(&own).expect("made");
    let text = refused(&|config| (config.contract, config.model) = (String::new(), own.display().to_string()));
    assert!(text.contains("no contract is built in for \"mine\""), "{text}");
    let text = refused(&|config| config.contract = "/nowhere.toml".into());
    assert!(text.contains("the contract /nowhere.toml cannot be read"), "{text}");
    let text = refused(&|config| config.model = fixture("nothing.onnx").display().to_string());
    assert!(text.contains("is no language_model.onnx"), "{text}");
    let text = refused(&|config| config.voice = "bella".into());
    assert!(text.contains("tts.voice = \"bella\"") && text.contains("anna"), "{text}");
}

#[tokio::test]
async fn a_speech_that_never_stops_is_cut_off_at_what_its_text_allows() {
    let hub = Hub::new();
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(&hub.config.contract).expect("the contract");
    // The end is not drawn before 70 tokens, as many as the text allows.
    let endless = text.replace("max_tokens = 300", "max_tokens = 300\nmin_tokens = 70");
    let path = folder.path().join("endless.toml");
    std::fs::write(&path, endless).expect("written");
    let config = TtsConfig { contract: path.display().to_string(), ..hub.config.clone() };
    let tts = SpeechLm::start(&config, &crate::testing::onnx(), None).expect("it starts");
    let (sound, _) = spoken(&tts, request("Yes.", 1)).await.expect("cut off, not failed");
    let most = (contract::GRACE_TOKENS + 4 * 5 + 3) * 960;
    assert_eq!(sound.len(), most, "what the text allows, and the silence behind it");
}

#[tokio::test]
async fn a_text_that_no_sequence_holds_is_refused_and_others_are_served() {
    let hub = Hub::new();
    let tts = hub.start();
    let error = spoken(&tts, request(&LONG.repeat(20), 1)).await.expect_err("too long").to_string();
    assert!(error.contains("the text is too long") && error.contains("a sequence has 512"), "{error}");
    assert!(spoken(&tts, request("Yes.", 1)).await.is_ok());
}

#[tokio::test]
async fn a_speech_that_ends_at_once_is_an_error_of_that_chunk_alone() {
    let hub = Hub::new();
    let folder = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(&hub.config.contract).expect("the contract");
    // No id below this has a sound, so that nothing is spoken before the end.
    let mute = text.replace("sounds = 97", "sounds = 0");
    let path = folder.path().join("mute.toml");
    std::fs::write(&path, mute).expect("written");
    let config = TtsConfig { contract: path.display().to_string(), ..hub.config.clone() };
    let tts = SpeechLm::start(&config, &crate::testing::onnx(), None).expect("it starts");
    let error = spoken(&tts, request("Yes.", 1)).await.expect_err("nothing was spoken").to_string();
    assert!(error.contains("ended the speech before it began"), "{error}");
    until(&tts, 0).await;
}
