//! The caller: speaks the words of a scenario, and, where it has a goal, lets a language model choose them.
//!
//! It blocks on nothing but its engines, whose waits have the deadlines of the ports. A dropped future cancels them.

use super::scenario::{Goal, Persona, Scenario};
use antiphon_client::RATE;
use antiphon_engine_api::llm::{Llm, LlmDelta};
use antiphon_engine_api::tts::{SpeechRequest, Tts, TtsError};
use antiphon_text::{Chunker, Language};
use antiphon_types::chat::{ChatRequest, Message};
use futures_util::StreamExt;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The longest wait for the next piece of speech or text.
const PIECE_WITHIN: Duration = Duration::from_secs(30);
/// The longest line of a model, in characters; the rest is not spoken.
const MAX_LINE_CHARS: usize = 500;
/// What a model writes when the caller hangs up.
const HANGS_UP: &str = "HANG UP";
/// Seconds of noise, which repeats.
const NOISE_SECONDS: usize = 4;

/// Why the caller cannot speak.
#[derive(Debug, thiserror::Error)]
pub enum CallerError {
    /// The voice engine does not have the voice.
    #[error("caller.voice: {0}")]
    Voice(String),
    /// The voice engine failed.
    #[error("the caller's voice failed: {0}")]
    Speech(#[from] TtsError),
    /// The voice engine made no sound of a line.
    #[error("the caller's voice made no sound of {0:?}")]
    Silent(String),
    /// The voice engine or the language model took too long.
    #[error("the caller's {0} gave nothing within 30 s")]
    Late(&'static str),
    /// There is a goal and no language model.
    #[error("a [goal] needs a language model: set llm.engine = \"openai\" and llm.base_url")]
    NoModel,
    /// The language model failed.
    #[error("the caller's language model failed: {0}")]
    Model(String),
}

/// Speaks for the persona of a scenario.
#[derive(Clone)]
pub struct Caller {
    tts: Arc<dyn Tts>,
    /// The voice where a persona names none.
    usual_voice: String,
    /// `None`: scenarios with a goal are refused.
    llm: Option<Arc<dyn Llm>>,
}

/// Who has said what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    Caller,
    Agent,
}

impl Caller {
    /// A caller with this engine; `usual_voice` is the voice of personas that name none.
    pub fn new(tts: Arc<dyn Tts>, usual_voice: String, llm: Option<Arc<dyn Llm>>) -> Self {
        Self { tts, usual_voice, llm }
    }

    /// Refuses a scenario that this caller cannot play.
    ///
    /// # Errors
    /// Its engine does not have the voice, or there is a goal and no language model.
    pub fn check(&self, scenario: &Scenario) -> Result<(), CallerError> {
        let voice = &scenario.caller.voice;
        if !voice.is_empty() {
            self.tts.check_voice(voice).map_err(CallerError::Voice)?;
        }
        if scenario.goal.is_some() && self.llm.is_none() {
            return Err(CallerError::NoModel);
        }
        Ok(())
    }

    /// The sound of a line, mono at [`RATE`].
    pub(super) async fn speak(&self, line: &str, persona: &Persona) -> Result<Vec<i16>, CallerError> {
        let voice = if persona.voice.is_empty() { &self.usual_voice } else { &persona.voice };
        let mut samples = Vec::new();
        let language = Language::of_tag(&self.tts.language(voice));
        for text in chunks(line, language, self.tts.marks()) {
            let request =
                SpeechRequest { text, voice: voice.clone(), speed: persona.speed, ..SpeechRequest::default() };
            let mut pieces = self.tts.speak(request);
            while let Some(piece) =
                timeout(PIECE_WITHIN, pieces.next()).await.map_err(|_| CallerError::Late("voice"))?
            {
                let piece = piece?;
                samples.extend(antiphon_audio::convert(&piece.samples, piece.rate, RATE));
            }
        }
        if samples.is_empty() {
            return Err(CallerError::Silent(line.to_owned()));
        }
        Ok(samples)
    }

