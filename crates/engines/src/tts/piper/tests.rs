//! The engine against the fixture voices, whose sound follows from the ids (see tests/fixtures/voices.py).

use super::*;
use crate::testing::onnx;
use crate::tts::TtsEngine;
use crate::tts::neural::watched::{Watch, WatchedFamily};
use crate::tts::neural::{Neural, fade};
use antiphon_types::SampleRate;
use futures_util::StreamExt;
use futures_util::future::join_all;
use std::f32::consts::TAU;
use std::ops::ControlFlow;
use voice::Scales;

const TONE: &str = "en_US-tone-low";
const CHOIR: &str = "en_GB-choir-medium";

fn path(model: &str) -> String {
    format!("{}/../../tests/fixtures/voices/piper/{model}.onnx", env!("CARGO_MANIFEST_DIR"))
}

fn config(model: &str) -> TtsConfig {
    TtsConfig { model: path(model), replicas: 1, ..TtsConfig::default() }
}

fn opened(config: &TtsConfig) -> Result<Neural<Piper>, TtsError> {
    Neural::warmed(Piper::open(config, &onnx())?, 1, None)
}

fn open(model: &str) -> Neural<Piper> {
    opened(&config(model)).expect("the fixture opens; ONNX Runtime comes with `make onnxruntime`")
}

fn request(text: &str, voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: voice.into(), speed, ..SpeechRequest::default() }
}

fn pieces(engine: &mut Neural<Piper>, request: &SpeechRequest) -> Vec<Vec<i16>> {
    let rate = engine.family.file.rate;
    let mut out = Vec::new();
    let made = engine.synthesize(request, &CancellationToken::new(), &mut |pcm| {
        assert_eq!(pcm.rate, rate);
        out.push(pcm.samples);
        ControlFlow::Continue(())
    });
    made.expect("it speaks");
    out
}

/// What the fixture makes of `ids`.
struct ExpectedSound {
    rate: u32,
    speaker: i64,
    scales: Scales,
}

impl ExpectedSound {
    fn of(engine: &Neural<Piper>) -> Self {
        Self { rate: engine.family.file.rate.hz(), speaker: 0, scales: engine.family.file.scales }
    }

    fn sound(&self, ids: &[i64]) -> Vec<f32> {
        let hop = (256.0 * self.scales.length + 0.5).floor() as usize;
        let level = 0.25 + 0.25 * self.scales.noise + 0.125 * self.scales.width;
        let tone = |id: &i64| {
            let pitch = (100 + 10 * id + 5 * self.speaker) as f32;
            (0..hop).map(move |k| level * (TAU / self.rate as f32 * pitch * k as f32).sin()).collect::<Vec<_>>()
        };
        ids.iter().flat_map(tone).collect()
    }

    /// The same as samples, its ends faded, with the pause behind it.
    fn samples(&self, ids: &[i64], pause_ms: f64) -> Vec<i16> {
        let sound = self.sound(ids);
        let mut samples: Vec<i16> = sound.iter().map(|sample| (sample * 32_767.0).round() as i16).collect();
        fade(&mut samples, SampleRate::new(self.rate));
        samples.resize(samples.len() + (pause_ms * f64::from(self.rate) / 1_000.0) as usize, 0);
        samples
    }
}

/// Equal up to rounding: two samples of the fixture's and this file's sine may fall on either side of a half.
#[track_caller]
fn assert_same(made: &[i16], expected: &[i16]) {
    assert_eq!(made.len(), expected.len());
    let worst = made.iter().zip(expected).map(|(a, b)| (i32::from(*a) - i32::from(*b)).abs()).max();
    assert!(worst.unwrap_or(0) <= 12, "{worst:?}");
}

/// The ids of "a a" and the like, by the published table: `^ _ p _ … $`.
fn ids(phonemes: &[i64]) -> Vec<i64> {
    let mut ids = vec![1, 0];
    ids.extend(phonemes.iter().flat_map(|id| [*id, 0]));
    ids.push(2);
    ids
}

