//! Compares what was recorded with what the scenario expects. Pure.

use super::report::{Check, Measures, Report, TurnReport};
use super::scenario::{Expectation, ExpectedCall, Scenario};
use super::talk::{End, RecordedCall, RecordedTurn, Recording, Span, samples_ms};
use antiphon_client::RATE;
use antiphon_client::playout::Sound;
use antiphon_text::words::compared;
use antiphon_types::Pcm;
use serde_json::{Map, Value};

/// Sound that begins this long before the end of the caller's words interrupts them; closer to the end it is an overlap.
const OVERLAP_MS: f64 = 200.0;

/// The report of a conversation.
pub(super) fn judge(scenario: &Scenario, recording: Recording) -> Report {
    let mut checks = Vec::new();
    for place in 0..recording.turns.len() {
        checks.extend(turn_checks(scenario, &recording, place));
    }
    let measures = measures(&recording);
    checks.extend(whole_checks(scenario, &recording, &measures));
    let turns = (0..recording.turns.len()).map(|place| turn_report(&recording, place)).collect();
    let passed = checks.iter().all(|check| check.passed);
    Report { scenario: scenario.name.clone(), passed, checks, turns, measures, sound: mixed(&recording) }
}

/// The checks of one turn, or of the whole.
struct Checks {
    turn: Option<usize>,
    made: Vec<Check>,
}

impl Checks {
    fn add(&mut self, expected: String, passed: bool, found: impl FnOnce() -> String) {
        let found = if passed { String::new() } else { found() };
        self.made.push(Check { turn: self.turn, expected, passed, found });
    }

    fn words(&mut self, expect: &Expectation, reply: &str) {
        let heard = || if reply.is_empty() { "no words".to_owned() } else { format!("{reply:?}") };
        for words in &expect.words {
            self.add(format!("the agent says {words:?}"), has(reply, words), heard);
        }
        for words in &expect.not_words {
            self.add(format!("the agent does not say {words:?}"), !has(reply, words), heard);
        }
    }

    fn calls(&mut self, expected: &[ExpectedCall], made: &[RecordedCall]) {
        for call in expected {
            let is_it = |made: &RecordedCall| made.name == call.name && is_part(&call.arguments, &made.arguments);
            let text = call_text(&call.name, &Value::Object(call.arguments.clone()));
            self.add(format!("the agent calls {text}"), made.iter().any(is_it), || match made {
                [] => "no call".to_owned(),
                made => made.iter().map(|made| call_text(&made.name, &made.arguments)).collect::<Vec<_>>().join(", "),
            });
        }
    }
}

fn turn_checks(scenario: &Scenario, recording: &Recording, place: usize) -> Vec<Check> {
    let turn = &recording.turns[place];
    let next = recording.turns.get(place + 1);
    let expect = &turn.expect;
    let reply = recording.reply(turn.first_item, next.map(|next| next.first_item));
    let mut checks = Checks { turn: Some(place + 1), made: Vec::new() };
    if turn.is_over_reply && turn.over_item.is_none() {
        checks.add("there is a reply to speak over".to_owned(), false, || "none".to_owned());
        return checks.made;
    }
    if expect.no_reply {
        let until_ms = next.map_or(f64::INFINITY, |next| next.turn.from_ms);
        let sound = recording.playout.sounds.iter().find(|sound| sound.item >= turn.first_item);
        let is_silent = sound.is_none_or(|sound| sound.from_ms >= until_ms);
        checks.add("the agent says nothing".to_owned(), is_silent, || {
            if reply.is_empty() { "sound".to_owned() } else { format!("{reply:?}") }
        });
    } else if turn.speech.is_some() && !expect.goes_on {
        let limit = scenario.limits.answer_ms;
        let answer_ms = answer_ms(recording, place);
        checks.add(
            format!("an answer within {limit} ms"),
            answer_ms.is_some_and(|ms| ms <= limit),
            || match answer_ms {
                Some(ms) => format!("{ms} ms"),
                None => "none".to_owned(),
            },
        );
    }
    let stopped_ms = stopped_ms(recording, turn);
    if let Some(limit) = expect.stops_within_ms {
        let found = || stopped_ms.map_or("it went on".to_owned(), |ms| format!("{ms} ms"));
        checks.add(format!("the reply stops within {limit} ms"), stopped_ms.is_some_and(|ms| ms <= limit), found);
    }
    if expect.goes_on {
        let found = || stopped_ms.map_or(String::new(), |ms| format!("it stopped after {ms} ms"));
        checks.add("the reply goes on".to_owned(), stopped_ms.is_none(), found);
    }
    checks.words(expect, &reply);
    let last_call = next.map_or(recording.calls.len(), |next| next.first_call);
    checks.calls(&expect.tools, &recording.calls[turn.first_call..last_call]);
    checks.made
}

