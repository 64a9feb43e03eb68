//! A speech rate for engines whose model or server knows the usual one only: their sound is stretched as it comes.
//!
//! `speechlm` and `moshi` pass their streams through here.

use antiphon_audio::Stretcher;
use antiphon_engine_api::tts::TtsError;
use antiphon_types::Pcm;
use futures_util::stream::{BoxStream, StreamExt};

/// The sound at `speed` times its rate, 0.25 to 4.0, with the same pitch. A stream that is not at an end when its source fails
/// ends with that failure. Holds 40 ms of sound back.
pub(super) fn at_speed(
    mut sound: BoxStream<'static, Result<Pcm, TtsError>>,
    speed: f32,
) -> BoxStream<'static, Result<Pcm, TtsError>> {
    if !changes(speed) {
        return sound;
    }
    async_stream::stream! {
        let mut stretcher = None;
        while let Some(piece) = sound.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    yield Err(error);
                    return;
                }
            };
            let (_, stretcher) = stretcher.get_or_insert_with(|| (piece.rate, Stretcher::new(piece.rate, speed)));
            let samples = stretcher.push(&piece.samples);
            if !samples.is_empty() {
                yield Ok(Pcm { samples, ..piece });
            }
        }
        if let Some((rate, mut stretcher)) = stretcher {
            yield Ok(Pcm { rate, samples: stretcher.finish() });
        }
    }
    .boxed()
}

/// Whether a requested speed is another than the usual one.
pub(super) fn changes(speed: f32) -> bool {
    speed.is_finite() && (speed - 1.0).abs() > 0.01
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_types::SampleRate;
    use futures_util::stream;

    fn pieces(n: usize) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let samples = (0..480).map(|i| if i % 120 < 60 { 4_000 } else { -4_000 }).collect();
        let piece = Pcm { rate: SampleRate::HZ_24000, samples };
        stream::iter(std::iter::repeat_n(piece, n)).map(Ok).boxed()
    }

    async fn length(sound: BoxStream<'static, Result<Pcm, TtsError>>) -> usize {
        sound.map(|piece| piece.expect("sound").samples.len()).fold(0, |sum, n| async move { sum + n }).await
    }

    #[tokio::test]
    async fn sound_has_its_length_divided_by_the_speed() {
        for (speed, expected) in [(1.0, 24_000), (f32::NAN, 24_000), (2.0, 12_000), (0.5, 48_000), (0.1, 96_000)] {
            assert_eq!(length(at_speed(pieces(50), speed)).await, expected, "{speed}");
        }
        assert_eq!(length(at_speed(pieces(0), 2.0)).await, 0);
    }

    #[tokio::test]
    async fn a_failure_ends_it() {
        let failing = pieces(10).chain(stream::iter([Err(TtsError::Unavailable("no".into()))])).boxed();
        let mut sound = at_speed(failing, 2.0);
        let mut last = None;
        while let Some(piece) = sound.next().await {
            last = Some(piece);
        }
        assert!(matches!(last, Some(Err(TtsError::Unavailable(_)))));
    }
}
