//! Models that say a text as it is: what the hub itself says in a call.
//!
//! [`super::sip`] and [`super::accounts`] open the sessions of targets with a [`Recital`], [`super::recording_notice`] has a
//! [`NoticeFirst`] before the model of a recorded call, so that the text takes the way of a reply: its voice, its pace, its
//! playback.

use crate::server::transport::call::ModelChange;
use antiphon_engine_api::Upstreams;
use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::{ChatRequest, Finish, Message};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Says one text, whatever it is asked.
pub(super) struct Recital(String);

/// Says a notice where it is asked for that, and lets the session's model answer the rest once the notice was said.
pub(super) struct NoticeFirst {
    pub(super) notice: String,
    /// The instructions of the response that says it.
    pub(super) instructions: String,
    /// Cancelled once the model may answer: it was said, and a greeting follows now or none does, or it is not said.
    pub(super) said: CancellationToken,
    pub(super) model: Arc<dyn Llm>,
}

impl Recital {
    /// Says this text, which is not empty.
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// Says this text in the place of a model.
    pub(super) fn in_place(text: String) -> ModelChange {
        Box::new(move |_: Arc<dyn Llm>| -> Arc<dyn Llm> { Arc::new(Self::new(text)) })
    }
}

impl Llm for Recital {
    fn name(&self) -> &str {
        "recital"
    }

    fn stream(&self, _: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        recite(self.0.clone())
    }
}

impl NoticeFirst {
    /// Whether this is the request of the response that says the notice. The hub may add to its instructions.
    fn is_for_notice(&self, request: &ChatRequest) -> bool {
        let Some(Message::System(instructions)) = request.messages.first() else { return false };
        instructions.strip_prefix(&self.instructions).is_some_and(|rest| rest.is_empty() || rest.starts_with("\n\n"))
    }
}

impl Llm for NoticeFirst {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn warm(&self) -> BoxFuture<'_, Result<(), LlmError>> {
        self.model.warm()
    }

    fn language(&self) -> Option<&str> {
        self.model.language()
    }

    fn takes_images(&self) -> bool {
        self.model.takes_images()
    }

    fn upstreams(&self) -> Option<Upstreams> {
        self.model.upstreams()
    }

    fn hedge_delay(&self) -> Option<Duration> {
        self.model.hedge_delay()
    }

    fn loading_limit(&self) -> Option<Duration> {
        self.model.loading_limit()
    }

    fn stream(&self, request: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        if self.is_for_notice(&request) {
            return recite(self.notice.clone());
        }
        if self.said.is_cancelled() {
            return self.model.stream(request);
        }
        let model = self.model.clone();
        let said = self.said.clone();
        let answer = async move {
            said.cancelled().await;
            model.stream(request)
        };
        stream::once(answer).flatten().boxed()
    }
}

/// An answer of this text.
fn recite(text: String) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
    let done = LlmDelta::Done { finish: Finish::Stop, usage: None };
    stream::iter([Ok(LlmDelta::Text(text)), Ok(done)]).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use futures_util::FutureExt;

    fn request(instructions: &str) -> ChatRequest {
        let messages = vec![Message::System(instructions.to_owned()), Message::User("Hello?".into())];
        ChatRequest { messages, ..ChatRequest::default() }
    }

    async fn said(answer: BoxStream<'static, Result<LlmDelta, LlmError>>) -> String {
        let deltas: Vec<_> = answer.collect().await;
        let text = |delta| match delta {
            Ok(LlmDelta::Text(text)) => Some(text),
            _ => None,
        };
        deltas.into_iter().filter_map(text).collect()
    }

    #[tokio::test]
    async fn the_notice_is_said_as_it_is_and_the_model_answers_after_it() {
        let fake = FakeLlm::says(["Good morning.", "Goodbye."]);
        let gate = CancellationToken::new();
        let model = NoticeFirst {
            notice: "This call is recorded.".into(),
            instructions: "Say the notice.".into(),
            said: gate.clone(),
            model: Arc::new(fake.clone()),
        };
        let mut early = model.stream(request("Be brief."));
        assert!(early.next().now_or_never().is_none() && fake.requests().is_empty(), "it waits for the notice");
        for instructions in ["Say the notice.", "Say the notice.\n\nAnswer in German."] {
            assert_eq!(said(model.stream(request(instructions))).await, "This call is recorded.");
        }
        assert!(fake.requests().is_empty());
        gate.cancel();
        assert_eq!(said(early).await, "Good morning.");
        assert_eq!(said(model.stream(request("Say the notice. Or not."))).await, "Goodbye.");
        assert_eq!(fake.requests().len(), 2);
    }
}
