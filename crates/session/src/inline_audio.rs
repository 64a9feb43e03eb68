//! Inline audio: audio that a client sends inside an item instead of through the input buffer.
//!
//! The client's side of a session validates all parts of an event before the reducer sees the event, the actor reports their lengths
//! with the command, and hearing feeds each to a transcription of its own when the reducer requests that by the item's id. Nothing is
//! decoded earlier.

use super::transcription_input::{PIECE_SAMPLES, TranscriptionInput};
use antiphon_audio::Resampler;
use antiphon_audio::codec;
use antiphon_dialog::{Command, SpokenInput};
use antiphon_protocol::{ClientEvent, Content, InputItem, Item, ItemBody, WireError};
use antiphon_types::Format;
use antiphon_types::{IdMint, ItemId, SampleRate, Samples};
use bytes::Bytes;
use tokio::sync::mpsc;

const RATE: SampleRate = SampleRate::HZ_16000;

/// Spoken parts of one event: each takes a decoder.
const MAX_PARTS: usize = 4;

/// Bytes decoded at once: 100 ms of PCM at 24 kHz.
const STEP_BYTES: usize = 4_800;

/// The audio of one item.
pub(super) struct InlineAudio {
    pub(super) item: ItemId,
    audio: Bytes,
    format: Format,
}

impl InlineAudio {
    /// At 16 kHz.
    pub(super) fn length(&self) -> Samples {
        length(&self.audio, self.format)
    }

    /// Decodes it into a transcription's input queue. Waits while that is full; ends early when the transcription has.
    pub(super) async fn send(self, input: mpsc::Sender<TranscriptionInput>) {
        let mut resampler = Resampler::new(self.format.rate(), RATE);
        let mut samples = Vec::new();
        let mut piece = Vec::with_capacity(2 * PIECE_SAMPLES);
        for bytes in self.audio.chunks(STEP_BYTES) {
            samples.clear();
            codec::decode(self.format, bytes, &mut samples).expect("the length was checked");
            resampler.process(&samples, &mut piece);
            // Pieces of the microphone's size: the queue is bounded by their number.
            while piece.len() >= PIECE_SAMPLES {
                let rest = piece.split_off(PIECE_SAMPLES);
                if input.send(TranscriptionInput::Pcm(std::mem::replace(&mut piece, rest))).await.is_err() {
                    return;
                }
            }
        }
        resampler.flush(&mut piece);
        let _ = input.send(TranscriptionInput::Pcm(piece)).await;
        let _ = input.send(TranscriptionInput::Finish { confirms_provisional: false }).await;
    }
}

/// The spoken parts of an event's items that have no transcript, validated: each in `format` and at most `limit` long. Their items
/// get ids: a new item unless the client has chosen one, an item of a response's own input in any case. There no id of the client's
/// counts: it may be that of an item of the conversation, of which the input is no part.
pub(super) fn take(
    event: &mut ClientEvent,
    ids: &mut IdMint,
    format: Format,
    limit: Samples,
) -> Result<Vec<InlineAudio>, WireError> {
    let mut inline = Vec::new();
    match event {
        ClientEvent::ItemCreate { item, .. } => {
            if let Some(audio) = spoken_part(item, "item", format, limit)? {
                let item = item.id.get_or_insert_with(|| new_id(ids)).clone();
                inline.push(InlineAudio { item, audio, format });
            }
        }
        ClientEvent::ResponseCreate(params) => {
            for (n, entry) in params.input.iter_mut().flatten().enumerate() {
                let InputItem::Item(item) = entry else { continue };
                item.id = None;
                if let Some(audio) = spoken_part(item, &format!("response.input[{n}]"), format, limit)? {
                    let item = item.id.insert(new_id(ids)).clone();
                    inline.push(InlineAudio { item, audio, format });
                }
            }
        }
        _ => {}
    }
    if inline.len() > MAX_PARTS {
        let message = format!("At most {MAX_PARTS} 'input_audio' parts without a 'transcript' may come at once.");
        return Err(WireError::invalid("invalid_value", message, Some("response.input")));
    }
    Ok(inline)
}

fn spoken_part(item: &Item, path: &str, format: Format, limit: Samples) -> Result<Option<Bytes>, WireError> {
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
    let path = format!("{path}.content[{n}].audio");
    let problem = if audio.len() % format.bytes_per_sample() != 0 {
        "it ends in the middle of a sample".to_owned()
    } else if length(audio, format) > limit {
        format!("it is longer than {} s", limit.duration(RATE).as_secs())
    } else {
        return Ok(Some(audio.clone()));
    };
    Err(WireError::invalid("invalid_value", format!("Invalid '{path}': {problem}."), Some(&path)))
}

/// The command with the lengths of the inline audio that its event carried.
pub(super) fn with_lengths(command: Command, inline: &[InlineAudio]) -> Command {
    match command {
        Command::CreateResponse(mut request) => {
            let spoken = inline.iter().map(|audio| SpokenInput { item: audio.item.clone(), length: audio.length() });
            request.spoken_input = spoken.collect();
            Command::CreateResponse(request)
        }
        Command::CreateItem { item, place } => match inline.iter().find(|audio| audio.item == item.id) {
            Some(audio) => Command::CreateSpokenItem { item, place, length: audio.length() },
            None => Command::CreateItem { item, place },
        },
        other => other,
    }
}

fn new_id(ids: &mut IdMint) -> ItemId {
    ids.next("item").into()
}

/// At 16 kHz.
fn length(audio: &Bytes, format: Format) -> Samples {
    let n = (audio.len() / format.bytes_per_sample()) as u64;
    Samples(n * u64::from(RATE.hz()) / u64::from(format.rate().hz()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_comes_in_the_pieces_of_a_microphone() {
        let audio = Bytes::from(vec![0; 10 * STEP_BYTES]);
        let inline = InlineAudio { item: "item_1".into(), audio, format: Format::Pcm16 };
        let (sender, mut input) = mpsc::channel(100);
        inline.send(sender).await;
        let mut lengths = Vec::new();
        while let Some(piece) = input.recv().await {
            match piece {
                TranscriptionInput::Pcm(pcm) => lengths.push(pcm.len()),
                _ => break,
            }
        }
        let last = lengths.pop().expect("some");
        assert!(lengths.iter().all(|n| *n == PIECE_SAMPLES) && last <= 2 * PIECE_SAMPLES, "{lengths:?}, {last}");
        assert!(lengths.len() >= 14, "a second: {lengths:?}");
    }
}
