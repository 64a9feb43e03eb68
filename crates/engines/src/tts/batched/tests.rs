//! The port over a batch scheduler, with an engine that speaks a sample a letter and says what it ran.

use super::*;
use antiphon_inference::onnx::OnnxError;
use antiphon_types::SampleRate;
use futures_util::StreamExt;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What a test lets an engine do next.
type Go = Option<&'static str>;

/// Longer than any machine takes, busy as it may be; where it is waited out, time is paused.
const DEADLINE: Duration = Duration::from_secs(600);

struct Puppet {
    voices: Vec<Voice>,
    go: Arc<Mutex<Receiver<Go>>>,
    ran: SyncSender<String>,
}

fn step_of(text: &str, position: usize) -> (&str, bool) {
    let rest = &text[position..];
    match rest.split_once('|') {
        Some((now, _)) => (now, true),
        None => (rest, false),
    }
}

impl BatchTtsEngine for Puppet {
    fn voices(&self) -> &[Voice] {
        &self.voices
    }

    fn bucket(request: &SpeechRequest) -> u32 {
        u32::from(request.text.len() > 8)
    }

    fn synthesize_batch(&mut self, jobs: &mut [Job], cancel: &CancellationToken) -> Result<(), TtsError> {
        let texts: Vec<_> = jobs.iter().map(|job| step_of(&job.request().text, job.position()).0).collect();
        self.ran.send(texts.join(" ")).expect("the test listens");
        let go = self.go.lock().expect("no panic while locked").recv().expect("the test says go");
        match go {
            Some("panic") => panic!("on purpose"),
            Some("cancelled") => {
                while !cancel.is_cancelled() {
                    std::thread::yield_now();
                }
                return Err(TtsError::Unavailable("a cancelled run".into()));
            }
            Some("misfit") => {
                let wrong = OnnxError::Inputs { path: "voice.onnx".into(), message: "too long".into() };
                return Err(TtsError::Engine { message: wrong.to_string(), source: Some(Box::new(wrong)) });
            }
            Some(message) => return Err(TtsError::Engine { message: message.into(), source: None }),
            None => {}
        }
        for job in jobs {
            let text = job.request().text.clone();
            let (now, more) = step_of(&text, job.position());
            if now == "bad" {
                job.fail(TtsError::Unavailable("a bad word".into()));
                continue;
            }
            job.sound(Pcm { rate: SampleRate::HZ_16000, samples: now.bytes().map(i16::from).collect() });
            if more {
                job.go_on_at(job.position() + now.len() + 1);
            }
        }
        Ok(())
    }
}

struct Rig {
    tts: BatchedTts<Puppet>,
    go: SyncSender<Go>,
    ran: Receiver<String>,
}

fn rig(max_batch: usize) -> Rig {
    let (go, gated) = sync_channel(1_000);
    let (says, ran) = sync_channel(1_000);
    let gated = Arc::new(Mutex::new(gated));
    let voices = vec![Voice { id: "v".into(), name: "V".into(), language: "en".into() }];
    let make = move |_| {
        says.send("made".into()).expect("the test listens");
        Ok(Puppet { voices: voices.clone(), go: gated.clone(), ran: says.clone() })
    };
    let batching = Batching { n_replicas: 1, max_batch, max_wait: Duration::ZERO, deadline: DEADLINE };
    let rig = Rig { tts: BatchedTts::start("puppet", batching, make).expect("started"), go, ran };
    assert_eq!(rig.ran.recv().as_deref(), Ok("made"));
    rig
}

type SpeechStream = BoxStream<'static, Result<Pcm, TtsError>>;

impl Rig {
    /// Asks for it and puts it into the queue.
    async fn speak(&self, text: &str, unplayed_s: Option<u64>) -> SpeechStream {
        let unplayed = unplayed_s.map(Duration::from_secs);
        let mut stream = self.tts.speak(SpeechRequest {
            text: text.into(),
            voice: "v".into(),
            unplayed,
            ..SpeechRequest::default()
        });
        assert!(futures_util::poll!(stream.next()).is_pending());
        stream
    }

    /// The next batch, which may go on.
    fn run(&self, go: Go) -> String {
        let ran = self.ran.recv().expect("it lives");
        self.go.send(go).expect("it lives");
        ran
    }
}

/// All that is left of it: letters, or the error.
async fn heard(stream: SpeechStream) -> String {
    let pieces: Vec<_> = stream.collect().await;
    let text = |pcm: Pcm| pcm.samples.into_iter().map(|sample| sample as u8 as char).collect::<String>();
    pieces.into_iter().map(|piece| piece.map_or_else(|error| format!("({error})"), text)).collect()
}

