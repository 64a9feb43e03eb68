//! A sound file to stretches of speech, on a thread for what computes.
//!
//! Decoding and voice activity run there; a stretch is handed over when the last one was taken, so that of hours of audio
//! half a minute is held at a time. The thread ends with its reader; the end of the file is reported.

use super::cutting::{Cutter, Stretch};
use super::error::ApiError;
use antiphon_audio::decode::{self, DecodeError, Decoder};
use antiphon_engine_api::vad::{RATE, Vad};
use bytes::Bytes;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

/// Stretches that wait to be written down.
const STRETCHES: usize = 1;
/// Audio that is looked at in one go: a second.
const BLOCK: usize = RATE.hz() as usize;

/// Looks through a file: how long it is.
pub(super) async fn duration(file: Bytes, longest: Duration) -> Result<Duration, ApiError> {
    let looked = spawn_blocking(move || decode::duration(file, longest)).await;
    Ok(looked.map_err(|error| broken(&error))??)
}

/// The stretches of a file, as they are cut.
pub(super) struct Stretches(mpsc::Receiver<Result<Option<Stretch>, ApiError>>);

impl Stretches {
    /// The next one; `None`: that was all. Behind an error there is nothing more to ask for.
    pub(super) async fn next(&mut self) -> Result<Option<Stretch>, ApiError> {
        // The end is reported: without that, the thread has panicked.
        self.0.recv().await.unwrap_or_else(|| Err(broken(&"its thread panicked")))
    }
}

/// Decodes and cuts it.
///
/// `long`: into stretches of nearly 30 s, where the speech lasts as long.
pub(super) fn stretches(file: Bytes, longest: Duration, vad: Arc<dyn Vad>, long: bool) -> Stretches {
    let (sender, stretches) = mpsc::channel(STRETCHES);
    spawn_blocking(move || {
        let hand_over = |stretches: &mut Vec<Stretch>| {
            stretches.drain(..).all(|stretch| sender.blocking_send(Ok(Some(stretch))).is_ok())
        };
        let cut = || -> Result<(), ApiError> {
            let mut decoder = Decoder::open(file, RATE, longest)?;
            let mut cutter = Cutter::new(&*vad, long);
            let mut pcm = Vec::new();
            let mut ready = Vec::new();
            while decoder.next(&mut pcm)? {
                if pcm.len() < BLOCK {
                    continue;
                }
                cutter.push(&pcm, &mut ready).map_err(|error| ApiError::internal("The voice detector", &error))?;
                pcm.clear();
                if !hand_over(&mut ready) || sender.is_closed() {
                    return Ok(());
                }
            }
            cutter.push(&pcm, &mut ready).map_err(|error| ApiError::internal("The voice detector", &error))?;
            cutter.finish(&mut ready);
            hand_over(&mut ready);
            Ok(())
        };
        // Whether anybody takes it is theirs.
        let _ = sender.blocking_send(cut().map(|()| None));
    });
    Stretches(stretches)
}

/// A decoder that panics has met a file that is broken in a way of its own.
fn broken(error: &dyn Display) -> ApiError {
    tracing::warn!(%error, "a sound file could not be looked through");
    DecodeError::Broken("its structure makes no sense".into()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_audio::encode::{self, Encoder, FileFormat};
    use antiphon_engine_api::fakes::vad::FakeVad;
    use antiphon_engine_api::vad::{VadError, VadStream};

    /// Panics at its so many-th window.
    struct Panics(usize);

    impl Vad for Panics {
        fn name(&self) -> &str {
            "panics"
        }

        fn window(&self) -> usize {
            FakeVad.window()
        }

        fn open(&self) -> Box<dyn VadStream> {
            Box::new(Self(self.0))
        }
    }

    impl VadStream for Panics {
        fn probability(&mut self, window: &[i16]) -> Result<f32, VadError> {
            self.0 = self.0.checked_sub(1).expect("a panic that was asked for");
            Ok(if window[0] != 0 { 1.0 } else { 0.0 })
        }
    }

    /// Speech of a second and silence of three.
    fn file() -> Bytes {
        let mut encoder = Encoder::new(FileFormat::Wav).expect("made");
        let mut file = Vec::new();
        let second = encode::RATE.hz() as usize;
        encoder.push(&vec![9_000; second], &mut file).expect("encoded");
        encoder.push(&vec![0; 3 * second], &mut file).expect("encoded");
        encoder.finish(&mut file).expect("ended");
        file.into()
    }

    #[tokio::test]
    async fn all_of_it_comes_and_then_its_end() {
        let mut stretches = stretches(file(), Duration::from_secs(60), Arc::new(FakeVad), false);
        assert!(stretches.next().await.expect("cut").is_some());
        assert_eq!(stretches.next().await, Ok(None));
    }

    #[tokio::test]
    async fn a_panic_on_the_way_is_no_end() {
        let windows = 3 * RATE.hz() as usize / FakeVad.window();
        let mut stretches = stretches(file(), Duration::from_secs(60), Arc::new(Panics(windows)), false);
        assert!(stretches.next().await.expect("cut before it").is_some());
        assert_eq!(stretches.next().await.expect_err("no end").code, "invalid_audio");
    }
}
