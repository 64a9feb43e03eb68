//! How likely a transcript is a whole turn, by its words: a logistic regression over how it begins and ends.
//!
//! `taker` asks for each partial transcript, `endpointing` weighs the answer; nothing here decides. English only: of
//! another language it says nothing. The weights, `weights.txt`, are trained by a test (`training`) on `lines/`: 2,400 turns
//! with their pauses, written for it by three authors who knew neither the rules of `wording` nor a benchmark.

mod features;
#[cfg(test)]
mod training;

use std::collections::HashMap;
use std::sync::LazyLock;

/// A line is a feature, a tab and its weight in log-odds.
const WEIGHTS: &str = include_str!("weights.txt");

static MODEL: LazyLock<HashMap<&str, f32>> = LazyLock::new(|| read(WEIGHTS));

/// The log-odds that `text` is a whole turn and not the beginning of one; `None`: not English, or no word. Ends and
/// pauses are as frequent as in the lines, about half of each.
pub(super) fn log_odds(text: &str) -> Option<f32> {
    let features = features::of(text)?;
    Some(sum(&MODEL, &features))
}

fn sum(weights: &HashMap<&str, f32>, features: &[String]) -> f32 {
    features.iter().filter_map(|feature| weights.get(feature.as_str())).sum()
}

fn read(weights: &str) -> HashMap<&str, f32> {
    let weight = |line: &str| line.split_once('\t').and_then(|(_, weight)| weight.parse().ok());
    weights.lines().filter_map(|line| Some((line.split('\t').next()?, weight(line)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::log_odds;

    #[track_caller]
    fn log_odds_of(text: &str) -> f32 {
        log_odds(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn what_lacks_something_is_less_whole_than_what_does_not() {
        for (part, whole) in [
            ("I'd like to book a table for", "I'd like to book a table for four on Friday night."),
            ("Is it true that?", "Is it true that chameleons can look two ways at once?"),
            ("The clause in section 9.", "The clause in section 9 is the one that worries me."),
            ("My wife ordered curtains from you in.", "My wife ordered curtains from you in March."),
            ("So that", "So that is three adults and two children."),
        ] {
            let [part, whole] = [part, whole].map(log_odds_of);
            assert!(part + 1.0 < whole, "{part} {whole}");
        }
    }

    #[test]
    fn a_question_is_more_often_whole_than_a_statement() {
        assert!(log_odds_of("Can I bring my own cake?") > log_odds_of("I lost my phone on a boat.") + 0.5);
    }

    #[test]
    fn a_recognizers_marks_count_for_nothing_and_a_filler_where_it_is_last() {
        let bare = log_odds_of("what time does the museum open");
        for text in ["What time does the museum open?", "What time, um, does the museum open."] {
            assert_eq!(log_odds_of(text), bare, "{text}");
        }
        assert!(log_odds_of("what time does the museum open uh") < bare - 2.0);
    }

    #[test]
    fn another_language_is_not_judged() {
        for text in ["", "...", "Ich möchte einen Tisch bestellen", "Quisiera reservar una mesa", "明日の天気は"]
        {
            assert_eq!(log_odds(text), None, "{text}");
        }
    }
}
