//! Tests of the families that `models/export` writes: each on a tiny model of `tests/fixtures/speechlm`, made from random weights
//! in the makers' own classes, against what the makers' code gives with the same weights.

use super::condition::{Conditioner, Conditioning};
use super::contract::{Coding, Contract, Frame, FrameDraws, Sampling};
use super::engine::{Request, SpeechEngine, Step};
use super::files::ModelFiles;
use super::lm::{Feed, FrameInputs, LanguageModel, Prompt, SequenceId, StepOutputs};
use super::tensors::{NamedTensor, Numbers};
use super::testing::runtime;
use super::text::{Ids, TextReader, TextToSpeak};
use super::vocode::{Assembler, Vocoder, Window};
use antiphon_engine_api::tts::TtsError;
use antiphon_inference::pool::slots::{Admission, SlotEngine};
use futures_util::FutureExt;
use proptest::prelude::*;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The fixtures, by their folders.
const FAMILIES: [&str; 4] = ["qwen3-tts", "cosyvoice3", "s1-mini", "moss-tts-nano"];

/// What the makers' code gives (models/export/LAYOUT.md).
#[derive(Deserialize)]
struct Golden {
    ids: BTreeMap<String, Vec<i64>>,
    #[serde(default)]
    language: i64,
    voice: BTreeMap<String, GoldenTensor>,
    recording: String,
    prompt_embeds_sum: Vec<f32>,
    first_logits: Vec<f32>,
    frames: Vec<Vec<i64>>,
    codes: Vec<Vec<i64>>,
    waveform: Vec<f32>,
    /// Of a vocoder whose sound depends on the chunks: what the makers' code gives for them.
    waveform_streamed: Option<Vec<f32>>,
    waveform_stride: usize,
}

#[derive(Deserialize)]
struct GoldenTensor {
    kind: String,
    shape: Vec<usize>,
    data: Vec<f64>,
}

/// A family's fixture.
struct Fixture {
    contract: Arc<Contract>,
    files: ModelFiles,
    golden: Golden,
    folder: PathBuf,
}

impl Fixture {
    fn open(family: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/speechlm").join(family);
        let contract = Contract::find("", &folder).unwrap_or_else(|error| panic!("{family}: {error}"));
        let files = ModelFiles::find(&folder, &contract).unwrap_or_else(|error| panic!("{family}: {error}"));
        let golden = std::fs::read(folder.join("golden.json")).expect("the fixture");
        let golden = serde_json::from_slice(&golden).unwrap_or_else(|error| panic!("{family}: {error}"));
        Self { contract: Arc::new(contract), files, golden, folder }
    }

    fn lm(&self, n_slots: usize) -> LanguageModel {
        LanguageModel::load(&self.files, &self.contract, &runtime(), &|_, _| n_slots).expect("the fixture fits")
    }

    fn ids(&self) -> Ids {
        let prompt = self.contract.prompt().expect("a prompt");
        let inputs = prompt.ids.iter().map(|input| self.golden.ids[&input.port].clone()).collect();
        Ids { inputs, language: self.golden.language }
    }

    /// The voice as the makers' code makes it.
    fn voice(&self) -> Conditioning {
        let named = |(name, tensor): (&String, &GoldenTensor)| NamedTensor {
            name: name.clone(),
            shape: tensor.shape.clone(),
            numbers: match tensor.kind.as_str() {
                "f32" => Numbers::F32(tensor.data.iter().map(|x| *x as f32).collect()),
                _ => Numbers::I64(tensor.data.iter().map(|x| *x as i64).collect()),
            },
        };
        let voice: Vec<NamedTensor> = self.golden.voice.iter().map(named).collect();
        let prompt = voice.iter().find(|tensor| self.contract.recording.as_ref() == Some(&tensor.name));
        let prompt = match prompt.map(|tensor| &tensor.numbers) {
            Some(Numbers::I64(codes)) => codes.clone(),
            _ => Vec::new(),
        };
        Conditioning { voice, prompt, ..Conditioning::default() }
    }

    fn recording(&self) -> Vec<f32> {
        let wav = std::fs::read(self.folder.join(&self.golden.recording)).expect("the fixture");
        let samples = wav[44..].chunks_exact(2);
        samples.map(|sample| f32::from(i16::from_le_bytes([sample[0], sample[1]])) / 32_768.0).collect()
    }
}

