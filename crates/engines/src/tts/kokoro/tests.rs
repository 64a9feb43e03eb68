//! The engine against the fixture model, whose sound follows from tokens and style (see tests/fixtures/voices.py).

use super::*;
use crate::testing::onnx;
use crate::tts::TtsEngine;
use crate::tts::level::Level;
use crate::tts::neural::{Neural, fade};
use futures_util::StreamExt;
use std::f32::consts::TAU;
use std::ops::ControlFlow;

fn config(model: &str) -> TtsConfig {
    let model = format!("{}/../../tests/fixtures/voices/kokoro/{model}.onnx", env!("CARGO_MANIFEST_DIR"));
    TtsConfig { model, replicas: 1, ..TtsConfig::default() }
}

fn open(config: &TtsConfig) -> Result<Neural<Kokoro>, TtsError> {
    let path = neural::model_file(&config.model, "a Kokoro model")?;
    let packs = speakable(Packs::beside(&path)?, &path)?;
    let american = American::beside(&path)?;
    let kokoro = Kokoro::open(&path, config.chosen_voice(), &onnx(), Arc::new(packs), american.as_ref())?;
    Neural::warmed(kokoro, 1, None)
}

fn fixture(model: &str) -> Neural<Kokoro> {
    open(&config(model)).expect("the fixture opens; ONNX Runtime comes with `make onnxruntime`")
}

fn request(text: &str, voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: voice.into(), speed, ..SpeechRequest::default() }
}

fn pieces(engine: &mut Neural<Kokoro>, request: &SpeechRequest) -> Result<Vec<Vec<i16>>, TtsError> {
    let mut out = Vec::new();
    engine.synthesize(request, &CancellationToken::new(), &mut |pcm| {
        assert_eq!(pcm.rate, RATE);
        out.push(pcm.samples);
        ControlFlow::Continue(())
    })?;
    Ok(out)
}

fn speak(engine: &mut Neural<Kokoro>, text: &str, voice: &str, speed: f32) -> Vec<i16> {
    pieces(engine, &request(text, voice, speed)).expect("it speaks").concat()
}

/// What the fixture makes of tokens between pads, with a style of this level and shift, its ends faded, and the pause behind.
fn expected(tokens: &[i64], level: f32, shift: f32, speed: f32, pause_ms: f32) -> Vec<i16> {
    let hop = (240.0 / speed + 0.5).floor() as usize;
    let tone = |token: &i64| {
        let pitch = 100.0 + 5.0 * *token as f32 + shift;
        (0..hop).map(move |k| level * (TAU / 24_000.0 * pitch * k as f32).sin()).collect::<Vec<_>>()
    };
    let ids = [&[0], tokens, &[0]].concat();
    let mut samples: Vec<i16> = ids.iter().flat_map(tone).map(|sample| (sample * 32_767.0).round() as i16).collect();
    fade(&mut samples, SampleRate::HZ_24000);
    samples.resize(samples.len() + (pause_ms * 24.0 / speed) as usize, 0);
    samples
}

/// Equal up to rounding.
#[track_caller]
fn assert_same(made: &[i16], expected: &[i16]) {
    assert_eq!(made.len(), expected.len());
    let worst = made.iter().zip(expected).map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs()).max();
    assert!(worst.unwrap_or(0) <= 16, "{worst:?}");
}

/// "Hello." by an American: həlˈO.
const HELLO: [i64; 6] = [50, 83, 54, 156, 31, 4];

