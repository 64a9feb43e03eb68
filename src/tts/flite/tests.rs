//! The engine against the real library.

use super::*;

const SENTENCE: &str = "The quick brown fox jumps over the lazy dog, and then it sleeps until noon.";

fn request(text: &str, voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: voice.into(), speed }
}

/// All pieces of one chunk.
fn pieces(engine: &mut Flite, request: &SpeechRequest) -> Vec<Vec<i16>> {
    let mut out = Vec::new();
    let result = engine.synthesize(request, &CancellationToken::new(), &mut |pcm| {
        assert_eq!(pcm.rate, RATE);
        out.push(pcm.samples);
        ControlFlow::Continue(())
    });
    result.expect("flite speaks");
    out
}

fn speak(engine: &mut Flite, text: &str, voice: &str, speed: f32) -> Vec<i16> {
    pieces(engine, &request(text, voice, speed)).concat()
}

fn quiet_run<'a>(samples: impl Iterator<Item = &'a i16>) -> usize {
    samples.take_while(|sample| sample.unsigned_abs() < 128).count()
}

#[test]
fn every_voice_streams_in_pieces_with_trimmed_edges() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    for voice in ["slt", "rms", "awb", "kal16"] {
        // A chunk cut between words has no pause, so its end is flite's own.
        let made = pieces(&mut engine, &request("The quick brown fox jumps over the lazy dog", voice, 1.0));
        assert!(made.len() > 20, "{voice}: {} pieces", made.len());
        let samples = made.concat();
        assert!(samples.len() > 16_000, "{voice}");
        assert!(quiet_run(samples.iter()) <= 320, "{voice}");
        assert!(quiet_run(samples.iter().rev()) <= 320, "{voice}");
        assert!(samples.iter().any(|sample| sample.unsigned_abs() > 5_000), "{voice}");
    }
}

#[test]
fn punctuation_makes_the_pause() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    let tail = |engine: &mut Flite, text: &str| quiet_run(speak(engine, text, "slt", 1.0).iter().rev()) / 16;
    assert!((250..=270).contains(&tail(&mut engine, "I see a dog.")));
    assert!((120..=140).contains(&tail(&mut engine, "I see a dog,")));
    assert!((0..=20).contains(&tail(&mut engine, "I see a dog")));
}

#[test]
fn speed_stretches_the_chunk_and_does_not_leak_into_the_next() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    for voice in ["slt", "kal16"] {
        let plain = speak(&mut engine, SENTENCE, voice, 1.0).len() as f64;
        let ratio = |engine: &mut Flite, speed| speak(engine, SENTENCE, voice, speed).len() as f64 / plain;
        assert!((ratio(&mut engine, 2.0) - 0.5).abs() < 0.08, "{voice}");
        assert!((ratio(&mut engine, 0.5) - 2.0).abs() < 0.2, "{voice}");
        assert!((ratio(&mut engine, 1.0) - 1.0).abs() < 0.01, "{voice}");
        assert!((ratio(&mut engine, f32::NAN) - 1.0).abs() < 0.01, "{voice}");
    }
}

#[test]
fn a_break_and_a_cancel_stop_the_synthesis() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    for voice in ["slt", "kal16"] {
        let mut n_calls = 0;
        let result = engine.synthesize(&request(SENTENCE, voice, 1.0), &CancellationToken::new(), &mut |_| {
            n_calls += 1;
            if n_calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(result.is_ok());
        assert_eq!(n_calls, 3, "{voice}");

        let cancel = CancellationToken::new();
        let mut n_calls = 0;
        let result = engine.synthesize(&request(SENTENCE, voice, 1.0), &cancel, &mut |_| {
            n_calls += 1;
            cancel.cancel();
            ControlFlow::Continue(())
        });
        assert!(result.is_ok());
        assert_eq!(n_calls, 1, "{voice}");
    }
}

#[test]
fn a_panic_in_the_sink_comes_out_where_it_was_called() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        engine.synthesize(&request(SENTENCE, "slt", 1.0), &CancellationToken::new(), &mut |_| panic!("on purpose"))
    }));
    let payload = outcome.expect_err("it panicked");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    assert!(!speak(&mut engine, SENTENCE, "slt", 1.0).is_empty());
}

#[test]
fn what_cannot_be_spoken_is_no_sound_and_no_error() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    for text in ["", " ", "...", "?!", "\u{0}", "—"] {
        assert_eq!(pieces(&mut engine, &request(text, "slt", 1.0)).len(), 0, "{text:?}");
    }
    for text in ["é", "日本語", "x\u{0}y", "1.2.3", "a".repeat(300).as_str()] {
        assert!(!speak(&mut engine, text, "kal16", 1.0).is_empty(), "{text:.20}");
    }
}

#[test]
fn voices_are_listed_with_the_default_first_and_unknown_names_mean_it() {
    let mut engine = Flite::open("kal16").expect("flite is installed");
    let ids: Vec<&str> = engine.voices().iter().map(|voice| voice.id.as_str()).collect();
    assert_eq!(ids, ["kal16", "slt", "rms", "awb"]);
    let (named, unknown) = (speak(&mut engine, SENTENCE, "kal16", 1.0), speak(&mut engine, SENTENCE, "alloy", 1.0));
    assert_eq!(named, unknown);
    let refused = Flite::open("alloy").err().expect("no such voice").to_string();
    assert_eq!(refused, "flite has no voice \"alloy\"; it has: slt, rms, awb, kal16");
}

/// The length of a chunk follows from its analysis, which is all of flite that could share state; the samples of the
/// clustergen voices differ from run to run, because their noise comes from `rand`. kal16 has no noise.
#[test]
fn several_engines_at_once_give_what_one_gives() {
    let mut engine = Flite::open("slt").expect("flite is installed");
    let work: Vec<(&str, f32)> = vec![("slt", 1.0), ("slt", 1.7), ("rms", 0.8), ("kal16", 1.0), ("kal16", 2.0)];
    let expected: Vec<_> = work.iter().map(|(voice, speed)| speak(&mut engine, SENTENCE, voice, *speed)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut engine = Flite::open("slt").expect("flite is installed");
                for ((voice, speed), expected) in work.iter().zip(&expected) {
                    let made = speak(&mut engine, SENTENCE, voice, *speed);
                    let difference = made.len().abs_diff(expected.len());
                    assert!(difference <= 320, "{voice} at {speed}: {} and {}", made.len(), expected.len());
                    assert!(*voice != "kal16" || made == *expected, "{voice} at {speed}");
                }
            });
        }
    });
}
