//! The language model under load.

use super::{Answer, Stage};
use crate::questions::QUESTIONS;
use antiphon_engine_api::llm::{Llm, LlmDelta};
use antiphon_types::chat::{ChatRequest, Message, estimated_tokens};
use async_trait::async_trait;
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::time::Instant;

/// The language model stage.
pub struct LlmStage {
    /// The engine under load.
    pub llm: Arc<dyn Llm>,
    /// The system prompt.
    pub instructions: String,
    /// Limit on tokens per response; `None`: as configured.
    pub max_tokens: Option<u32>,
}

#[async_trait]
impl Stage for LlmStage {
    fn name(&self) -> &'static str {
        "llm"
    }

    async fn ask(&self, n: usize) -> Result<Answer, String> {
        let (question, _) = QUESTIONS[n % QUESTIONS.len()];
        let messages = vec![Message::System(self.instructions.clone()), Message::User(question.into())];
        let request = ChatRequest { messages, max_tokens: self.max_tokens, ..ChatRequest::default() };
        let begun = Instant::now();
        let mut answer = Answer::default();
        let mut n_bytes = 0;
        let mut deltas = self.llm.stream(request);
        while let Some(delta) = deltas.next().await {
            let delta = delta.map_err(|error| error.to_string())?;
            match delta {
                LlmDelta::Done { usage, .. } => answer.tokens = usage.map_or(0, |usage| usage.output_tokens),
                LlmDelta::Text(text) => n_bytes += text.len(),
                LlmDelta::ToolCall { .. } | LlmDelta::Withdrawn => {}
            }
            answer.first.get_or_insert_with(|| begun.elapsed());
        }
        if answer.tokens == 0 {
            answer.tokens = estimated_tokens(n_bytes);
        }
        if answer.tokens == 0 { Err("the answer is empty".into()) } else { Ok(answer) }
    }

    fn waiting(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::llm::FakeLlm;

    #[tokio::test]
    async fn tokens_are_counted_and_an_empty_answer_is_a_failure() {
        let ask = async |says: &str| {
            let llm = Arc::new(FakeLlm::says([says]));
            LlmStage { llm, instructions: String::new(), max_tokens: None }.ask(0).await
        };
        let answer = ask("Eighty four, of course.").await.expect("an answer");
        assert!(answer.tokens >= 5 && answer.first.is_some(), "{answer:?}");
        assert!(ask("").await.is_err());
    }
}
