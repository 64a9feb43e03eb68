//! The wait for the end of a turn on recorded speech: VAD, pitch, recognizer and endpointing in lockstep, in sample
//! time.
//!
//! A transcript takes effect [`LATE`] windows after its request, so that the result does not depend on the machine's
//! speed.

#![allow(clippy::unwrap_used)] // Clippy allows it in test functions, not in what they share.

use antiphon::config::Config;
use antiphon_audio::decode;
use antiphon_dialog::turn::{Eagerness, Edge, Ending, Thresholds, TurnTaker};
use antiphon_engine_api::stt::{Stt, SttOptions, SttUtterance};
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_engine_api::vad::Vad;
use antiphon_engines::vad::Earshot;
use antiphon_session::turn_pipeline::TurnPipeline;
use antiphon_types::{SampleRate, Samples};
use futures_util::StreamExt;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const WINDOW: usize = 256;
/// Sixteen windows, 256 ms: a decoding of Whisper tiny.en on two cores.
const LATE: usize = 16;
/// Audio retained before the first voiced window, in samples at 16 kHz.
const PADDING: usize = 4_800;

/// A detected end of a turn.
#[derive(Debug)]
struct End {
    at_ms: u64,
    waited_ms: u64,
}

struct Ears {
    /// `None`: an engine without partial transcripts.
    stt: Option<Arc<dyn Stt>>,
}

impl Ears {
    fn new() -> Self {
        let config = Config { stt: crate::hub::tiny_whisper(), ..Config::default() };
        Self { stt: Some(antiphon::assembly::stt(&config).expect("`make real-models` fetches Whisper")) }
    }

    /// Processes `pcm` followed by silence; returns every detected end.
    async fn listen(&self, eagerness: Eagerness, pcm: &[i16]) -> Vec<End> {
        let mut audio = vec![0; 4_800];
        audio.extend_from_slice(pcm);
        audio.extend(vec![0; 2 * 16_000]);
        // Low noise: a recognizer trained on microphone recordings does not handle digital silence.
        let mut state = 7u32;
        for sample in &mut audio {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *sample = sample.saturating_add((state >> 28) as i16 - 8);
        }
        let thresholds = Thresholds::from_ms(0.5, 100, 500).with_pause(Some(Samples(1_600)));
        let taker = TurnTaker::new(thresholds, Ending::Adaptive(eagerness));
        let mut pipeline = TurnPipeline::new(Earshot.open(), taker);
        let mut utterance = None::<Box<dyn SttUtterance>>;
        let mut ends = Vec::new();
        let mut on_the_way: VecDeque<(usize, String, Samples)> = VecDeque::new();
        for (i, window) in audio.chunks_exact(WINDOW).enumerate() {
            let end = Samples(((i + 1) * WINDOW) as u64);
            while on_the_way.front().is_some_and(|(due, ..)| *due <= i) {
                let (_, text, heard_to) = on_the_way.pop_front().unwrap();
                pipeline.taker_mut().partial(&text, heard_to);
            }
            if let Some(utterance) = &mut utterance {
                utterance.push(window.to_vec()).await.unwrap();
            }
            let edge = pipeline.window(window, window).unwrap().outcome.edge;
            let is_pause = matches!(edge, Some(Edge::Paused { .. }));
            match edge {
                Some(Edge::Started { at }) => {
                    if let Some(stt) = &self.stt {
                        let mut opened = stt.open(SttOptions::default()).await.unwrap();
                        let from = (at.0 as usize).saturating_sub(PADDING);
                        opened.push(audio[from..end.0 as usize].to_vec()).await.unwrap();
                        utterance = Some(opened);
                    }
                }
                Some(Edge::Stopped { at }) => {
                    let waited_ms = (end - at).as_ms(SampleRate::HZ_16000);
                    ends.push(End { at_ms: at.as_ms(SampleRate::HZ_16000), waited_ms });
                    utterance = None;
                    on_the_way = VecDeque::new();
                }
                _ => {}
            }
            // The hub requests a transcript in a pause; those it requests before that decide nothing here.
            if let Some(utterance) = utterance.as_mut().filter(|_| is_pause) {
                let text = utterance.partial().await.unwrap().unwrap_or_default().text;
                on_the_way.push_back((i + LATE, text, end));
            }
        }
        ends
    }
}

fn voice() -> Arc<dyn Tts> {
    antiphon::assembly::tts(&crate::hub::offline()).expect("flite is installed")
}

/// Flite's speech at 16 kHz, without leading and trailing silence.
async fn say(tts: &Arc<dyn Tts>, voice: &str, text: &str) -> Vec<i16> {
    let request = SpeechRequest { text: text.into(), voice: voice.into(), ..SpeechRequest::default() };
    let pieces: Vec<_> = tts.speak(request).map(|pcm| pcm.unwrap()).collect().await;
    pieces.into_iter().flat_map(|pcm| antiphon_audio::convert(&pcm.samples, pcm.rate, SampleRate::HZ_16000)).collect()
}

/// Two utterances with a pause of `gap_ms` between them.
async fn paused(tts: &Arc<dyn Tts>, who: &str, first: &str, gap_ms: usize, second: &str) -> Vec<i16> {
    let mut pcm = say(tts, who, first).await;
    pcm.extend(vec![0; gap_ms * 16]);
    pcm.extend(say(tts, who, second).await);
    pcm
}

#[tokio::test]
async fn a_sentence_with_a_pause_in_it_is_one_turn() {
    let tts = voice();
    let ears = Ears::new();
    for (who, first, gap_ms, second) in [
        ("slt", "I would like to know", 1_500, "what is twelve times seven?"),
        ("rms", "What is the capital of", 1_200, "France?"),
    ] {
        let ends = ears.listen(Eagerness::Medium, &paused(&tts, who, first, gap_ms, second).await).await;
        assert_eq!(ends.len(), 1, "{who}: {ends:?}");
        assert!(ends[0].waited_ms < 1_000, "the question is complete: {ends:?}");
    }
}

#[tokio::test]
async fn complete_questions_and_short_answers_are_answered_soon() {
    let tts = voice();
    let ears = Ears::new();
    for (who, text) in
        [("slt", "What is twelve times seven?"), ("rms", "How many feet are in a mile?"), ("slt", "Yes.")]
    {
        let ends = ears.listen(Eagerness::Medium, &say(&tts, who, text).await).await;
        assert_eq!(ends.len(), 1, "{who} {text}: {ends:?}");
        assert!(ends[0].waited_ms <= 500, "{who} {text}: {ends:?}");
    }
}

/// "And so, my fellow Americans [1.2 s] ask not [0.9 s] what your country can do for you", without transcripts.
#[tokio::test]
async fn a_patient_listener_lets_a_slow_speaker_finish() {
    let file = include_bytes!("fixtures/jfk.flac");
    let pcm = decode::read(file.as_slice().into(), Duration::from_secs(60)).unwrap();
    let pcm = antiphon_audio::convert(&pcm.samples, pcm.rate, SampleRate::HZ_16000);
    let ears = Ears { stt: None };
    let mut cuts = Vec::new();
    for eagerness in [Eagerness::Low, Eagerness::High] {
        let ends = ears.listen(eagerness, &pcm).await;
        cuts.push(ends.iter().filter(|end| end.at_ms < 8_000).count());
    }
    assert_eq!(cuts[0], 0);
    assert!(cuts[1] > 0, "who is eager cuts in");
}
