//! An utterance between ingress and its transcription: gathered into pieces, queued while the input queue is full.

use super::transcription_input::{PIECE_SAMPLES, TranscriptionInput};
use antiphon_types::{ItemId, Samples};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// The utterance whose audio still comes.
pub(super) struct Utterance {
    pub(super) item: ItemId,
    /// Turn time at which its audio begins.
    pub(super) start: Samples,
    input: mpsc::Sender<TranscriptionInput>,
    piece: Vec<i16>,
    /// All of it so far.
    pub(super) n_samples: usize,
    /// A provisional transcript was requested, and only silence has followed.
    provisional_holds: bool,
    /// What the input queue has no room for yet.
    queue: VecDeque<TranscriptionInput>,
}

impl Utterance {
    /// Without audio yet.
    pub(super) fn new(item: ItemId, start: Samples, input: mpsc::Sender<TranscriptionInput>) -> Self {
        let piece = Vec::with_capacity(PIECE_SAMPLES);
        Self { item, start, input, piece, n_samples: 0, provisional_holds: false, queue: VecDeque::new() }
    }

    pub(super) fn push(&mut self, samples: &[i16]) {
        self.n_samples += samples.len();
        for part in samples.chunks(PIECE_SAMPLES) {
            self.piece.extend_from_slice(part);
            if self.piece.len() >= PIECE_SAMPLES {
                self.flush();
            }
        }
    }

    /// Requests a partial transcript of all audio so far, unless a provisional one is on its way.
    pub(super) fn request_partial(&mut self) {
        if !self.provisional_holds {
            self.flush();
            self.queue.push_back(TranscriptionInput::RequestPartial);
            self.drain();
        }
    }

    /// The voice fell silent a moment ago.
    pub(super) fn lull(&mut self) {
        if !self.provisional_holds {
            self.flush();
            self.queue.push_back(TranscriptionInput::Lull);
            self.drain();
        }
    }

    /// Requests a provisional transcript: the final one if the utterance ended here.
    pub(super) fn request_provisional(&mut self) {
        self.provisional_holds = true;
        self.flush();
        self.queue.push_back(TranscriptionInput::RequestProvisional);
        self.drain();
    }

    /// The speaker goes on: the provisional transcript is void.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.provisional_holds) {
            self.queue.push_back(TranscriptionInput::Resumed);
            self.drain();
        }
    }

    /// The audio is complete. Returns whether everything was handed over.
    pub(super) fn finish(&mut self) -> bool {
        self.flush();
        self.queue.push_back(TranscriptionInput::Finish { confirms_provisional: self.provisional_holds });
        self.drain()
    }

    /// The full input queue, while something waits for room in it.
    pub(super) fn blocked_on(&self) -> Option<mpsc::Sender<TranscriptionInput>> {
        (!self.queue.is_empty()).then(|| self.input.clone())
    }

    fn flush(&mut self) {
        if !self.piece.is_empty() {
            let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_SAMPLES));
            self.queue.push_back(TranscriptionInput::Pcm(piece));
            self.drain();
        }
    }

    /// Hands over what waits; returns whether nothing is left. A closed queue discards: its task reports the failure.
    pub(super) fn drain(&mut self) -> bool {
        while let Some(next) = self.queue.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(next)) = self.input.try_send(next) {
                self.queue.push_front(next);
                return false;
            }
        }
        true
    }
}
