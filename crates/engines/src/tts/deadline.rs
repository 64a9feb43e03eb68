//! The deadline for each piece of a chunk's sound. Wraps the streams of [`local`](super::local) and
//! [`batched`](super::batched), whatever makes them.

use antiphon_engine_api::tts::TtsError;
use antiphon_types::Pcm;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use std::time::Duration;
use tokio::time::timeout;

/// The same pieces. Where the first or a further one does not come within `deadline`, the stream ends with
/// [`TtsError::Timeout`] and the source is dropped. The time for a piece begins when the reader asks for it.
pub(super) fn with_deadline(
    pieces: impl Stream<Item = Result<Pcm, TtsError>> + Send + 'static,
    deadline: Duration,
) -> BoxStream<'static, Result<Pcm, TtsError>> {
    let mut pieces = pieces.boxed();
    let stream = async_stream::stream! {
        loop {
            match timeout(deadline, pieces.next()).await {
                Ok(Some(piece)) => yield piece,
                Ok(None) => return,
                Err(_) => break,
            }
        }
        drop(pieces);
        yield Err(TtsError::Timeout(deadline));
    };
    stream.boxed()
}