#[tokio::test]
async fn a_run_is_charged_to_the_chunks_that_share_it() {
    let rig = rig(2);
    let blocks = rig.speak("first", Some(0)).await;
    assert_eq!(rig.ran.recv().as_deref(), Ok("first"));
    let meters = [Meter::requested(), Meter::requested()];
    let streams: Vec<_> = (["a", "b"].iter().zip(&meters))
        .map(|(text, meter)| {
            let text = (*text).into();
            let voice = "v".into();
            let meter = meter.clone();
            let mut stream = rig.tts.speak(SpeechRequest { text, voice, meter, ..SpeechRequest::default() });
            assert!(stream.next().now_or_never().is_none());
            stream
        })
        .collect();
    rig.go.send(None).expect("it lives");
    let ran = rig.ran.recv().expect("it lives");
    assert_eq!(ran.len(), 3, "both in one run: {ran}");
    std::thread::sleep(Duration::from_millis(20));
    rig.go.send(None).expect("it lives");
    for stream in streams {
        heard(stream).await;
    }
    drop(blocks);
    let [a, b] = meters.map(|meter| meter.compute());
    assert_eq!(a, b);
    assert!(a.cpu >= Duration::from_millis(10) && a.gpu.is_zero(), "{a:?}");
}

#[tokio::test]
async fn chunks_share_a_run_by_what_their_listeners_have_left() {
    let rig = rig(3);
    let first = rig.speak("first", Some(0)).await;
    assert_eq!(rig.ran.recv().as_deref(), Ok("first"));
    // The least urgent come first, so that their order of coming is not the one expected.
    let later = rig.speak("later", Some(950)).await;
    let late = rig.speak("late", Some(900)).await;
    let long = rig.speak("a longer one", Some(500)).await;
    let background = rig.speak("nobody", None).await;
    let soon = rig.speak("soon", Some(0)).await;
    assert_eq!(rig.tts.waiting(), 5);
    rig.go.send(None).expect("it lives");
    assert_eq!([rig.run(None), rig.run(None), rig.run(None)], ["soon nobody late", "a longer one", "later"]);
    for (stream, text) in [
        (first, "first"),
        (soon, "soon"),
        (background, "nobody"),
        (late, "late"),
        (long, "a longer one"),
        (later, "later"),
    ] {
        assert_eq!(heard(stream).await, text);
    }
    assert_eq!(rig.tts.voices()[0].id, "v");
}

#[tokio::test]
async fn a_long_one_lets_others_between_its_steps() {
    let rig = rig(1);
    let long = rig.speak("one|two|three", Some(0)).await;
    assert_eq!(rig.ran.recv().as_deref(), Ok("one"));
    let other = rig.speak("other", Some(100)).await;
    rig.go.send(None).expect("it lives");
    assert_eq!([rig.run(None), rig.run(None), rig.run(None)], ["other", "two", "three"]);
    assert_eq!(heard(long).await, "onetwothree");
    assert_eq!(heard(other).await, "other");
}

#[tokio::test]
async fn what_is_wrong_with_one_chunk_ends_that_one() {
    let rig = rig(2);
    let first = rig.speak("first", Some(0)).await;
    assert_eq!(rig.ran.recv().as_deref(), Ok("first"));
    let bad = rig.speak("bad", Some(10)).await;
    let good = rig.speak("good", Some(20)).await;
    rig.go.send(None).expect("it lives");
    assert_eq!(rig.run(None), "bad good");
    assert_eq!(heard(first).await, "first");
    assert_eq!(heard(bad).await, "(a bad word)");
    assert_eq!(heard(good).await, "good");
}

#[tokio::test]
async fn a_panic_or_a_failing_run_ends_its_chunks_and_the_engine_is_restarted() {
    let rig = rig(2);
    for (go, end) in [
        ("panic", "(the voice engine failed: the engine panicked)"),
        ("no device", "(the voice engine failed: no device)"),
    ] {
        let stream = rig.speak("hello", Some(0)).await;
        assert_eq!(rig.run(Some(go)), "hello");
        assert_eq!(heard(stream).await, end);
        assert_eq!(rig.ran.recv().as_deref(), Ok("made"));
    }
    let stream = rig.speak("hello", Some(0)).await;
    assert_eq!(rig.run(None), "hello");
    assert_eq!(heard(stream).await, "hello");
}

