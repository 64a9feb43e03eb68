//! The body of a request while it is received: bounded in bytes, in the memory of all uploads together, and in time.
//!
//! Time is bounded by a rate: a body may take a fixed while, and a second more for each [`MIN_RATE`] bytes of it that have come.
//! Trickled bytes hardly extend the deadline, and the whole body has one.

use super::error::ApiError;
use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Sound files of all requests together that are held in memory, in units of [`UPLOAD_UNIT`]; beyond it the answer is 503.
pub(super) const UPLOADS: usize = (1 << 30) / UPLOAD_UNIT;
pub(super) const UPLOAD_UNIT: usize = 64 << 10;
/// How long a body may take besides its bytes' own time.
const GRACE: Duration = Duration::from_secs(10);
/// The slowest upload, in bytes a second: half a megabit.
const MIN_RATE: u64 = 64 << 10;

/// What holds the memory of a body, and why it broke off.
#[derive(Default)]
struct State {
    held: Vec<OwnedSemaphorePermit>,
    failure: Option<ApiError>,
}

/// See the module. The other end of a body that is being read; its memory is given back when it is dropped.
#[derive(Clone, Default)]
pub(super) struct Upload(Arc<Mutex<State>>);

/// A share of the memory for uploads; dropping it gives it back.
#[derive(Debug)]
pub(super) struct UploadReservation(
    #[expect(dead_code, reason = "held until it is dropped")] Vec<OwnedSemaphorePermit>,
);

impl Upload {
    /// Reads a body of at most `most` bytes. What the stream fails with is found in [`Self::failure`].
    pub(super) fn begin(
        body: Body,
        uploads: Arc<Semaphore>,
        most: usize,
    ) -> (Self, impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) {
        let upload = Self::default();
        let shared = upload.clone();
        let pieces = async_stream::stream! {
            let mut body = body.into_data_stream();
            let begun = Instant::now();
            let mut n_bytes = 0_usize;
            let mut room = 0;
            loop {
                let due = begun + GRACE + Duration::from_secs_f64(n_bytes as f64 / MIN_RATE as f64);
                let piece = match timeout_at(due, body.next()).await {
                    Ok(Some(Ok(piece))) => piece,
                    Ok(None) => return,
                    Ok(Some(Err(_))) => {
                        yield Err(std::io::Error::other("the body broke off"));
                        return;
                    }
                    Err(_) => {
                        yield Err(shared.fail(too_slow()));
                        return;
                    }
                };
                n_bytes += piece.len();
                if n_bytes > most {
                    yield Err(shared.fail(too_large(most)));
                    return;
                }
                while room < n_bytes {
                    match uploads.clone().try_acquire_owned() {
                        Ok(place) => shared.0.lock().expect("no panic while locked").held.push(place),
                        Err(_) => {
                            yield Err(shared.fail(ApiError::overloaded("Too many bodies are being sent. Try again soon.")));
                            return;
                        }
                    }
                    room += UPLOAD_UNIT;
                }
                yield Ok(piece);
            }
        };
        (upload, pieces)
    }

    fn fail(&self, error: ApiError) -> std::io::Error {
        let message = error.message.clone();
        self.0.lock().expect("no panic while locked").failure = Some(error);
        std::io::Error::other(message)
    }

    /// Why the body broke off, where that was not the client.
    pub(super) fn failure(&self) -> Option<ApiError> {
        self.0.lock().expect("no panic while locked").failure.take()
    }

    /// The memory it took.
    pub(super) fn held(&self) -> UploadReservation {
        UploadReservation(std::mem::take(&mut self.0.lock().expect("no panic while locked").held))
    }
}

/// All of a body of at most `most` bytes, and its share of the memory for uploads. It may take its time but not for
/// ever.
pub(super) async fn whole(
    body: Body,
    uploads: &Arc<Semaphore>,
    most: usize,
) -> Result<(Bytes, UploadReservation), ApiError> {
    let (upload, pieces) = Upload::begin(body, uploads.clone(), most);
    let mut pieces = std::pin::pin!(pieces);
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let broken = |_| ApiError::invalid("invalid_body", None, "The body of the request could not be read.");
        match piece.map_err(broken) {
            Ok(piece) => whole.extend_from_slice(&piece),
            Err(error) => return Err(upload.failure().unwrap_or(error)),
        }
    }
    Ok((whole.freeze(), upload.held()))
}

fn too_large(most: usize) -> ApiError {
    let message = format!("The body of the request is larger than {most} bytes.");
    ApiError::with(StatusCode::PAYLOAD_TOO_LARGE, "invalid_body", message)
}

fn too_slow() -> ApiError {
    let message = format!(
        "The body of the request came too slowly: it may take {} s, and a second more for each {} KiB.",
        GRACE.as_secs(),
        MIN_RATE >> 10
    );
    ApiError::with(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// A body of so many pieces of so many bytes, one a second.
    fn body(n: usize, n_bytes: usize) -> Body {
        let pieces = futures_util::stream::iter(0..n).then(move |_| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>(Bytes::from(vec![7; n_bytes]))
        });
        Body::from_stream(pieces)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_taken_and_a_trickle_is_not() {
        let uploads = Arc::new(Semaphore::new(UPLOADS));
        let (slow, held) = whole(body(60, 60 << 10), &uploads, 8 << 20).await.expect("a minute at 60 KiB a second");
        assert_eq!(slow.len(), 60 * (60 << 10));
        let all = UPLOADS;
        assert!(uploads.available_permits() < all, "it takes its share");
        drop(held);
        let begun = Instant::now();
        let error = whole(body(usize::MAX, 1), &uploads, 8 << 20).await.expect_err("a byte a second");
        assert_eq!((error.status, error.code), (StatusCode::REQUEST_TIMEOUT, "request_timeout"));
        assert!(begun.elapsed() <= GRACE + Duration::from_secs(1), "{:?}", begun.elapsed());
        let error = whole(body(usize::MAX, 1 << 20), &uploads, 8 << 20).await.expect_err("without end");
        assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(uploads.available_permits(), all, "and gives it back");
    }
}