    /// The next line of a caller with a goal; `None`: it hangs up.
    pub(super) async fn next_line(
        &self,
        goal: &Goal,
        said: &[(Speaker, String)],
    ) -> Result<Option<String>, CallerError> {
        let llm = self.llm.as_ref().ok_or(CallerError::NoModel)?;
        let mut deltas = llm.stream(ChatRequest { messages: messages(goal, said), ..ChatRequest::default() });
        let mut line = String::new();
        while let Some(delta) = timeout(PIECE_WITHIN, deltas.next()).await.map_err(|_| CallerError::Late("model"))? {
            match delta.map_err(|error| CallerError::Model(error.to_string()))? {
                LlmDelta::Text(text) => line.push_str(&text),
                LlmDelta::Withdrawn => line.clear(),
                _ => {}
            }
            if line.chars().count() > MAX_LINE_CHARS {
                break;
            }
        }
        let line: String = line.trim().chars().take(MAX_LINE_CHARS).collect();
        Ok(Some(line).filter(|line| !line.is_empty() && !line.contains(HANGS_UP)))
    }
}

/// The conversation as the caller's model reads it: it is the assistant, and the agent its user.
fn messages(goal: &Goal, said: &[(Speaker, String)]) -> Vec<Message> {
    let instructions = format!(
        "You play a person on the telephone who talks to a voice agent. Say what this person says next: one or two short \
         spoken sentences, nothing else. When the person has what they want, or cannot get it, write {HANGS_UP}.\n\n{}",
        goal.text
    );
    let mut messages = vec![Message::System(instructions)];
    if said.is_empty() {
        messages.push(Message::User("(The agent has picked up and waits for you to speak.)".to_owned()));
    }
    messages.extend(said.iter().map(|(speaker, text)| match speaker {
        Speaker::Caller => Message::Assistant { text: text.clone(), tool_calls: Vec::new() },
        Speaker::Agent if text.is_empty() => Message::User("(silence)".to_owned()),
        Speaker::Agent => Message::User(text.clone()),
    }));
    messages
}

/// Splits and normalizes a line as a session does with a response.
fn chunks(line: &str, language: Language, marks: Vec<String>) -> Vec<String> {
    let mut chunker = Chunker::new(language).keeping(marks);
    let mut chunks = chunker.push(line);
    chunks.extend(chunker.finish());
    chunks.into_iter().map(|chunk| chunk.spoken).filter(|spoken| !spoken.is_empty()).collect()
}

/// Noise that is `db` below speech of this level (root mean square of its samples), the same each time; empty for `None`.
pub(super) fn noise(db: Option<f32>, speech_level: f32) -> Vec<i16> {
    let Some(db) = db else { return Vec::new() };
    let peak = 3.0_f32.sqrt() * speech_level / 10.0_f32.powf(db / 20.0);
    let mut random = StdRng::seed_from_u64(1);
    (0..NOISE_SECONDS * RATE.hz() as usize).map(|_| random.random_range(-peak..=peak) as i16).collect()
}

/// The root mean square of what is audible in a line.
pub(super) fn level(samples: &[i16]) -> f32 {
    let audible = samples.iter().filter(|sample| sample.unsigned_abs() >= 104);
    let n = audible.clone().count().max(1);
    (audible.map(|sample| f32::from(*sample).powi(2)).sum::<f32>() / n as f32).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use antiphon_engine_api::fakes::llm::FakeLlm;
    use antiphon_engine_api::fakes::tts::FakeTts;

    fn goal() -> Goal {
        Goal { text: "You want a table for two.".into(), max_turns: 8 }
    }

    fn caller(llm: Option<FakeLlm>) -> Caller {
        let llm = llm.map(|llm| Arc::new(llm) as Arc<dyn Llm>);
        Caller::new(Arc::new(FakeTts::default()), "tone".into(), llm)
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_spoken_and_one_without_sound_is_an_error() {
        let samples = caller(None).speak("hello there", &Persona::default()).await.expect("spoken");
        assert!(samples.len() > RATE.hz() as usize / 4, "{}", samples.len());
        assert!(matches!(caller(None).speak("...", &Persona::default()).await, Err(CallerError::Silent(_))));
        let persona = Persona { voice: "unknown".into(), ..Persona::default() };
        let with_voice = Scenario { caller: persona, ..Scenario::default() };
        assert!(matches!(caller(None).check(&with_voice), Err(CallerError::Voice(_))));
        let with_goal = Scenario { goal: Some(goal()), ..Scenario::default() };
        assert!(matches!(caller(None).check(&with_goal), Err(CallerError::NoModel)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_is_worded_in_the_language_of_its_voice() {
        let engine = FakeTts::default().with_voices([("tone", "de-DE")]);
        let caller = Caller::new(Arc::new(engine.clone()), "tone".into(), None);
        caller.speak("Das sind 5 %.", &Persona::default()).await.expect("spoken");
        assert!(engine.spoken().concat().contains("5 %"), "{:?}", engine.spoken());
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_says_the_next_line_or_hangs_up() {
        let caller = caller(Some(FakeLlm::says(["A table for two, please.", "HANG UP"])));
        let first = caller.next_line(&goal(), &[]).await.expect("a line");
        assert_eq!(first.as_deref(), Some("A table for two, please."));
        let said = [(Speaker::Caller, first.expect("a line")), (Speaker::Agent, "It is booked.".to_owned())];
        assert_eq!(caller.next_line(&goal(), &said).await.expect("a line"), None);
    }

    #[test]
    fn the_model_is_the_caller_and_reads_the_agent_as_its_user() {
        let said = [(Speaker::Caller, "Hello?".to_owned()), (Speaker::Agent, "Good morning.".to_owned())];
        let messages = messages(&goal(), &said);
        assert!(matches!(&messages[0], Message::System(text) if text.ends_with("You want a table for two.")));
        assert!(matches!(&messages[1], Message::Assistant { text, .. } if text == "Hello?"));
        assert!(matches!(&messages[2], Message::User(text) if text == "Good morning."));
    }

    #[test]
    fn noise_has_the_level_that_is_asked_for() {
        let speech = level(&[8_000, -8_000, 0, 3]);
        assert!((speech - 8_000.0).abs() < 1.0, "{speech}");
        let noise = noise(Some(20.0), speech);
        let squares: f32 = noise.iter().map(|sample| f32::from(*sample).powi(2)).sum();
        let level = (squares / noise.len() as f32).sqrt();
        assert!((760.0..840.0).contains(&level), "{level}");
        assert!(super::noise(None, speech).is_empty());
    }
}
