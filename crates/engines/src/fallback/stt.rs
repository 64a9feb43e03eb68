//! Recognizers: the audio of an utterance is kept, so that the fallback can transcribe it from its beginning.

use super::{Pair, Reason, is_down, is_probing};
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::stt::{OpeningUtterance, SpeakerState, Stt, SttError, SttOptions, SttUtterance, Transcript};
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// The longest audio that is kept for the fallback: 10 minutes, 19 MB. The session bounds an utterance below it.
const MAX_KEPT_SAMPLES: usize = 600 * 16_000;

/// See the module.
#[derive(Clone)]
pub(super) struct SttPair {
    pair: Pair<dyn Stt>,
    /// The fallback takes every utterance, while it can be reached.
    has_all: bool,
}

impl SttPair {
    pub(super) fn new(pair: Pair<dyn Stt>) -> Self {
        Self { pair, has_all: false }
    }

    /// The engine that is asked first, and whether that is the second one.
    fn first(&self, options: &SttOptions) -> (&Arc<dyn Stt>, bool) {
        if !self.has_all || is_down(self.pair.second.upstreams()) {
            return (&self.pair.primary, false);
        }
        self.pair.note_fallback(&options.meter, self.pair.second.name());
        self.pair.count(Reason::Brownout);
        (&self.pair.second, true)
    }

    /// An utterance of the engine that opened it; of the fallback where the primary has failed.
    async fn opened(
        self,
        opening: OpeningUtterance,
        by_second: bool,
        is_queued: bool,
        options: SttOptions,
    ) -> Result<Box<dyn SttUtterance>, SttError> {
        let Pair { second, .. } = &self.pair;
        let (current, is_second) = match opening.await {
            Err(error) if !by_second && self.pair.falls_back(&error) => {
                self.pair.count_fallback(Some(&error));
                self.pair.note_fallback(&options.meter, second.name());
                (open(second.clone(), options.clone(), is_queued).await?, true)
            }
            opened => (opened?, by_second),
        };
        Ok(self.with_kept_audio(current, is_second, is_queued, options))
    }

    /// An utterance whose audio is kept for the second engine, unless that one has it.
    fn with_kept_audio(
        self,
        current: Box<dyn SttUtterance>,
        is_second: bool,
        is_queued: bool,
        options: SttOptions,
    ) -> Box<dyn SttUtterance> {
        Box::new(Utterance { pair: self.pair, options, current, is_second, is_queued, kept: Vec::new() })
    }

    /// Workers queue nothing for a hub: they are asked at once, and what they have no room for waits in the hub's own queue.
    #[allow(clippy::async_yields_async, reason = "there are two waits: for room, and for a decoder")]
    async fn queued_overflow(self, options: SttOptions) -> OpeningUtterance {
        match self.pair.primary.open(options.clone()).await {
            Err(error) if self.pair.falls_back(&error) => {
                self.pair.count_fallback(Some(&error));
                self.pair.second.open_queued(options).await
            }
            opened => {
                let opened = opened.map(|current| self.with_kept_audio(current, false, true, options));
                Box::pin(std::future::ready(opened))
            }
        }
    }
}

impl Stt for SttPair {
    fn name(&self) -> &str {
        self.pair.primary.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), SttError>> {
        Box::pin(async {
            let (primary, second) = tokio::join!(self.pair.primary.warm(), async {
                match self.pair.has_fallback {
                    true => self.pair.second.warm().await,
                    false => Ok(()),
                }
            });
            primary.and(second)
        })
    }

    fn translates(&self) -> bool {
        // A fallback that does not translate would answer in another language.
        self.pair.primary.translates() && self.pair.second.translates()
    }

    fn languages(&self) -> Option<Vec<String>> {
        let of_both = || self.pair.second.languages().filter(|_| self.pair.overflows());
        self.pair.primary.languages().or_else(of_both)
    }

    fn detects_language(&self) -> bool {
        self.pair.can(|engine| engine.detects_language())
    }

    fn takes_long_stretches(&self, timed: bool) -> bool {
        self.pair.can(|engine| engine.takes_long_stretches(timed))
    }

    fn concurrency(&self) -> usize {
        self.pair.total(|engine| engine.concurrency())
    }

    fn waiting(&self) -> usize {
        self.pair.total(|engine| engine.waiting())
    }

    fn in_service(&self) -> usize {
        self.pair.total(|engine| engine.in_service())
    }

    fn smaller(&self) -> Option<Arc<dyn Stt>> {
        (self.pair.has_fallback && !self.pair.overflows())
            .then(|| Arc::new(Self { has_all: true, ..self.clone() }) as _)
    }

    fn upstreams(&self) -> Option<Upstreams> {
        let Pair { primary, second, .. } = &self.pair;
        self.pair.upstreams(primary.upstreams(), second.upstreams(), [primary.name(), second.name()])
    }

