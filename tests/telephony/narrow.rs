//! Telephone speech for the recognizer: what G.711 at 8 kHz costs, with the filters that a call's audio passes.

use crate::clips::{self, n_errors};
use antiphon::config::Config;
use antiphon_audio::{codec, convert};
use antiphon_engine_api::stt::{Stt, SttOptions};
use antiphon_text::scoring::words;
use antiphon_types::{Format, SampleRate};

/// How many of the clips are heard three times each.
const N_CLIPS: usize = 8;

/// The way of a call: from the caller's microphone to G.711, to the session's 24 kHz, to the recognizer's 16 kHz.
fn by_telephone(speech: &[i16]) -> Vec<i16> {
    let narrow = convert(speech, SampleRate::HZ_16000, SampleRate::HZ_8000);
    let mut bytes = Vec::new();
    let mut samples = Vec::new();
    codec::encode(Format::Ulaw, &narrow, &mut bytes);
    codec::decode(Format::Ulaw, &bytes, &mut samples).expect("G.711");
    let session = convert(&samples, SampleRate::HZ_8000, SampleRate::HZ_24000);
    convert(&session, SampleRate::HZ_24000, SampleRate::HZ_16000)
}

/// The same band at 16 bits, without a telephone.
fn narrow_band(speech: &[i16]) -> Vec<i16> {
    let narrow = convert(speech, SampleRate::HZ_16000, SampleRate::HZ_8000);
    convert(&narrow, SampleRate::HZ_8000, SampleRate::HZ_16000)
}

async fn transcript(stt: &dyn Stt, speech: &[i16]) -> String {
    let mut utterance = stt.open(SttOptions::default()).await.expect("a decoder");
    let quiet = [0; 3_200];
    for part in [&quiet[..], speech, &quiet] {
        utterance.push(part.to_vec()).await.expect("heard");
    }
    utterance.finish().await.expect("a transcript").text
}

/// Wrong words of all clips, and how many there are.
async fn wrong_words(stt: &dyn Stt, speech: &[(String, Vec<i16>)], heard: fn(&[i16]) -> Vec<i16>) -> (usize, usize) {
    let mut n_wrong = 0;
    let mut n_words = 0;
    for (said, speech) in speech {
        let expected = words(said);
        n_wrong += n_errors(&expected, &words(&transcript(stt, &heard(speech)).await));
        n_words += expected.len();
    }
    (n_wrong, n_words)
}

#[tokio::test]
async fn telephone_speech_costs_the_recognizer_its_band_and_nothing_else() {
    let config = Config { stt: crate::hub::tiny_whisper(), ..Config::default() };
    let stt = antiphon::assembly::stt(&config).expect("`make real-models` fetches Whisper");
    let texts = clips::texts().into_iter().take(N_CLIPS);
    let speech: Vec<_> = texts.map(|(file, text)| (text, clips::samples(&file))).collect();
    let (telephone, n_words) = wrong_words(stt.as_ref(), &speech, by_telephone).await;
    let (narrow, _) = wrong_words(stt.as_ref(), &speech, narrow_band).await;
    let (wide, _) = wrong_words(stt.as_ref(), &speech, <[i16]>::to_vec).await;
    let cost = |more: usize, less: usize| more.saturating_sub(less) as f64 / n_words as f64;
    let figures = format!("wrong of {n_words} words: {telephone} by telephone, {narrow} in its band, {wide} at 16 kHz");
    // One word is 1.3 %.
    assert!(cost(telephone, narrow) <= 0.05, "{figures}");
    assert!(cost(telephone, wide) <= 0.15, "{figures}");
}
