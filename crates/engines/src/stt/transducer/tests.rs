//! The engine with the tiny model: against the golden tokens, in company, through the port, and with files that are wrong.

use super::files::{FileError, ModelFiles, PredictorFiles};
use super::graphs::Graphs;
use super::states::{EncoderRow, EncoderStates, StreamKey};
use super::testing::{
    Speaker, folder, golden, graphs, opened, push, recognizer, refused, run_all, sentence, sizes, speech, step,
    text_of, tiny,
};
use super::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

/// The tokens of an utterance that runs alone.
fn alone(graphs: &Graphs, pcm: &[i16]) -> Vec<(u32, u64)> {
    run_all(graphs, &[pcm.to_vec()]).remove(0)
}

#[test]
fn tokens_are_those_of_nemos_loop_in_python() {
    assert_eq!(alone(&graphs(&tiny()), &sentence()), golden().tokens);
}

#[test]
fn tokens_are_the_same_with_caches_that_are_bound() {
    let graphs = graphs(&tiny());
    let mut states = EncoderStates::bound(&graphs, 2).expect("there is memory");
    let pcm = [sentence(), speech(3, 20_000)];
    let mut speakers = pcm.each_ref().map(|pcm| Speaker::new(&mut states, &graphs, pcm));
    while speakers.iter().any(|speaker| !speaker.is_through()) {
        let mut ready: Vec<_> = speakers.iter_mut().filter(|speaker| !speaker.is_through()).collect();
        step(&mut states, &graphs, &mut ready);
    }
    for (speaker, pcm) in speakers.iter().zip(&pcm) {
        assert_eq!(speaker.ids(), alone(&graphs, pcm));
    }
}

#[test]
fn tokens_are_equal_alone_and_in_ragged_batches_of_eight() {
    let fixed = folder(&[("decoder.onnx", "decoder_fixed.onnx")]);
    let batched = graphs(&tiny());
    let by_row = graphs(fixed.path());
    assert!(batched.predictor.takes_batches() && !by_row.predictor.takes_batches());
    let pcm: Vec<_> = (0..8).map(|i| speech(i, 9_000 + 2_900 * i)).collect();
    for graphs in [batched, by_row] {
        let together = run_all(&graphs, &pcm);
        for (i, (tokens, pcm)) in together.iter().zip(&pcm).enumerate() {
            assert_eq!(tokens, &alone(&graphs, pcm), "stream {i}");
        }
        let kinds: std::collections::HashSet<u32> = together.iter().flatten().map(|(id, _)| *id).collect();
        assert!(kinds.len() > 4, "{} different tokens show little", kinds.len());
    }
}

/// One schedule: streams join, leave, pause and are cancelled, and leave numbers that are none in their slots.
fn schedule(graphs: &Graphs, expected: &[Vec<(u32, u64)>], pcm: &[Vec<i16>], seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    // Every other schedule has the bound tensors of a GPU.
    let states = if seed.is_multiple_of(2) { EncoderStates::new(graphs, 6) } else { EncoderStates::bound(graphs, 6) };
    let mut states = states.expect("there is memory");
    let mut running: Vec<(usize, Speaker)> = Vec::new();
    let mut ended: Vec<StreamKey> = Vec::new();
    for _ in 0..40 {
        if running.len() < states.n_slots() && rng.random_range(0..3) == 0 {
            let number = rng.random_range(0..pcm.len());
            running.push((number, Speaker::new(&mut states, graphs, &pcm[number])));
        }
        if !running.is_empty() && rng.random_range(0..9) == 0 {
            let (_, cancelled) = running.swap_remove(rng.random_range(0..running.len()));
            states.poison(cancelled.key);
            states.end(cancelled.key);
            ended.push(cancelled.key);
        }
        // A stream that pauses sits out; the rows are in another order each time.
        let mut ready: Vec<&mut Speaker> = running.iter_mut().map(|(_, one)| one).collect();
        ready.retain(|_| rng.random_range(0..4) > 0);
        if ready.len() > 1 && rng.random_range(0..2) == 0 {
            ready.reverse();
        }
        if !ready.is_empty() {
            step(&mut states, graphs, &mut ready);
        }
        for (number, one) in running.extract_if(.., |(_, one)| one.is_through()) {
            assert_eq!(one.ids(), expected[number], "schedule {seed}, stream {number}");
            states.end(one.key);
            ended.push(one.key);
        }
    }
    let silence = vec![0.0; graphs.sizes.window * graphs.sizes.n_mels];
    for key in ended {
        let row = EncoderRow { key, frames: &silence, prompt: 0, keeps: true };
        assert!(states.run(graphs, &[row]).is_err(), "the key of a stream that has ended finds nothing");
    }
}

