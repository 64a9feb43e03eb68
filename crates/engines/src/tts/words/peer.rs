//! What tests of speech servers do with a text that goes word by word.

use antiphon_engine_api::tts::{SpokenPart, TextSpeech, TtsError};
use futures_util::StreamExt;

/// Sends the words, ends the text and collects what is spoken: samples, the pieces that each sound speaks, the failure.
pub(crate) async fn say(speech: TextSpeech, words: &[&str]) -> (Vec<i16>, Vec<usize>, Option<TtsError>) {
    let TextSpeech { words: sender, mut speech } = speech;
    let feed = async {
        for word in words {
            if sender.send((*word).to_owned()).await.is_err() {
                break;
            }
        }
        drop(sender);
    };
    let listen = async {
        let mut samples = Vec::new();
        let mut pieces = Vec::new();
        while let Some(part) = speech.next().await {
            match part {
                Ok(SpokenPart::Audio(pcm)) => samples.extend(pcm.samples),
                Ok(SpokenPart::Pieces(n)) => pieces.push(n),
                Err(error) => return (samples, pieces, Some(error)),
            }
        }
        (samples, pieces, None)
    };
    tokio::join!(feed, listen).1
}
