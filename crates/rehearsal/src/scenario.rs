//! Scenarios: who calls, what the caller says and does, and what the agent must do. Read from TOML; pure.

use serde::Deserialize;
use serde_json::{Map, Value};

/// Bounds of a file, so that a rehearsal ends and its sound fits into memory.
const MAX_TURNS: usize = 200;
const MAX_TEXT_CHARS: usize = 2_000;
const MAX_TOOLS: usize = 64;
const MAX_SECONDS: u64 = 1_800;
const MAX_WAIT_MS: u64 = 60_000;

/// Why a text is no scenario: everything that is wrong with it, a line each.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct ScenarioError(String);

/// One conversation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Its name in reports; empty: that of its file.
    pub name: String,
    /// Who calls.
    pub caller: Persona,
    /// Fields of the session, as in `session.update`.
    pub session: Map<String, Value>,
    /// The tools that the client offers.
    pub tools: Vec<Tool>,
    /// What holds for the whole conversation.
    pub limits: Limits,
    /// What the caller says and does, in order; empty where there is a goal.
    pub turns: Vec<Turn>,
    /// What the caller wants, for a language model that speaks for it.
    pub goal: Option<Goal>,
    /// What the agent must have said and done by the end.
    pub expect: Expectation,
}

/// The caller's voice and manner.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Persona {
    /// A voice of the engine that speaks for the caller; empty: its first.
    pub voice: String,
    /// Rate of speech, 0.25 to 4.0.
    pub speed: f32,
    /// Noise around the caller, this many dB below the speech, 0 to 60; `None`: none.
    pub noise_db: Option<f32>,
    /// How long an answer is waited for, in seconds, 1 to 60. The caller then goes on; after two turns without an answer it hangs up.
    pub patience_seconds: u64,
}

impl Default for Persona {
    fn default() -> Self {
        Self { voice: String::new(), speed: 1.0, noise_db: None, patience_seconds: 8 }
    }
}

/// A function that the model may call; the client answers each call with the same result.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of its arguments.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// What a call gives.
    #[serde(default)]
    pub result: String,
}

/// What holds for the whole conversation.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The longest wait from the end of the caller's speech to the first sound of an answer.
    pub answer_ms: u64,
    /// The longest silence that the agent leaves.
    pub dead_air_ms: u64,
    /// How often the agent may begin to speak while the caller speaks.
    pub interruptions: usize,
    /// The longest conversation, in seconds, 1 to 1,800.
    pub max_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { answer_ms: 2_000, dead_air_ms: 2_000, interruptions: 0, max_seconds: 300 }
    }
}

/// What the caller does next: it speaks, or is silent.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    /// What it says.
    pub say: String,
    /// How long it is silent instead.
    pub silence_ms: u64,
    /// The pause between the end of the reply and these words.
    pub after_ms: u64,
    /// It speaks over the reply, once that has sounded for this time.
    pub over_reply_ms: Option<u64>,
    /// What the agent must do.
    pub expect: Expectation,
}

impl Default for Turn {
    fn default() -> Self {
        Self { say: String::new(), silence_ms: 0, after_ms: 300, over_reply_ms: None, expect: Expectation::default() }
    }
}

/// What the agent must do.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expectation {
    /// Words or phrases that it says, whatever their case, marks and figures.
    pub words: Vec<String>,
    /// Words or phrases that it does not say.
    pub not_words: Vec<String>,
    /// Calls of tools.
    pub tools: Vec<ExpectedCall>,
    /// It says nothing.
    pub no_reply: bool,
    /// The reply that the caller speaks over stops within this time from the caller's first sound.
    pub stops_within_ms: Option<u64>,
    /// The reply that the caller speaks over goes on.
    pub goes_on: bool,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCall {
    /// The tool.
    pub name: String,
    /// Arguments that the call must have; it may have others.
    #[serde(default)]
    pub arguments: Map<String, Value>,
}

