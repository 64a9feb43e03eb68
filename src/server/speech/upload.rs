//! The body of a request while it is received: bounded in bytes, in the memory of all uploads together, and in time.
//!
//! Time is bounded by a rate. A client may pause for [`GRACE`] in all, and each [`MIN_RATE`] bytes that come restore a
//! second of that, up to [`GRACE`]: a fast beginning pays for no long silence, and trickled bytes hardly extend it.
//!
//! Memory is taken in units of [`UPLOAD_UNIT`] as the bytes come. One API key, or one address where there are no keys,
//! has half of it. Where files fill it, bodies of JSON take from a reserve.

use super::error::ApiError;
use crate::server::access::holder_counts::{Holder, HolderCount, HolderCounts};
use axum::body::Body;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Bodies of all requests together that are held in memory, in units of [`UPLOAD_UNIT`]; beyond it the answer is 503.
pub(super) const UPLOADS: usize = (1 << 30) / UPLOAD_UNIT;
/// The same for bodies of JSON that find no room there.
const RESERVE: usize = (64 << 20) / UPLOAD_UNIT;
/// Bytes of a unit.
pub(super) const UPLOAD_UNIT: usize = 64 << 10;
/// How long a client may send nothing.
const GRACE: Duration = Duration::from_secs(10);
/// The slowest upload, in bytes a second: half a megabit.
const MIN_RATE: u64 = 64 << 10;

/// The memory for the bodies of all requests.
pub(super) struct UploadMemory {
    /// For every body.
    common: Units,
    /// For bodies of JSON where there is nothing left of the other.
    reserve: Units,
}

/// Units of memory, of which one holder has a share at most.
struct Units {
    permits: Arc<Semaphore>,
    by_holder: HolderCounts<Holder>,
    max_per_holder: usize,
}

/// One unit of memory. Dropping it gives it back.
#[derive(Debug)]
struct UploadUnit {
    _permit: OwnedSemaphorePermit,
    _share: Option<HolderCount<Holder>>,
}

/// Why a body gets no more memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadsFull {
    /// The holder has its share.
    Share(Holder),
    /// All of it is taken.
    All,
}

/// What a body may take of the memory for uploads.
pub(super) struct UploadAccount {
    memory: Arc<UploadMemory>,
    /// Who sends the body; `None`: there are no others that could go short.
    holder: Option<Holder>,
    has_reserve: bool,
}

/// What holds the memory of a body, and why it broke off.
#[derive(Default)]
struct State {
    held: Vec<UploadUnit>,
    failure: Option<ApiError>,
}

/// See the module. The other end of a body that is being read; its memory is given back when it is dropped.
#[derive(Clone, Default)]
pub(super) struct Upload(Arc<Mutex<State>>);

/// A share of the memory for uploads; dropping it gives it back.
#[derive(Debug)]
pub(super) struct UploadReservation(#[expect(dead_code, reason = "held until it is dropped")] Vec<UploadUnit>);

impl UploadMemory {
    /// `largest_body`: in bytes. One holder may send a body of this size, even if that is more than half.
    pub(super) fn new(largest_body: usize) -> Self {
        let max_per_holder = (UPLOADS / 2).max(largest_body.div_ceil(UPLOAD_UNIT));
        Self { common: Units::new(UPLOADS, max_per_holder), reserve: Units::new(RESERVE, RESERVE / 2) }
    }

    /// What a body with a file may take.
    pub(super) fn for_file(self: &Arc<Self>, holder: Option<Holder>) -> UploadAccount {
        UploadAccount { memory: self.clone(), holder, has_reserve: false }
    }

    /// What a body of JSON may take.
    pub(super) fn for_json(self: &Arc<Self>, holder: Option<Holder>) -> UploadAccount {
        UploadAccount { memory: self.clone(), holder, has_reserve: true }
    }
}

impl Units {
    fn new(n_units: usize, max_per_holder: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(n_units)), by_holder: HolderCounts::default(), max_per_holder }
    }

    /// Takes one unit. Does not wait.
    fn take(&self, holder: Option<Holder>) -> Result<UploadUnit, UploadsFull> {
        let share_of =
            |holder: Holder| self.by_holder.take(holder, self.max_per_holder).ok_or(UploadsFull::Share(holder));
        let share = holder.map(share_of).transpose()?;
        let permit = self.permits.clone().try_acquire_owned().map_err(|_| UploadsFull::All)?;
        Ok(UploadUnit { _permit: permit, _share: share })
    }
}

impl UploadAccount {
    /// Takes one unit. Does not wait.
    fn take(&self) -> Result<UploadUnit, UploadsFull> {
        match self.memory.common.take(self.holder) {
            Err(_) if self.has_reserve => self.memory.reserve.take(self.holder),
            taken => taken,
        }
    }
}

