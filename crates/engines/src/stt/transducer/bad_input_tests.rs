//! Files that contradict each other, models that give no numbers, and audio that comes in a way that it should not: a
//! start error, `Busy`, or the end of that stream. Others do not notice.

use super::testing::{folder, folder_of, golden, graphs, opened, push, recognizer, refused, run_all, sentence};
use super::testing::{speech, text_of, tiny};
use super::*;
use std::time::Duration;

/// A folder with the tiny model, one file of which is rewritten.
fn rewritten(name: &str, rewrite: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let model = folder(&[]);
    let path = model.path().join(name);
    let bytes = std::fs::read(&path).expect("the fixture");
    std::fs::write(&path, rewrite(bytes)).expect("written");
    model
}

/// A folder with the tiny model, whose encoder has other properties; `None`: it lacks the property.
fn with_properties(changes: &[(&str, Option<&str>)]) -> tempfile::TempDir {
    rewritten("encoder.onnx", |mut bytes| {
        for (key, value) in changes {
            // A field of ONNX's `ModelProto` (14): a message of two texts, all of them short.
            let text = |tag: u8, text: &str| [&[tag, text.len() as u8][..], text.as_bytes()].concat();
            let key = text(0x0a, key);
            let found = bytes.windows(key.len()).position(|window| window == key).expect("the property");
            let entry = found - 2..found + usize::from(bytes[found - 1]);
            assert_eq!(bytes[entry.start], 0x72);
            let value = value.map(|value| [key, text(0x12, value)].concat());
            let replacement = value.map_or(Vec::new(), |value| [&[0x72, value.len() as u8][..], &value].concat());
            drop(bytes.splice(entry, replacement));
        }
        bytes
    })
}

/// Writes NaN over a part of the first weights of this many bytes.
fn with_nan(mut bytes: Vec<u8>, n_bytes: usize, part: std::ops::Range<usize>) -> Vec<u8> {
    // The field `raw_data` (9) of ONNX's `TensorProto`; its length in groups of 7 bits.
    let low = (n_bytes & 0x7f) as u8;
    let head = if n_bytes < 128 { vec![0x4a, low] } else { vec![0x4a, low | 0x80, (n_bytes >> 7) as u8] };
    let found = bytes.windows(head.len()).position(|window| window == head).expect("such weights") + head.len();
    for number in bytes[found..][part].chunks_exact_mut(4) {
        number.copy_from_slice(&f32::NAN.to_le_bytes());
    }
    bytes
}

#[track_caller]
fn says(refused: &str, expected: &str) {
    assert!(refused.contains(expected), "{expected:?} is not in {refused:?}");
}

/// What is said where the encoder has other properties.
#[track_caller]
fn contradicts(changes: &[(&str, Option<&str>)], expected: &str) {
    let refused = refused(with_properties(changes).path());
    says(&refused, expected);
    says(&refused, "All files must be of one model: take them from one archive or one export");
}

#[test]
fn an_encoder_of_another_chunk_size_than_its_properties_say_is_refused() {
    contradicts(
        &[("chunk_size_ms", Some("80"))],
        "encoder.onnx: the property chunk_size_ms is 80, expected 160, from chunk_shift in steps of 10 ms",
    );
    contradicts(
        &[("window_size", Some("17")), ("chunk_shift", Some("8")), ("chunk_size_ms", Some("80"))],
        "encoder.onnx: input 1 is audio_signal: f32[?, 80, 25], expected mel frames: f32 or f16[?, 80, 17]",
    );
    contradicts(
        &[("chunk_shift", Some("17"))],
        "the property chunk_shift is 17, expected a multiple of subsampling_factor = 8",
    );
    contradicts(&[("window_size", Some("15"))], "the property window_size is 15, expected at least chunk_shift = 16");
}

