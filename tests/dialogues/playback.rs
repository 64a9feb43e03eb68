//! The client's loudspeaker: plays received audio in real (virtual) time.

use std::time::Duration;
use tokio::time::Instant;

/// A piece of an item's audio.
struct Piece {
    item: String,
    from: Instant,
    to: Instant,
    pcm: Vec<i16>,
}

/// The loudspeaker. It plays pieces one after the other.
#[derive(Default)]
pub struct Playback {
    pieces: Vec<Piece>,
    /// The item played last, since the last response began.
    pub item: Option<String>,
    /// When playback was held.
    held: Option<Instant>,
}

impl Playback {
    /// Queues audio of an item at 24 kHz.
    pub fn push(&mut self, item: &str, pcm: Vec<i16>) {
        let from = self.pieces.last().map_or_else(Instant::now, |last| last.to.max(Instant::now()));
        let to = from + Duration::from_micros(pcm.len() as u64 * 1_000_000 / 24_000);
        self.pieces.push(Piece { item: item.to_owned(), from, to, pcm });
        self.item = Some(item.to_owned());
    }

    /// Holds playback after the current piece.
    pub fn hold(&mut self) {
        self.held = Some(Instant::now());
    }

    /// Continues where playback was held.
    pub fn resume(&mut self) {
        let Some(held) = self.held.take() else { return };
        for piece in self.pieces.iter_mut().filter(|piece| piece.from >= held) {
            piece.from += held.elapsed();
            piece.to += held.elapsed();
        }
    }

    /// Drops what has not been played.
    pub fn stop(&mut self) {
        let now = self.held.take().unwrap_or_else(Instant::now);
        self.pieces.retain_mut(|piece| {
            piece.to = piece.to.min(now);
            piece.from < now
        });
    }

    /// How much of the last item was played, in milliseconds.
    pub fn heard_ms(&self) -> u64 {
        let now = self.held.unwrap_or_else(Instant::now);
        let of_item = self.pieces.iter().filter(|piece| self.item.as_ref() == Some(&piece.item));
        let heard: Duration = of_item.map(|piece| piece.to.min(now).saturating_duration_since(piece.from)).sum();
        heard.as_millis() as u64
    }

    /// Whether audio remains to be played.
    pub fn is_playing(&self) -> bool {
        self.pieces.last().is_some_and(|last| last.to > Instant::now())
    }

    /// The `n` samples played from `at` on.
    pub fn sound(&self, at: Instant, n: usize) -> Vec<i16> {
        let mut sound = vec![0; n];
        for piece in self.pieces.iter().filter(|piece| self.held.is_none_or(|held| piece.from < held)) {
            let first = samples(piece.from.saturating_duration_since(at));
            let skipped = samples(at.saturating_duration_since(piece.from));
            let length = samples(piece.to - piece.from);
            let left = piece.pcm.iter().take(length).skip(skipped);
            sound.iter_mut().skip(first).zip(left).for_each(|(out, sample)| *out = *sample);
        }
        sound
    }
}

fn samples(time: Duration) -> usize {
    (time.as_micros() * 24_000 / 1_000_000) as usize
}