/// A sequence that is generated greedily: the most likely first code, whatever it means, and the graph's own others.
struct Greedy {
    id: SequenceId,
    following: Vec<f32>,
    embeds: Vec<f32>,
    frames: Vec<Vec<i64>>,
}

impl Greedy {
    fn begin(lm: &mut LanguageModel, prompt: &Prompt) -> Self {
        let mut given = StepOutputs::default();
        let id = lm.prefill(&prompt.embeds, &mut given).expect("it runs");
        let mut one = Self { id, following: prompt.following.clone(), embeds: Vec::new(), frames: Vec::new() };
        Self::take(lm, &mut [&mut one], &given);
        one
    }

    /// Takes the next frames, those of all rows from one run.
    fn take(lm: &mut LanguageModel, all: &mut [&mut Self], given: &StepOutputs) {
        let n_logits = given.logits.len() / all.len();
        let most_likely = |row: usize| {
            let logits = &given.logits[row * n_logits..(row + 1) * n_logits];
            let most = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(&a.0)));
            // None where the graph draws the first code, too.
            most.map(|(id, _)| id as i64)
        };
        let mut frames: Vec<Vec<i64>> = (0..all.len()).map(|row| most_likely(row).into_iter().collect()).collect();
        if let Some(shape) = lm.frame_shape() {
            let codes: Vec<i64> = frames.iter().map(|frame| frame.first().copied().unwrap_or_default()).collect();
            let uniform = vec![0.0; all.len() * shape.n_uniform];
            let seen = vec![0; all.len() * shape.n_seen];
            let inputs = FrameInputs { hidden: &given.hidden, codes: &codes, uniform: &uniform, seen: &seen };
            let drawn = lm.frames(inputs).expect("it runs");
            let n = drawn.embeds.len() / all.len();
            let rows = drawn.codes.chunks(shape.n_drawn).zip(drawn.embeds.chunks(n));
            for ((one, frame), (codes, embeds)) in all.iter_mut().zip(&mut frames).zip(rows) {
                frame.extend(codes);
                one.embeds = embeds.to_vec();
                if !one.following.is_empty() {
                    let row = one.frames.len().min(one.following.len() / n - 1);
                    let following = &one.following[row * n..(row + 1) * n];
                    one.embeds.iter_mut().zip(following).for_each(|(number, more)| *number += more);
                }
            }
        }
        all.iter_mut().zip(frames).for_each(|(one, frame)| one.frames.push(frame));
    }

    fn feed(&self) -> Feed<'_> {
        match self.embeds.is_empty() {
            true => Feed::Token(self.frames[self.frames.len() - 1][0]),
            false => Feed::Embeds(&self.embeds),
        }
    }

    /// A step of all of these.
    fn step(lm: &mut LanguageModel, all: &mut [&mut Self]) {
        let mut given = StepOutputs::default();
        let rows: Vec<_> = all.iter().map(|one| (one.id, one.feed())).collect();
        lm.decode(&rows, &mut given).expect("it runs");
        Self::take(lm, all, &given);
    }
}

/// Has the graph of a frame take the most likely codes.
fn without_randomness(contract: &mut Contract) {
    if let Coding::Frame(Frame { draws: FrameDraws::Others { temperature, .. }, .. }) = &mut contract.coding {
        *temperature = 0.0;
    }
}

/// The greedy contract of a family: inner codes without randomness.
fn greedy(fixture: &mut Fixture) {
    without_randomness(Arc::make_mut(&mut fixture.contract));
}

#[test]
fn prompts_logits_and_greedy_frames_are_those_of_the_makers_own_code() {
    for family in FAMILIES {
        let mut fixture = Fixture::open(family);
        greedy(&mut fixture);
        let mut lm = fixture.lm(4);
        let prompt = lm.prompt(&fixture.ids(), &fixture.voice()).expect("it runs");
        let sums: Vec<f32> = prompt.embeds.chunks(lm.hidden()).map(|position| position.iter().sum()).collect();
        assert_eq!(sums.len(), fixture.golden.prompt_embeds_sum.len(), "{family}");
        for (ours, theirs) in sums.iter().zip(&fixture.golden.prompt_embeds_sum) {
            assert!((ours - theirs).abs() < 1e-3 * theirs.abs().max(1.0), "{family}: {ours} {theirs}");
        }
        let mut given = StepOutputs::default();
        let id = lm.prefill(&prompt.embeds, &mut given).expect("it runs");
        assert_eq!(given.logits.len(), fixture.golden.first_logits.len(), "{family}");
        for (ours, theirs) in given.logits.iter().zip(&fixture.golden.first_logits) {
            assert!((ours - theirs).abs() < 1e-3 * theirs.abs().max(1.0), "{family}: {ours} {theirs}");
        }
        lm.end(id);
        let mut one = Greedy::begin(&mut lm, &prompt);
        while one.frames.len() < fixture.golden.frames.len() {
            Greedy::step(&mut lm, &mut [&mut one]);
        }
        assert_eq!(one.frames, fixture.golden.frames, "{family}");
    }
}

