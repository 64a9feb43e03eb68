//! What the assistant says, by the words of a request: the first rule that fits answers.

use crate::{numbers, sentence, sums, words};
use jiff::{ToSpan, Zoned};

/// The answer to everything else.
pub(crate) const REFUSAL: &str =
    "I cannot answer that offline. Ask me for the time, the date or a sum, or connect a language model.";
const ABILITIES: &str = "I can tell the time and the date, calculate, count, repeat what you say, tell a story, and call one \
    tool. Connect a language model for everything else.";
const IDENTITY: &str = "I am the offline assistant of Antiphon, a voice hub on your own machine. I know a few rules and no \
    language model.";
const STORY: &str = "Once there was a keeper of a lighthouse who talked to the sea every evening. He told it which ships had \
    passed, and what the gulls had quarrelled about. The sea never answered, and he never minded. One night the fog was so \
    thick that the lamp lit nothing but itself, and a ship came too close to the rocks. The keeper took his bell and rang it \
    until his arms hurt. When the fog had gone, the ship lay safely at anchor, and its captain rowed ashore to thank him. \
    Who told you that we were there, the captain asked. The keeper looked at the water, which was quiet for once. A friend \
    of mine, he said, who is not much of a talker. From that day on, every ship that passed rang its bell, and in the \
    evening the keeper told the sea about each of them.";

/// The most numbers that are counted.
const MAX_COUNTED: i64 = 100;

/// The answer to a request; `None` where no rule fits. `last_answer` is what the assistant said before.
pub(crate) fn answer(request: &str, last_answer: Option<&str>, now: &Zoned) -> Option<String> {
    let all = words(request);
    if all.is_empty() {
        return Some("I did not hear any words.".to_owned());
    }
    let text = format!(" {} ", all.join(" "));
    let has = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(&format!(" {phrase} ")));
    if has(&["say that again", "say it again", "repeat that", "what did you say", "once more", "pardon"]) {
        return Some(last_answer.unwrap_or("I have not said anything yet.").to_owned());
    }
    if let Some(text) = repeated(request) {
        return Some(text);
    }
    if has(&["count", "count down"]) {
        return counted(&all);
    }
    if let Some(sum) = sums::answer(&all) {
        return Some(sum);
    }
    if has(&["time is it", "the time", "what time", "whats the time"]) {
        return Some(now.strftime("It is %-I:%M %p.").to_string());
    }
    if has(&["date", "todays date", "what day", "which day", "day is it"]) {
        return date(now, &has);
    }
    if has(&["story"]) {
        return Some(STORY.to_owned());
    }
    if has(&["what can you", "what do you do", "what do you know", "help", "can i ask", "can i say"]) {
        return Some(ABILITIES.to_owned());
    }
    if has(&["who are you", "what are you", "your name", "antiphon"]) {
        return Some(IDENTITY.to_owned());
    }
    if has(&["thanks", "thank you"]) {
        return Some("You are welcome.".to_owned());
    }
    if has(&["hello", "hi", "hey", "good morning", "good evening"]) {
        return Some("Hello! What can I do for you?".to_owned());
    }
    None
}

/// `repeat after me: ...`, `say ...`: what follows, as it was written.
fn repeated(request: &str) -> Option<String> {
    const LEADS: [&str; 5] = ["repeat after me", "say after me", "repeat", "say", "please say"];
    let lower = request.to_ascii_lowercase();
    let lead = LEADS.iter().find(|lead| lower.strip_prefix(**lead).is_some_and(|rest| !starts_in_word(rest)))?;
    let rest = request[lead.len()..].trim_matches(|c: char| c.is_whitespace() || ":,\"“”".contains(c));
    (!rest.is_empty()).then(|| sentence(rest))
}

fn starts_in_word(text: &str) -> bool {
    text.starts_with(char::is_alphanumeric)
}

/// `count to ten`, `count from two to five`, `count down from ten`.
fn counted(words: &[String]) -> Option<String> {
    let found: Vec<i64> = numbers::all(words).iter().map(|value| *value as i64).collect();
    let is_down = words.iter().any(|word| word == "down" || word == "backwards");
    let (from, to) = match found.as_slice() {
        [from, to, ..] => (*from, *to),
        [one] if is_down => (*one, 1),
        [one] => (1, *one),
        [] if is_down => (10, 1),
        [] => (1, 10),
    };
    let step = if from <= to { 1 } else { -1 };
    let n = i64::try_from(from.abs_diff(to)).unwrap_or(i64::MAX).saturating_add(1).min(MAX_COUNTED);
    let spoken: Vec<String> = (0..n).map(|i| numbers::spoken((from + i * step) as f64)).collect();
    Some(format!("{}.", spoken.join(", ")))
}

fn date(now: &Zoned, has: &dyn Fn(&[&str]) -> bool) -> Option<String> {
    let (name, days) = match () {
        () if has(&["tomorrow", "tomorrows"]) => ("Tomorrow is", 1),
        () if has(&["yesterday", "yesterdays"]) => ("Yesterday was", -1),
        () => ("Today is", 0),
    };
    let day = now.checked_add(days.days()).ok()?;
    Some(format!("{name} {}.", day.strftime("%A, %B %-d, %Y")))
}
