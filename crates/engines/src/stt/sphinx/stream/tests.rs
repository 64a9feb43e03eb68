//! The whole engine, with PocketSphinx and its model: they are what the tests of this crate need.

use super::*;
use crate::stt::SttStream;
use antiphon_engine_api::stt::{SttOptions, Transcript};
use std::path::Path;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

fn stream() -> SphinxStream {
    let model = Model::at("");
    let vocabulary = Vocabulary::make(&model, antiphon_assistant::vocabulary()).unwrap();
    SphinxStream::new(&model, Some(Arc::new(vocabulary))).unwrap()
}

/// Of an utterance of the assistant's.
fn options() -> SttOptions {
    SttOptions { vocabulary: Some(antiphon_assistant::vocabulary()), ..SttOptions::default() }
}

/// Decodes the clip in pieces of this length.
fn hear(stream: &mut SphinxStream, clip: &[i16], piece: usize, options: &SttOptions) -> Transcript {
    stream.begin(options).unwrap();
    for piece in clip.chunks(piece) {
        stream.push(piece, &CancellationToken::new()).unwrap();
    }
    stream.finish(&CancellationToken::new()).unwrap()
}

/// Something like speech: syllables of harmonics with gaps, different for each seed.
fn babble(seed: u32) -> Vec<i16> {
    let sample = |i: u32| {
        let t = i as f32 / 16_000.0;
        let syllable = (t * (3.0 + seed as f32)).sin().max(0.0);
        let pitch = 100.0 + 20.0 * seed as f32;
        let voice: f32 = (1..30).map(|n| (t * pitch * n as f32 * std::f32::consts::TAU).sin() / n as f32).sum();
        (voice * syllable * 3_000.0) as i16
    };
    (0..24_000).map(sample).collect()
}

/// Clips of people reading.
fn speech(n: usize) -> Vec<(String, Vec<i16>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/speech");
    let texts = std::fs::read_to_string(folder.join("texts.tsv")).unwrap();
    let clip = |line: &str| {
        let (file, text) = line.split_once('\t').unwrap();
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let pcm = antiphon_audio::decode::read(bytes.into(), Duration::from_secs(60)).unwrap();
        assert_eq!(pcm.rate, antiphon_engine_api::stt::RATE);
        (text.to_owned(), pcm.samples)
    };
    texts.lines().take(n).map(clip).collect()
}

/// The same words and the same speaker. The confidence may differ a little: PocketSphinx begins its search for the
/// nearest densities at those of the frame before, which leaves ties, one clip in ten, to what was heard last.
fn assert_same(heard: &Transcript, first: &Transcript, what: &str) {
    assert_eq!(heard.text, first.text, "{what}");
    assert_eq!(heard.speaker, first.speaker, "{what}");
    let sure = |heard: &Transcript| heard.confidence.unwrap_or(-1.0);
    assert!((sure(heard) - sure(first)).abs() < 0.01, "{what}: {} and {}", sure(heard), sure(first));
}

#[test]
fn the_same_audio_gives_the_same_transcript_in_any_order_and_in_any_pieces() {
    let mut clips = vec![babble(1), babble(2)];
    clips.extend(speech(6).into_iter().map(|(_, clip)| clip));
    let mut stream = stream();
    let fresh = options();
    let first: Vec<Transcript> = clips.iter().map(|clip| hear(&mut stream, clip, 320, &fresh)).collect();
    for (i, clip) in clips.iter().enumerate().rev() {
        assert_same(&hear(&mut stream, clip, 777, &fresh), &first[i], &format!("clip {i} backwards"));
    }
    // An utterance that was left in the middle, with a guess asked for, leaves no trace either.
    stream.begin(&fresh).unwrap();
    stream.push(&clips[1][..9_000], &CancellationToken::new()).unwrap();
    stream.provisional(&CancellationToken::new()).unwrap();
    assert_same(&hear(&mut stream, &clips[0], clips[0].len(), &fresh), &first[0], "after one that was left");
    // What the speaker left behind counts, and counts the same each time.
    let known = SttOptions { speaker: first[1].speaker.clone(), ..options() };
    let again = hear(&mut stream, &clips[0], 320, &known);
    assert_ne!(again.speaker, first[0].speaker);
    assert_same(&hear(&mut stream, &clips[0], 320, &known), &again, "from a known speaker");
}

/// The words may hide what leaked, so the scores of the edge before them are looked at.
#[test]
fn the_beginning_of_an_utterance_knows_nothing_of_the_last_one() {
    let mut stream = stream();
    let mut edges = [1, 2, 4].map(|seed| {
        hear(&mut stream, &babble(seed)[..20_000], 320, &options());
        hear(&mut stream, &babble(3)[2_000..10_000], 320, &options());
        let [full, ngram] = stream.searches().take(2).collect::<Vec<_>>().try_into().ok().expect("two");
        [full, ngram].map(|search| search.words().swap_remove(0))
    });
    edges.sort_by_key(|[full, _]| full.acoustic);
    assert_eq!(edges[0], edges[2]);
}

#[test]
fn a_guess_leaves_the_utterance_as_it_was() {
    let clip = babble(3);
    let mut stream = stream();
    let whole = hear(&mut stream, &clip, 320, &options());
    stream.begin(&options()).unwrap();
    for piece in clip.chunks(1_000) {
        stream.push(piece, &CancellationToken::new()).unwrap();
        stream.provisional(&CancellationToken::new()).unwrap();
    }
    assert_same(&stream.finish(&CancellationToken::new()).unwrap(), &whole, "after guesses");
}

#[test]
fn silence_and_nothing_are_no_words() {
    let mut stream = stream();
    for clip in [vec![], vec![0; 100], vec![0; 16_000]] {
        assert_eq!(hear(&mut stream, &clip, 320, &options()).text, "", "{} samples", clip.len());
    }
}

/// Literary prose is hard for this engine: half its words are lost. Worse than that, something is broken.
#[test]
fn people_are_understood_as_well_as_the_engine_can() {
    let mut stream = stream();
    let (mut n_words, mut n_found) = (0, 0);
    for (said, clip) in speech(6) {
        let heard = hear(&mut stream, &clip, 320, &options()).text;
        let heard: Vec<&str> = heard.split(' ').collect();
        n_words += said.split(' ').count();
        n_found += said.split(' ').filter(|word| heard.contains(word)).count();
    }
    assert!(n_found * 10 >= n_words * 4, "{n_found} of {n_words} words");
}
