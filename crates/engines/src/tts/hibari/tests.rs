//! The engine with its real model, which `make hibari` fetches, against the package's own output: `tests/fixtures/hibari`.

use super::*;
use crate::testing::onnx;
use futures_util::StreamExt;
use futures_util::future::join_all;
use realfft::RealFftPlanner;
use realfft::num_complex::Complex32;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/hibari");
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/hibari");

/// The noise of `tests/fixtures/hibari/reference.py`.
struct Numbers(u32);

impl Numbers {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 16) as f32 / 65_536.0 * 3.0 - 1.5
    }
}

impl Noise for Numbers {
    fn fill(&mut self, values: &mut [Complex32]) {
        for value in values {
            value.re = self.next();
            value.im = self.next();
        }
    }
}

fn config() -> TtsConfig {
    TtsConfig { model: MODEL.into(), ..TtsConfig::default() }
}

fn open(noise: impl Noise + 'static) -> Hibari {
    let path = files::graph(MODEL).expect("`make hibari` fetches it");
    let shared = HibariData::open(folder_of(&path)).expect("the files are whole");
    Hibari::open(&path, &onnx(), Arc::new(shared), Box::new(noise)).expect("the model opens")
}

fn request(text: &str) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: HEART.into(), ..SpeechRequest::default() }
}

