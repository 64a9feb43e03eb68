//! A sound file to stretches of speech, on a thread for what computes.
//!
//! Decoding and voice activity run there; a stretch is handed over when the last one was taken, so that of hours of audio
//! half a minute is held at a time. The thread ends when its reader has gone.

use super::cutting::{Cutter, Stretch};
use super::error::ApiError;
use crate::audio::decode::{self, DecodeError, Decoder};
use crate::vad::{RATE, Vad};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};

/// Stretches that wait to be written down.
const STRETCHES: usize = 1;
/// Audio that is looked at in one go: a second.
const BLOCK: usize = RATE.hz() as usize;

/// Looks through a file: how long it is.
pub(super) async fn duration(file: Bytes, longest: Duration) -> Result<Duration, ApiError> {
    let looked = spawn_blocking(move || decode::duration(file, longest)).await;
    Ok(looked.map_err(broken)??)
}

/// Decodes and cuts it. The channel ends behind the last stretch or the first error.
pub(super) fn stretches(
    file: Bytes,
    longest: Duration,
    vad: Arc<dyn Vad>,
) -> mpsc::Receiver<Result<Stretch, ApiError>> {
    let (sender, stretches) = mpsc::channel(STRETCHES);
    spawn_blocking(move || {
        let hand_over =
            |stretches: &mut Vec<Stretch>| stretches.drain(..).all(|stretch| sender.blocking_send(Ok(stretch)).is_ok());
        let cut = || -> Result<(), ApiError> {
            let mut decoder = Decoder::open(file, RATE, longest)?;
            let (mut cutter, mut pcm, mut ready) = (Cutter::new(&*vad), Vec::new(), Vec::new());
            while decoder.next(&mut pcm)? {
                if pcm.len() < BLOCK {
                    continue;
                }
                cutter.push(&pcm, &mut ready).map_err(|error| ApiError::failed(error.to_string()))?;
                pcm.clear();
                if !hand_over(&mut ready) || sender.is_closed() {
                    return Ok(());
                }
            }
            cutter.push(&pcm, &mut ready).map_err(|error| ApiError::failed(error.to_string()))?;
            cutter.finish(&mut ready);
            hand_over(&mut ready);
            Ok(())
        };
        if let Err(error) = cut() {
            let _ = sender.blocking_send(Err(error));
        }
    });
    stretches
}

/// A decoder that panics has met a file that is broken in a way of its own.
fn broken(error: JoinError) -> ApiError {
    tracing::warn!(%error, "a sound file could not be looked through");
    DecodeError::Broken("its structure makes no sense".into()).into()
}