#[test]
fn a_chunk_is_its_phonemes_in_order() {
    let mut engine = open(TONE);
    assert_eq!((engine.voices()[0].id.as_str(), engine.voices()[0].language.as_str()), (TONE, "en-US"));
    assert_eq!(engine.family.file.rate, SampleRate::HZ_16000);
    // həlˈoʊ.
    let hello = ids(&[20, 59, 24, 120, 27, 100, 10]);
    let made = pieces(&mut engine, &request("Hello.", TONE, 1.0));
    let expected = ExpectedSound::of(&engine).samples(&hello, 250.0);
    assert_same(&made.concat(), &expected);
    assert!(made[..made.len() - 1].iter().all(|piece| piece.len() == 640), "pieces of 40 ms");
    assert!(made.len() > 5);
}

#[test]
fn each_sentence_is_a_run_and_punctuation_stays() {
    let mut engine = open(TONE);
    // həlˈoʊ, | həlˈoʊ!  həlˈoʊ
    let word = [20, 59, 24, 120, 27, 100];
    let comma = [8, 3];
    let first = ids(&[&word[..], &comma, &word, &[4]].concat());
    let expected = ExpectedSound::of(&engine);
    let expected = [expected.samples(&first, 250.0), expected.samples(&ids(&word), 0.0)].concat();
    assert_same(&pieces(&mut engine, &request("Hello, hello! Hello", TONE, 1.0)).concat(), &expected);
}

#[test]
fn speed_stretches_the_sound_and_scales_reach_the_model() {
    let mut engine = open(TONE);
    let hello = ids(&[20, 59, 24, 120, 27, 100, 10]);
    let usual = ExpectedSound::of(&engine).samples(&hello, 250.0);
    assert_same(&pieces(&mut engine, &request("Hello.", TONE, f32::NAN)).concat(), &usual);
    let usual = usual.len();
    for (asked, speed) in [(1.1, 1.1), (2.0, 2.0), (0.5, 0.5), (100.0, 4.0), (0.0, 0.25)] {
        let length = pieces(&mut engine, &request("Hello.", TONE, asked)).concat().len();
        let expected = (usual as f32 / speed) as usize;
        assert!(length.abs_diff(expected) * 20 <= expected, "{asked}: {length} of {expected} samples");
    }
    let own = engine.family.file.scales;
    let set = TtsConfig { noise_scale: 0.667, length_scale: 1.1, width_scale: 0.0, ..config(TONE) };
    let mut engine = opened(&set).expect("the fixture opens");
    let expected =
        ExpectedSound { scales: Scales { noise: 0.667, length: 1.1, width: 0.0 }, ..ExpectedSound::of(&engine) };
    assert_same(&pieces(&mut engine, &request("Hello.", TONE, 1.0)).concat(), &expected.samples(&hello, 250.0));
    assert_eq!(own.with(&TtsConfig { length_scale: 0.0, ..TtsConfig::default() }), own);
}

#[test]
fn each_speaker_is_a_voice_at_the_models_rate() {
    let mut engine = opened(&TtsConfig { voice: format!("{CHOIR}#bob"), ..config(CHOIR) }).expect("the fixture opens");
    let ids_of: Vec<_> = engine.voices().iter().map(|voice| voice.id.clone()).collect();
    assert_eq!(ids_of, [format!("{CHOIR}#bob"), format!("{CHOIR}#ann"), format!("{CHOIR}#p3922")]);
    assert_eq!(engine.family.file.rate.hz(), 22_050);
    // The British "Hello.": həlˈəʊ.
    let hello = ids(&[20, 59, 24, 120, 59, 100, 10]);
    // A name that is none, a path among them, is spoken by the default voice.
    for (voice, speaker) in
        [("#ann", 0), ("#bob", 1), ("#p3922", 2), ("#nobody", 1), ("", 1), ("/../../etc/passwd", 1), ("#../ann", 1)]
    {
        let expected = ExpectedSound { speaker, ..ExpectedSound::of(&engine) }.samples(&hello, 250.0);
        let voice = format!("{CHOIR}{voice}");
        assert_same(&pieces(&mut engine, &request("Hello.", &voice, 1.0)).concat(), &expected);
    }
}

#[test]
fn what_cannot_be_spoken_is_no_sound_and_no_error() {
    let mut engine = open(TONE);
    for text in ["", " ", "...", "?!", "😀🎉", "\u{0}", "—"] {
        assert_eq!(pieces(&mut engine, &request(text, TONE, 1.0)).len(), 0, "{text:?}");
    }
    let long = "many words and no end ".repeat(200);
    assert!(pieces(&mut engine, &request(&long, TONE, 4.0)).concat().len() > 3_000 * 64);
}

