//! With the model of `tests/fixtures/whisper/`, which knows some words of flite's voices in two languages.

use super::super::SttStream;
use super::model::Model;
use super::voiced::VoicedSpan;
use super::*;
use antiphon_audio::wav;
use antiphon_engine_api::stt::{SpeakerState, Stt, SttOptions, Transcript};
use std::fs::File;
use std::sync::Arc;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The model's file; it is gone with the folder.
pub(super) fn unpacked() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let zip = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/whisper/words.zip");
    let zip = File::open(zip).expect("it is part of the repository");
    zip::ZipArchive::new(zip).expect("an archive").extract(folder.path()).expect("room");
    folder
}

pub(super) fn config(folder: &TempDir) -> SttConfig {
    let model = folder.path().to_str().expect("a plain path").to_owned();
    SttConfig { engine: "whisper".into(), model, decoders: 1, threads: 1, ..SttConfig::default() }
}

fn stream(config: &SttConfig) -> WhisperStream {
    let model = Arc::new(Model::load(config).expect("it loads"));
    WhisperStream::new(Decoder::new(model).expect("there is memory"))
}

/// What a voice of flite's says, at 16 kHz, spoken by the program that spoke what the model was trained on.
pub(super) fn spoken(voice: &str, text: &str) -> Vec<i16> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("said.wav");
    let mut flite = std::process::Command::new("flite");
    let made = flite.args(["-voice", voice, "-t", text, "-o"]).arg(&file).status();
    assert!(made.expect("flite is installed: .ci/deps test").success());
    let wav = std::fs::read(&file).expect("it was written");
    wav::read(&wav, antiphon_engine_api::stt::RATE, std::time::Duration::from_secs(60)).expect("a sound file").samples
}

fn hear(stream: &mut WhisperStream, pcm: &[i16], options: &SttOptions) -> Result<Transcript, SttError> {
    let cancel = CancellationToken::new();
    stream.begin(options)?;
    for piece in pcm.chunks(1_024) {
        stream.push(piece, &cancel)?;
    }
    stream.finish(&cancel)
}

fn text(stream: &mut WhisperStream, pcm: &[i16]) -> String {
    hear(stream, pcm, &SttOptions::default()).expect("it hears").text
}

fn noise(n: usize, level: impl Fn(usize) -> f32) -> Vec<i16> {
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..n).map(|i| (random() * level(i)) as i16).collect()
}

#[test]
fn it_reads_what_voices_say() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    for (voice, said) in [
        ("slt", "red green blue"),
        ("rms", "five"),
        ("rms", "stop go"),
        ("slt", "yes no"),
        ("rms", "one two three four"),
        ("rms", "blue"),
    ] {
        assert_eq!(text(&mut stream, &spoken(voice, said)), said, "{voice}");
    }
}

#[test]
fn translating_is_another_task_to_the_model() {
    let folder = unpacked();
    assert!(open(&config(&folder)).expect("it loads").translates(), "it knows two languages");
    let mut stream = stream(&config(&folder));
    let said = spoken("slt", "red green blue");
    // It was never taught to: its words stay the same, and how sure it is of them does not.
    let mut sure = |translate| {
        let options = SttOptions { translate, logprobs: true, ..SttOptions::default() };
        let heard = hear(&mut stream, &said, &options).expect("it hears");
        assert_eq!(heard.text, "red green blue");
        heard.logprobs.expect("asked for").iter().map(|token| token.logprob).collect::<Vec<_>>()
    };
    let written = sure(false);
    let translated = sure(true);
    assert_ne!(written, translated);
    assert_eq!(written, sure(false));
}

#[test]
fn it_finds_the_language_and_keeps_to_one_that_is_set() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    // "fünf rot drei", spelled for flite.
    let pcm = spoken("slt", "foonf rote dry");
    let found = hear(&mut stream, &pcm, &SttOptions::default()).expect("it hears");
    assert_eq!((found.text.as_str(), found.language.as_deref()), ("fünf rot drei", Some("de")));
    let english = hear(&mut stream, &spoken("slt", "red five"), &SttOptions::default()).expect("it hears");
    assert_eq!((english.text.as_str(), english.language.as_deref()), ("red five", Some("en")));
    let german = SttOptions { language: Some("de".into()), ..SttOptions::default() };
    assert_eq!(hear(&mut stream, &pcm, &german).expect("it hears").text, "fünf rot drei");
}