fn whole_checks(scenario: &Scenario, recording: &Recording, measures: &Measures) -> Vec<Check> {
    let mut checks = Checks { turn: None, made: Vec::new() };
    checks.add("the conversation ends as the caller ends it".to_owned(), recording.end == End::Finished, || {
        match &recording.end {
            End::Finished => String::new(),
            End::Unanswered => "two turns in a row had no answer".to_owned(),
            End::TooLong => format!("it took longer than {} s", scenario.limits.max_seconds),
            End::Broken(why) => why.clone(),
        }
    });
    if scenario.goal.is_some() && recording.end == End::Finished {
        let found = || "it hung up before its first words".to_owned();
        checks.add("the caller speaks".to_owned(), !recording.turns.is_empty(), found);
    }
    let limit = scenario.limits.dead_air_ms;
    checks.add(format!("no silence of the agent beyond {limit} ms"), measures.dead_air_ms <= limit, || {
        format!("{} ms", measures.dead_air_ms)
    });
    let most = scenario.limits.interruptions;
    checks.add(format!("at most {most} interruptions of the caller"), measures.interruptions <= most, || {
        measures.interruptions.to_string()
    });
    checks.words(&scenario.expect, &recording.reply(0, None));
    checks.calls(&scenario.expect.tools, &recording.calls);
    checks.made
}

fn turn_report(recording: &Recording, place: usize) -> TurnReport {
    let turn = &recording.turns[place];
    let next = recording.turns.get(place + 1);
    let until_ms = next.map_or(f64::INFINITY, |next| next.turn.from_ms);
    let transcripts = recording.transcripts.iter().filter(|transcript| {
        transcript.at_ms >= turn.turn.from_ms && transcript.at_ms < until_ms && !transcript.text.is_empty()
    });
    let last_call = next.map_or(recording.calls.len(), |next| next.first_call);
    let calls = recording.calls[turn.first_call..last_call].iter();
    TurnReport {
        at_ms: whole(turn.turn.from_ms),
        said: turn.said.clone(),
        understood: transcripts.map(|transcript| transcript.text.trim()).collect::<Vec<_>>().join(" "),
        answer_ms: answer_ms(recording, place),
        stopped_ms: stopped_ms(recording, turn),
        answered_at_ms: recording.answer(place).map(|sound| whole(sound.from_ms)),
        reply: recording.reply(turn.first_item, next.map(|next| next.first_item)),
        calls: calls.map(|call| call_text(&call.name, &call.arguments)).collect(),
    }
}

fn measures(recording: &Recording) -> Measures {
    let mut answers: Vec<u64> = (0..recording.turns.len()).filter_map(|place| answer_ms(recording, place)).collect();
    answers.sort_unstable();
    let interruptions = recording.turns.iter().map(|turn| n_interruptions(recording, turn)).sum();
    Measures {
        seconds: recording.ended_ms / 1e3,
        answer_p50_ms: answers.get(answers.len().saturating_sub(1) / 2).copied(),
        answer_max_ms: answers.last().copied(),
        dead_air_ms: whole(dead_air_ms(recording)),
        interruptions,
        late_frames: recording.n_late,
    }
}

/// The wait for an answer; 0 where it overlaps the end of the caller's words. `None`: none came, or the caller was silent.
fn answer_ms(recording: &Recording, place: usize) -> Option<u64> {
    let speech = recording.turns.get(place)?.speech?;
    let answer = recording.answer(place)?;
    Some(whole((answer.from_ms - speech.to_ms).max(0.0)))
}