#[tokio::test]
async fn a_run_that_is_asked_amiss_ends_its_chunks_and_the_engine_lives() {
    let rig = rig(2);
    let stream = rig.speak("hello", Some(0)).await;
    assert_eq!(rig.run(Some("misfit")), "hello");
    let said = heard(stream).await;
    assert!(said.ends_with("does not take this: too long)"), "{said}");
    let stream = rig.speak("hello", Some(0)).await;
    assert_eq!(rig.run(None), "hello", "it was not restarted");
    assert_eq!(heard(stream).await, "hello");
}

#[tokio::test]
async fn dropping_a_stream_stops_the_run_it_is_alone_in_or_takes_it_out_of_the_queue() {
    let rig = rig(2);
    let alone = rig.speak("alone", Some(0)).await;
    assert_eq!(rig.run(Some("cancelled")), "alone");
    let waiting = rig.speak("waiting", Some(0)).await;
    let next = rig.speak("next", Some(0)).await;
    drop(waiting);
    drop(alone);
    assert_eq!(rig.run(None), "next", "neither the dropped one nor a new engine");
    assert_eq!(heard(next).await, "next");
}

#[tokio::test]
async fn too_many_waiting_are_told_so() {
    let rig = rig(1);
    let _running = rig.speak("a", Some(0)).await;
    assert_eq!(rig.ran.recv().as_deref(), Ok("a"));
    let mut waiting = Vec::new();
    for _ in 0..WAITING_PER_REPLICA {
        waiting.push(rig.speak("b", Some(0)).await);
    }
    let request = SpeechRequest { text: "c".into(), voice: "v".into(), ..SpeechRequest::default() };
    let refused = rig.tts.speak(request).next().await.expect("an answer").expect_err("full");
    assert!(matches!(refused, TtsError::Overloaded { waiting: WAITING_PER_REPLICA }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn no_first_sound_in_time_is_a_timeout() {
    let rig = rig(1);
    let stuck = rig.speak("a", Some(0)).await;
    assert_eq!(heard(stuck).await, "(the voice engine gave no sound within 600s)");
}

#[test]
fn the_size_of_a_batch_follows_the_device_unless_it_is_set() {
    let size = |max_batch_size, provider| {
        Batching::of(&TtsConfig { max_batch_size, ..TtsConfig::default() }, provider, 1).max_batch
    };
    assert_eq!((size(0, Provider::Cpu), size(0, Provider::Cuda), size(0, Provider::TensorRt)), (2, 8, 8));
    assert_eq!((size(4, Provider::Cpu), size(1, Provider::Cuda)), (4, 1));
}

/// The longest chunk a session makes, 300 letters, lasts 85 s at a quarter of the speed.
#[tokio::test]
async fn a_reader_may_be_two_minutes_behind_and_not_without_end() {
    let piece = || Pcm { rate: SampleRate::HZ_16000, samples: vec![1; 3_200] };
    for (n, is_whole) in [(600, true), (2_000, false)] {
        let request = SpeechRequest { text: "a".into(), voice: "v".into(), speed: 0.25, ..SpeechRequest::default() };
        let (mut job, mut sounds) = Job::new(request, 0);
        (0..n).for_each(|_| job.sound(piece()));
        drop(job);
        let mut heard = Vec::new();
        while let Some(piece) = sounds.next().await {
            heard.push(piece);
        }
        let n_good = heard.iter().filter(|piece| piece.is_ok()).count();
        assert_eq!((heard.len() == n_good, n_good == n), (is_whole, is_whole));
    }
}

#[test]
fn an_engine_keeps_what_it_will_with_a_job() {
    let request = SpeechRequest { text: "a".into(), voice: "v".into(), ..SpeechRequest::default() };
    let (mut job, _sounds) = Job::new(request, 0);
    job.kept::<Vec<u8>>().push(7);
    assert_eq!(job.kept::<Vec<u8>>(), &[7]);
    assert_eq!(job.kept::<u32>(), &0);
}

#[test]
fn an_engine_that_cannot_be_made_is_named() {
    let batching = Batching { n_replicas: 2, max_batch: 1, max_wait: Duration::ZERO, deadline: Duration::from_secs(1) };
    let result = BatchedTts::<Puppet>::start("x", batching, |_| Err(TtsError::Unavailable("no library".into())));
    assert_eq!(result.err().expect("it failed").to_string(), "no library");
}

#[test]
fn it_speaks_as_many_chunks_at_once_as_a_batch_holds() {
    assert_eq!([1, 4].map(|max_batch| rig(max_batch).tts.concurrency()), [1, 4]);
}