#[test]
fn the_language_goes_with_the_speaker_and_not_to_the_next() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let german = hear(&mut stream, &spoken("slt", "foonf rote dry"), &SttOptions::default()).expect("it hears");
    assert_eq!(german.speaker, Some(SpeakerState::Language("de".into())));
    stream.begin(&SttOptions::default()).expect("it begins");
    assert_eq!(stream.assumed(), "en", "another speaker");
    stream.begin(&SttOptions { speaker: german.speaker, ..SttOptions::default() }).expect("it begins");
    assert_eq!(stream.assumed(), "de");
}

#[test]
fn the_language_that_a_client_prefers_is_tried_first_and_another_one_is_heard() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let prefers = |code: &'static str| SttOptions {
        speaker: Some(SpeakerState::PreferredLanguage(code.into())),
        ..SttOptions::default()
    };
    stream.begin(&prefers("de")).expect("it begins");
    assert_eq!(stream.assumed(), "de");
    let english = hear(&mut stream, &spoken("slt", "red five"), &prefers("de")).expect("it hears");
    assert_eq!((english.text.as_str(), english.language.as_deref()), ("red five", Some("en")));
    stream.begin(&prefers("xx")).expect("it begins");
    assert_eq!(stream.assumed(), "en", "a language that no model knows");
}

#[test]
fn a_temperature_of_0_is_raised_where_it_must_be_and_another_is_kept() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let pcm = spoken("slt", "red green");
    let mut temperature = |asked| {
        let options = SttOptions { temperature: asked, segments: true, ..SttOptions::default() };
        let heard = hear(&mut stream, &pcm, &options).expect("it hears");
        heard.segments.first().expect("there are words").temperature
    };
    assert_eq!([None, Some(0.0), Some(0.4)].map(&mut temperature), [Some(0.0), Some(0.0), Some(0.4)]);
}

#[test]
fn a_partial_gives_way_where_others_decode_and_in_a_pause_they_give_way() {
    let folder = unpacked();
    let model = Arc::new(Model::load(&config(&folder)).expect("it loads"));
    let mut stream = WhisperStream::new(Decoder::new(model.clone()).expect("there is memory"));
    let cancel = CancellationToken::new();
    let mut pcm = spoken("slt", "red green blue");
    let end = VoicedSpan::of(&pcm).expect("there are words").end;
    pcm.truncate(end);
    stream.begin(&SttOptions::default()).expect("it begins");
    stream.push(&pcm, &cancel).expect("it takes it");
    let others: Vec<_> = std::iter::from_fn(|| model.shares.free(&cancel)).collect();
    assert!(!others.is_empty());
    assert_eq!(stream.partial(&cancel).expect("no failure").text, "");
    assert!(others.iter().all(|other| !other.cancel.is_cancelled()));
    stream.push(&[0; 640], &cancel).expect("it takes it");
    std::thread::scope(|scope| {
        let in_pause = scope.spawn(|| stream.partial(&cancel));
        while others.iter().all(|other| !other.cancel.is_cancelled()) {
            std::thread::yield_now();
        }
        drop(others);
        assert_eq!(in_pause.join().expect("no panic").expect("it hears").text, "red green blue");
    });
}

#[test]
fn a_quiet_voice_is_heard_as_a_loud_one() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let loud = spoken("slt", "red green blue");
    let quiet: Vec<i16> = loud.iter().map(|sample| sample / 100).collect();
    assert_eq!(text(&mut stream, &quiet), "red green blue");
}

#[test]
fn a_language_that_is_none_is_refused() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    for language in ["xx", "", "d e", "en\0", "klingon"] {
        let options = SttOptions { language: Some(language.into()), ..SttOptions::default() };
        let error = stream.begin(&options).expect_err(language).to_string();
        assert!(error.contains("knows 99 languages"), "{error}");
    }
    let error = Model::load(&SttConfig { language: "xx".into(), ..config(&folder) }).err().expect("refused");
    assert!(error.to_string().contains("\"xx\" is not one of them"), "{error}");
}

#[test]
fn there_are_no_words_in_silence_noise_or_nothing() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    assert_eq!(text(&mut stream, &[]), "");
    assert_eq!(text(&mut stream, &[0]), "");
    assert_eq!(text(&mut stream, &[0; 48_000]), "");
    assert_eq!(text(&mut stream, &noise(48_000, |_| 3_000.0)), "");
    // Noise that swells like speech passes the gate by energy; the model itself must report no speech.
    let swelling = noise(48_000, |i| if i / 4_000 % 2 == 0 { 200.0 } else { 6_000.0 });
    assert!(VoicedSpan::of(&swelling).is_some());
    assert_eq!(text(&mut stream, &swelling), "");
}