#[test]
fn a_recording_becomes_the_voice_that_the_makers_own_code_makes_of_it() {
    for family in FAMILIES {
        let fixture = Fixture::open(family);
        let conditioner = Conditioner::load(&fixture.files, &fixture.contract, &runtime()).expect("it fits");
        let made = conditioner.condition(&fixture.recording(), None, [0; 32]).expect("it runs");
        for theirs in &fixture.voice().voice {
            let ours = made.tensor(&theirs.name).expect("it is there");
            assert_eq!(ours.shape, theirs.shape, "{family}: {}", theirs.name);
            match (&ours.numbers, &theirs.numbers) {
                (Numbers::I64(ours), Numbers::I64(theirs)) => assert_eq!(ours, theirs, "{family}"),
                (Numbers::F32(a), Numbers::F32(b)) => {
                    let most = b.iter().map(|x| x.abs()).fold(1.0, f32::max);
                    let worst = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    assert!(worst < 2e-3 * most, "{family}: {} differs by {worst}", ours.name);
                }
                _ => panic!("{family}: {} has another type", ours.name),
            }
        }
    }
}

#[test]
fn a_recordings_frames_come_first_only_where_its_words_are_known() {
    for family in FAMILIES {
        let fixture = Fixture::open(family);
        let conditioner = Conditioner::load(&fixture.files, &fixture.contract, &runtime()).expect("it fits");
        let with = |words: Option<&str>| {
            conditioner.condition(&fixture.recording(), words.map(str::to_owned), [0; 32]).expect("it runs")
        };
        let comes_first = fixture.contract.recording.is_some();
        assert_eq!(!with(Some("La la.")).prompt.is_empty(), comes_first, "{family}");
        let without = comes_first && !fixture.contract.takes_transcript();
        assert_eq!(!with(None).prompt.is_empty(), without, "{family}");
    }
}

#[test]
fn streamed_sound_is_that_of_the_makers_own_code_for_all_frames_at_once() {
    for family in FAMILIES {
        let mut fixture = Fixture::open(family);
        // The makers' sound is that of the codes alone.
        Arc::make_mut(&mut fixture.contract).recording = None;
        let vocoder = Vocoder::load(&fixture.files, &fixture.contract, &runtime()).expect("it fits");
        let voice = Arc::new(fixture.voice());
        let mut assembler = Assembler::new(&fixture.contract, &[]);
        fixture.golden.codes.iter().for_each(|frame| assembler.push(frame.iter().copied()));
        assembler.complete();
        let mut sound = Vec::new();
        let mut state = None;
        let mut n_windows = 0;
        while let Some(window) = assembler.window() {
            let (made, left) = vocoder.vocoded(&window, &voice, state.take());
            sound.extend(assembler.sound(&made));
            state = left;
            n_windows += 1;
        }
        assert!(n_windows > 1, "{family}");
        let golden = &fixture.golden;
        assert_eq!(sound.len(), golden.codes.len() * fixture.contract.samples_per_token, "{family}");
        let same = |what: &str, ours: &[f32], theirs: &[f32]| {
            let ours: Vec<f32> = ours.iter().step_by(golden.waveform_stride).copied().collect();
            let peak = ours.iter().map(|sample| sample.abs()).fold(0.0, f32::max);
            assert!(peak > 0.0 && ours.len() == theirs.len(), "{family}, {what}: it sounds");
            for (i, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                assert!((ours - theirs).abs() < 1e-3 * peak, "{family}, {what}, sample {i}: {ours} {theirs}");
            }
        };
        same("streamed", &sound, golden.waveform_streamed.as_ref().unwrap_or(&golden.waveform));
        let tokens: Vec<i64> = golden.codes.concat();
        let whole = Window { tokens, n_before: 0, n_chunk: golden.codes.len(), is_last: true };
        same("whole", &vocoder.vocoded(&whole, &voice, None).0, &golden.waveform);
    }
}