#[test]
fn a_stream_that_joins_leaves_pauses_or_is_cancelled_changes_no_other_tokens() {
    let n_schedules = std::env::var("ANTIPHON_SCHEDULES").map_or(40, |n| n.parse().expect("a number"));
    let graphs = graphs(&tiny());
    let pcm: Vec<_> = (0..5).map(|i| speech(i, 5_000 + 2_600 * i)).collect();
    let expected: Vec<_> = pcm.iter().map(|pcm| alone(&graphs, pcm)).collect();
    for seed in 0..n_schedules {
        schedule(&graphs, &expected, &pcm, seed);
    }
}

#[tokio::test]
async fn an_utterance_gets_its_words_as_it_is_spoken_and_they_never_change() {
    let engine = recognizer(&tiny());
    let pcm = sentence();
    let expected = text_of(&engine, &golden().tokens);
    let options = SttOptions { segments: true, logprobs: true, ..SttOptions::default() };
    let mut utterance = opened(&engine, options).await;
    let mut before = String::new();
    for piece in pcm.chunks(4_000) {
        push(&mut utterance, piece).await;
        let guess = utterance.provisional().await.expect("an answer");
        let partial = utterance.partial().await.expect("an answer").expect("it has partials");
        assert!(guess.text.starts_with(&partial.text), "{guess:?}");
        let settled: Vec<_> = partial.text.split_whitespace().take(partial.n_settled_words as usize).collect();
        let settled = settled.join(" ");
        assert!(settled.starts_with(&before), "{before:?} became {settled:?}");
        before = settled;
    }
    let guess = utterance.provisional().await.expect("an answer");
    assert_eq!(engine.in_service(), 1);
    let said = utterance.finish().await.expect("an answer");
    assert_eq!(said.text, expected);
    assert_eq!(said, guess, "what was asked before leaves no trace");
    assert!(said.text.starts_with(&before) && !before.is_empty());
    let segment = &said.segments[0];
    assert_eq!(segment.tokens.len(), golden().tokens.len());
    assert_eq!(segment.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" "), expected);
    assert!(segment.words.is_sorted_by_key(|word| word.start_ms));
    assert!(segment.words.iter().all(|word| word.probability.is_some_and(|p| p > 0.0 && p <= 1.0)));
    assert_eq!(said.language.as_deref(), Some("en"));
    assert_eq!(said.logprobs.map(|all| all.len()), Some(golden().tokens.len()));
}

#[tokio::test]
async fn at_a_pause_a_partial_transcript_has_the_words_of_the_last_chunk() {
    let engine = recognizer(&tiny());
    let mut pcm = speech(3, 9_000);
    let mut found = false;
    // Chunks of 2,560 samples: at each length another part of the last one is there.
    for n_samples in (4_000..9_000).step_by(500) {
        let mut utterance = opened(&engine, SttOptions::default()).await;
        pcm[n_samples - 1] = i16::MAX;
        push(&mut utterance, &pcm[..n_samples]).await;
        // Once a question is answered, all whole chunks are.
        utterance.provisional().await.expect("an answer");
        let loud = utterance.partial().await.expect("an answer").expect("it has partials");
        push(&mut utterance, &[0; PAUSE]).await;
        let all = utterance.provisional().await.expect("an answer").text;
        let at_pause = utterance.partial().await.expect("an answer").expect("it has partials");
        assert_eq!(at_pause.text, all, "{n_samples} samples");
        assert!(at_pause.n_settled_words as usize <= all.split_whitespace().count());
        found |= all.len() > loud.text.len() && at_pause.n_settled_words == loud.n_settled_words;
        // The pause goes on: the words stay, and no further run is made for them.
        push(&mut utterance, &[0; 40]).await;
        let n_before = engine.costs().n_steps.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(utterance.partial().await.expect("an answer").expect("it has partials").text, all);
        assert_eq!(engine.costs().n_steps.load(std::sync::atomic::Ordering::Relaxed), n_before);
        // The speaker goes on: what was found in the pause alone is not shown.
        utterance.push(vec![i16::MAX; 4]).await.expect("it is taken");
        let going_on = utterance.partial().await.expect("an answer").expect("it has partials");
        assert!(all.starts_with(&going_on.text) && going_on.text.len() <= all.len());
    }
    assert!(found, "some of these pauses have words that no whole chunk has");
}

