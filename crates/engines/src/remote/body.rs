//! Bodies of upstream answers, bounded in bytes and in time.
//!
//! Every engine that reads from a server goes through [`Body`] (the streams of MCP servers through an [`EventReader`](super::EventReader)). A
//! server that never ends its answer, or sends a byte now and then, ends in an error: the bytes are counted, and so is
//! all time spent waiting for them, which no byte renews. Time in which the reader is busy and does not ask for the
//! next piece does not count. Headers are bounded by the HTTP client itself: 100 of them, 400 KiB in all.

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::Response;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What is read of a body whose rest does not matter: less than a new connection costs.
const DRAIN: Bounds = Bounds { bytes: 64 << 10, stall: Duration::from_millis(20), total: Duration::from_millis(50) };

/// What a body may take.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Its size.
    pub bytes: usize,
    /// The longest wait for one more piece.
    pub stall: Duration,
    /// All waits for pieces together.
    pub total: Duration,
}

/// Why a body cannot be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is larger than it may be.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// Nothing came for this long.
    #[error("the server sent nothing more for {0:?}")]
    Stalled(Duration),
    /// Bytes came, but too slowly: so much time was spent waiting for them.
    #[error("the answer was not complete after {0:?} of waiting")]
    TooSlow(Duration),
    /// The connection broke.
    #[error("the connection broke before the answer was complete")]
    Broken(#[source] reqwest::Error),
}

/// The body of an answer, read piece by piece.
pub struct Body {
    response: Response,
    bounds: Bounds,
    n_bytes: usize,
    waited: Duration,
}

impl Body {
    /// The body of this answer, of which nothing, or not all, was read.
    pub fn new(response: Response, bounds: Bounds) -> Self {
        Self { response, bounds, n_bytes: 0, waited: Duration::ZERO }
    }

    /// Allows more time in total: what has come is worth it.
    pub fn allow(&mut self, more: Duration) {
        self.bounds.total += more;
    }

    /// The next piece; `None` at the end. Cancel safe, but a cancelled wait is not counted.
    ///
    /// # Errors
    /// See [`BodyError`]. Nothing can be read behind an error.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let left = self.bounds.total.saturating_sub(self.waited);
        let begun = Instant::now();
        let next = timeout(self.bounds.stall.min(left), self.response.chunk()).await;
        self.waited += begun.elapsed();
        let piece = match next {
            Ok(next) => next.map_err(|error| BodyError::Broken(error.without_url()))?,
            Err(_) if left <= self.bounds.stall => return Err(BodyError::TooSlow(self.bounds.total)),
            Err(_) => return Err(BodyError::Stalled(self.bounds.stall)),
        };
        let Some(piece) = piece else { return Ok(None) };
        self.n_bytes = self.n_bytes.saturating_add(piece.len());
        if self.n_bytes > self.bounds.bytes {
            return Err(BodyError::TooLarge(self.bounds.bytes));
        }
        // A server whose bytes are always there is never waited for: the budget covers it by its bytes.
        if self.waited >= self.bounds.total {
            return Err(BodyError::TooSlow(self.bounds.total));
        }
        Ok(Some(piece))
    }

    /// All of it. A body that announces too much is refused before it is read.
    ///
    /// # Errors
    /// See [`BodyError`].
    pub async fn whole(mut self) -> Result<Vec<u8>, BodyError> {
        if self.response.content_length().is_some_and(|length| length > self.bounds.bytes as u64) {
            return Err(BodyError::TooLarge(self.bounds.bytes));
        }
        let mut body = Vec::new();
        while let Some(piece) = self.chunk().await? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// Its beginning, at most the bounds' bytes, for the words of an error: what goes wrong ends it.
    pub async fn beginning(mut self) -> Vec<u8> {
        let most = std::mem::replace(&mut self.bounds.bytes, usize::MAX);
        let mut body = Vec::new();
        while body.len() < most {
            let Ok(Some(piece)) = self.chunk().await else { break };
            body.extend_from_slice(&piece[..piece.len().min(most - body.len())]);
        }
        body
    }

    /// Reads a body whose rest does not matter to its end, so that the connection serves the next request. Gives up where the
    /// end is not there soon.
    pub async fn drain(mut self) {
        self.bounds = DRAIN;
        self.n_bytes = 0;
        self.waited = Duration::ZERO;
        while let Ok(Some(_)) = self.chunk().await {}
    }

    /// The pieces as a stream, which ends behind an error.
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, BodyError>> {
        stream::unfold(Some(self), |body| async move {
            let mut body = body?;
            match body.chunk().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(body))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A body of `n` pieces, one each `every`.
    fn body(n: usize, every: Duration, bounds: Bounds) -> Body {
        let pieces = stream::iter(0..n).then(move |_| async move {
            tokio::time::sleep(every).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"word "))
        });
        let response = http::Response::new(reqwest::Body::wrap_stream(pieces));
        Body::new(response.into(), bounds)
    }

    fn bounds(bytes: usize, stall: u64, total: u64) -> Bounds {
        Bounds { bytes, stall: SECOND * stall as u32, total: SECOND * total as u32 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_bounded_in_bytes_and_a_trickle_in_time() {
        assert_eq!(body(3, SECOND, bounds(15, 2, 60)).whole().await.unwrap().len(), 15);
        let error = body(usize::MAX, Duration::ZERO, bounds(1_000, 2, 60)).whole().await.unwrap_err();
        assert!(matches!(error, BodyError::TooLarge(1_000)), "{error}");
        let error = body(2, 5 * SECOND, bounds(1_000, 2, 60)).whole().await.unwrap_err();
        assert!(matches!(error, BodyError::Stalled(_)), "{error}");
        let begun = Instant::now();
        let error = body(usize::MAX, SECOND, bounds(1_000_000, 2, 60)).whole().await.unwrap_err();
        assert!(matches!(error, BodyError::TooSlow(_)), "{error}");
        assert_eq!(begun.elapsed(), 60 * SECOND, "no byte renews the deadline");
        assert_eq!(body(usize::MAX, SECOND, bounds(12, 2, 60)).beginning().await, b"word word wo");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_reader_does_not_use_up_the_time_of_the_server() {
        let mut body = body(4, SECOND, bounds(1_000, 2, 6));
        while body.chunk().await.unwrap().is_some() {
            tokio::time::sleep(10 * SECOND).await;
        }
    }
}
