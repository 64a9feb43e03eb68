//! The engine against the real library.

use super::*;

const SENTENCE: &str = "The quick brown fox jumps over the lazy dog, and then it sleeps until noon.";

fn request(text: &str, voice: &str, speed: f32) -> SpeechRequest {
    SpeechRequest { text: text.into(), voice: voice.into(), speed, ..SpeechRequest::default() }
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

/// What flite makes before its edges are trimmed. Its length follows from the analysis of the text alone, while the
/// noise in it, and with it the trimmed length, comes from `rand` and differs from run to run.
fn untrimmed(engine: &Flite, voice: &str, speed: f32) -> Vec<i16> {
    let mut out = Vec::new();
    let mut sink = |pcm: Pcm| {
        out.extend(pcm.samples);
        ControlFlow::Continue(())
    };
    let cancel = CancellationToken::new();
    let trim = EdgeTrim::new(usize::MAX);
    let mut tap = Tap { trim, sink: &mut sink, cancel: &cancel, stopped: false, wrong: None };
    let text = CString::new(SENTENCE).expect("no zero byte");
    engine.run(&text, speed, engine.voice(voice).1, &mut tap).expect("flite speaks");
    let rest = tap.trim.finish();
    out.extend(rest);
    out
}

/// Near-silence as it is after the level: the loudest voice is lowered by 5 dB.
fn quiet_run<'a>(samples: impl Iterator<Item = &'a i16>) -> usize {
    samples.take_while(|sample| sample.unsigned_abs() < 70).count()
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
    let engine = Flite::open("slt").expect("flite is installed");
    for voice in ["slt", "kal16"] {
        let plain = untrimmed(&engine, voice, 1.0).len();
        let ratio = |speed| untrimmed(&engine, voice, speed).len() as f64 / plain as f64;
        assert!((ratio(2.0) - 0.5).abs() < 0.08, "{voice}");
        assert!((ratio(0.5) - 2.0).abs() < 0.2, "{voice}");
        assert_eq!(untrimmed(&engine, voice, 1.0).len(), plain, "{voice}");
    }
    let mut engine = engine;
    let not_a_number = speak(&mut engine, SENTENCE, "kal16", f32::NAN);
    assert_eq!(not_a_number, speak(&mut engine, SENTENCE, "kal16", 1.0));
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
    for text in ["é", "日本語", "x\u{0}y", "1.2.3", "a".repeat(3_000).as_str()] {
        assert!(!speak(&mut engine, text, "kal16", 1.0).is_empty(), "{text:.20}");
    }
}

#[test]
fn voices_are_listed_with_the_default_first_and_unknown_names_mean_it() {
    let mut engine = Flite::open("kal16").expect("flite is installed");
    let ids: Vec<&str> = engine.voices().iter().map(|voice| voice.id.as_str()).collect();
    assert_eq!(ids, ["kal16", "slt", "rms", "awb"]);
    let named = speak(&mut engine, SENTENCE, "kal16", 1.0);
    let unknown = speak(&mut engine, SENTENCE, "alloy", 1.0);
    assert_eq!(named, unknown);
    let refused = Flite::open("alloy").err().expect("no such voice").to_string();
    assert_eq!(refused, "flite has no voice \"alloy\"; it has: slt, rms, awb, kal16");
}

#[test]
fn several_engines_at_once_give_what_one_gives() {
    let engine = Flite::open("slt").expect("flite is installed");
    let work = [("slt", 1.0), ("slt", 1.7), ("rms", 0.8), ("awb", 1.2), ("kal16", 1.0), ("kal16", 2.0)];
    let expected = work.map(|(voice, speed)| untrimmed(&engine, voice, speed));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let engine = Flite::open("slt").expect("flite is installed");
                for ((voice, speed), expected) in work.iter().zip(&expected) {
                    let made = untrimmed(&engine, voice, *speed);
                    assert_eq!(made.len(), expected.len(), "{voice} at {speed}");
                    // kal16 has no noise: sample for sample the same.
                    assert!(*voice != "kal16" || made == *expected, "{voice} at {speed}");
                }
            });
        }
    });
}

#[test]
fn a_voice_that_repeats_itself_does_so_in_another_engine() {
    let mut one = Flite::open("slt").expect("flite is installed");
    let mut other = Flite::open("rms").expect("flite is installed");
    for voice in ["slt", "rms", "awb", "kal16"] {
        let first = speak(&mut one, SENTENCE, voice, 1.1);
        speak(&mut other, "Something else.", voice, 0.7);
        let again = speak(&mut other, SENTENCE, voice, 1.1);
        // The silence that is cut off at both ends depends on the noise: some milliseconds.
        let difference = again.len().abs_diff(first.len());
        assert!(difference < 320, "{voice}: everything is where it was, but for {difference} samples");
        let repeats = if again == first { Repeats::Exactly } else { Repeats::InTime };
        assert_eq!(one.repeats(voice), repeats, "{voice}");
    }
}