#[test]
fn an_encoder_of_other_sizes_than_its_properties_say_is_refused() {
    contradicts(
        &[("feat_dim", Some("128"))],
        "input 1 is audio_signal: f32[?, 80, 25], expected mel frames: f32 or f16[?, 128, 25]",
    );
    contradicts(&[("vocab_size", Some("39"))], "tokens.txt: 41 tokens, expected 40: vocab_size of ");
    contradicts(
        &[("cache_last_channel_dim2", Some("7"))],
        "input 3 is cache_last_channel: f32[?, 2, 6, 8], expected the attention's cache: f32 or f16[?, 2, 7, 8]",
    );
    contradicts(
        &[("cache_last_time_dim3", Some("7"))],
        "input 4 is cache_last_time: f32[?, 2, 8, 8], expected the convolutions' cache: f32 or f16[?, 2, 8, 7]",
    );
    contradicts(
        &[("cache_last_time_dim1", Some("3"))],
        "the property cache_last_time_dim1, dim2 is 3 and 8, expected layers and width of cache_last_channel, 2 and 8",
    );
    contradicts(
        &[("pred_hidden", Some("13"))],
        "decoder.onnx: input 3 is states.1: f32[2, ?, 12], expected the first state: f32 or f16[2, ?, 13]",
    );
    contradicts(
        &[("pred_rnn_layers", Some("1"))],
        "decoder.onnx: input 3 is states.1: f32[2, ?, 12], expected the first state: f32 or f16[1, ?, 12]",
    );
    // Where the shapes leave the sizes open, no memory is taken for what cannot be.
    contradicts(
        &[
            ("cache_last_channel_dim2", Some("1000000")),
            ("cache_last_channel_dim3", Some("1000")),
            ("cache_last_time_dim2", Some("1000")),
        ],
        "the property cache_last_channel_dim1, dim2, dim3 is [2, 1000000, 1000], expected caches of at most ",
    );
}

#[test]
fn a_property_that_cannot_be_is_refused() {
    let number = "expected a whole number from 1 to 1000000";
    contradicts(&[("window_size", Some("many"))], &format!("the property window_size is \"many\", {number}"));
    contradicts(&[("pred_hidden", Some("0"))], &format!("the property pred_hidden is \"0\", {number}"));
    contradicts(&[("chunk_shift", Some("1000008"))], &format!("the property chunk_shift is \"1000008\", {number}"));
    contradicts(&[("normalize_type", Some("all"))], "the property normalize_type is \"all\", expected ");
}

#[test]
fn an_encoder_without_a_property_is_refused_and_the_property_named() {
    for key in [
        "window_size",
        "chunk_shift",
        "subsampling_factor",
        "vocab_size",
        "cache_last_channel_dim1",
        "cache_last_channel_dim2",
        "cache_last_channel_dim3",
        "cache_last_time_dim1",
        "cache_last_time_dim2",
        "cache_last_time_dim3",
        "pred_rnn_layers",
        "pred_hidden",
    ] {
        says(
            &refused(with_properties(&[(key, None)]).path()),
            &format!("encoder.onnx: the property {key} is missing, expected "),
        );
    }
    // Older exports lack these.
    let model = with_properties(&[("chunk_size_ms", None), ("feat_dim", None), ("normalize_type", None)]);
    assert_eq!(run_all(&graphs(model.path()), &[sentence()])[0], golden().tokens);
}

#[test]
fn a_joiner_or_predictor_of_another_model_is_refused() {
    let beside = |name: &str| {
        let model = folder(&[]);
        std::fs::copy(tiny().join("../nemo").join(name), model.path().join(name)).expect("copied");
        refused(model.path())
    };
    says(&beside("joiner.onnx"), ", 16, ?], expected encoder frames: f32 or f16[?, 8, ?]");
    says(&beside("decoder_joint.onnx"), ", 16, 1], expected encoder frames: f32 or f16[?, 8, ?]");
    says(&beside("tokens.txt"), "tokens.txt: 49 tokens, expected 41: vocab_size of ");
    let names = ["encoder.onnx", "decoder.onnx", "joiner.onnx", "tokens.txt"];
    let wide = folder_of(&tiny().join("../nemo"), &names, &[("encoder.onnx", "encoder_nemo.onnx")]);
    std::fs::copy(tiny().join("joiner.onnx"), wide.path().join("joiner.onnx")).expect("copied");
    says(&refused(wide.path()), ", 8, ?], expected encoder frames: f32 or f16[?, 16, ?]");
}

#[test]
fn a_model_that_gives_no_numbers_for_silence_is_refused() {
    // The weights of a norm, and the biases of the tokens.
    for (name, n_bytes) in [("encoder.onnx", 32), ("joiner.onnx", 164)] {
        let model = rewritten(name, |bytes| with_nan(bytes, n_bytes, 0..n_bytes));
        says(&refused(model.path()), &format!("{name} gives no numbers for silence: get the file again"));
    }
}

