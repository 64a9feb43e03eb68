//! What a hub's recognizer makes of a turn at each of its pauses: the words that turn-taking has there.
//!
//! [`super::swept_with_words`] calls it. The hub transcribes what was said so far, by REST and in English, one pause after the
//! other; how long that takes counts as it would in a session.

use super::endpointing::{EndedTurn, HeardTurn, PauseWords};
use super::transcribed;
use crate::BenchError;
use antiphon_client::RATE;
use antiphon_types::{SampleRate, Samples};
use tokio::time::Instant;

/// The words at each pause of a turn.
pub(super) async fn at_pauses(
    turn: &EndedTurn,
    heard: &HeardTurn,
    http: &reqwest::Client,
    url: &str,
) -> Result<Vec<PauseWords>, BenchError> {
    let sound = turn.sound();
    let mut all = Vec::new();
    for heard_to in heard.asks_at() {
        let begun = Instant::now();
        let text = transcribed(http, url, &sound[..length(heard_to).min(sound.len())]).await?;
        all.push(PauseWords { text, heard_to, took: begun.elapsed() });
    }
    Ok(all)
}

/// Samples at [`RATE`] up to a turn time.
fn length(at: Samples) -> usize {
    (at.0 * u64::from(RATE.hz()) / u64::from(SampleRate::HZ_16000.hz())) as usize
}
