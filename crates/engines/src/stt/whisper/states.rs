//! The working memories of whisper.cpp on a device: as many as decodings run there at a time.
//!
//! A decoder takes one for a decoding and gives it back, so that decoders which wait hold none. Each keeps what it decoded
//! last until its next decoding overwrites it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use whisper_rs::{WhisperError, WhisperState};

/// See the module.
pub(super) struct States {
    /// Decodings that run at a time.
    most: usize,
    kept: Mutex<Kept>,
}

/// One, and what was set in it.
pub(super) struct State {
    pub(super) state: WhisperState,
    /// How many positions of the encoder it computes; `None`: not known.
    pub(super) positions: Option<usize>,
}

impl State {
    fn new(state: WhisperState) -> Self {
        Self { state, positions: None }
    }
}

#[derive(Default)]
struct Kept {
    /// Those that no decoding uses, the last used at the end.
    free: Vec<State>,
    /// These and those in use.
    n_made: usize,
    n_decoders: usize,
}

impl States {
    /// For `most` decodings at a time.
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Mutex::default() }
    }

    /// A decoder begins: makes a memory for it, unless there are enough, or others are being made. Blocks.
    ///
    /// # Errors
    /// There is no memory for it: the decoder does not begin.
    pub(super) fn join(&self, make: impl FnOnce() -> Result<WhisperState, WhisperError>) -> Result<(), WhisperError> {
        let mut kept = self.kept();
        let is_needed = kept.n_made < self.most;
        kept.n_decoders += 1;
        kept.n_made += usize::from(is_needed);
        drop(kept);
        if !is_needed {
            return Ok(());
        }
        match make() {
            Ok(state) => {
                self.give_back(State::new(state));
                Ok(())
            }
            Err(error) => {
                let mut kept = self.kept();
                kept.n_decoders -= 1;
                kept.n_made -= 1;
                Err(error)
            }
        }
    }

    /// A decoder ends: the memories of which there are more than decoders are freed.
    pub(super) fn leave(&self) {
        let mut kept = self.kept();
        kept.n_decoders -= 1;
        let n_spare = kept.n_made.saturating_sub(kept.n_decoders).min(kept.free.len());
        kept.n_made -= n_spare;
        let spare: Vec<State> = kept.free.drain(..n_spare).collect();
        drop(kept);
        drop(spare);
    }

    /// The memory that was used last, or a new one.
    ///
    /// # Errors
    /// There is no memory for it.
    pub(super) fn take(
        &self,
        make: impl FnOnce() -> Result<WhisperState, WhisperError>,
    ) -> Result<State, WhisperError> {
        let mut kept = self.kept();
        if let Some(state) = kept.free.pop() {
            return Ok(state);
        }
        kept.n_made += 1;
        drop(kept);
        match make() {
            Ok(state) => Ok(State::new(state)),
            Err(error) => {
                self.kept().n_made -= 1;
                Err(error)
            }
        }
    }

    /// Takes back what [`States::take`] gave.
    pub(super) fn give_back(&self, state: State) {
        self.kept().free.push(state);
    }

    /// Forgets one without freeing it again: whisper.cpp has done so. What is left behind is its hold on the model.
    pub(super) fn abandon(&self, state: State) {
        std::mem::forget(state.state);
        self.kept().n_made -= 1;
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn n_made(&self) -> usize {
        self.kept().n_made
    }
}
