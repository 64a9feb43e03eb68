//! Workers first, and the hub's own engines where no worker can serve: `cluster.fallback`.
//!
//! The choice is made for each request before anything of it was heard; a request that has begun stays where it is.

use super::tts::UNKNOWN_VOICE;
use antiphon_engine_api::stt::{OpeningUtterance, Stt, SttError, SttOptions, SttUtterance};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError, Voice};
use antiphon_engine_api::turn::{TurnModel, TurnModelError};
use antiphon_types::{Pcm, Samples};
use async_stream::stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::sync::Arc;

/// The workers' recognizers, and `local` where no worker can serve.
pub fn with_local_stt(workers: Arc<dyn Stt>, local: Arc<dyn Stt>) -> Arc<dyn Stt> {
    Arc::new(Fallback { workers, local })
}

/// The workers' voices, and `local` where no worker can serve.
pub fn with_local_tts(workers: Arc<dyn Tts>, local: Arc<dyn Tts>) -> Arc<dyn Tts> {
    Arc::new(Fallback { workers, local })
}

/// The workers' turn models, and `local` where no worker can serve.
pub fn with_local_turn(workers: Arc<dyn TurnModel>, local: Arc<dyn TurnModel>) -> Arc<dyn TurnModel> {
    Arc::new(Fallback { workers, local })
}

struct Fallback<T: ?Sized> {
    workers: Arc<T>,
    local: Arc<T>,
}

fn falls_back(stage: &'static str, error: &dyn std::error::Error) {
    tracing::debug!(stage, %error, "no worker serves; the hub's own engine does");
}

impl Stt for Fallback<dyn Stt> {
    fn name(&self) -> &str {
        self.workers.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        self.local.warm()
    }

    fn translates(&self) -> bool {
        self.workers.translates() && self.local.translates()
    }

    fn languages(&self) -> Option<Vec<String>> {
        self.workers.languages().or_else(|| self.local.languages())
    }

    fn detects_language(&self) -> bool {
        self.workers.detects_language() && self.local.detects_language()
    }

    fn takes_long_stretches(&self, timed: bool) -> bool {
        self.workers.takes_long_stretches(timed) && self.local.takes_long_stretches(timed)
    }

    fn waiting(&self) -> usize {
        self.workers.waiting() + self.local.waiting()
    }

    fn in_service(&self) -> usize {
        self.workers.in_service() + self.local.in_service()
    }

    fn concurrency(&self) -> usize {
        self.workers.concurrency() + self.local.concurrency()
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let opening = self.workers.open(options.clone());
        let local = self.local.clone();
        Box::pin(async move {
            match opening.await {
                Err(error @ (SttError::Away(_) | SttError::Busy { .. })) => {
                    falls_back("stt", &error);
                    local.open(options).await
                }
                opened => opened,
            }
        })
    }

    #[allow(clippy::async_yields_async, reason = "there are two waits: for room, and for a decoder")]
    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        let opening = self.workers.open(options.clone());
        let local = self.local.clone();
        Box::pin(async move {
            match opening.await {
                Err(error @ (SttError::Away(_) | SttError::Busy { .. })) => {
                    falls_back("stt", &error);
                    local.open_queued(options).await
                }
                opened => Box::pin(std::future::ready(opened)) as OpeningUtterance,
            }
        })
    }
}

impl Tts for Fallback<dyn Tts> {
    fn name(&self) -> &str {
        self.workers.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), TtsError>> {
        self.local.warm()
    }

    fn waiting(&self) -> usize {
        self.workers.waiting() + self.local.waiting()
    }

    fn in_service(&self) -> usize {
        self.workers.in_service() + self.local.in_service()
    }

    fn concurrency(&self) -> usize {
        self.workers.concurrency() + self.local.concurrency()
    }

    fn marks(&self) -> Vec<String> {
        let mut marks = self.workers.marks();
        marks.extend(self.local.marks());
        marks.sort();
        marks.dedup();
        marks
    }

    fn voices(&self) -> Vec<Voice> {
        let mut voices = self.workers.voices();
        voices.retain(|voice| voice.id != UNKNOWN_VOICE);
        for voice in self.local.voices() {
            if !voices.iter().any(|known| known.id == voice.id) {
                voices.push(voice);
            }
        }
        voices
    }

    fn speak(&self, request: SpeechRequest) -> BoxStream<'static, Result<Pcm, TtsError>> {
        let speech = self.workers.speak(request.clone());
        or_local(speech, self.local.clone(), request)
    }

    fn speak_queued(&self, request: SpeechRequest) -> BoxFuture<'static, BoxStream<'static, Result<Pcm, TtsError>>> {
        let speech = self.workers.speak(request.clone());
        let local = self.local.clone();
        Box::pin(async move { or_local(speech, local, request) })
    }
}

fn or_local(
    mut speech: BoxStream<'static, Result<Pcm, TtsError>>,
    local: Arc<dyn Tts>,
    request: SpeechRequest,
) -> BoxStream<'static, Result<Pcm, TtsError>> {
    stream! {
        match speech.next().await {
            Some(Err(error @ (TtsError::Away(_) | TtsError::Overloaded { .. }))) => {
                falls_back("tts", &error);
                speech = local.speak_queued(request).await;
            }
            Some(first) => yield first,
            None => return,
        }
        while let Some(pcm) = speech.next().await {
            yield pcm;
        }
    }
    .boxed()
}

impl TurnModel for Fallback<dyn TurnModel> {
    fn name(&self) -> &str {
        self.workers.name()
    }

    fn span(&self) -> Samples {
        Samples(self.workers.span().0.max(self.local.span().0))
    }

    fn concurrency(&self) -> usize {
        self.workers.concurrency() + self.local.concurrency()
    }

    fn judge(&self, pcm: Vec<i16>) -> BoxFuture<'static, Result<f32, TurnModelError>> {
        let judging = self.workers.judge(pcm.clone());
        let local = self.local.clone();
        Box::pin(async move {
            match judging.await {
                Err(error @ (TurnModelError::Away(_) | TurnModelError::Busy { .. })) => {
                    falls_back("turn", &error);
                    local.judge(pcm).await
                }
                judged => judged,
            }
        })
    }
}