#[test]
fn partial_transcripts_grow_to_the_final_one() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let cancel = CancellationToken::new();
    let pcm = spoken("slt", "one two three four five");
    stream.begin(&SttOptions::default()).expect("it begins");
    let mut partials = Vec::new();
    for piece in pcm.chunks(4_000) {
        stream.push(piece, &cancel).expect("it takes it");
        partials.push(stream.partial(&cancel).expect("it hears").text);
    }
    assert_eq!(stream.provisional(&cancel).expect("it hears").text, "one two three four five");
    assert_eq!(stream.finish(&cancel).expect("it hears").text, "one two three four five");
    assert!(partials.iter().any(|text| text.starts_with("one two") && !text.ends_with("five")), "{partials:?}");
}

#[test]
fn words_have_their_times_in_the_utterance() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let mut pcm = vec![0; 24_000];
    pcm.extend(spoken("slt", "red"));
    let second = pcm.len() / 16;
    pcm.extend(spoken("slt", "green blue"));
    let options = SttOptions { segments: true, logprobs: true, ..SttOptions::default() };
    let heard = hear(&mut stream, &pcm, &options).expect("it hears");
    assert_eq!(heard.text, "red green blue");
    assert_eq!(heard.logprobs.expect("asked for").len(), 3);
    let words: Vec<_> = heard.segments.iter().flat_map(|segment| &segment.words).collect();
    assert_eq!(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), ["red", "green", "blue"]);
    let end = pcm.len() as u64 / 16;
    for pair in words.windows(2) {
        assert!(pair[0].start_ms <= pair[0].end_ms && pair[0].end_ms <= pair[1].start_ms, "{words:?}");
    }
    assert!((1_200..1_800).contains(&heard.segments[0].start_ms), "{:?}", heard.segments);
    assert!(heard.segments.last().expect("one").end_ms.abs_diff(end) < 500, "{:?}", heard.segments);
    assert!(words[1].end_ms > second as u64, "{words:?}");
    assert!(hear(&mut stream, &pcm, &SttOptions::default()).expect("it hears").segments.is_empty());
}

#[test]
fn more_than_a_window_is_heard_piece_by_piece() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let cancel = CancellationToken::new();
    let sentence: Vec<i16> = spoken("slt", "red green").into_iter().chain(vec![0; 8_000]).collect();
    let n = 1_200_000 / sentence.len();
    stream.begin(&SttOptions { segments: true, ..SttOptions::default() }).expect("it begins");
    let mut most = 0;
    for _ in 0..n {
        stream.push(&sentence, &cancel).expect("it takes it");
        most = most.max(stream.n_waiting());
    }
    let heard = stream.finish(&cancel).expect("it hears");
    assert!(most <= 30 * 16_000, "no more than a window waits: {most}");
    // The model was taught sentences of five seconds, so that its words in a long window are not looked at here.
    let times: Vec<_> = heard.segments.iter().flat_map(|segment| [segment.start_ms, segment.end_ms]).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.last().is_some_and(|end| *end > 45_000 && *end <= 75_100), "{times:?}");
}

#[test]
fn words_that_one_text_has_no_room_for_are_heard_in_parts() {
    let folder = unpacked();
    let mut model = Model::load(&config(&folder)).expect("it loads");
    // Texts of three tokens, without a prompt.
    model.sizes.n_text_ctx = 6;
    model.settings.repeats_suspect = false;
    let mut stream = WhisperStream::new(Decoder::new(Arc::new(model)).expect("there is memory"));
    let cancel = CancellationToken::new();
    let first = spoken("slt", "red green blue");
    let pause = vec![0; 16_000 * 5];
    let second = spoken("rms", "stop go");
    let pcm = [first, pause, second].concat();
    stream.begin(&SttOptions { language: Some("en".into()), ..SttOptions::default() }).expect("it begins");
    stream.push(&pcm, &cancel).expect("it takes it");
    stream.partial(&cancel).expect("it hears");
    assert_eq!(stream.n_waiting(), pcm.len(), "a partial transcript is made at once");
    assert_eq!(stream.provisional(&cancel).expect("it hears").text, "red green blue stop go");
    assert!(stream.n_waiting() < pcm.len(), "the first part is settled");
    assert_eq!(stream.finish(&cancel).expect("it hears").text, "red green blue stop go");
}

#[test]
fn the_same_audio_is_the_same_words_in_any_order() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let clips = [spoken("slt", "foonf rote"), spoken("rms", "stop go"), spoken("rms", "yes")];
    let forth: Vec<String> = clips.iter().map(|clip| text(&mut stream, clip)).collect();
    let mut back: Vec<String> = clips.iter().rev().map(|clip| text(&mut stream, clip)).collect();
    back.reverse();
    assert_eq!(forth, back);
}