#[tokio::test]
async fn a_stream_whose_model_gives_no_numbers_ends_and_another_does_not_notice() {
    let model = folder(&[("encoder.onnx", "encoder_prompts.onnx"), ("tokens.txt", "tokens_prompts.txt")]);
    let path = model.path().join("encoder.onnx");
    // What the encoder adds for each of 128 languages: the second one is German.
    let bytes = with_nan(std::fs::read(&path).expect("the fixture"), 128 * 32, 32..64);
    std::fs::write(&path, bytes).expect("written");
    let engine = recognizer(model.path());
    let language = |code: &str| SttOptions { language: Some(code.into()), ..SttOptions::default() };
    let mut well = opened(&engine, language("en")).await;
    let mut ill = opened(&engine, language("de")).await;
    let mut failure = None;
    for piece in sentence().chunks(2_000) {
        well.push(piece.to_vec()).await.expect("it is taken");
        if failure.is_none() {
            failure = ill.push(piece.to_vec()).await.err();
        }
        // Both are in the same steps.
        well.provisional().await.expect("an answer");
    }
    let failure = failure.expect("it ended").to_string();
    assert!(failure.ends_with("the model gave no numbers"), "{failure}");
    assert_eq!(engine.in_service(), 1, "its slot is free before it is dropped");
    assert!(ill.partial().await.is_err() && ill.finish().await.is_err());
    assert_eq!(well.finish().await.expect("an answer").text, text_of(&engine, &golden().prompted["0"]));
    // Nor does the one that gets its slot.
    let mut next = opened(&engine, language("en")).await;
    push(&mut next, &sentence()).await;
    assert_eq!(next.finish().await.expect("an answer").text, text_of(&engine, &golden().prompted["0"]));
}

#[tokio::test]
async fn an_endless_utterance_ends_after_an_hour_and_another_does_not_notice() {
    let engine = recognizer(&tiny());
    let slot = engine.shared.slots.clone().try_acquire_owned().expect("a slot is free");
    let permit = SlotPermit { _slot: slot, _share: None };
    let mut endless = begin(&engine.shared, SttOptions::default(), permit).expect("a slot is free");
    endless.n_samples = MAX_SAMPLES - 1_000;
    let mut other = opened(&engine, SttOptions::default()).await;
    push(&mut other, &sentence()[..16_000]).await;
    endless.push(vec![0; 1_000]).await.expect("the last of the hour");
    let failure = endless.push(vec![0; 1]).await.expect_err("too long").to_string();
    assert!(failure.ends_with("an utterance of more than an hour"), "{failure}");
    drop(endless);
    push(&mut other, &sentence()[16_000..]).await;
    assert_eq!(other.finish().await.expect("an answer").text, text_of(&engine, &golden().tokens));
}

#[tokio::test]
async fn five_hundred_and_twelve_streams_on_an_engine_for_eight_are_busy_but_for_eight() {
    let engine = recognizer(&tiny());
    let pcm = sentence();
    let opening = (0..512).map(|_| engine.open(SttOptions::default()));
    let mut taken = Vec::new();
    let mut n_busy = 0;
    for opened in futures_util::future::join_all(opening).await {
        match opened {
            Ok(utterance) => taken.push(utterance),
            Err(SttError::Busy { .. }) => n_busy += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!((taken.len(), n_busy, engine.in_service()), (8, 504, 8));
    let expected = text_of(&engine, &golden().tokens);
    let streams = taken.into_iter().map(|mut utterance| {
        let pcm = pcm.clone();
        async move {
            push(&mut utterance, &pcm).await;
            utterance.finish().await.expect("an answer").text
        }
    });
    assert!(futures_util::future::join_all(streams).await.iter().all(|text| *text == expected));
}

#[tokio::test]
async fn audio_at_ten_times_real_time_and_in_bursts_gives_all_words_beside_others() {
    let engine = recognizer(&tiny());
    let graphs = graphs(&tiny());
    let streams = (0..8).map(|i| {
        let engine = engine.clone();
        let pcm = speech(i, 12_000 + 9_000 * i);
        let expected = text_of(&engine, &run_all(&graphs, std::slice::from_ref(&pcm))[0]);
        async move {
            let mut utterance = opened(&engine, SttOptions::default()).await;
            // All of it at once, in bursts of a second, in pieces of 20 ms without a pause between them.
            let n_at_once = [pcm.len(), 16_000, 320][i % 3];
            for piece in pcm.chunks(n_at_once) {
                utterance.push(piece.to_vec()).await.expect("it is taken");
                tokio::task::yield_now().await;
            }
            assert_eq!(utterance.finish().await.expect("an answer").text, expected, "stream {i}");
        }
    });
    futures_util::future::join_all(streams).await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_due_at_the_pace_of_its_sound() {
    let sizes = super::testing::sizes();
    let burst = Stream::new(&sizes);
    let steady = Stream::new(&sizes);
    let chunk = vec![0.0; sizes.shift * sizes.n_mels];
    for _ in 0..10 {
        burst.append(&chunk);
    }
    assert!(burst.take().is_some());
    tokio::time::advance(Duration::from_millis(10)).await;
    steady.append(&chunk);
    assert!(steady.due() < burst.due(), "the others' first chunk comes before the burst's second");
    assert_eq!(burst.due() - steady.due(), Duration::from_millis(sizes.chunk_ms() as u64 - 10));
}