#[test]
fn phonemes_without_an_id_are_left_out_and_counted() {
    let mut engine = open(TONE);
    engine.family.file.ids.remove(&'ʊ');
    let made = pieces(&mut engine, &request("Hello hello.", TONE, 1.0)).concat();
    let word = [20, 59, 24, 120, 27];
    assert_same(&made, &ExpectedSound::of(&engine).samples(&ids(&[&word[..], &[3], &word, &[10]].concat()), 250.0));
    assert_eq!(engine.family.missing, MissingPhonemes::from([('ʊ', 2)]));
}

#[test]
fn a_batch_gives_each_text_what_it_has_alone() {
    let mut engine = open("batch");
    assert!(engine.family.batches());
    assert!(!open(CHOIR).family.batches(), "it reports no lengths");
    let texts = [("Hello.", "batch#ann"), ("Good morning to all of you.", "batch#p3922"), ("No.", "batch#bob")];
    let read =
        texts.map(|(text, voice)| (engine.family.read(&request(text, voice, 1.0)).expect("read").remove(0).ids, voice));
    let items: Vec<_> = read.iter().map(|(ids, voice)| Item { ids, voice }).collect();
    let never = CancellationToken::new();
    let batched = engine.family.run(&items, 1.25, &never).expect("sound");
    assert_eq!(batched.len(), 3);
    assert_eq!(
        engine.family.run(&items, 1.25, &never).expect("sound"),
        batched,
        "the same shape gives the same, to the bit"
    );
    for (item, together) in items.iter().zip(&batched) {
        // Alone it is shorter, so that the device may sum in another order.
        let alone = engine.family.run(&[*item], 1.25, &never).expect("sound").remove(0);
        assert_eq!(alone.len(), together.len(), "{}", item.voice);
        let worst = alone.iter().zip(together).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= 1e-4, "{}: {worst}", item.voice);
    }
    assert_eq!(batched[1].len(), items[1].ids.len() * 205, "256 / 1.25");
}

#[tokio::test]
async fn listeners_who_share_a_batch_hear_what_they_hear_alone() {
    let watch = Watch::default();
    let serve = |max_batch_size, watch: &Watch| {
        let config = TtsConfig { max_batch_size, ..config("batch") };
        let watch = watch.clone();
        let own = config.clone();
        let open =
            move |onnx: &OnnxConfig| Ok(WatchedFamily { family: Piper::open(&own, onnx)?, watch: watch.clone() });
        neural::serve("piper", &config, &onnx(), open).expect("the fixture opens")
    };
    // Three of one size class and speed, one of another each; the second has two sentences, which are two steps.
    let chunks = [
        request("Hello to you.", "batch#ann", 1.0),
        request("Good day. Good night.", "batch#bob", 1.0),
        request("Nobody was there.", "batch#p3922", 1.0),
        request("Good morning to all of you who listen at home.", "batch#ann", 1.0),
        request("Hello to you.", "batch#ann", 2.0),
        request("...", "batch#ann", 1.0),
    ];
    let alone = serve(1, &Watch::default());
    let together = serve(8, &watch);
    let mut expected = Vec::new();
    for chunk in chunks.clone() {
        expected.push(hear(alone.as_ref(), chunk).await);
    }
    assert!(expected[..5].iter().all(|sound| sound.len() > 1_000) && expected[5].is_empty());
    // They come while another one's run is held.
    watch.hold(true);
    let n_warm = watch.runs().len();
    let mut first = together.speak(request("Hello.", "batch#ann", 1.0));
    assert!(futures_util::poll!(first.next()).is_pending());
    watch.begun(n_warm).await;
    let n = chunks.len();
    let let_go = async {
        Watch::queued(together.as_ref(), n).await;
        watch.hold(false);
    };
    let hearing = join_all(chunks.map(|chunk| hear(together.as_ref(), chunk)));
    let (heard, ()) = tokio::join!(hearing, let_go);
    for (heard, expected) in heard.iter().zip(&expected) {
        assert_same(heard, expected);
    }
    assert_eq!(watch.sizes()[n_warm..], [1, 3, 1, 1, 1], "the first, three together, and each of the others");
}