/// First sound, counted in steps: the prefill gives the first frame, and each step of the others one more.
#[test]
fn a_stream_has_the_frames_of_its_first_window_after_as_many_steps_at_any_load_below_full() {
    const SLOTS: usize = 4;
    for family in FAMILIES {
        let fixture = Fixture::open(family);
        let mut contract = fixture.contract.clone();
        let voice = Arc::new(fixture.voice());
        let n_first = contract.chunks.first + contract.chunks.look_ahead;
        // None ends before its first window is full.
        Arc::make_mut(&mut contract).length.min_tokens = n_first + 1;
        let mut engine = SpeechEngine::new(contract, fixture.lm(SLOTS), Arc::default());
        for n_others in 0..SLOTS {
            let admit = |engine: &mut SpeechEngine, seed: u64| {
                let (request, tokens) = Request::new(voice.clone(), fixture.ids(), 100, seed, Some(Duration::ZERO));
                match engine.admit(request) {
                    Ok(Admission::Running(running)) => (running, tokens),
                    _ => panic!("{family}: it is admitted"),
                }
            };
            let mut running: Vec<_> = (0..n_others).map(|seed| admit(&mut engine, seed as u64)).collect();
            for _ in 0..5 {
                let mut rows: Vec<_> = running.iter_mut().map(|(one, _)| one).filter(|one| !one.is_done).collect();
                engine.step(&mut rows).expect("it runs");
            }
            running.push(admit(&mut engine, 99));
            for _ in 0..n_first - 1 {
                let mut rows: Vec<_> = running.iter_mut().map(|(one, _)| one).filter(|one| !one.is_done).collect();
                engine.step(&mut rows).expect("it runs");
            }
            let (_, tokens) = running.last_mut().expect("the last one");
            let frames = std::iter::from_fn(|| tokens.next(|| ()).now_or_never().flatten());
            let n_frames = frames.filter(|step| matches!(step, Step::Frame(_))).count();
            assert_eq!(n_frames, n_first, "{family} beside {n_others}");
            running.into_iter().for_each(|(one, _)| engine.end(one.state));
        }
    }
}

#[test]
fn where_the_frames_of_a_step_find_no_memory_the_newest_speeches_end_and_the_others_go_on() {
    let mut n_families = 0;
    for family in FAMILIES {
        let mut fixture = Fixture::open(family);
        let mut lm = fixture.lm(4);
        if lm.frame_shape().is_none() {
            continue;
        }
        n_families += 1;
        lm.limit_frames(2);
        // None ends by itself.
        let length = &mut Arc::make_mut(&mut fixture.contract).length;
        length.min_tokens = 12;
        length.max_silence = 1_000;
        length.end_silence = 1_000;
        let mut engine = SpeechEngine::new(fixture.contract.clone(), lm, Arc::default());
        let voice = Arc::new(fixture.voice());
        let mut running = Vec::new();
        let mut readers = Vec::new();
        for seed in 0..4 {
            let (request, tokens) = Request::new(voice.clone(), fixture.ids(), 1_000, seed, Some(Duration::ZERO));
            let Ok(Admission::Running(one)) = engine.admit(request) else { panic!("{family}: it is admitted") };
            running.push(one);
            readers.push(tokens);
        }
        for lacks_memory in [true, false] {
            let mut rows: Vec<_> = running.iter_mut().filter(|one| !one.is_done).collect();
            engine.step(&mut rows).unwrap_or_else(|error| panic!("{family}: {error}"));
            assert_eq!(engine.lacked_memory(), lacks_memory, "{family}");
        }
        let has_ended: Vec<bool> = running.iter().map(|one| one.is_done).collect();
        assert_eq!(has_ended, [false, false, true, true], "{family}");
        for (tokens, has_ended) in readers.iter_mut().zip(has_ended) {
            let last = std::iter::from_fn(|| tokens.next(|| ()).now_or_never().flatten()).last();
            let is_overloaded = matches!(last, Some(Step::Failed(TtsError::Overloaded { .. })));
            assert_eq!(is_overloaded, has_ended, "{family}");
        }
        running.into_iter().for_each(|one| engine.end(one.state));
    }
    assert!(n_families > 1, "{n_families}");
}