#[test]
fn a_chunk_is_its_tokens_between_pads_in_the_style_of_its_length() {
    let mut engine = fixture("model");
    let made = pieces(&mut engine, &request("Hello.", "af_sky", 1.0)).expect("it speaks");
    assert!(made[..made.len() - 1].iter().all(|piece| piece.len() == 960), "pieces of 40 ms");
    assert_same(&made.concat(), &expected(&HELLO, 0.2, 6.0, 1.0, 250.0));
    // həlˈO wˈɜɹld, without punctuation
    let longer = [50, 83, 54, 156, 31, 16, 65, 156, 87, 123, 54, 46];
    assert_same(&speak(&mut engine, "Hello world", "af_nicole", 1.0), &expected(&longer, 0.4, 1_012.0, 1.0, 0.0));
    // A voice in a file of its own, with four rows: the last one serves longer texts. Spanish: ˈola
    let hola = [156, 57, 54, 43, 4];
    assert_same(&speak(&mut engine, "Hola.", "ef_dora", 1.0), &expected(&hola, 0.25, 203.0, 1.0, 250.0));
    // British: həlˈQ
    let british = [50, 83, 54, 156, 33, 4];
    assert_same(&speak(&mut engine, "Hello.", "bm_george", 1.0), &expected(&british, 0.3, 506.0, 1.0, 250.0));
}

#[test]
fn voices_are_mixed_by_their_shares() {
    let mut engine = fixture("model");
    let made = speak(&mut engine, "Hello.", "af_sky:0.4+af_nicole:0.6", 1.0);
    assert_same(&made, &expected(&HELLO, 0.32, 606.0, 1.0, 250.0));
    assert_eq!(made, speak(&mut engine, "Hello.", "af_sky:2 + af_nicole:3", 1.0));
    let refused =
        pieces(&mut engine, &request("Hello.", "af_sky:0.4+af_bob:0.6", 1.0)).expect_err("no bob").to_string();
    assert!(refused.contains("no voice \"af_bob\" to mix; write it like"), "{refused}");
}

#[test]
fn a_mixture_is_as_loud_as_its_voices_and_one_that_is_chosen_is_a_voice() {
    let mixture = |chosen: &str, requested: &str| {
        let engine = open(&TtsConfig { voice: chosen.into(), ..config("model") }).expect("it opens");
        engine.family.mixture(requested)
    };
    let mixed = "bm_george:1+af_sky:3";
    assert_eq!(mixture("af_sky", mixed), Some(vec![("bm_george".to_owned(), 0.25), ("af_sky".to_owned(), 0.75)]));
    assert_eq!(mixture(mixed, mixed), None);
    assert_eq!(mixture("af_sky", "bm_george"), None);
    assert_eq!(mixture("af_sky", "af_sky+af_bob"), None);
}

#[test]
fn speed_reaches_the_model_in_its_own_type() {
    let mut engine = fixture("model");
    for asked in [1.25, 0.75, f32::NAN] {
        let speed = if asked.is_finite() { asked } else { 1.0 };
        assert_same(&speak(&mut engine, "Hello.", "af_sky", asked), &expected(&HELLO, 0.2, 6.0, speed, 250.0));
    }
    let mut whole = fixture("tokens");
    assert_eq!(whole.family.ids, "tokens");
    assert_same(&speak(&mut whole, "Hello.", "af_sky", 1.0), &expected(&HELLO, 0.2, 6.0, 1.0, 250.0));
    let usual = expected(&HELLO, 0.2, 6.0, 1.0, 250.0).len();
    let check = |engine: &mut Neural<Kokoro>, asked: f32, speed: f32| {
        let length = speak(engine, "Hello.", "af_sky", asked).len();
        let expected = (usual as f32 / speed) as usize;
        assert!(length.abs_diff(expected) * 20 <= expected, "{asked}: {length} of {expected} samples");
    };
    check(&mut whole, 1.8, 1.8);
    check(&mut engine, 3.0, 3.0);
    check(&mut engine, 100.0, 4.0);
    check(&mut engine, 0.0, 0.25);
}

