//! How long a listener waits for the next piece of a chunk. Around the streams of [`local`](super::local) and
//! [`batched`](super::batched); it knows nothing of what makes them.

use antiphon_engine_api::tts::TtsError;
use antiphon_types::Pcm;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use std::time::Duration;
use tokio::time::timeout;

/// The same pieces; [`TtsError::Timeout`] ends them, and drops what makes them, when the first or a further one does not
/// come within `patience`. A reader may take its time: the wait for a piece begins when it asks.
pub(super) fn patient(
    pieces: impl Stream<Item = Result<Pcm, TtsError>> + Send + 'static,
    patience: Duration,
) -> BoxStream<'static, Result<Pcm, TtsError>> {
    let mut pieces = pieces.boxed();
    let stream = async_stream::stream! {
        loop {
            match timeout(patience, pieces.next()).await {
                Ok(Some(piece)) => yield piece,
                Ok(None) => return,
                Err(_) => break,
            }
        }
        drop(pieces);
        yield Err(TtsError::Timeout(patience));
    };
    stream.boxed()
}