    fn open(&self, options: SttOptions) -> BoxFuture<'static, Result<Box<dyn SttUtterance>, SttError>> {
        let (engine, is_second) = self.first(&options);
        let opening = engine.open(options.clone());
        Box::pin(self.clone().opened(opening, is_second, false, options))
    }

    #[allow(clippy::async_yields_async, reason = "there are two waits: for room, and for a decoder")]
    fn open_queued(&self, options: SttOptions) -> BoxFuture<'static, OpeningUtterance> {
        if self.pair.overflows() {
            return Box::pin(self.clone().queued_overflow(options));
        }
        let (engine, is_second) = self.first(&options);
        let pair = self.clone();
        let queued = engine.open_queued(options.clone());
        Box::pin(async move {
            let opening = queued.await;
            Box::pin(pair.opened(opening, is_second, true, options)) as OpeningUtterance
        })
    }
}

/// An utterance that one of the engines takes.
struct Utterance {
    pair: Pair<dyn Stt>,
    options: SttOptions,
    current: Box<dyn SttUtterance>,
    /// The second engine has it.
    is_second: bool,
    /// It may wait for room, at the second engine, too.
    is_queued: bool,
    /// All of its audio, for the second engine: up to the first piece that is beyond the bound.
    kept: Vec<i16>,
}

impl Utterance {
    /// Whether the second engine may still take it over.
    fn can_move(&self) -> bool {
        !self.is_second && self.kept.len() <= MAX_KEPT_SAMPLES
    }

    fn moved(&mut self, to: Box<dyn SttUtterance>) {
        self.current = to;
        self.is_second = true;
        self.kept = Vec::new();
        self.pair.note_fallback(&self.options.meter, self.pair.second.name());
    }
}

/// Opens an utterance, which waits for room where it may.
async fn open(engine: Arc<dyn Stt>, options: SttOptions, is_queued: bool) -> Result<Box<dyn SttUtterance>, SttError> {
    match is_queued {
        true => engine.open_queued(options).await.await,
        false => engine.open(options).await,
    }
}

/// The utterance so far, at another engine. The turn no longer names a worker that had it before.
async fn replayed(
    engine: Arc<dyn Stt>,
    options: SttOptions,
    is_queued: bool,
    kept: Vec<i16>,
) -> Result<Box<dyn SttUtterance>, SttError> {
    options.hop.clear();
    let mut utterance = open(engine, options, is_queued).await?;
    utterance.push(kept).await?;
    Ok(utterance)
}

impl SttUtterance for Utterance {
    fn push(&mut self, pcm: Vec<i16>) -> BoxFuture<'_, Result<(), SttError>> {
        Box::pin(async move {
            if !self.can_move() {
                return self.current.push(pcm).await;
            }
            self.kept.extend_from_slice(&pcm);
            match self.current.push(pcm).await {
                Err(error) if self.pair.falls_back(&error) => {
                    self.pair.count_fallback(Some(&error));
                    let engine = self.pair.second.clone();
                    let kept = self.kept.clone();
                    let second = replayed(engine, self.options.clone(), self.is_queued, kept).await?;
                    self.moved(second);
                    Ok(())
                }
                pushed => pushed,
            }
        })
    }

    fn partial(&mut self) -> BoxFuture<'_, Result<Option<Transcript>, SttError>> {
        self.current.partial()
    }

    fn provisional(&mut self) -> BoxFuture<'_, Result<Transcript, SttError>> {
        if !self.can_move() {
            return self.current.provisional();
        }
        Box::pin(async move {
            let Self { pair, options, current, is_queued, kept, .. } = self;
            let primary = &pair.primary;
            let asked = async { Ok((current.provisional().await?, None)) };
            let once_more = || async {
                let again = replayed(pair.second.clone(), options.clone(), *is_queued, kept.clone());
                let mut utterance = again.await?;
                let transcript = utterance.provisional().await?;
                Ok((transcript, Some(utterance)))
            };
            let delay = primary.hedge_delay();
            let (output, _) = pair.first(delay, || is_probing(primary.upstreams()), asked, once_more).await;
            let (transcript, second) = output?;
            if let Some(second) = second {
                self.moved(second);
            }
            Ok(transcript)
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Transcript, SttError>> {
        if !self.can_move() {
            return self.current.finish();
        }
        Box::pin(async move {
            let Self { pair, options, current, is_queued, kept, .. } = *self;
            let Pair { primary, second, .. } = &pair;
            let engine = second.clone();
            let asked_with = options.clone();
            let once_more = || async { replayed(engine, asked_with, is_queued, kept).await?.finish().await };
            let delay = primary.hedge_delay();
            let (output, is_second) =
                pair.first(delay, || is_probing(primary.upstreams()), current.finish(), once_more).await;
            if is_second {
                pair.note_fallback(&options.meter, second.name());
            }
            output
        })
    }

    fn learn(self: Box<Self>) -> BoxFuture<'static, Option<SpeakerState>> {
        self.current.learn()
    }
}