/// What the caller wants: a language model says its words.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// The caller's task and manner, in words for the model.
    pub text: String,
    /// Turns after which the caller hangs up, 1 to 200.
    #[serde(default = "usual_turns")]
    pub max_turns: usize,
}

fn usual_turns() -> usize {
    8
}

impl Scenario {
    /// Reads a scenario; `name` is what it is called where it has no name.
    ///
    /// # Errors
    /// It is no TOML, has unknown keys, or contradicts itself: all of that is listed.
    pub fn parse(text: &str, name: &str) -> Result<Self, ScenarioError> {
        let scenario: Self =
            toml::from_str(text).map_err(|error| ScenarioError(error.to_string().trim().to_owned()))?;
        let problems = scenario.problems();
        if !problems.is_empty() {
            return Err(ScenarioError(problems.join("\n")));
        }
        let name = if scenario.name.is_empty() { name.to_owned() } else { scenario.name };
        Ok(Self { name, ..scenario })
    }

    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        match (&self.goal, self.turns.is_empty()) {
            (None, true) => found.push("there is nothing to do: write [[turns]], or a [goal]".to_owned()),
            (Some(_), false) => found.push("[[turns]] and [goal] exclude each other".to_owned()),
            _ => {}
        }
        if let Some(goal) = &self.goal {
            check(&mut found, !goal.text.trim().is_empty(), "goal.text is empty");
            check(&mut found, goal.text.chars().count() <= MAX_TEXT_CHARS, "goal.text has more than 2000 characters");
            check(&mut found, (1..=MAX_TURNS).contains(&goal.max_turns), "goal.max_turns: write 1 to 200");
        }
        let persona = &self.caller;
        check(&mut found, (0.25..=4.0).contains(&persona.speed), "caller.speed: write 0.25 to 4.0");
        check(
            &mut found,
            persona.noise_db.is_none_or(|db| (0.0..=60.0).contains(&db)),
            "caller.noise_db: write 0 to 60",
        );
        check(&mut found, (1..=60).contains(&persona.patience_seconds), "caller.patience_seconds: write 1 to 60");
        check(&mut found, (1..=MAX_SECONDS).contains(&self.limits.max_seconds), "limits.max_seconds: write 1 to 1800");
        check(&mut found, self.limits.answer_ms > 0, "limits.answer_ms: write at least 1");
        check(&mut found, self.limits.dead_air_ms > 0, "limits.dead_air_ms: write at least 1");
        check(&mut found, self.turns.len() <= MAX_TURNS, "there are more than 200 turns");
        check(&mut found, self.tools.len() <= MAX_TOOLS, "there are more than 64 tools");
        let is_of_turn = self.expect.no_reply || self.expect.stops_within_ms.is_some() || self.expect.goes_on;
        check(&mut found, !is_of_turn, "expect: no_reply, stops_within_ms and goes_on belong to a turn");
        self.expected_calls("expect", &self.expect, &mut found);
        for (place, turn) in self.turns.iter().enumerate() {
            self.turn_problems(place, turn, &mut found);
        }
        found
    }

    fn turn_problems(&self, place: usize, turn: &Turn, found: &mut Vec<String>) {
        let name = format!("turn {}", place + 1);
        let mut wrong = |is_wrong: bool, what: &str| {
            if is_wrong {
                found.push(format!("{name}: {what}"));
            }
        };
        let speaks = !turn.say.trim().is_empty();
        let expect = &turn.expect;
        wrong(speaks == (turn.silence_ms > 0), "write either say or silence_ms");
        wrong(turn.say.chars().count() > MAX_TEXT_CHARS, "say has more than 2000 characters");
        wrong(turn.silence_ms > MAX_WAIT_MS || turn.after_ms > MAX_WAIT_MS, "write at most 60000 ms");
        wrong(place == 0 && turn.over_reply_ms.is_some(), "there is no reply to speak over yet");
        wrong(turn.over_reply_ms.is_some() && !speaks, "over_reply_ms needs words: write say");
        wrong(
            turn.over_reply_ms.is_none() && (expect.stops_within_ms.is_some() || expect.goes_on),
            "stops_within_ms and goes_on need over_reply_ms",
        );
        wrong(expect.stops_within_ms.is_some() && expect.goes_on, "the reply cannot both stop and go on");
        wrong(
            expect.no_reply && !(expect.words.is_empty() && expect.tools.is_empty()),
            "no_reply contradicts words and tools",
        );
        self.expected_calls(&name, expect, found);
    }

    /// A call of a tool that the client does not offer would never come.
    fn expected_calls(&self, place: &str, expect: &Expectation, found: &mut Vec<String>) {
        for call in &expect.tools {
            if !self.tools.iter().any(|tool| tool.name == call.name) {
                found.push(format!("{place}: it expects a call of {:?}, which is none of the [[tools]]", call.name));
            }
        }
    }
}