/// From the caller's first sound to the end of the reply that it spoke over, where that was cut.
fn stopped_ms(recording: &Recording, turn: &RecordedTurn) -> Option<u64> {
    let speech = turn.speech?;
    let item = turn.over_item?;
    recording.playout.items.get(item)?.cleared_ms?;
    let last = recording.playout.sounds.iter().rfind(|sound| sound.item == item)?;
    Some(whole((last.to_ms - speech.from_ms).max(0.0)))
}

/// How many new replies begin while the caller speaks.
fn n_interruptions(recording: &Recording, turn: &RecordedTurn) -> usize {
    let Some(speech) = turn.speech else { return 0 };
    let begins = |sound: &Sound| sound.from_ms > speech.from_ms && sound.from_ms < speech.to_ms - OVERLAP_MS;
    let sounds = &recording.playout.sounds;
    let interrupts = |item: &usize| sounds.iter().find(|sound| sound.item == *item).is_some_and(begins);
    (turn.first_item..recording.playout.items.len()).filter(interrupts).count()
}

/// The longest silence before a sound of the agent that is not the caller's to fill: behind the caller's words, or within
/// the agent's own.
fn dead_air_ms(recording: &Recording) -> f64 {
    let mut longest = 0.0_f64;
    let sounds = &recording.playout.sounds;
    for sound in sounds {
        let agent_ms = sounds.iter().map(|other| other.to_ms).filter(|to_ms| *to_ms <= sound.from_ms);
        let is_before = |speech: &Span| speech.to_ms <= sound.from_ms;
        let caller_ms = recording.turns.iter().filter_map(|turn| turn.speech).filter(is_before).map(|span| span.to_ms);
        let last_ms = agent_ms.chain(caller_ms).fold(0.0, f64::max);
        let is_callers = |turn: &RecordedTurn| {
            turn.speech.is_none() && turn.turn.from_ms < sound.from_ms && turn.turn.to_ms > last_ms
        };
        // Before the first words, and in a silence of the script, the agent owes nothing.
        if last_ms > 0.0 && !recording.turns.iter().any(is_callers) {
            longest = longest.max(sound.from_ms - last_ms);
        }
    }
    longest
}

/// Whether a text has these words in a row, whatever their case, marks and figures.
fn has(text: &str, words: &str) -> bool {
    let words = compared(words);
    !words.is_empty() && compared(text).windows(words.len()).any(|window| window == words)
}

/// Whether a call has these arguments; of objects, these fields.
fn is_part(expected: &Map<String, Value>, arguments: &Value) -> bool {
    expected.iter().all(|(name, value)| match (value, arguments.get(name)) {
        (Value::Object(inner), Some(found)) => is_part(inner, found),
        (Value::String(text), Some(Value::String(found))) => text.eq_ignore_ascii_case(found),
        (Value::Number(number), Some(found)) => number.as_f64() == found.as_f64(),
        (value, found) => found == Some(value),
    })
}

fn call_text(name: &str, arguments: &Value) -> String {
    match arguments {
        Value::Object(fields) if fields.is_empty() => format!("{name}()"),
        arguments => format!("{name}({arguments})"),
    }
}

/// Both sides in one track.
fn mixed(recording: &Recording) -> Pcm {
    let mut samples = recording.microphone.clone();
    for (place, item) in recording.playout.items.iter().enumerate() {
        let Some(sound) = recording.playout.sounds.iter().find(|sound| sound.item == place) else { continue };
        let lead = item.samples.iter().position(|sample| sample.unsigned_abs() >= 104).unwrap_or(0);
        let from_ms = (sound.from_ms - samples_ms(lead)).max(0.0);
        let from = (from_ms * f64::from(RATE.hz()) / 1e3) as usize;
        let end = from + item.samples.len();
        if samples.len() < end {
            samples.resize(end, 0);
        }
        for (sample, reply) in samples[from..end].iter_mut().zip(&item.samples) {
            *sample = sample.saturating_add(*reply);
        }
    }
    Pcm { rate: RATE, samples }
}

fn whole(ms: f64) -> u64 {
    ms.round() as u64
}

#[cfg(test)]
mod tests {
    use super::super::talk::Transcript;
    use super::*;

    const SECOND: usize = 24_000;

    fn scenario(text: &str) -> Scenario {
        Scenario::parse(text, "test").expect("a scenario")
    }

