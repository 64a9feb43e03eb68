//! Speaks a filler: a few configured words where an answer is late ([`antiphon_dialog`] decides when).
//!
//! [`super::speaking`] starts it. A task synthesizes all of it and hands it to the actor in one product, which gives it to the
//! reducer in one go. A filler that
//! cannot be spoken, or not in time, is left out: the answer reports what fails.

use super::product::{FillerSpeech, Product};
use antiphon_engine_api::tts::{SpeechRequest, Tts};
use antiphon_types::{Format, ResponseId};
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The longest wait for a filler's sound: then the answer is nearer than the filler.
const SPOKEN_WITHIN: Duration = Duration::from_secs(3);

/// The longest filler; the rest of its sound is not taken. `session.fillers` allows 100 characters, about 7 s.
const LONGEST: Duration = Duration::from_secs(10);

/// Synthesizes a filler in time, and hands it over in one product.
pub(super) async fn synthesize(
    tts: Arc<dyn Tts>,
    request: SpeechRequest,
    response: ResponseId,
    format: Format,
    products: mpsc::Sender<Box<Product>>,
) {
    let work = async {
        let text = request.text.clone();
        let mut stream = tts.speak(request);
        let mut speech = Vec::new();
        let mut length = Duration::ZERO;
        while let Some(pcm) = stream.next().await {
            match pcm {
                Ok(pcm) => {
                    length += pcm.duration();
                    speech.push(pcm);
                }
                Err(error) => return tracing::warn!(%error, "no filler"),
            }
            if length > LONGEST {
                break;
            }
        }
        // The actor is gone only when the session is.
        let _ = products.send(Box::new(Product::Filler(FillerSpeech { response, text, format, speech }))).await;
    };
    if timeout(SPOKEN_WITHIN, work).await.is_err() {
        tracing::debug!("no filler: its sound came too late");
    }
}
