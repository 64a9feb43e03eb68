//! What families share, with one that is none: a letter is an id and ten samples.

use super::super::TtsConfig;
use super::super::batched::BatchTtsEngine;
use super::super::level::TARGET_LUFS;
use super::watched::{Watch, WatchedFamily};
use super::*;
use antiphon_engine_api::tts::Tts;
use antiphon_inference::onnx::OnnxConfig;
use futures_util::StreamExt;
use futures_util::future::join_all;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// How a [`Toy`] is.
#[derive(Clone, Copy)]
struct Kind {
    provider: Provider,
    batches: bool,
    /// Ids of the longest text it has memory for.
    room: usize,
    /// Sounds it gives too few.
    short_of: usize,
    /// Where it runs; a text with a "!" breaks it, and the error says so.
    device: u32,
}

const ON_CPU: Kind = Kind { provider: Provider::Cpu, batches: true, room: usize::MAX, short_of: 0, device: 0 };
const ON_GPU: Kind = Kind { provider: Provider::Cuda, ..ON_CPU };

struct Toy(Kind, Vec<Voice>);

impl Family for Toy {
    const LONGEST: usize = 300;

    fn voices(&self) -> &[Voice] {
        &self.1
    }

    fn rate(&self) -> SampleRate {
        SampleRate::HZ_16000
    }

    fn read(&mut self, request: &SpeechRequest) -> Result<Vec<ModelRun>, TtsError> {
        Ok(vec![ModelRun { ids: request.text.bytes().map(i64::from).collect(), pause: Duration::ZERO }])
    }

    fn sample(&self, n_phonemes: usize) -> Vec<i64> {
        vec![1; n_phonemes]
    }

    fn run(&self, items: &[Item<'_>], _: f32, _: &CancellationToken) -> Result<Vec<Vec<f32>>, Failure> {
        if longest(items) > self.0.room {
            return Err(Failure::Failed(TtsError::Engine { message: "out of memory".into(), source: None }));
        }
        if items.iter().any(|item| item.ids.contains(&i64::from(b'!'))) {
            let message = format!("device {} broke", self.0.device);
            return Err(Failure::Failed(TtsError::Engine { message, source: None }));
        }
        let given = &items[..items.len() - self.0.short_of];
        Ok(given.iter().map(|item| vec![0.5; item.ids.len() * 10]).collect())
    }

    fn provider(&self) -> Provider {
        self.0.provider
    }

    fn runs_on(&self) -> antiphon_types::RunsOn {
        antiphon_types::RunsOn::default()
    }

    fn batches(&self) -> bool {
        self.0.batches
    }

    /// Nothing is left to be measured.
    fn loudness_lufs(&self, _: &str) -> Option<f32> {
        Some(TARGET_LUFS)
    }
}

fn start(kind: Kind, max_batch_size: usize) -> Result<(Arc<dyn Tts>, Watch), TtsError> {
    let watch = Watch::default();
    let config = TtsConfig { replicas: 1, max_batch_size, ..TtsConfig::default() };
    let shown = watch.clone();
    let voices = vec![Voice { id: "v".into(), name: "V".into(), language: "en".into() }];
    let make = move |_: &OnnxConfig| Ok(WatchedFamily { family: Toy(kind, voices.clone()), watch: shown.clone() });
    Ok((serve("toy", &config, &OnnxConfig::default(), make)?, watch))
}

fn request(text: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: "v".into(), speed, ..SpeechRequest::default() }
}

#[test]
fn a_replica_has_run_alone_and_in_a_batch_before_it_serves() {
    let warmed = |kind, max_batch_size| start(kind, max_batch_size).expect("it runs").1.runs();
    assert_eq!(warmed(ON_CPU, 4), [(1, 40), (4, 40)]);
    assert_eq!(warmed(Kind { batches: false, ..ON_CPU }, 4), [(1, 40)]);
    // On a GPU the least and the most come first: what is between them needs nothing new.
    assert_eq!(warmed(ON_GPU, 4), [(1, 1), (4, 300), (1, 40), (4, 40)]);
    assert_eq!(warmed(Kind { batches: false, ..ON_GPU }, 4), [(1, 1), (1, 300), (1, 40)]);
}

#[test]
fn what_does_not_speak_is_refused_and_what_is_too_much_is_not() {
    let refused = |kind| start(kind, 4).err().expect("refused").to_string();
    assert!(refused(Kind { short_of: 1, ..ON_CPU }).contains("does not speak"));
    assert!(refused(Kind { room: 10, ..ON_GPU }).contains("out of memory"));
    assert!(start(Kind { room: 100, ..ON_GPU }, 4).is_ok(), "usual sentences have room");
}

