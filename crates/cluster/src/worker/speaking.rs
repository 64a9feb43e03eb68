//! One chunk of speech on a worker.

use super::WorkerAttempt;
use super::admission::StageSlot;
use crate::frame::{Kind, MAX_AUDIO_SAMPLES, pcm_payload};
use crate::message::{Acceptance, Busy, Failure, TtsRequest, to_json};
use antiphon_engine_api::tts::{Passage, Tts, TtsError};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Texts that are remembered.
const MAX_PASSAGES: usize = 1_024;

/// Runs to the end of the chunk.
pub(super) async fn run(
    mut served: WorkerAttempt,
    engine: Arc<dyn Tts>,
    request: TtsRequest,
    passage: Option<Passage>,
    admitted: StageSlot,
) {
    let mut speech = {
        let mut own = request.request();
        own.passage = passage;
        let repeats = engine.repeats(&own);
        let mut speech = match request.queued {
            false => engine.speak(own),
            // It leaves room in the engine's queue to those who cannot wait.
            true => match engine.speak_queued(own).now_or_never() {
                Some(speech) => speech,
                None => {
                    let in_flight = admitted.in_flight();
                    drop(admitted);
                    return served.refuse(&Busy { is_draining: false, in_flight });
                }
            },
        };
        // An engine whose queue is full says so at once.
        let first = speech.next().now_or_never();
        if let Some(Some(Err(TtsError::Overloaded { waiting }))) = first {
            drop(admitted);
            return served.refuse(&Busy { is_draining: false, in_flight: waiting });
        }
        served.exchange.send_now(Kind::Accepted, to_json(&Acceptance { repeats }));
        futures_util::stream::iter(first.flatten()).chain(speech)
    };
    let mut n_skipped = request.skip_samples;
    let mut rate = None;
    let mut payloads = VecDeque::<(Kind, Bytes)>::new();
    loop {
        if let Some((kind, payload)) = payloads.pop_front() {
            // While the hub has no room, the engine is not asked for more.
            match served.exchange.credit_for(payload.len()).await {
                Ok(()) => served.exchange.send_now(kind, payload),
                Err(ended) => return served.ended(ended),
            }
            continue;
        }
        let pcm = tokio::select! {
            biased;
            received = served.exchange.receive() => match received {
                // The opening frame itself; a chunk has no other.
                Ok(_) => continue,
                Err(ended) => return served.ended(ended),
            },
            pcm = speech.next() => pcm,
        };
        match pcm {
            Some(Ok(pcm)) => {
                if rate != Some(pcm.rate) {
                    rate = Some(pcm.rate);
                    admitted.made(pcm.rate.hz());
                    payloads.push_back((Kind::Rate, Bytes::copy_from_slice(&pcm.rate.hz().to_be_bytes())));
                }
                let n = usize::try_from(n_skipped).unwrap_or(usize::MAX).min(pcm.samples.len());
                n_skipped -= n as u64;
                for samples in pcm.samples[n..].chunks(MAX_AUDIO_SAMPLES) {
                    payloads.push_back((Kind::Audio, pcm_payload(samples)));
                }
            }
            Some(Err(error)) => {
                drop((speech, admitted));
                return served.end(Kind::Failed, to_json(&Failure::of_tts(&error))).await;
            }
            None => {
                drop((speech, admitted));
                return served.end(Kind::End, Bytes::new()).await;
            }
        }
    }
}

/// The texts of all hubs, as this process numbers them.
#[derive(Default)]
pub(super) struct Passages(Mutex<VecDeque<((String, u64), Passage)>>);

impl Passages {
    /// The passage of a hub's text, at this place.
    pub(super) fn of(&self, hub: &str, passage: Option<(u64, u32)>) -> Option<Passage> {
        let (text, place) = passage?;
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.iter().position(|((of, number), _)| of == hub && *number == text);
        let first = match found.and_then(|at| known.remove(at)) {
            Some((_, first)) => first,
            None => Passage::first(),
        };
        if known.len() == MAX_PASSAGES {
            known.pop_front();
        }
        known.push_back(((hub.to_owned(), text), first));
        Some(first.at(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hubs_text_keeps_its_passage() {
        let passages = Passages::default();
        let one = passages.of("a", Some((1, 0))).unwrap();
        assert_eq!(passages.of("a", Some((1, 1))), Some(one.following()));
        assert_ne!(passages.of("b", Some((1, 0))), Some(one), "another hub's");
        assert_eq!(passages.of("a", None), None);
        for text in 2..2 * MAX_PASSAGES as u64 {
            passages.of("a", Some((text, 0)));
        }
        assert_eq!(passages.0.lock().unwrap().len(), MAX_PASSAGES);
    }
}