#[test]
#[cfg(target_os = "linux")]
fn a_cancelled_decoding_ends_within_the_encoder_and_the_replica_goes_on() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let cancel = CancellationToken::new();
    let pcm = spoken("slt", "red green blue");
    stream.begin(&SttOptions::default()).expect("it begins");
    stream.push(&pcm, &cancel).expect("it takes it");
    cancel.cancel();
    let before = ffi::N_GRAPHS.get();
    assert!(matches!(stream.finish(&cancel), Err(SttError::Cancelled)));
    assert_eq!(ffi::N_GRAPHS.get() - before, 1, "of the three graphs of an encoder the first was begun");
    assert_eq!(text(&mut stream, &pcm), "red green blue");
}

#[test]
fn any_prompt_is_taken_and_a_long_one_up_to_what_there_is_room_for() {
    let folder = unpacked();
    let mut stream = stream(&config(&folder));
    let pcm = spoken("slt", "red green blue");
    for prompt in ["", "\0", "yes no", "wörter 字幕 🙂", &"green ".repeat(10_000)] {
        let options = SttOptions { prompt: Some(prompt.into()), ..SttOptions::default() };
        hear(&mut stream, &pcm, &options).unwrap_or_else(|error| panic!("{prompt:.20}: {error}"));
    }
    let n_tokens = |stream: &mut WhisperStream, prompt: &str| {
        stream.begin(&SttOptions { prompt: Some(prompt.into()), ..SttOptions::default() }).expect("it begins");
        stream.prompt().len()
    };
    assert_eq!([n_tokens(&mut stream, ""), n_tokens(&mut stream, "\0")], [0, 0]);
    let short = n_tokens(&mut stream, "green green");
    let long = n_tokens(&mut stream, &"green ".repeat(10_000));
    assert!(short > 0 && long > 60 * short, "what fits is passed on: {short}, {long}");
    assert!(long <= 224, "no more than half of the positions: {long}");
}

#[tokio::test]
async fn the_port_gives_a_partial_up_for_the_final_words() {
    let folder = unpacked();
    let engine = open(&config(&folder)).expect("it loads");
    assert_eq!(engine.name(), "whisper");
    let mut utterance = engine.open(SttOptions::default()).await.expect("free");
    utterance.push(spoken("slt", "yes no")).await.expect("room");
    {
        let mut partial = utterance.partial();
        let _ = futures_util::poll!(&mut partial);
    }
    assert_eq!(utterance.finish().await.expect("it hears").text, "yes no");
}

#[tokio::test]
async fn gpus_that_are_listed_must_exist_and_decoders_on_one_device_share_the_weights() {
    let folder = unpacked();
    let n_found = super::ffi::gpus().len();
    let absent = [n_found as u32 + 1, n_found as u32 + 3];
    let listed = SttConfig { decoders: 2, gpu_devices: absent.to_vec(), ..config(&folder) };
    let error = open(&listed).err().expect("refused").to_string();
    assert!(error.contains(&format!("there is no GPU {}, {}: ", absent[0], absent[1])), "{error}");
    let models = super::model::load_for(&SttConfig { decoders: 3, ..config(&folder) }).expect("it loads");
    assert_eq!(models.len(), 1);
    let engine = open(&SttConfig { decoders: 2, ..config(&folder) }).expect("it loads");
    let mut both = [engine.open(SttOptions::default()).await, engine.open(SttOptions::default()).await]
        .map(|utterance| utterance.expect("free"));
    for utterance in &mut both {
        utterance.push(spoken("slt", "yes no")).await.expect("room");
    }
    for utterance in both {
        assert_eq!(utterance.finish().await.expect("it hears").text, "yes no");
    }
}

#[test]
fn a_model_that_is_none_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain path").to_owned();
    let refused = |model: &str| {
        let config = SttConfig { model: model.to_owned(), ..SttConfig::default() };
        Model::load(&config).err().expect("refused").to_string()
    };
    assert!(refused("whisper-1").contains("there is no file \"whisper-1\"; stt.model must be a Whisper model"));
    assert!(refused(&path("")).contains("no .bin file"));
    std::fs::write(path("a.bin"), b"GGUF....").expect("room");
    assert!(refused(&path("")).contains("it is a GGUF file"));
    std::fs::write(path("b.bin"), b"").expect("room");
    assert!(refused(&path("")).contains("several .bin files"));
}