fn samples(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(format!("{FIXTURES}/{name}")).expect("the fixture");
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// The largest difference.
fn difference(made: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(made.len(), expected.len());
    made.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn spectra_sound_as_the_package_makes_them_sound() {
    let pitch = [0.0, 90.0, 120.0, 200.0, 180.0, 30.0, 0.0, 150.0];
    let n = synthesis::BINS * pitch.len();
    let wave = |step: f64, low: f64, high: f64| -> Vec<f32> {
        (0..n).map(|at| (low + (high - low) * (0.5 + 0.5 * (at as f64 * step).sin())) as f32).collect()
    };
    let harmonic = wave(0.37, -6.0, 1.0);
    let rotation = wave(0.11, -1.0, 1.0);
    let noise = wave(0.53, -6.0, 0.0);
    let free = wave(0.29, -7.0, 8.0);
    let phase = wave(0.71, -3.0, 3.0);
    let spectra =
        Spectra { harmonic: &harmonic, rotation: &rotation, noise: &noise, free: &free, phase: &phase, pitch: &pitch };
    let made = Synthesizer::new().sound(&spectra, &mut Numbers(1));
    let expected = samples("spectra.f32");
    let loudest = expected.iter().map(|sample| sample.abs()).fold(0.0, f32::max);
    let difference = difference(&made, &expected);
    assert!(difference < loudest * 1e-5, "{difference} of {loudest}");
}

/// How far the magnitudes of two sounds are apart, in Hann windows of 50 ms: the sum of the differences, as a share of the
/// second sound's sum. Phases do not count.
fn spectral_difference(made: &[f32], expected: &[f32]) -> f32 {
    const WINDOW: usize = 1_200;
    assert_eq!(made.len(), expected.len());
    let transform = RealFftPlanner::<f32>::new().plan_fft_forward(WINDOW);
    let hann = |at: usize| 0.5 - 0.5 * (std::f32::consts::TAU * at as f32 / WINDOW as f32).cos();
    let magnitudes = |sound: &[f32]| -> Vec<f32> {
        let mut window: Vec<f32> = sound.iter().enumerate().map(|(at, sample)| sample * hann(at)).collect();
        let mut spectrum = transform.make_output_vec();
        transform.process(&mut window, &mut spectrum).expect("the lengths are the transform's");
        spectrum.iter().map(|bin| bin.norm()).collect()
    };
    let mut apart = 0.0;
    let mut all = 0.0;
    for at in (0..made.len() - WINDOW).step_by(WINDOW / 2) {
        let made = magnitudes(&made[at..at + WINDOW]);
        let expected = magnitudes(&expected[at..at + WINDOW]);
        apart += made.iter().zip(&expected).map(|(a, b)| (a - b).abs()).sum::<f32>();
        all += expected.iter().sum::<f32>();
    }
    apart / all
}

/// The graph has weights of 8 bits, which processors multiply with different rounding: phases of the harmonics differ, and
/// by that the samples. On a processor with AVX2 alone they are the package's within a step of 16 bits; with AVX-512 VNNI
/// the magnitudes are 0.11 apart. A shift of 12 ms makes that 0.52, a tenth less sound 0.15.
#[test]
fn a_sentence_sounds_as_the_package_speaks_it() {
    let mut engine = open(Numbers(1));
    let runs = engine.read(&request("Hello there.")).expect("phonemes");
    assert_eq!(runs.len(), 1);
    let made = engine.speak(&runs[0].ids, 1.0, &CancellationToken::new()).expect("sound");
    let difference = spectral_difference(&made, &samples("speech.f32"));
    assert!(difference < 0.14, "{difference}");
}

#[test]
fn texts_are_read_as_the_package_reads_them() {
    let engine = open(Numbers(1));
    let text = std::fs::read_to_string(format!("{FIXTURES}/phonemes.txt")).expect("the fixture");
    let mut wrong = Vec::new();
    let mut n = 0;
    for line in text.lines() {
        let (text, expected) = line.split_once('\t').expect("a text and its phonemes");
        let made = engine.reader.phonemes(text).expect("phonemes");
        if made != expected {
            wrong.push(format!("{text}\n  made     {made}\n  expected {expected}"));
        }
        n += 1;
    }
    assert!(n >= 200, "{n} texts");
    assert!(wrong.is_empty(), "{} of {n} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Seconds of sound of a text, as the port speaks it.
async fn seconds(tts: &dyn Tts, request: SpeechRequest) -> f64 {
    let pieces: Vec<_> = tts.speak(request).map(|piece| piece.expect("sound").samples.len()).collect().await;
    pieces.iter().sum::<usize>() as f64 / 24_000.0
}

#[tokio::test]
async fn the_port_speaks_sentences_and_marks_at_the_speed_asked_for() {
    let tts = start(&config(), &onnx()).expect("the model opens");
    assert_eq!(tts.name(), "hibari");
    assert_eq!(tts.language(HEART), "en-US");
    assert!(tts.check_voice("bob").is_err());
    let one = seconds(tts.as_ref(), request("The morning train was late again.")).await;
    assert!((1.0..4.0).contains(&one), "{one} s");
    let two =
        seconds(tts.as_ref(), request("The morning train was late again. Everybody waited on the platform.")).await;
    assert!(two > one + 1.0, "{two} s");
    let fast = SpeechRequest { speed: 2.0, ..request("The morning train was late again.") };
    let fast = seconds(tts.as_ref(), fast).await;
    assert!(fast < 0.7 * one, "{fast} of {one} s");
    for text in ["", "...", "🎉"] {
        assert_eq!(seconds(tts.as_ref(), request(text)).await, 0.0, "{text:?}");
    }
}

#[tokio::test]
async fn texts_that_were_cut_between_words_join_without_a_click() {
    let tts = start(&config(), &onnx()).expect("the model opens");
    for text in ["Although it was late", "everybody waited on", "the platform of that station"] {
        let pieces: Vec<_> = tts.speak(request(text)).map(|piece| piece.expect("sound").samples).collect().await;
        let samples = pieces.concat();
        assert!(samples.len() > 12_000, "{text:?} is said");
        assert_eq!([samples.first(), samples.last()], [Some(&0), Some(&0)], "{text:?} begins and ends in silence");
    }
}

#[tokio::test]
async fn many_listeners_take_turns_on_one_replica_and_one_who_leaves_delays_nobody() {
    let tts = start(&config(), &onnx()).expect("the model opens");
    let mut gone = tts.speak(request(&"A listener who leaves in the middle of a long story. ".repeat(40)));
    assert!(futures_util::poll!(gone.next()).is_pending());
    drop(gone);
    let texts: Vec<_> = (0..8).map(|n| format!("Listener number {n} hears this sentence.")).collect();
    let heard = join_all(texts.iter().map(|text| seconds(tts.as_ref(), request(text)))).await;
    assert!(heard.iter().all(|seconds| (1.0..5.0).contains(seconds)), "{heard:?}");
}

#[test]
fn a_missing_or_damaged_file_is_named_with_what_brings_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().to_str().expect("Unicode").to_owned();
    let said = || start(&TtsConfig { model: model.clone(), ..config() }, &onnx()).err().expect("refused").to_string();
    assert!(said().contains("there is no file") && said().contains("make hibari"), "{}", said());
    for entry in std::fs::read_dir(MODEL).expect("`make hibari` fetches it") {
        let path = entry.expect("listed").path();
        std::fs::copy(&path, folder.path().join(path.file_name().expect("a file"))).expect("copied");
    }
    std::fs::write(folder.path().join(misaki::GOLD), b"no gzip").expect("written");
    assert!(said().contains("lexicon_us_gold.json.gz: it is damaged"), "{}", said());
    std::fs::remove_file(folder.path().join(misaki::UNKNOWN)).expect("removed");
    std::fs::copy(format!("{MODEL}/{}", misaki::GOLD), folder.path().join(misaki::GOLD)).expect("copied");
    assert!(said().contains("oov.onnx"), "{}", said());
}