#[tokio::test]
async fn chunks_share_a_run_where_the_model_and_the_configuration_allow_it() {
    for (kind, max_batch_size, sizes) in [
        (ON_CPU, 0, &[1, 2, 1][..]),
        (ON_GPU, 0, &[1, 3]),
        (ON_CPU, 8, &[1, 3]),
        (ON_GPU, 1, &[1, 1, 1, 1]),
        (Kind { batches: false, ..ON_GPU }, 8, &[1, 1, 1, 1]),
    ] {
        let (tts, watch) = start(kind, max_batch_size).expect("it runs");
        let n_warm = watch.runs().len();
        watch.hold(true);
        let mut first = tts.speak(request("first", 1.0));
        assert!(futures_util::poll!(first.next()).is_pending());
        watch.begun(n_warm).await;
        let mut others: Vec<_> = (0..3).map(|_| tts.speak(request("other", 1.0))).collect();
        for other in &mut others {
            assert!(futures_util::poll!(other.next()).is_pending());
        }
        Watch::queued(tts.as_ref(), 3).await;
        watch.hold(false);
        for heard in join_all(others.into_iter().chain([first]).map(|stream| stream.collect::<Vec<_>>())).await {
            let samples: usize = heard.into_iter().map(|piece| piece.expect("sound").samples.len()).sum();
            assert_eq!(samples, 50);
        }
        assert_eq!(watch.sizes()[n_warm..], *sizes);
    }
}

#[test]
fn a_listener_whose_sound_is_missing_is_told() {
    let neural = Neural { family: Toy(Kind { short_of: 1, ..ON_CPU }, Vec::new()), levels: None };
    let item = Item { ids: &[1, 2], voice: "" };
    let never = CancellationToken::new();
    let Err(Failure::Failed(error)) = neural.speak(&[item, item], 1.0, &never) else { panic!("it was taken") };
    assert!(error.to_string().contains("1 sounds for 2 texts"), "{error}");
}

#[test]
fn each_text_has_a_length() {
    let sound = [1.0, 2.0, 3.0, 4.0];
    assert_eq!(rows::cut(&sound, &[2, 1], 2).expect("right"), [vec![1.0, 2.0], vec![3.0]]);
    assert_eq!(rows::cut(&sound, &[9, -1], 2).expect("cut to the row"), [vec![1.0, 2.0], vec![]]);
    for (lengths, n) in [(&[2][..], 2), (&[2, 2, 2], 2), (&[1, 1, 1], 3)] {
        assert!(rows::cut(&sound, lengths, n).is_err(), "{lengths:?} of {n}");
    }
}

/// What shares a run shares its speed, which is the one of those who are alone.
#[test]
fn a_bucket_has_one_speed() {
    let asked = [0.0, 0.25, 0.996, 0.999, 1.0, 1.004, 1.006, 1.3, 4.0, 7.0, f32::NAN];
    for a in asked {
        for b in asked {
            let bucket = |asked| <Neural<Toy> as BatchTtsEngine>::bucket(&request("Hello.", asked));
            assert_eq!(bucket(a) == bucket(b), speed(a) == speed(b), "{a} and {b}");
        }
    }
    assert_eq!((speed(1.004), speed(1.006), speed(0.25), speed(f32::NAN)), (1.0, 1.01, 0.25, 1.0));
}

#[tokio::test]
async fn replicas_take_the_devices_in_turn_and_keep_theirs_when_they_are_restarted() {
    for batches in [true, false] {
        let made: Arc<Mutex<Vec<u32>>> = Arc::default();
        let devices = || made.lock().expect("no panic while locked").clone();
        let log = made.clone();
        let voices = vec![Voice { id: "v".into(), name: "V".into(), language: "en".into() }];
        let make = move |onnx: &OnnxConfig| {
            log.lock().expect("no panic while locked").push(onnx.device_id);
            Ok(Toy(Kind { batches, device: onnx.device_id, ..ON_GPU }, voices.clone()))
        };
        let onnx = OnnxConfig { provider: "cuda".into(), device_ids: vec![3, 5, 8], ..OnnxConfig::default() };
        let tts = serve("toy", &TtsConfig::default(), &onnx, make).expect("it starts");
        assert_eq!(devices(), [3, 5, 8], "the one that was loaded for inspection is the first replica");
        for n in 4..10 {
            let error = tts.speak(request("Oh!", 1.0)).next().await.expect("an error").expect_err("it broke");
            while devices().len() < n {
                tokio::task::yield_now().await;
            }
            let restarted = devices()[n - 1];
            assert!(error.to_string().ends_with(&format!("device {restarted} broke")), "{error} on {restarted}");
        }
    }
}

#[test]
fn there_are_two_replicas_or_one_for_each_device_where_there_are_more() {
    let n_made = |replicas, provider, device_ids: &[u32]| {
        let n: Arc<AtomicUsize> = Arc::default();
        let count = n.clone();
        let voices = vec![Voice { id: "v".into(), name: "V".into(), language: "en".into() }];
        let make = move |_: &OnnxConfig| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Toy(Kind { provider, ..ON_GPU }, voices.clone()))
        };
        let config = TtsConfig { replicas, ..TtsConfig::default() };
        let onnx = OnnxConfig { provider: "cuda".into(), device_ids: device_ids.to_vec(), ..OnnxConfig::default() };
        drop(serve("toy", &config, &onnx, make).expect("it starts"));
        n.load(Ordering::Relaxed)
    };
    let gpu = |replicas, devices: &[u32]| n_made(replicas, Provider::Cuda, devices);
    assert_eq!([gpu(0, &[]), gpu(0, &[0, 1]), gpu(0, &[0, 1, 2]), gpu(1, &[0, 1, 2])], [2, 2, 3, 1]);
    assert_eq!(n_made(0, Provider::Cpu, &[0, 1, 2]), 2, "without CUDA's libraries all run on the processor");
}