#[tokio::test]
async fn all_slots_taken_is_busy_and_one_that_is_dropped_is_free_again() {
    let engine = recognizer(&tiny());
    let mut utterances = Vec::new();
    for _ in 0..8 {
        utterances.push(opened(&engine, SttOptions::default()).await);
    }
    assert!(matches!(engine.open(SttOptions::default()).await, Err(SttError::Busy { .. })));
    let mut queued = engine.open_queued(SttOptions::default());
    assert!(futures_util::poll!(&mut queued).is_pending());
    push(&mut utterances[3], &sentence()).await;
    drop(utterances.remove(3));
    let mut next = queued.await.await.expect("the slot of the one that was dropped");
    push(&mut next, &sentence()).await;
    assert_eq!(next.finish().await.expect("an answer").text, text_of(&engine, &golden().tokens));
}

#[tokio::test]
async fn requests_that_wait_for_a_slot_leave_a_quarter_of_them_to_sessions() {
    let engine = recognizer(&tiny());
    let mut waited = Vec::new();
    for _ in 0..6 {
        let utterance = engine.open_queued(SttOptions::default()).await.await;
        waited.push(utterance.expect("a slot is free"));
    }
    let mut queued = engine.open_queued(SttOptions::default());
    assert!(futures_util::poll!(&mut queued).is_pending());
    let _first = opened(&engine, SttOptions::default()).await;
    let _second = opened(&engine, SttOptions::default()).await;
    assert!(matches!(engine.open(SttOptions::default()).await, Err(SttError::Busy { .. })));
    drop(waited.remove(0));
    let mut next = queued.await.await.expect("the slot of the one that was dropped");
    push(&mut next, &sentence()).await;
    assert_eq!(next.finish().await.expect("an answer").text, text_of(&engine, &golden().tokens));
}

#[tokio::test]
async fn silence_and_no_audio_at_all_end_at_once() {
    let engine = recognizer(&tiny());
    let mut utterance = opened(&engine, SttOptions::default()).await;
    assert_eq!(utterance.partial().await.expect("an answer").expect("it has partials").text, "");
    assert_eq!(utterance.finish().await.expect("an answer").text, "");
    // A provisional transcript whose request is dropped is withdrawn.
    let mut utterance = opened(&engine, SttOptions::default()).await;
    utterance.push(sentence()).await.expect("it is taken");
    drop(utterance.provisional());
    drop(tokio::time::timeout(Duration::ZERO, utterance.provisional()).await);
    assert_eq!(utterance.finish().await.expect("an answer").text, text_of(&engine, &golden().tokens));
}

#[tokio::test]
async fn a_key_term_is_written_where_the_model_hears_something_like_it() {
    let engine = recognizer(&tiny());
    for (prompt, is_written) in [(None, false), (Some("milk, deko"), true)] {
        let options = SttOptions { prompt: prompt.map(str::to_owned), ..SttOptions::default() };
        let mut utterance = opened(&engine, options).await;
        push(&mut utterance, &sentence()).await;
        let said = utterance.finish().await.expect("an answer").text;
        assert_eq!(said.contains("deko"), is_written, "{prompt:?}: {said}");
    }
}

