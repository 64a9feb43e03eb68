//! One utterance on a worker.

use super::WorkerAttempt;
use super::admission::StageSlot;
use crate::exchange::ExchangeEnd;
use crate::frame::{Frame, Kind, pcm_samples};
use crate::message::{Answer, Busy, Failure, to_json};
use antiphon_engine_api::Fault;
use antiphon_engine_api::stt::{Stt, SttError, SttOptions, SttUtterance, Transcript};
use bytes::Bytes;
use futures_util::FutureExt;
use std::sync::Arc;

/// Runs to the end of the utterance.
pub(super) async fn run(
    mut served: WorkerAttempt,
    engine: Arc<dyn Stt>,
    options: SttOptions,
    queued: bool,
    admitted: StageSlot,
) {
    let mut opening = match queued {
        false => engine.open(options),
        // It leaves room in the engine's queue to those who cannot wait.
        true => match engine.open_queued(options).now_or_never() {
            Some(opening) => opening,
            None => {
                let in_flight = admitted.in_flight();
                drop(admitted);
                return served.refuse(&Busy { is_draining: false, in_flight });
            }
        },
    };
    // An engine whose queue is full says so at once; otherwise the wait for a decoder begins.
    let first = (&mut opening).now_or_never();
    if let Some(Err(SttError::Busy { waiting })) = first {
        drop(admitted);
        return served.refuse(&Busy { is_draining: false, in_flight: waiting });
    }
    served.exchange.send_now(Kind::Accepted, Bytes::from_static(b"{}"));
    let opened = match first {
        Some(opened) => opened,
        None => tokio::select! {
            biased;
            opened = opening => opened,
            ended = served.exchange.ended() => return served.ended(ended),
        },
    };
    let result = match opened {
        Ok(utterance) => transcribe(&mut served, utterance).await,
        Err(error) => Err(Stop::Failed(error)),
    };
    drop(admitted);
    match result {
        Ok(()) => served.settle().await,
        Err(Stop::Failed(error)) => served.end(Kind::Failed, to_json(&Failure::of_stt(&error))).await,
        Err(Stop::Ended(ended)) => served.ended(ended),
    }
}

/// Why an utterance ends without its transcript.
enum Stop {
    Failed(SttError),
    Ended(ExchangeEnd),
}

impl From<ExchangeEnd> for Stop {
    fn from(ended: ExchangeEnd) -> Self {
        match ended {
            ExchangeEnd::TooLarge(n) => {
                let message = format!("the transcript has {n} bytes, more than a worker may answer with");
                // Of another worker it would be as long.
                Self::Failed(SttError::Remote { fault: Fault::BadAnswer, message, source: None })
            }
            ended => Self::Ended(ended),
        }
    }
}

async fn transcribe(served: &mut WorkerAttempt, mut utterance: Box<dyn SttUtterance>) -> Result<(), Stop> {
    loop {
        let (frame, at) = served.exchange.receive().await?;
        served.exchange.answers(at);
        let request = number(&frame);
        let answer = match frame.kind {
            Kind::Audio => {
                let pcm = pcm_samples(&frame.payload).collect();
                tokio::select! {
                    biased;
                    pushed = utterance.push(pcm) => pushed.map_err(Stop::Failed)?,
                    ended = served.exchange.ended() => return Err(ended.into()),
                }
                continue;
            }
            Kind::Partial => {
                let Some(partial) = unless_superseded(served, utterance.partial()).await? else { continue };
                match partial {
                    Ok(transcript) => Answer::Partial { request, transcript: transcript.map(finite) },
                    Err(error) => Answer::NoTranscript { request, failure: Failure::of_stt(&error) },
                }
            }
            Kind::Provisional => {
                let Some(provisional) = unless_superseded(served, utterance.provisional()).await? else { continue };
                match provisional {
                    Ok(transcript) => Answer::Transcript { request, transcript: finite(transcript) },
                    Err(error) => Answer::NoTranscript { request, failure: Failure::of_stt(&error) },
                }
            }
            Kind::Finish => {
                let transcript = unless_ended(served, utterance.finish()).await?.map_err(Stop::Failed)?;
                let transcript = finite(transcript);
                served.exchange.send(Kind::Answer, to_json(&Answer::Transcript { request, transcript })).await?;
                return Ok(());
            }
            Kind::Learn => {
                let speaker = unless_ended(served, utterance.learn()).await?;
                served.exchange.send(Kind::Answer, to_json(&Answer::Learnt { request, speaker })).await?;
                return Ok(());
            }
            // The opening frame, and a request that was given up and is not under way any more.
            _ => continue,
        };
        served.exchange.send(Kind::Answer, to_json(&answer)).await?;
    }
}

/// The same without numbers that JSON cannot hold: the logarithm of a probability of zero.
fn finite(mut transcript: Transcript) -> Transcript {
    for token in transcript.logprobs.iter_mut().flatten() {
        token.logprob = if token.logprob.is_nan() { f64::MIN } else { token.logprob.clamp(f64::MIN, f64::MAX) };
    }
    transcript
}

/// The number of a request, which its answer repeats.
fn number(frame: &Frame) -> u32 {
    frame.payload.as_ref().try_into().map_or(0, u32::from_be_bytes)
}

/// Whatever the hub sends next, it does not wait for this result any more; dropping the work stops the engine.
async fn unless_superseded<T>(
    served: &mut WorkerAttempt,
    work: impl Future<Output = T>,
) -> Result<Option<T>, ExchangeEnd> {
    tokio::select! {
        biased;
        result = work => Ok(Some(result)),
        arrived = served.exchange.arrival() => arrived.map(|()| None),
    }
}

async fn unless_ended<T>(served: &mut WorkerAttempt, work: impl Future<Output = T>) -> Result<T, ExchangeEnd> {
    tokio::select! {
        biased;
        result = work => Ok(result),
        ended = served.exchange.ended() => Err(ended),
    }
}