    /// Two turns: at 1 s and over the reply at 4 s; replies at 2.5 s (cut after 2 s) and at 5.4 s.
    fn recording(scenario: &Scenario) -> Recording {
        let mut recording = Recording { ended_ms: 9_000.0, ..Recording::default() };
        recording.playout.audio("a", &[1_000; 4 * SECOND], 2_500.0);
        recording.playout.items[0].text = "We have tables at seven and nine in the evening, I think.".into();
        recording.playout.clear(4_500.0);
        recording.playout.audio("b", &[1_000; SECOND], 5_400.0);
        recording.playout.items[1].text = "Booked, for 3 people.".into();
        let turn = |place: usize, from_ms: f64, to_ms: f64| RecordedTurn {
            said: scenario.turns[place].say.clone(),
            expect: scenario.turns[place].expect.clone(),
            is_over_reply: scenario.turns[place].over_reply_ms.is_some(),
            speech: Some(Span { from_ms, to_ms }),
            turn: Span { from_ms, to_ms },
            first_item: place,
            first_call: 0,
            over_item: (place == 1).then_some(0),
        };
        recording.turns = vec![turn(0, 1_000.0, 2_000.0), turn(1, 4_000.0, 5_000.0)];
        recording.calls.push(RecordedCall {
            at_ms: 5_100.0,
            name: "book".into(),
            arguments: serde_json::json!({"people": 3, "at": "19:00"}),
        });
        recording.transcripts.push(Transcript { at_ms: 2_100.0, text: "A table for two.".into() });
        recording
    }

    const SCRIPT: &str = r#"
        [[tools]]
        name = "book"
        [[turns]]
        say = "A table for two."
        expect.words = ["tables at 7"]
        [[turns]]
        say = "For three."
        over_reply_ms = 500
        expect.words = ["three people"]
        expect.not_words = ["seven"]
        expect.tools = [{ name = "book", arguments = { people = 3.0 } }]
        expect.stops_within_ms = 600
    "#;

    fn failed(report: &Report) -> Vec<String> {
        let failed = report.checks.iter().filter(|check| !check.passed);
        failed.map(|check| format!("{:?} {}: {}", check.turn, check.expected, check.found)).collect()
    }