/// The frames that the engine hands to a reader, step by step, and what it knows of the sequence.
fn engine_frames(fixture: &Fixture, n: usize) -> (Vec<Vec<i64>>, Vec<i32>) {
    let mut engine = SpeechEngine::new(fixture.contract.clone(), fixture.lm(2), Arc::default());
    let voice = Arc::new(fixture.voice());
    let (request, mut tokens) = Request::new(voice, fixture.ids(), 1_000, 7, Some(Duration::ZERO));
    let Ok(Admission::Running(mut running)) = engine.admit(request) else { panic!("it is admitted") };
    for _ in 1..n {
        if !running.is_done {
            engine.step(&mut [&mut running]).expect("it runs");
        }
    }
    let frames = std::iter::from_fn(|| match tokens.next(|| ()).now_or_never().flatten() {
        Some(Step::Frame(codes)) => Some(codes.ids().collect()),
        _ => None,
    });
    (frames.collect(), running.state.seen().to_vec())
}

#[test]
fn the_engine_feeds_each_frame_as_the_makers_own_code_does() {
    for family in FAMILIES {
        let mut fixture = Fixture::open(family);
        greedy(&mut fixture);
        let contract = Arc::make_mut(&mut fixture.contract);
        let drawing = match &mut contract.coding {
            Coding::Token { drawing, .. } => drawing,
            Coding::Frame(Frame { draws: FrameDraws::Others { first, .. }, .. }) => first,
            // Its randomness is inside the graph: the flags test it.
            Coding::Frame(_) => continue,
        };
        drawing.sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        let stops = drawing.stops.clone();
        contract.length.max_silence = 1_000;
        contract.length.end_silence = 1_000;
        let end = fixture.golden.frames.iter().position(|frame| stops.contains(&frame[0]));
        let theirs = &fixture.golden.frames[..end.unwrap_or(fixture.golden.frames.len())];
        assert!(theirs.len() > 3, "{family}: {}", theirs.len());
        // Ids without a sound are fed and not spoken.
        let sounds = fixture.contract.tokens.sounds;
        let theirs: Vec<_> = theirs.iter().filter(|frame| frame[0] < sounds).cloned().collect();
        let (ours, _) = engine_frames(&fixture, theirs.len());
        assert_eq!(ours, theirs, "{family}");
    }
}

#[test]
fn the_codes_that_were_drawn_are_flagged_for_a_graph_that_takes_them() {
    let mut fixture = Fixture::open("moss-tts-nano");
    Arc::make_mut(&mut fixture.contract).length.min_tokens = 12;
    let (frames, seen) = engine_frames(&fixture, 10);
    assert_eq!(frames.len(), 10);
    let n_ids = fixture.contract.tokens.vocabulary;
    let mut expected = vec![0; seen.len()];
    for frame in &frames {
        frame.iter().enumerate().for_each(|(codebook, code)| expected[codebook * n_ids + *code as usize] = 1);
    }
    assert_eq!(seen, expected);
}

#[test]
fn speech_continues_where_the_recordings_own_frames_end() {
    let fixture = Fixture::open("qwen3-tts");
    let mut voice = fixture.voice();
    let codebooks = fixture.contract.codebooks();
    let n_prompt = 5;
    voice.prompt.truncate(n_prompt * codebooks);
    assert_eq!(voice.prompt.len(), n_prompt * codebooks);
    let voice = Arc::new(voice);
    let codes = fixture.golden.codes.concat();
    let sound = |contract: &Arc<Contract>, tokens: Vec<i64>| {
        let vocoder = Vocoder::load(&fixture.files, contract, &runtime()).expect("it fits");
        let n_chunk = tokens.len() / codebooks;
        vocoder.vocoded(&Window { tokens, n_before: 0, n_chunk, is_last: true }, &voice, None).0
    };
    let behind = sound(&fixture.contract, codes.clone());
    let plain = {
        let mut contract = fixture.contract.clone();
        Arc::make_mut(&mut contract).recording = None;
        let whole = sound(&contract, [voice.prompt.clone(), codes.clone()].concat());
        let alone = sound(&contract, codes);
        assert!(behind.iter().zip(&alone).any(|(a, b)| (a - b).abs() > 1e-3), "the recording matters");
        whole[n_prompt * fixture.contract.samples_per_token..].to_vec()
    };
    assert_eq!(behind.len(), plain.len());
    assert!(behind.iter().zip(&plain).all(|(a, b)| (a - b).abs() < 1e-4));
}