#[test]
fn a_batch_gives_each_text_what_it_has_alone() {
    let mut engine = fixture("batch");
    assert!(engine.family.batches());
    assert!(!fixture("model").family.batches() && !fixture("tokens").family.batches());
    let texts = [("Hello.", "af_sky"), ("Good morning to all of you.", "af_sky+af_nicole"), ("No.", "bm_george")];
    let read =
        texts.map(|(text, voice)| (engine.family.read(&request(text, voice, 1.0)).expect("read").remove(0).ids, voice));
    let items: Vec<_> = read.iter().map(|(ids, voice)| Item { ids, voice }).collect();
    let never = CancellationToken::new();
    let batched = engine.family.run(&items, 2.0, &never).expect("sound");
    assert_eq!(batched.len(), 3);
    for (item, together) in items.iter().zip(&batched) {
        assert_eq!(together.len(), item.ids.len() * 120);
        assert_eq!(
            engine.family.run(&[*item], 2.0, &never).expect("sound"),
            std::slice::from_ref(together),
            "{}",
            item.voice
        );
    }
}

#[test]
fn a_long_text_is_cut_where_it_is_heard_least() {
    let mut engine = fixture("model");
    let utterances = engine.family.read(&request(&"Hello there, my friend. ".repeat(60), "af_sky", 1.0)).expect("read");
    assert!(utterances.len() > 1);
    let (last, others) = utterances.split_last().expect("some");
    for utterance in others {
        assert!((256..=512).contains(&utterance.ids.len()), "{}", utterance.ids.len());
        assert!([3, 4].contains(&utterance.ids[utterance.ids.len() - 2]), "cut behind punctuation");
        assert_eq!(utterance.pause, Duration::ZERO);
    }
    assert_eq!(last.pause, Duration::from_millis(250));
    for utterance in &utterances {
        assert_eq!((utterance.ids[0], utterance.ids[utterance.ids.len() - 1]), (PAD, PAD));
        assert!(![16, 0].contains(&utterance.ids[1]), "no space at an edge");
    }
}

#[test]
fn who_waits_on_a_slow_machine_hears_words_first_and_others_whole_sentences() {
    let mut engine = fixture("model");
    let ms = Duration::from_millis;
    engine.family.pace.set(Some(Pace::measured(None, 100, ms(2_000), ms(7_000))));
    let mut n_ids = |unplayed: Option<Duration>| {
        let text = "It was late and the sun was setting behind the hills of the village.";
        let request = SpeechRequest { unplayed, ..request(text, "af_sky", 1.0) };
        let runs = engine.family.read(&request).expect("read");
        runs.iter().map(|run| run.ids.len() - 2).collect::<Vec<_>>()
    };
    let [whole] = n_ids(None)[..] else { panic!("it is not played while it is made") };
    assert_eq!(n_ids(Some(ms(10_000))), [whole], "there is time");
    let runs = n_ids(Some(Duration::ZERO));
    assert!(runs.len() > 1 && runs[0] <= 17, "{runs:?}");
    assert!(runs.iter().all(|n| *n >= pace::MIN_TOKENS / 2), "{runs:?}");
    // The space at a cut is at no edge.
    assert_eq!(runs.iter().sum::<usize>() + runs.len() - 1, whole);
}

#[test]
fn voices_are_listed_by_language_and_what_cannot_be_read_is_left_out() {
    let engine = fixture("model");
    let listed: Vec<_> = engine.voices().iter().map(|voice| (voice.id.as_str(), voice.language.as_str())).collect();
    assert_eq!(
        listed,
        [("af_nicole", "en-US"), ("af_sky", "en-US"), ("bm_george", "en-GB"), ("ef_dora", "es")],
        "jf_alpha is Japanese"
    );
    let first = |voice: &str| {
        let chosen = TtsConfig { voice: voice.into(), ..config("model") };
        open(&chosen).expect("opens").voices()[0].id.clone()
    };
    assert_eq!(first("bm_george"), "bm_george");
    assert_eq!(first("af_sky:1+bm_george:1"), "af_sky:1+bm_george:1");
}