impl Upload {
    /// Reads a body of at most `most` bytes. What the stream fails with is found in [`Self::failure`].
    pub(super) fn begin(
        body: Body,
        account: UploadAccount,
        most: usize,
    ) -> (Self, impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) {
        let upload = Self::default();
        let shared = upload.clone();
        let pieces = async_stream::stream! {
            let mut body = body.into_data_stream();
            let mut patience = GRACE;
            let mut n_bytes = 0_usize;
            let mut room = 0;
            loop {
                let asked = Instant::now();
                let piece = match timeout(patience, body.next()).await {
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
                let credit = Duration::from_secs_f64(piece.len() as f64 / MIN_RATE as f64);
                patience = (patience.saturating_sub(asked.elapsed()) + credit).min(GRACE);
                n_bytes += piece.len();
                if n_bytes > most {
                    yield Err(shared.fail(too_large(most)));
                    return;
                }
                while room < n_bytes {
                    match account.take() {
                        Ok(unit) => shared.0.lock().expect("no panic while locked").held.push(unit),
                        Err(full) => {
                            yield Err(shared.fail(no_memory(full)));
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
    account: UploadAccount,
    most: usize,
) -> Result<(Bytes, UploadReservation), ApiError> {
    let (upload, pieces) = Upload::begin(body, account, most);
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

fn no_memory(full: UploadsFull) -> ApiError {
    ApiError::overloaded(match full {
        UploadsFull::Share(Holder::Key(_)) => {
            "The bodies that come with your API key take as much memory as they may: half of it. Try again soon."
        }
        UploadsFull::Share(Holder::Address(_)) => {
            "The bodies that come from your address take as much memory as they may: half of it. Try again soon."
        }
        UploadsFull::All => "Too many bodies are being sent. Try again soon.",
    })
}

fn too_slow() -> ApiError {
    let message = format!(
        "The body of the request came too slowly: it may pause for {} s, and each {} KiB make up for a second of that.",
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

    /// A body that comes at once and never ends.
    fn stalled(n_bytes: usize) -> Body {
        let piece = Ok::<_, Infallible>(Bytes::from(vec![7; n_bytes]));
        Body::from_stream(futures_util::stream::iter([piece]).chain(futures_util::stream::pending()))
    }

    fn memory() -> Arc<UploadMemory> {
        Arc::new(UploadMemory::new(128 << 20))
    }

    /// Free units of the memory for every body.
    fn n_free(memory: &UploadMemory) -> usize {
        memory.common.permits.available_permits()
    }

    fn holder(last: u8) -> Option<Holder> {
        Some(Holder::Address([192, 0, 2, last].into()))
    }

    /// As many units as an account gets.
    fn all_of(account: &UploadAccount) -> Vec<UploadUnit> {
        (0..2 * UPLOADS).map_while(|_| account.take().ok()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_taken_and_a_trickle_is_not() {
        let memory = memory();
        let slow = whole(body(60, 60 << 10), memory.for_json(None), 8 << 20).await;
        let (slow, held) = slow.expect("a minute at 60 KiB a second");
        assert_eq!(slow.len(), 60 * (60 << 10));
        assert!(n_free(&memory) < UPLOADS, "it takes its share");
        drop(held);
        let begun = Instant::now();
        let error = whole(body(usize::MAX, 1), memory.for_json(None), 8 << 20).await.expect_err("a byte a second");
        assert_eq!((error.status, error.code), (StatusCode::REQUEST_TIMEOUT, "request_timeout"));
        assert!(begun.elapsed() <= GRACE + Duration::from_secs(1), "{:?}", begun.elapsed());
        let error = whole(body(usize::MAX, 1 << 20), memory.for_json(None), 8 << 20).await.expect_err("without end");
        assert_eq!(error.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(n_free(&memory), UPLOADS, "and gives it back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_came_fast_may_be_silent_no_longer_than_another() {
        let memory = memory();
        let begun = Instant::now();
        let error = whole(stalled(16 << 20), memory.for_json(None), 128 << 20).await.expect_err("it stalls");
        assert_eq!(error.code, "request_timeout");
        assert!(begun.elapsed() <= GRACE + Duration::from_secs(1), "{:?}", begun.elapsed());
        assert_eq!(n_free(&memory), UPLOADS);
    }

    #[tokio::test(start_paused = true)]
    async fn one_holder_has_half_of_the_memory() {
        let memory = memory();
        let greedy = memory.for_file(holder(1));
        let held = all_of(&greedy);
        assert_eq!(held.len(), UPLOADS / 2);
        assert_eq!(greedy.take().err(), Some(UploadsFull::Share(holder(1).expect("a holder"))));
        assert_eq!(all_of(&memory.for_file(holder(2))).len(), UPLOADS / 2, "the other half is another's");
        drop(held);
        assert_eq!(n_free(&memory), UPLOADS);
        assert_eq!(all_of(&memory.for_file(None)).len(), UPLOADS, "without a holder there is no share");
        // The setting may allow a file that takes all of it.
        let memory = Arc::new(UploadMemory::new(UPLOADS * UPLOAD_UNIT));
        assert_eq!(all_of(&memory.for_file(holder(1))).len(), UPLOADS);
    }

    #[tokio::test(start_paused = true)]
    async fn json_is_read_while_files_fill_the_memory() {
        let memory = memory();
        let _files = [1, 2].map(|last| all_of(&memory.for_file(holder(last))));
        let error = whole(body(1, 1), memory.for_file(holder(3)), 1 << 20).await.expect_err("no memory for a file");
        assert!(error.is_busy(), "{error:?}");
        for last in [1, 3] {
            let read = whole(body(1, 1), memory.for_json(holder(last)), 1 << 20).await;
            assert_eq!(read.expect("memory of the reserve").0.len(), 1);
        }
        // One holder leaves half of the reserve to others.
        let json = [1, 2].map(|last| all_of(&memory.for_json(holder(last))).len());
        assert_eq!(json, [RESERVE / 2; 2]);
    }
}