#[cfg(feature = "flite")]
mod speaking {
    //! Through the port that sessions use.

    use super::super::testing::speech;
    use super::super::tests::write_wav;
    use super::super::{SpeechLm, TtsConfig};
    use super::{FAMILIES, Fixture};
    use antiphon_engine_api::tts::{Repeats, SpeechRequest, Tts, TtsError};
    use antiphon_types::Pcm;
    use futures_util::StreamExt;

    const WORDS: &str = "The boat left early in the morning.";
    const TEXT: &str = "The next train to the coast leaves at nine, and the keys are on the table.";

    /// A family's tiny model with a voice "anna", whose words are known.
    fn start(family: &str, change: impl FnOnce(&mut TtsConfig)) -> Result<(SpeechLm, tempfile::TempDir), TtsError> {
        let folder = tempfile::tempdir().expect("a folder");
        write_wav(&folder.path().join("anna.wav"), &speech(WORDS));
        std::fs::write(folder.path().join("anna.txt"), WORDS).expect("written");
        let mut config = TtsConfig {
            engine: "speechlm".into(),
            model: Fixture::open(family).folder.display().to_string(),
            voices_dir: folder.path().display().to_string(),
            slots: 4,
            deterministic: true,
            ..TtsConfig::default()
        };
        change(&mut config);
        Ok((SpeechLm::start(&config, &crate::testing::onnx(), None)?, folder))
    }