#[test]
fn an_unknown_voice_is_the_default_one() {
    let mut engine = open(&TtsConfig { voice: "af_sky".into(), ..config("model") }).expect("opens");
    let default = speak(&mut engine, "Hello.", "af_sky", 1.0);
    for voice in ["alloy", "", "../af_nicole", "voices/ef_dora.bin", "jf_alpha"] {
        assert_eq!(speak(&mut engine, "Hello.", voice, 1.0), default, "{voice}");
    }
}

#[test]
fn what_cannot_be_spoken_is_no_sound_and_no_error() {
    let mut engine = fixture("model");
    for text in ["", " ", "...", "?!", "😀🎉", "\u{0}"] {
        assert!(speak(&mut engine, text, "af_sky", 1.0).is_empty(), "{text:?}");
    }
}

#[test]
fn a_cancel_ends_the_run_itself() {
    let mut engine = fixture("slow");
    assert!(!speak(&mut engine, "Hello.", "af_sky", 1.0).is_empty(), "it is slow with long texts only");
    let long = "hello ".repeat(60);
    let cancel = CancellationToken::new();
    std::thread::scope(|scope| {
        let cancelled = cancel.clone();
        let run = scope.spawn(move || {
            let mut n = 0;
            let made = engine.synthesize(&request(&long, "af_sky", 1.0), &cancelled, &mut |_| {
                n += 1;
                ControlFlow::Continue(())
            });
            (made.is_ok(), n)
        });
        // Whether the run has begun by now or not, it gives no sound; without the cancel it would take minutes.
        std::thread::sleep(Duration::from_millis(50));
        cancel.cancel();
        assert_eq!(run.join().expect("no panic"), (true, 0));
    });
}

#[tokio::test]
async fn the_port_speaks_checks_voices_and_stops_when_dropped() {
    let tts = KokoroTts::start(&config("slow"), &onnx()).expect("the fixture opens");
    assert_eq!(tts.name(), "kokoro");
    assert_eq!(tts.check_voice("af_sky"), Ok(()));
    assert_eq!(tts.check_voice("af_sky:0.4+af_nicole:0.6"), Ok(()));
    assert!(tts.check_voice("af_sky:x").expect_err("no share").contains("the share of af_sky"));
    for (voice, language) in [
        ("ef_dora", "es"),
        ("ef_dora:0.4+af_sky:0.6", "es"),
        (" bm_george + ef_dora", "en-GB"),
        ("bob", "en-US"),
        ("bob+ef_dora", "en-US"),
    ] {
        assert_eq!(tts.language(voice), language, "{voice}");
    }
    let unknown = tts.check_voice("bob").expect_err("unknown");
    assert_eq!(unknown, "there is no voice \"bob\"; kokoro has af_nicole, af_sky, bm_george, ef_dora");
    // The only replica is in a run that takes minutes; dropping its stream releases it.
    let mut slow = tts.speak(request(&"hello ".repeat(60), "af_sky", 1.0));
    assert!(futures_util::poll!(slow.next()).is_pending());
    drop(slow);
    let sound: Vec<_> =
        tts.speak(request("Hello.", "af_sky", 1.0)).map(|piece| piece.expect("sound").samples).collect().await;
    let sound = sound.concat();
    let mut unlevelled = expected(&HELLO, 0.2, 6.0, 1.0, 250.0);
    Level::of(loudness::lufs(&[("af_sky".into(), 1.0)]).expect("it is known")).apply(&mut unlevelled);
    assert_same(&sound, &unlevelled);
}