    #[test]
    fn a_conversation_as_expected_passes_with_its_figures() {
        let scenario = scenario(SCRIPT);
        let report = judge(&scenario, recording(&scenario));
        assert_eq!(failed(&report), Vec::<String>::new());
        assert!(report.passed && report.checks.len() == 10, "{:?}", report.checks);
        assert_eq!((report.turns[0].answer_ms, report.turns[1].stopped_ms), (Some(500), Some(500)));
        assert_eq!(
            (report.turns[0].understood.as_str(), report.turns[1].reply.as_str()),
            ("A table for two.", "Booked, for 3 people.")
        );
        assert_eq!(report.turns[1].calls, [r#"book({"at":"19:00","people":3})"#]);
        assert_eq!((report.measures.answer_p50_ms, report.measures.answer_max_ms), (Some(400), Some(500)));
        assert_eq!((report.measures.dead_air_ms, report.measures.interruptions), (500, 0));
        assert!(report.sound.samples[3 * SECOND] == 1_000 && report.sound.samples[5 * SECOND] == 0);
    }

    #[test]
    fn each_expectation_fails_with_what_was_there_instead() {
        let text = SCRIPT
            .replace("tables at 7", "no tables")
            .replace("\"seven\"", "\"booked\"")
            .replace("people = 3.0", "people = 4")
            .replace("= 600", "= 400");
        let scenario = scenario(&format!("[limits]\nanswer_ms = 450\ndead_air_ms = 400\n{text}"));
        let found = failed(&judge(&scenario, recording(&scenario)));
        let expected = [
            "Some(1) an answer within 450 ms: 500 ms",
            r#"Some(1) the agent says "no tables": "We have tables at seven and …""#,
            "Some(2) the reply stops within 400 ms: 500 ms",
            r#"Some(2) the agent does not say "booked": "Booked, for 3 people.""#,
            r#"Some(2) the agent calls book({"people":4}): book({"at":"19:00","people":3})"#,
            "None no silence of the agent beyond 400 ms: 500 ms",
        ];
        assert_eq!(found, expected);
    }

    /// The first turn of a scenario, spoken from the beginning of the span to its end.
    fn first_turn(scenario: &Scenario, span: Span) -> RecordedTurn {
        RecordedTurn {
            said: scenario.turns[0].say.clone(),
            expect: scenario.turns[0].expect.clone(),
            is_over_reply: false,
            speech: Some(span),
            turn: span,
            first_item: 0,
            first_call: 0,
            over_item: None,
        }
    }

    #[test]
    fn a_caller_with_a_goal_that_says_nothing_has_rehearsed_nothing() {
        let report = judge(&scenario("[goal]\ntext = \"Book a table.\"\n"), Recording::default());
        assert_eq!(failed(&report), ["None the caller speaks: it hung up before its first words"]);
        let broken = Recording { end: End::Broken("the server is gone".into()), ..Recording::default() };
        let report = judge(&scenario("[goal]\ntext = \"Book a table.\"\n"), broken);
        let expected = ["None the conversation ends as the caller ends it: the server is gone"];
        assert_eq!(failed(&report), expected, "it did not hang up");
    }

    #[test]
    fn an_agent_that_begins_twice_while_the_caller_speaks_interrupts_twice() {
        let scenario = scenario("[limits]\ninterruptions = 1\n[[turns]]\nsay = \"Hm.\"\n");
        let mut recording = Recording::default();
        recording.playout.audio("a", &[1_000; SECOND], 1_200.0);
        recording.playout.clear(1_400.0);
        recording.playout.audio("b", &[1_000; SECOND], 1_500.0);
        let span = Span { from_ms: 1_000.0, to_ms: 2_000.0 };
        recording.turns.push(first_turn(&scenario, span));
        let report = judge(&scenario, recording);
        assert_eq!(failed(&report), ["None at most 1 interruptions of the caller: 2"]);
    }

    #[test]
    fn the_answer_to_later_words_is_no_answer_to_a_turn_that_had_none() {
        let limits = "[limits]\nanswer_ms = 9000\ndead_air_ms = 9000\n";
        let scenario = scenario(&format!("{limits}[[turns]]\nsay = \"Hello?\"\n"));
        let mut recording = Recording::default();
        recording.turns.push(first_turn(&scenario, Span { from_ms: 0.0, to_ms: 1_000.0 }));
        recording.turns.push(first_turn(&scenario, Span { from_ms: 4_000.0, to_ms: 5_000.0 }));
        recording.playout.audio("a", &[1_000; SECOND], 5_500.0);
        let report = judge(&scenario, recording);
        assert_eq!(failed(&report), ["Some(1) an answer within 9000 ms: none"]);
        assert_eq!((report.turns[0].answered_at_ms, report.turns[1].answer_ms), (None, Some(500)));
        assert_eq!((report.measures.answer_p50_ms, report.measures.answer_max_ms), (Some(500), Some(500)));
    }

    #[test]
    fn a_reply_that_was_held_does_not_begin_again() {
        let scenario = scenario("[[turns]]\nsay = \"Hm.\"\n");
        let mut recording = Recording::default();
        recording.playout.audio("a", &[1_000; SECOND], 900.0);
        recording.playout.hold(1_300.0);
        recording.playout.resume(1_500.0);
        recording.turns.push(RecordedTurn {
            turn: Span { from_ms: 800.0, to_ms: 2_000.0 },
            ..first_turn(&scenario, Span { from_ms: 1_000.0, to_ms: 2_000.0 })
        });
        assert_eq!(failed(&judge(&scenario, recording)), Vec::<String>::new());
    }

    #[test]
    fn silence_interruptions_and_a_broken_connection_are_seen() {
        let scenario = scenario("[[turns]]\nsay = \"Hm.\"\nexpect.no_reply = true\n");
        let mut recording = Recording { end: End::Broken("the server is gone".into()), ..Recording::default() };
        recording.playout.audio("a", &[1_000; SECOND], 1_200.0);
        let span = Span { from_ms: 1_000.0, to_ms: 2_000.0 };
        recording.turns.push(first_turn(&scenario, span));
        let expected = [
            "Some(1) the agent says nothing: sound",
            "None the conversation ends as the caller ends it: the server is gone",
            "None at most 0 interruptions of the caller: 1",
        ];
        assert_eq!(failed(&judge(&scenario, recording)), expected);
    }
}
