//! What an actor and the tasks it has started say to each other about an utterance, and how much of it may wait.
//!
//! `utterance` and `given` fill a feed, `hearing` empties it; reports come from all tasks that answer the actor. Nothing
//! here runs.

use antiphon_engine_api::stt::{SpeakerState, SttError, Transcript};
use antiphon_types::{ItemId, Samples};
use std::time::Duration;

/// Pieces a feed holds: 30 s of audio, 960 KB at most.
pub(super) const FEED_PIECES: usize = 30_000 / PIECE_MS;
/// Samples of a piece at 16 kHz: four VAD windows. Shorter pieces cost a thread hop each, longer ones leave more to
/// decode once the end of the turn is known.
pub(super) const PIECE_SAMPLES: usize = 1_024;
const PIECE_MS: usize = PIECE_SAMPLES / 16;

/// What the actor sends.
pub(super) enum TranscriptionInput {
    /// Mono PCM at 16 kHz.
    Pcm(Vec<i16>),
    /// The speaker pauses: what are the words so far?
    Ask,
    /// The speaker pauses: what would the transcript be if this were the end?
    Guess,
    /// It was not.
    Resumed,
    /// The utterance is complete.
    Finish {
        /// Nothing but silence has come since the guess: it is the transcript.
        as_guessed: bool,
    },
}

/// What comes back.
pub(super) enum Report {
    /// The words so far. May be dropped when the actor is busy: the next one holds them too.
    Partial {
        /// The utterance.
        item: ItemId,
        /// The words.
        text: String,
        /// Of so much audio from the utterance's beginning.
        n_heard: Samples,
    },
    /// It has got its decoder, after so long.
    Opened {
        /// The utterance.
        item: ItemId,
        /// The wait.
        waited: Duration,
    },
    /// What the transcript would be if this were the end.
    ProvisionalTranscript {
        /// The utterance.
        item: ItemId,
        /// The words.
        text: String,
        /// Of so much audio from the utterance's beginning.
        n_heard: Samples,
    },
    /// The transcript; the last that is reported where nothing is learnt.
    Final {
        /// The utterance.
        item: ItemId,
        /// All its words.
        result: Result<Transcript, SttError>,
        /// Whether [`Report::Learnt`] follows.
        learns: bool,
    },
    /// The turn model's answer at a pause.
    Judged {
        /// Turn time at which the pause began.
        said_to: Samples,
        /// That the turn is over.
        probability: f32,
    },
    /// What was learnt of the speaker, behind the transcript.
    Learnt(ItemId, Option<SpeakerState>),
    /// A remote server's tools, or that they could not be had.
    Listed(ItemId, super::remote::Listed),
    /// A remote call's end.
    Called(ItemId, Result<String, antiphon_types::mcp::CallError>),
}
