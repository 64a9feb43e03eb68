//! Language models: a response is taken over before its first delta.

use super::{Pair, is_probing};
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::ChatRequest;
use async_stream::stream;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::time::Duration;

type Deltas = BoxStream<'static, Result<LlmDelta, LlmError>>;

/// See the module.
pub(super) struct LlmPair(pub(super) Pair<dyn Llm>);

impl Llm for LlmPair {
    fn name(&self) -> &str {
        self.0.primary.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), LlmError>> {
        Box::pin(async {
            let (primary, second) = tokio::join!(self.0.primary.warm(), async {
                match self.0.has_fallback {
                    true => self.0.second.warm().await,
                    false => Ok(()),
                }
            });
            primary.and(second)
        })
    }

    fn language(&self) -> Option<&str> {
        self.0.primary.language()
    }

    fn takes_images(&self) -> bool {
        self.0.primary.takes_images()
    }

    fn loading_limit(&self) -> Option<Duration> {
        self.0.primary.loading_limit()
    }

    fn upstreams(&self) -> Option<Upstreams> {
        let Pair { primary, second, .. } = &self.0;
        self.0.upstreams(primary.upstreams(), second.upstreams(), [primary.name(), second.name()])
    }

    fn stream(&self, request: ChatRequest) -> Deltas {
        let pair = self.0.clone();
        stream! {
            let Pair { primary, second, .. } = &pair;
            let asked = begun(primary.stream(request.clone()));
            let once_more = || begun(second.stream(request.clone()));
            let first = pair.first(primary.hedge_delay(), || is_probing(primary.upstreams()), asked, once_more).await;
            let (mut deltas, is_second) = match first {
                (Ok((first, deltas)), is_second) => {
                    if let Some(first) = first {
                        yield Ok(first);
                    }
                    (deltas, is_second)
                }
                (Err(error), _) => {
                    yield Err(error);
                    return;
                }
            };
            if is_second {
                pair.note_fallback(&request.meter, second.name());
            }
            while let Some(delta) = deltas.next().await {
                yield delta;
            }
        }
        .boxed()
    }
}

/// The first delta, and the rest.
async fn begun(mut deltas: Deltas) -> Result<(Option<LlmDelta>, Deltas), LlmError> {
    let first = deltas.next().await.transpose()?;
    Ok((first, deltas))
}