#[tokio::test]
async fn the_language_is_asked_for_by_a_prompt_or_named_by_a_tag() {
    let model = folder(&[("encoder.onnx", "encoder_prompts.onnx"), ("tokens.txt", "tokens_prompts.txt")]);
    let engine = recognizer(model.path());
    assert_eq!(engine.languages(), Some(vec!["de".into(), "en".into(), "fr".into()]));
    assert!(engine.detects_language());
    let golden = golden();
    for (code, number) in [("en", "0"), ("de", "1")] {
        let mut utterance = opened(&engine, SttOptions { language: Some(code.into()), ..SttOptions::default() }).await;
        push(&mut utterance, &sentence()).await;
        let said = utterance.finish().await.expect("an answer");
        assert_eq!(said.text, text_of(&engine, &golden.prompted[number]), "{code}");
        let named = engine.shared.vocabulary.language(&tokens(&golden.prompted[number])).unwrap_or(code).to_owned();
        assert_eq!(said.language, Some(named));
    }
    assert_ne!(golden.prompted["0"], golden.prompted["1"], "the prompt counts");
    let unknown = engine.open(SttOptions { language: Some("ja".into()), ..SttOptions::default() }).await;
    assert!(matches!(unknown, Err(SttError::Unavailable(why)) if why.contains("\"ja\"")));
    assert!(!recognizer(&tiny()).detects_language());
}

fn tokens(ids: &[(u32, u64)]) -> Vec<Token> {
    ids.iter().map(|(id, frame)| Token { id: *id, frame: *frame, logprob: 0.0 }).collect()
}

#[test]
fn files_that_are_missing_or_contradict_each_other_are_named() {
    let nowhere = refused(Path::new("/nowhere"));
    assert!(nowhere.starts_with("stt.model: /nowhere is missing: a folder with encoder.onnx"), "{nowhere}");
    let without = |name: &str| {
        let model = folder(&[]);
        std::fs::remove_file(model.path().join(name)).expect("removed");
        refused(model.path())
    };
    assert!(without("joiner.onnx").ends_with("joiner.onnx is missing: the joiner beside the encoder"));
    assert!(without("tokens.txt").ends_with("tokens.txt is missing: a token and its number a line"));
    let two = folder(&[]);
    std::fs::copy(two.path().join("encoder.onnx"), two.path().join("encoder.int8.onnx")).expect("copied");
    assert!(refused(two.path()).ends_with("holds encoder.int8.onnx and encoder.onnx: name one of them"));
    let named = ModelFiles::find(&two.path().join("encoder.int8.onnx")).expect("it is named");
    let PredictorFiles::Apart { decoder, .. } = named.predictor else { panic!("there are two graphs") };
    assert!(decoder.ends_with("decoder.onnx"), "that of the other precision");

    let swapped = |name: &str, from: &str| refused(folder(&[(name, from)]).path());
    let tokens = folder(&[]);
    std::fs::write(tokens.path().join("tokens.txt"), "a 0\n<blk> 1\n").expect("written");
    let said = refused(tokens.path());
    assert!(said.contains("tokens.txt: 2 tokens, expected 41: vocab_size of "), "{said}");
    let said = swapped("encoder.onnx", "decoder.onnx");
    assert!(
        said.contains("encoder.onnx: the property window_size is missing, expected a whole number from 1 to 1000000"),
        "{said}"
    );
    let said = swapped("decoder.onnx", "joiner.onnx");
    assert!(
        said.contains("decoder.onnx: input 1 is encoder_outputs: f32[?, 8, ?], expected tokens: i64 or i32[?, 1]"),
        "{said}"
    );
    let said = swapped("joiner.onnx", "decoder.onnx");
    assert!(
        said.contains("joiner.onnx: input 1 is targets: i32[?, 1], expected encoder frames: f32 or f16[?, 8, ?]"),
        "{said}"
    );
    assert!(matches!(ModelFiles::find(Path::new("/nowhere")), Err(FileError::Missing { .. })));
    assert_eq!((sizes().lead(), sizes().n_new(), sizes().chunk_ms(), sizes().frame_ms()), (9, 2, 160, 80));
}
