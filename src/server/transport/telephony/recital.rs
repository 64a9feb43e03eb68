//! A model that says one text, whatever it is asked: what the hub itself says in a call.
//!
//! [`super::sip`] and [`super::accounts`] open sessions with it, so that the text takes the way of a reply: its voice,
//! its pace, its playback.

use antiphon_engine_api::llm::{Llm, LlmDelta, LlmError};
use antiphon_types::chat::{ChatRequest, Finish};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};

/// See the module.
pub(super) struct Recital(String);

impl Recital {
    /// Says this text, which is not empty.
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }
}

impl Llm for Recital {
    fn name(&self) -> &str {
        "recital"
    }

    fn stream(&self, _: ChatRequest) -> BoxStream<'static, Result<LlmDelta, LlmError>> {
        let done = LlmDelta::Done { finish: Finish::Stop, usage: None };
        stream::iter([Ok(LlmDelta::Text(self.0.clone())), Ok(done)]).boxed()
    }
}
