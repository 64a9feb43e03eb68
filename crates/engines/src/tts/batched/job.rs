//! One chunk in a batch scheduler.

use antiphon_engine_api::tts::{SpeechRequest, TtsError};
use antiphon_inference::pool::batch::{BatchFailure, Entry};
use antiphon_types::Pcm;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Pieces that a reader may be behind; a run never waits for a reader, so a reader that is further behind loses its chunk.
/// More than three minutes in pieces of 200 ms: no chunk is as long, not even at a quarter of the speed. Memory is allocated
/// as pieces arrive.
const MAX_PIECES: usize = 1_024;

/// How long a chunk without a listener may be delayed by chunks with one.
const BACKGROUND: Duration = Duration::from_secs(2);

/// A chunk to speak, as an engine sees it.
pub struct Job {
    request: SpeechRequest,
    bucket: u32,
    deadline: Instant,
    position: usize,
    kept: Box<dyn Any + Send>,
    step: Step,
    cancel: CancellationToken,
    pieces: Sender<Result<Pcm, TtsError>>,
    overrun: Arc<AtomicBool>,
}

/// What a step left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    GoesOn,
    Failed,
}

/// The reader's end of a job. Dropping it cancels the job.
pub(super) struct Sounds {
    pieces: Receiver<Result<Pcm, TtsError>>,
    overrun: Arc<AtomicBool>,
    _cancel: DropGuard,
}

impl Job {
    pub(super) fn new(request: SpeechRequest, bucket: u32) -> (Self, Sounds) {
        let cancel = CancellationToken::new();
        let (pieces, made) = channel(MAX_PIECES);
        let overrun: Arc<AtomicBool> = Arc::default();
        let deadline = Instant::now() + request.unplayed.unwrap_or(BACKGROUND);
        let sounds = Sounds { pieces: made, overrun: overrun.clone(), _cancel: cancel.clone().drop_guard() };
        (
            Self {
                request,
                bucket,
                deadline,
                position: 0,
                kept: Box::new(()),
                step: Step::Done,
                cancel,
                pieces,
                overrun,
            },
            sounds,
        )
    }

    /// The text to speak, and how.
    pub fn request(&self) -> &SpeechRequest {
        &self.request
    }

    /// Where the last step said that this one continues; 0 in the first. The engine defines the unit.
    pub fn position(&self) -> usize {
        self.position
    }

    /// The engine's state of this job from step to step: a default the first time, and where another type was kept.
    pub fn kept<T: Default + Send + 'static>(&mut self) -> &mut T {
        if !self.kept.is::<T>() {
            self.kept = Box::new(T::default());
        }
        self.kept.downcast_mut().expect("of that type since just now")
    }

    /// Passes sound on to the listener, in order. Does not block.
    pub fn sound(&mut self, pcm: Pcm) {
        self.deadline += pcm.duration();
        self.pass_on(Ok(pcm));
    }

    /// Requests another step, in another run, from there.
    pub fn go_on_at(&mut self, position: usize) {
        self.position = position;
        if self.step != Step::Failed {
            self.step = Step::GoesOn;
        }
    }

    /// Ends this chunk with an error; the others of the batch go on.
    pub fn fail(&mut self, error: TtsError) {
        self.pass_on(Err(error));
        self.step = Step::Failed;
    }

    /// Cancelled when the listener is gone.
    pub(super) fn cancelled(&self) -> CancellationToken {
        self.cancel.clone()
    }

    pub(super) fn begin_step(&mut self) {
        self.step = Step::Done;
    }

    pub(super) fn goes_on(&self) -> bool {
        self.step == Step::GoesOn
    }

    fn pass_on(&mut self, piece: Result<Pcm, TtsError>) {
        if self.step == Step::Failed {
            return;
        }
        if let Err(TrySendError::Full(_)) = self.pieces.try_send(piece) {
            self.overrun.store(true, Ordering::Relaxed);
            self.step = Step::Failed;
        }
    }
}

impl Entry for Job {
    fn bucket(&self) -> u32 {
        self.bucket
    }

    fn deadline(&self) -> Instant {
        self.deadline
    }

    fn may_wait(&self) -> bool {
        !self.request.immediate
    }

    fn is_abandoned(&self) -> bool {
        self.pieces.is_closed()
    }

    fn fail(mut self, failure: BatchFailure) {
        Job::fail(&mut self, TtsError::Engine { message: failure.to_string(), source: Some(Box::new(failure)) });
    }
}

impl Sounds {
    /// The next piece; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Result<Pcm, TtsError>> {
        let piece = self.pieces.recv().await;
        if piece.is_none() && self.overrun.swap(false, Ordering::Relaxed) {
            let message = "its sound was not fetched in time".into();
            return Some(Err(TtsError::Engine { message, source: None }));
        }
        piece
    }
}
