//! Audio that comes whole with an item of the client's, instead of through the microphone's buffer.
//!
//! Called by the actor: it checks the parts before anything is done, tells the reducer how long they are, and feeds
//! each to a transcription of its own when the reducer asks for it. Nothing is decoded before.

use super::actor::Actor;
use super::transcription_task::{PIECE_SAMPLES, TranscriptionInput};
use super::translate;
use antiphon_audio::Resampler;
use antiphon_audio::codec;
use antiphon_dialog::Command;
use antiphon_protocol::{ClientEvent, Content, InputItem, Item, ItemBody, WireError};
use antiphon_types::Format;
use antiphon_types::{SampleRate, Samples};
use bytes::Bytes;
use std::collections::VecDeque;
use tokio::sync::mpsc;

const RATE: SampleRate = SampleRate::HZ_16000;

/// Spoken parts of one event: each takes a decoder.
const MAX_PARTS: usize = 4;

/// Bytes decoded at once: 100 ms of PCM at 24 kHz.
const STEP_BYTES: usize = 4_800;

/// The audio of one item.
pub(super) struct InlineAudio {
    audio: Bytes,
    format: Format,
}

impl InlineAudio {
    /// At 16 kHz.
    fn length(&self) -> Samples {
        let n = (self.audio.len() / self.format.bytes_per_sample()) as u64;
        Samples(n * u64::from(RATE.hz()) / u64::from(self.format.rate().hz()))
    }

    /// Decodes it into a transcription's feed. Waits while that is full; ends early when nobody listens.
    pub(super) async fn feed(self, feed: mpsc::Sender<TranscriptionInput>) {
        let mut resampler = Resampler::new(self.format.rate(), RATE);
        let (mut samples, mut piece) = (Vec::new(), Vec::with_capacity(2 * PIECE_SAMPLES));
        for bytes in self.audio.chunks(STEP_BYTES) {
            samples.clear();
            codec::decode(self.format, bytes, &mut samples).expect("the length was checked");
            resampler.process(&samples, &mut piece);
            // Pieces as the microphone has them: a feed is bounded by their number.
            while piece.len() >= PIECE_SAMPLES {
                let rest = piece.split_off(PIECE_SAMPLES);
                if feed.send(TranscriptionInput::Pcm(std::mem::replace(&mut piece, rest))).await.is_err() {
                    return;
                }
            }
        }
        resampler.flush(&mut piece);
        let _ = feed.send(TranscriptionInput::Pcm(piece)).await;
        let _ = feed.send(TranscriptionInput::Finish { as_guessed: false }).await;
    }
}

impl Actor {
    /// The spoken parts of an event's items that have no transcript, in order, checked.
    pub(super) fn spoken_parts(&self, event: &ClientEvent) -> Result<VecDeque<InlineAudio>, WireError> {
        let mut given = VecDeque::new();
        match event {
            ClientEvent::ItemCreate { item, .. } => given.extend(self.spoken_part(item, "item")?),
            ClientEvent::ResponseCreate(params) => {
                for (n, entry) in params.input.iter().flatten().enumerate() {
                    if let InputItem::Item(item) = entry {
                        given.extend(self.spoken_part(item, &format!("response.input[{n}]"))?);
                    }
                }
            }
            _ => {}
        }
        if given.len() > MAX_PARTS {
            let message = format!("At most {MAX_PARTS} 'input_audio' parts without a 'transcript' may come at once.");
            return Err(WireError::invalid("invalid_value", message, Some("response.input")));
        }
        Ok(given)
    }

    fn spoken_part(&self, item: &Item, path: &str) -> Result<Option<InlineAudio>, WireError> {
        let ItemBody::Message { content, .. } = &item.body else { return Ok(None) };
        let mut parts = content.iter().enumerate().filter_map(|(n, part)| match part {
            Content::InputAudio { audio: Some(audio), transcript: None } => Some((n, audio)),
            _ => None,
        });
        let Some((n, audio)) = parts.next() else { return Ok(None) };
        if let Some((n, _)) = parts.next() {
            let message = "An item has at most one 'input_audio' part without a 'transcript'.";
            return Err(WireError::invalid("invalid_value", message, Some(&format!("{path}.content[{n}]"))));
        }
        let given = InlineAudio { audio: audio.clone(), format: translate::format(self.session.audio.input.format) };
        let (path, limit) = (format!("{path}.content[{n}].audio"), self.max_utterance());
        let problem = if audio.len() % given.format.bytes_per_sample() != 0 {
            "it ends in the middle of a sample".to_owned()
        } else if given.length() > limit {
            format!("it is longer than {} s", limit.duration(RATE).as_secs())
        } else {
            return Ok(Some(given));
        };
        Err(WireError::invalid("invalid_value", format!("Invalid '{path}': {problem}."), Some(&path)))
    }

    /// Tells a command how long the audio is that came with it.
    pub(super) fn tell_lengths(&self, command: &mut Command) {
        let lengths = self.given.iter().map(InlineAudio::length);
        match command {
            Command::Respond(request) => request.spoken = lengths.collect(),
            Command::CreateItem { item, place } => {
                if let Some(length) = self.given.front().map(InlineAudio::length) {
                    let (item, place) = (item.clone(), place.clone());
                    *command = Command::CreateSpokenItem { item, place, length };
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_comes_in_the_pieces_of_a_microphone() {
        let audio = Bytes::from(vec![0; 10 * STEP_BYTES]);
        let given = InlineAudio { audio, format: Format::Pcm16 };
        let (sender, mut feed) = mpsc::channel(100);
        given.feed(sender).await;
        let mut lengths = Vec::new();
        while let Some(fed) = feed.recv().await {
            match fed {
                TranscriptionInput::Pcm(pcm) => lengths.push(pcm.len()),
                _ => break,
            }
        }
        let last = lengths.pop().expect("some");
        assert!(lengths.iter().all(|n| *n == PIECE_SAMPLES) && last <= 2 * PIECE_SAMPLES, "{lengths:?}, {last}");
        assert!(lengths.len() >= 14, "a second: {lengths:?}");
    }
}