#[test]
fn what_cannot_serve_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("Unicode").to_owned();
    let fixtures = format!("{}/../../tests/fixtures/voices", env!("CARGO_MANIFEST_DIR"));
    let put = |name: &str, from: &str| std::fs::copy(format!("{fixtures}/{from}"), at(name)).expect("copied");
    let said = |name: &str| {
        let config = TtsConfig { model: at(name), ..config("model") };
        KokoroTts::start(&config, &onnx()).err().expect("refused").to_string()
    };
    assert!(said("nowhere").contains("no such file or folder; name a Kokoro model"));
    put("model.onnx", "kokoro/model.onnx");
    assert!(said("model.onnx").contains("put voices-v1.0.bin beside it"), "{}", said("model.onnx"));
    put("voices-v1.0.bin", "kokoro/voices-v1.0.bin");
    put("piper.onnx", "piper/en_US-tone-low.onnx");
    assert!(said("piper.onnx").contains("piper.onnx is no Kokoro model: it takes input"), "{}", said("piper.onnx"));
    let whole = std::fs::read(at("model.onnx")).expect("read");
    std::fs::write(at("cut.onnx"), &whole[..whole.len() / 2]).expect("written");
    assert!(said("cut.onnx").contains("cut.onnx is corrupt or cut off"), "{}", said("cut.onnx"));
    let config = TtsConfig { voice: "af_bob".into(), ..config("model") };
    let refused = KokoroTts::start(&config, &onnx()).err().expect("refused").to_string();
    assert!(refused.contains("tts.voice = \"af_bob\": there is no voice \"af_bob\""), "{refused}");
    assert!(refused.contains("the voices are af_nicole, af_sky"), "{refused}");
}

/// A folder of models: the fixture, and hibari's folder beside it, of links.
fn with_dictionaries() -> (tempfile::TempDir, PathBuf) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let folder = tempfile::tempdir().expect("a folder");
    let link = |from: String, name: &str| std::os::unix::fs::symlink(from, folder.path().join(name)).expect("linked");
    link(format!("{root}/tests/fixtures/voices/kokoro"), "kokoro");
    std::fs::create_dir(folder.path().join(DICTIONARIES)).expect("made");
    for file in std::fs::read_dir(format!("{root}/models/hibari")).expect("`make hibari` fetches it") {
        let path = file.expect("listed").path();
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        link(path.display().to_string(), &format!("{DICTIONARIES}/{name}"));
    }
    let model = folder.path().join("kokoro/model.onnx");
    (folder, model)
}

#[test]
fn american_text_is_read_by_the_dictionaries_beside_the_model() {
    let (_folder, model) = with_dictionaries();
    let packs = Arc::new(Packs::beside(&model).expect("voices"));
    let american = American::beside(&model).expect("whole").expect("beside it");
    let mut kokoro = Kokoro::open(&model, None, &onnx(), packs, Some(&american)).expect("opens");
    let mut written = |text, tag, rules| kokoro.written(text, tag, rules).expect("phonemes");
    let american = |phonemes: &str, mark| (phonemes.to_owned(), mark);
    // espeak-ng does not tell the two apart.
    let read = written("I have read it. I want to read it!", "en-us", Rules::American);
    assert_eq!(read, american("ˌI hæv ɹˈɛd ɪt. ˌI wˈɑnt tə ɹˈid ɪt!", Some(Mark::Exclamation)));
    assert_eq!(written("Hola.", "es", Rules::Other), american("ˈola.", Some(Mark::Period)));
    assert_eq!(written("...", "en-us", Rules::American), american("", None));
}

#[test]
fn damaged_dictionaries_are_named() {
    let (folder, model) = with_dictionaries();
    let gold = folder.path().join(DICTIONARIES).join(misaki::GOLD);
    std::fs::remove_file(&gold).expect("removed");
    assert!(American::beside(&model).expect("none is no error").is_none());
    std::fs::write(&gold, b"no gzip").expect("written");
    let config = TtsConfig { model: model.display().to_string(), ..config("model") };
    let refused = KokoroTts::start(&config, &onnx()).err().expect("refused").to_string();
    assert!(refused.contains("lexicon_us_gold.json.gz: it is damaged"), "{refused}");
    assert!(refused.contains("make hibari"), "{refused}");
}