async fn hear(voice: &dyn Tts, chunk: SpeechRequest) -> Vec<i16> {
    let pieces: Vec<_> = voice.speak(chunk).map(|piece| piece.expect("sound").samples).collect().await;
    pieces.concat()
}

#[test]
fn a_break_ends_the_chunk() {
    let mut engine = open(TONE);
    let mut n = 0;
    let made = engine.synthesize(&request("Hello. Hello.", TONE, 1.0), &CancellationToken::new(), &mut |_| {
        n += 1;
        if n == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(made.is_ok());
    assert_eq!(n, 2);
}

#[test]
fn a_cancel_ends_the_run_itself() {
    let mut engine = open("slow");
    assert!(!pieces(&mut engine, &request("Hello.", "", 1.0)).is_empty(), "it is slow with long texts only");
    let long = "hello ".repeat(60);
    let cancel = CancellationToken::new();
    std::thread::scope(|scope| {
        let cancel = cancel.clone();
        let run = scope.spawn({
            let cancel = cancel.clone();
            move || {
                let mut n = 0;
                let made = engine.synthesize(&request(&long, "", 1.0), &cancel, &mut |_| {
                    n += 1;
                    ControlFlow::Continue(())
                });
                (made.is_ok(), n)
            }
        });
        // Whether the run has begun by now or not, it gives no sound; without the cancel it would take minutes.
        std::thread::sleep(std::time::Duration::from_millis(50));
        cancel.cancel();
        assert_eq!(run.join().expect("no panic"), (true, 0));
    });
}

fn refusal(config: &TtsConfig) -> String {
    opened(config).err().expect("refused").to_string()
}

#[test]
fn what_cannot_serve_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, from: &Path, share: f64| {
        let bytes = std::fs::read(from).expect("read");
        let target = folder.path().join(name);
        std::fs::write(&target, &bytes[..(bytes.len() as f64 * share) as usize]).expect("written");
        target.to_str().expect("Unicode").to_owned()
    };
    let with = |model: String| TtsConfig { model, ..config(TONE) };
    let model = path(TONE);
    let json = format!("{}.json", path(TONE));
    let kokoro = path(TONE).replace("piper/en_US-tone-low", "kokoro/model");

    assert!(refusal(&with("tts-1".into())).contains("no such file or folder; name a Piper voice"));
    let alone = with(put("alone.onnx", model.as_ref(), 1.0));
    assert!(refusal(&alone).contains("alone.onnx.json is missing"), "{}", refusal(&alone));
    put("cut.onnx.json", json.as_ref(), 1.0);
    let cut = with(put("cut.onnx", model.as_ref(), 0.6));
    assert!(refusal(&cut).contains("cut.onnx is corrupt or cut off"), "{}", refusal(&cut));
    put("other.onnx.json", json.as_ref(), 1.0);
    let other = with(put("other.onnx", kokoro.as_ref(), 1.0));
    assert!(refusal(&other).contains("other.onnx is no Piper voice: it takes input_ids"), "{}", refusal(&other));
    put("half.onnx.json", json.as_ref(), 0.5);
    let half = with(put("half.onnx", model.as_ref(), 1.0));
    assert!(refusal(&half).contains("half.onnx.json is no Piper voice's description"), "{}", refusal(&half));
    put("mixed.onnx.json", format!("{}.json", path(CHOIR)).as_ref(), 1.0);
    let mixed = with(put("mixed.onnx", model.as_ref(), 1.0));
    assert!(refusal(&mixed).contains("do not belong together"), "{}", refusal(&mixed));
    let unknown = TtsConfig { voice: "../ann".into(), ..config(CHOIR) };
    assert!(refusal(&unknown).contains("no voice \"../ann\" in this model; it has en_GB-choir-medium#ann,"));
}

#[test]
fn it_repeats_itself_as_far_as_there_is_no_noise() {
    let cases = [(0.0, 0.0, Repeats::Exactly), (0.5, 0.0, Repeats::InTime), (0.0, 0.5, Repeats::Never)];
    for (noise_scale, width_scale, repeats) in cases {
        let config = TtsConfig { noise_scale, width_scale, ..config(TONE) };
        assert_eq!(opened(&config).expect("opens").repeats(TONE), repeats, "{config:?}");
    }
}
