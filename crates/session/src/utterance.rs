//! An utterance on its way from ingress to its transcription: gathered into pieces, queued while the feed is full.

use super::transcription_task::{PIECE_SAMPLES, TranscriptionInput};
use antiphon_types::{ItemId, Samples};
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// The utterance whose audio still comes.
pub(super) struct Utterance {
    pub(super) item: ItemId,
    /// Turn time at which its audio begins.
    pub(super) start: Samples,
    feed: mpsc::Sender<TranscriptionInput>,
    piece: Vec<i16>,
    /// All of it so far.
    pub(super) n_samples: usize,
    /// A guess was asked for, and nothing but silence has come since.
    guessing: bool,
    /// What the feed has no room for yet.
    queue: VecDeque<TranscriptionInput>,
}

impl Utterance {
    /// Without audio yet.
    pub(super) fn new(item: ItemId, start: Samples, feed: mpsc::Sender<TranscriptionInput>) -> Self {
        let piece = Vec::with_capacity(PIECE_SAMPLES);
        Self { item, start, feed, piece, n_samples: 0, guessing: false, queue: VecDeque::new() }
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

    /// Asks for the words of all audio so far, if no guess will tell them.
    pub(super) fn ask(&mut self) {
        if !self.guessing {
            self.flush();
            self.queue.push_back(TranscriptionInput::Ask);
            self.drain();
        }
    }

    /// Asks for what the transcript would be if the utterance ended here.
    pub(super) fn provisional(&mut self) {
        self.guessing = true;
        self.flush();
        self.queue.push_back(TranscriptionInput::Guess);
        self.drain();
    }

    /// The speaker goes on: what was guessed is not the end.
    pub(super) fn resume(&mut self) {
        if std::mem::take(&mut self.guessing) {
            self.queue.push_back(TranscriptionInput::Resumed);
            self.drain();
        }
    }

    /// The audio is whole. Whether nothing waits any more.
    pub(super) fn finish(&mut self) -> bool {
        self.flush();
        self.queue.push_back(TranscriptionInput::Finish { as_guessed: self.guessing });
        self.drain()
    }

    /// The feed that has no room, while something waits for it.
    pub(super) fn blocked_on(&self) -> Option<mpsc::Sender<TranscriptionInput>> {
        (!self.queue.is_empty()).then(|| self.feed.clone())
    }

    fn flush(&mut self) {
        if !self.piece.is_empty() {
            let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_SAMPLES));
            self.queue.push_back(TranscriptionInput::Pcm(piece));
            self.drain();
        }
    }

    /// Whether nothing waits any more. A feed that is gone takes everything: its failure is reported by its task.
    pub(super) fn drain(&mut self) -> bool {
        while let Some(feed) = self.queue.pop_front() {
            if let Err(mpsc::error::TrySendError::Full(feed)) = self.feed.try_send(feed) {
                self.queue.push_front(feed);
                return false;
            }
        }
        true
    }
}