    async fn spoken(tts: &SpeechLm, request: SpeechRequest) -> Result<Pcm, TtsError> {
        let mut stream = tts.speak(request);
        let mut all: Option<Pcm> = None;
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            match &mut all {
                Some(all) => all.samples.extend(piece.samples),
                None => all = Some(piece),
            }
        }
        Ok(all.expect("sound"))
    }

    fn request(text: &str, seed: u64) -> SpeechRequest {
        SpeechRequest { text: text.into(), voice: "anna".into(), seed: Some(seed), ..SpeechRequest::default() }
    }

    #[tokio::test]
    async fn every_family_speaks_and_listeners_in_company_get_the_speech_they_get_alone() {
        for family in FAMILIES {
            let (tts, _folder) = start(family, |_| {}).unwrap_or_else(|error| panic!("{family}: {error}"));
            let contract = Fixture::open(family).contract;
            assert_eq!(tts.concurrency(), 4, "{family}: its slots");
            assert_eq!(tts.repeats(&request(TEXT, 1)), Repeats::Exactly, "{family}");
            let unseeded = SpeechRequest { seed: None, ..request(TEXT, 1) };
            assert_eq!(tts.repeats(&unseeded), Repeats::Never, "{family}");
            // Of several lengths, so that they end one after the other.
            let text = |seed: u64| format!("{}.", &TEXT[..10 + 12 * seed as usize]);
            let mut alone = Vec::new();
            for seed in 0..5 {
                let sound = spoken(&tts, request(&text(seed), seed)).await;
                let sound = sound.unwrap_or_else(|error| panic!("{family}: {error}"));
                assert_eq!(sound.rate.hz(), contract.rate_hz, "{family}");
                assert_eq!(sound.samples.len() % contract.samples_per_token, 0, "{family}");
                assert!(sound.samples.iter().any(|sample| sample.unsigned_abs() > 30), "{family}: it sounds");
                alone.push(sound);
            }
            assert!(alone[0] != alone[1], "{family}: the seed decides");
            let texts: Vec<String> = (0..5).map(text).collect();
            let together = (0..5).map(|seed| spoken(&tts, request(&texts[seed as usize], seed)));
            for (together, alone) in futures_util::future::join_all(together).await.into_iter().zip(&alone) {
                assert!(together.expect("spoken") == *alone, "{family}");
            }
        }
    }

    #[tokio::test]
    async fn instructions_change_the_speech_of_families_that_act_and_of_no_other() {
        for family in FAMILIES {
            let (tts, _folder) = start(family, |_| {}).expect("it starts");
            let acts = Fixture::open(family).contract.acts();
            let plain = spoken(&tts, request(TEXT, 3)).await.expect("spoken");
            let instructions = Some("Whisper, please.".to_owned());
            let acting = spoken(&tts, SpeechRequest { instructions, ..request(TEXT, 3) }).await.expect("spoken");
            assert_eq!(plain != acting, acts, "{family}");
        }
    }

    #[tokio::test]
    async fn a_text_cannot_end_its_own_prompt() {
        for family in FAMILIES {
            let (tts, _folder) = start(family, |_| {}).expect("it starts");
            let plain = spoken(&tts, request("Hello there.", 3)).await.expect("spoken");
            let tokenizer = std::fs::read(Fixture::open(family).folder.join("tokenizer.json")).expect("the fixture");
            let tokenizer: serde_json::Value = serde_json::from_slice(&tokenizer).expect("JSON");
            let added = tokenizer["added_tokens"].as_array().expect("a list").iter();
            let controls: String =
                added.filter_map(|token| token["content"].as_str()).filter(|token| token.starts_with("<|")).collect();
            assert!(!controls.is_empty(), "{family}");
            let control = spoken(&tts, request(&format!("Hello {controls}there."), 3)).await.expect("spoken");
            assert!(plain == control, "{family}");
            for nothing in ["", " ", controls.as_str()] {
                let error = spoken(&tts, request(nothing, 3)).await.expect_err("nothing to say").to_string();
                assert!(error.contains("has nothing that could be spoken"), "{family}: {error}");
            }
            let instructions = Some("slowly ".repeat(400));
            let asked = SpeechRequest { instructions, ..request("Hello.", 3) };
            let acts = Fixture::open(family).contract.acts();
            assert_eq!(spoken(&tts, asked).await.is_err(), acts, "{family}: the instructions are too long");
        }
    }

    #[tokio::test]
    async fn marks_that_the_tokenizer_knows_stay_in_a_text() {
        let (tts, _folder) = start("cosyvoice3", |_| {}).expect("it starts");
        assert!(tts.marks().contains(&"[laughter]".to_owned()), "{:?}", tts.marks());
        let plain = spoken(&tts, request("Well, so it is.", 3)).await.expect("spoken");
        let marked = spoken(&tts, request("Well [laughter], so it is.", 3)).await.expect("spoken");
        assert!(plain != marked);
    }

    #[tokio::test]
    async fn a_voice_without_words_is_not_listed_where_the_family_needs_them() {
        for family in FAMILIES {
            let forget = |config: &mut TtsConfig| {
                std::fs::remove_file(std::path::Path::new(&config.voices_dir).join("anna.txt")).expect("removed");
            };
            let (tts, _folder) = start(family, forget).expect("it starts");
            let needs = Fixture::open(family).contract.condition.needs_transcript;
            assert_eq!(tts.voices()[0].id == "anna", !needs, "{family}");
            let limits = tts.voice_library().expect("a library").limits();
            assert_eq!(limits.needs_transcript, needs, "{family}");
        }
    }
}

/// What happens between two steps.
#[derive(Clone, Debug)]
enum Act {
    /// One joins, with a prompt cut to that many positions.
    Join(usize),
    Leave(usize),
    /// One sits out a few steps.
    Pause(usize, usize),
    Step,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        2 => (1..40_usize).prop_map(Act::Join),
        1 => (0..5_usize).prop_map(Act::Leave),
        1 => (0..5_usize, 1..4_usize).prop_map(|(which, steps)| Act::Pause(which, steps)),
        5 => Just(Act::Step),
    ];
    prop::collection::vec(act, 1..30)
}