fn check(found: &mut Vec<String>, is_right: bool, problem: &str) {
    if !is_right {
        found.push(problem.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOKING: &str = r#"
        [caller]
        voice = "af_heart"
        noise_db = 20

        [[tools]]
        name = "book_table"
        parameters = { type = "object", properties = { people = { type = "integer" } } }
        result = "booked"

        [[turns]]
        say = "I'd like a table for two."

        [[turns]]
        say = "No, for three."
        over_reply_ms = 600
        expect.words = ["three"]
        expect.tools = [{ name = "book_table", arguments = { people = 3 } }]
        expect.stops_within_ms = 800

        [[turns]]
        silence_ms = 3000
        expect.no_reply = true
    "#;

    #[test]
    fn a_scenario_is_read() {
        let scenario = Scenario::parse(BOOKING, "booking").expect("a scenario");
        assert_eq!((scenario.name.as_str(), scenario.turns.len()), ("booking", 3));
        assert_eq!(scenario.caller.noise_db, Some(20.0));
        assert_eq!(scenario.turns[1].expect.tools[0].arguments["people"], 3);
        assert_eq!((scenario.limits.answer_ms, scenario.turns[0].after_ms), (2_000, 300));
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = Scenario::parse(text, "x").expect_err("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn contradictions_are_named_with_their_turn() {
        refused("", "there is nothing to do");
        refused("[goal]\ntext = \"Book.\"\n[[turns]]\nsay = \"Hi.\"\n", "exclude each other");
        refused("[[turns]]\nsay = \"Hi.\"\nsilence_ms = 5\n", "turn 1: write either say or silence_ms");
        refused("[[turns]]\nsay = \"Hi.\"\nover_reply_ms = 5\n", "turn 1: there is no reply to speak over yet");
        refused("[[turns]]\nsay = \"Hi.\"\nexpect.goes_on = true\n", "need over_reply_ms");
        refused(
            "[[turns]]\nsay = \"Hi.\"\nexpect.no_reply = true\nexpect.words = [\"a\"]\n",
            "turn 1: no_reply contradicts words and tools",
        );
        refused(
            "[[turns]]\nsay = \"Hi.\"\nexpect.tools = [{ name = \"book\" }]\n",
            "turn 1: it expects a call of \"book\", which is none of the [[tools]]",
        );
        for of_turn in ["no_reply = true", "stops_within_ms = 300", "goes_on = true"] {
            let text = format!("[expect]\n{of_turn}\n[[turns]]\nsay = \"Hi.\"\n");
            refused(&text, "expect: no_reply, stops_within_ms and goes_on belong to a turn");
        }
        refused("[caller]\nspeed = 9\n[[turns]]\nsay = \"Hi.\"\n", "caller.speed");
        refused("[[turns]]\nsays = \"Hi.\"\n", "unknown field `says`");
        let both = Scenario::parse("[caller]\nspeed = 9\n[[turns]]\n", "x").expect_err("refused").to_string();
        assert_eq!(both.lines().count(), 2, "all problems are listed: {both}");
    }
}