/// Schedules for each family; `make soak` runs more, behind the variable.
fn n_schedules() -> u32 {
    std::env::var("ANTIPHON_SCHEDULES").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

#[test]
fn a_sequence_that_joins_leaves_or_pauses_changes_no_other_frames() {
    for family in FAMILIES {
        let mut fixture = Fixture::open(family);
        greedy(&mut fixture);
        let mut lm = fixture.lm(MOST_RUNNING);
        let prompt = lm.prompt(&fixture.ids(), &fixture.voice()).expect("it runs");
        keeps_frames_apart(family, lm, &prompt, n_schedules());
    }
}

/// `make soak MODELS=folder`: the exported models in that folder, in their true size. A bucket is pinned, since the most
/// likely of two nearly equal logits must not depend on how many rows there are.
#[test]
#[ignore = "make soak runs it, where MODELS names a folder of exported models"]
fn a_sequence_that_joins_leaves_or_pauses_changes_no_other_frames_in_true_size() {
    let folder = std::env::var("ANTIPHON_MODELS").expect("ANTIPHON_MODELS names a folder of exported models");
    let models = std::fs::read_dir(&folder).expect("the folder").map(|entry| entry.expect("one").path());
    let mut n_models = 0;
    for model in models.filter(|path| path.join("contract.toml").is_file()) {
        let name = model.display().to_string();
        let mut contract = Contract::find("", &model).unwrap_or_else(|error| panic!("{name}: {error}"));
        without_randomness(&mut contract);
        let contract = Arc::new(contract);
        let files = ModelFiles::find(&model, &contract).unwrap_or_else(|error| panic!("{name}: {error}"));
        let text = "The next train to the coast leaves at nine, and the keys are on the kitchen table.";
        let reader = TextReader::open(&files.tokenizer, &contract).expect("a tokenizer");
        let spoken =
            TextToSpeak { text, language: &contract.languages[0], transcript: "La la.", ..TextToSpeak::default() };
        let ids = reader.ids(spoken).expect("ids");
        let voice = Conditioner::load(&files, &contract, &runtime()).expect("it fits");
        let voice = voice.condition(&super::hum(&contract, 3), Some("La la.".into()), [0; 32]).expect("it runs");
        let slots = |_: usize, _| MOST_RUNNING;
        let mut lm = LanguageModel::load(&files, &contract, &runtime(), &slots).expect("it fits");
        lm.pin();
        let prompt = lm.prompt(&ids, &voice).expect("it runs");
        keeps_frames_apart(&name, lm, &prompt, n_schedules());
        n_models += 1;
    }
    assert!(n_models > 0, "{folder} holds no exported model");
}

/// Sequences at once in the schedules.
const MOST_RUNNING: usize = 5;

/// Runs schedules of beginnings of a prompt, and compares each sequence's frames with those that it has alone.
fn keeps_frames_apart(name: &str, lm: LanguageModel, prompt: &Prompt, n_schedules: u32) {
    let hidden = lm.hidden();
    let cut = |length: usize| Prompt {
        embeds: prompt.embeds[..length.min(prompt.embeds.len() / hidden) * hidden].to_vec(),
        following: prompt.following.clone(),
    };
    // What each beginning gives alone, as far as it was asked for.
    let alone = RefCell::new(BTreeMap::<usize, Vec<Vec<i64>>>::new());
    let lm = RefCell::new(lm);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: n_schedules,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let kept = runner.run(&acts(), |acts| {
        let mut lm = lm.borrow_mut();
        let mut running: Vec<(usize, usize, Greedy)> = Vec::new();
        let mut ran: Vec<(usize, Vec<Vec<i64>>)> = Vec::new();
        for act in &acts {
            match act {
                Act::Join(length) if running.len() < MOST_RUNNING => {
                    let one = Greedy::begin(&mut lm, &cut(*length));
                    running.push((*length, 0, one));
                }
                Act::Leave(which) if *which < running.len() => {
                    let (length, _, one) = running.remove(*which);
                    lm.end(one.id);
                    ran.push((length, one.frames));
                }
                Act::Pause(which, steps) if *which < running.len() => running[*which].1 = *steps,
                _ => {}
            }
            lm.poison();
            let mut stepping: Vec<&mut Greedy> =
                running.iter_mut().filter(|(_, pause, _)| *pause == 0).map(|(_, _, one)| one).collect();
            if !stepping.is_empty() {
                Greedy::step(&mut lm, &mut stepping);
            }
            running.iter_mut().for_each(|(_, pause, _)| *pause = pause.saturating_sub(1));
        }
        for (length, _, one) in running {
            lm.end(one.id);
            ran.push((length, one.frames));
        }
        let mut alone = alone.borrow_mut();
        for (length, frames) in ran {
            if alone.get(&length).map_or(0, Vec::len) < frames.len() {
                let mut one = Greedy::begin(&mut lm, &cut(length));
                while one.frames.len() < frames.len() {
                    Greedy::step(&mut lm, &mut [&mut one]);
                }
                lm.end(one.id);
                alone.insert(length, one.frames);
            }
            prop_assert_eq!(&frames[..], &alone[&length][..frames.len()], "{} of {} positions", name, length);
        }
        Ok(())
    });
    kept.unwrap_or_else(|error| panic!("{name}: {error}"));
}
