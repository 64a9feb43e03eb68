//! Verdicts of turns added up: the measures under the field's names, by category and by condition, each with its number
//! of turns.

use super::super::{Figure, Section, Unit, Waits};
use super::judge::Verdict;
use super::scenario::{Category, Condition, Expected, Split, Turn};
use std::collections::BTreeMap;

/// What happened to the story after a reply was cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resumption {
    /// Words that were heard and said again by the next reply.
    pub(super) repeated: usize,
    /// Words that were neither heard nor said.
    pub(super) lost: usize,
}

impl Resumption {
    /// The words of the story that were heard of the reply that was cut, and the place at which the next reply began.
    pub(super) fn new(heard_to: usize, next_from: usize) -> Self {
        Self { repeated: heard_to.saturating_sub(next_from), lost: next_from.saturating_sub(heard_to) }
    }
}

/// Turns with faults that a report names, at most.
const MAX_NAMED: usize = 100;

/// A turn's labels in short, and what became of it. `verdict` is `None` where the turn could not be run: there was no
/// reply to speak over, or no silence to begin in.
#[derive(Clone, Debug)]
pub(super) struct JudgedTurn {
    /// The turn's number in a report: those of the conversation and of the turn in it, from 1, and the speaker's name.
    pub(super) place: String,
    /// The words of its labels, and those of the user's transcripts until the next turn.
    pub(super) said: String,
    pub(super) heard: String,
    pub(super) category: Category,
    pub(super) expected: Expected,
    pub(super) split: Split,
    pub(super) condition: Condition,
    pub(super) verdict: Option<Verdict>,
    pub(super) resumption: Option<Resumption>,
}

impl JudgedTurn {
    /// `place`: see the field; `heard`: the user's transcripts.
    pub(super) fn new(
        (place, turn): (String, &Turn),
        heard: String,
        split: Split,
        condition: Condition,
        verdict: Option<Verdict>,
    ) -> Self {
        let Turn { category, expected, .. } = *turn;
        let said = turn.labels.iter().map(|label| label.text.as_str()).collect::<Vec<_>>().join(" ");
        Self { place, said, heard, category, expected, split, condition, verdict, resumption: None }
    }

    /// What the agent did wrong.
    fn faults(&self) -> Vec<&'static str> {
        let Some(verdict) = &self.verdict else { return Vec::new() };
        let faults = [
            (verdict.response_ms.is_some_and(f64::is_infinite), "not answered"),
            (verdict.false_cutoff == Some(true), "cut off"),
            (verdict.interrupted == Some(true), "interrupted"),
            (verdict.yielded == Some(false), "did not yield"),
            (verdict.went_on == Some(false), "the reply stopped"),
            (verdict.stayed_silent == Some(false), "answered"),
        ];
        faults.into_iter().filter(|(is_so, _)| *is_so).map(|(_, fault)| fault).collect()
    }

    fn needs_reply(&self) -> bool {
        matches!(self.expected, Expected::Yield | Expected::GoOn)
    }

    fn has_begun_in_silence(&self) -> bool {
        self.expected == Expected::Answer
    }
}

/// Some of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) n: usize,
    pub(super) of: usize,
}

impl Share {
    fn of(judgements: impl Iterator<Item = Option<bool>>) -> Self {
        let mut share = Self::default();
        for is_so in judgements.flatten() {
            share.n += usize::from(is_so);
            share.of += 1;
        }
        share
    }

    /// In per cent; 0 without any.
    pub(super) fn percent(self) -> f64 {
        100.0 * self.n as f64 / self.of.max(1) as f64
    }

    fn figure(self, name: impl Into<String>) -> Figure {
        Figure::new(name, Unit::Of("%"), self.percent(), self.of)
    }

    fn shown(self) -> String {
        if self.of == 0 { "-".into() } else { format!("{:.0} % ({} of {})", self.percent(), self.n, self.of) }
    }
}

/// The measures of some turns.
pub(super) struct Measures {
    pub(super) takeover: Share,
    pub(super) false_cutoff: Share,
    pub(super) pauses_cut: Share,
    pub(super) interrupted: Share,
    pub(super) response: Waits,
    pub(super) unanswered: Share,
    pub(super) yielded: Share,
    pub(super) stop: Waits,
    pub(super) stop_after_decision: Waits,
    pub(super) went_on: BTreeMap<Category, Share>,
    pub(super) held: Waits,
    pub(super) stayed_silent: Share,
    pub(super) resumptions: Vec<Resumption>,
    pub(super) n_turns: usize,
    pub(super) n_without_reply: usize,
    pub(super) n_without_silence: usize,
}

impl Measures {
    pub(super) fn of<'a>(turns: impl Iterator<Item = &'a JudgedTurn>) -> Self {
        let turns: Vec<&JudgedTurn> = turns.collect();
        let run = || turns.iter().filter_map(|turn| Some((*turn, turn.verdict.as_ref()?)));
        let in_silence = || run().filter(|(turn, _)| turn.has_begun_in_silence()).map(|(_, verdict)| verdict);
        let waits = |of: fn(&Verdict) -> Option<f64>, turns: &[&Verdict]| {
            let mut waits = Waits::default();
            for ms in turns.iter().filter_map(|verdict| of(verdict)) {
                match ms.is_finite() {
                    true => waits.push_ms(ms),
                    false => waits.push_endless(),
                }
            }
            waits
        };
        let all: Vec<&Verdict> = run().map(|(_, verdict)| verdict).collect();
        let silent: Vec<&Verdict> = in_silence().collect();
        let mut went_on = BTreeMap::<Category, Share>::new();
        for (turn, verdict) in run() {
            if let Some(is_so) = verdict.went_on {
                let share = went_on.entry(turn.category).or_default();
                share.n += usize::from(is_so);
                share.of += 1;
            }
        }
        let is_unanswered = |verdict: &&Verdict| verdict.response_ms.map(f64::is_infinite);
        let not_run = || turns.iter().filter(|turn| turn.verdict.is_none());
        Self {
            takeover: Share::of(in_silence().map(|verdict| verdict.takeover)),
            false_cutoff: Share::of(in_silence().map(|verdict| verdict.false_cutoff)),
            pauses_cut: Share {
                n: silent.iter().map(|verdict| verdict.pauses_cut).sum(),
                of: silent.iter().map(|verdict| verdict.pauses).sum(),
            },
            interrupted: Share::of(all.iter().map(|verdict| verdict.interrupted)),
            response: waits(|verdict| verdict.response_ms, &silent),
            unanswered: Share::of(all.iter().map(is_unanswered)),
            yielded: Share::of(all.iter().map(|verdict| verdict.yielded)),
            stop: waits(|verdict| verdict.stop_ms, &all),
            stop_after_decision: waits(|verdict| verdict.stop_after_decision_ms, &all),
            went_on,
            held: waits(|verdict| verdict.held_ms, &all),
            stayed_silent: Share::of(all.iter().map(|verdict| verdict.stayed_silent)),
            resumptions: turns.iter().filter_map(|turn| turn.resumption).collect(),
            n_turns: turns.len(),
            n_without_reply: not_run().filter(|turn| turn.needs_reply()).count(),
            n_without_silence: not_run().filter(|turn| !turn.needs_reply()).count(),
        }
    }

    /// Replies that went on, of these categories.
    fn selectivity(&self, categories: &[Category]) -> Share {
        let of = |category: &Category| self.went_on.get(category).copied().unwrap_or_default();
        let add = |sum: Share, share: Share| Share { n: sum.n + share.n, of: sum.of + share.of };
        categories.iter().map(of).fold(Share::default(), add)
    }

    /// Adds the figures, their names behind `prefix`.
    pub(super) fn figures(&self, section: &mut Section, prefix: &str) {
        let name = |what: &str| format!("{prefix}{what}");
        let mut share = |what: &str, share: Share| {
            if share.of > 0 {
                section.figures.push(share.figure(name(what)));
            }
        };
        share("takeover rate at pauses", self.takeover);
        share("false cutoff rate", self.false_cutoff);
        share("pauses that ended the turn", self.pauses_cut);
        share("agent interruption rate", self.interrupted);
        share("unanswered", self.unanswered);
        share("yield rate (2 s)", self.yielded);
        share("selectivity: backchannels", self.selectivity(&[Category::Backchannel]));
        share("selectivity: vocal tics", self.selectivity(&[Category::VocalTic]));
        share("selectivity: speech to others", self.selectivity(&[Category::Aside]));
        share("selectivity: television", self.selectivity(&[Category::Television]));
        share("silent where nobody spoke to it", self.stayed_silent);
        for (what, waits) in [
            ("response latency", &self.response),
            ("stop latency", &self.stop),
            ("stop after the deciding word", &self.stop_after_decision),
            ("reply held by what did not stop it", &self.held),
        ] {
            section.percentile(&name(what), waits, 50.0, None);
            section.percentile(&name(what), waits, 95.0, None);
        }
        let n = self.resumptions.len();
        if n > 0 {
            let mean = |of: fn(&Resumption) -> usize| self.resumptions.iter().map(of).sum::<usize>() as f64 / n as f64;
            let per_cut = |what: &str, value| Figure::new(name(what), Unit::Of("words a cut"), value, n);
            section.figures.push(per_cut("resumption: heard and repeated", mean(|one| one.repeated)));
            section.figures.push(per_cut("resumption: lost", mean(|one| one.lost)));
        }
        for (what, n) in [
            ("turns without a reply to speak over", self.n_without_reply),
            ("turns without silence to begin in", self.n_without_silence),
        ] {
            section.figures.push(Figure::new(name(what), Unit::Count, n as f64, self.n_turns));
        }
    }

    /// One line of the tables: what was right, of how many, and the latencies.
    fn line(&self) -> String {
        let ms = |waits: &Waits| match (waits.percentile(50.0), waits.percentile(95.0)) {
            (Some(p50), Some(p95)) => format!("{}, {} ms", shown_ms(p50), shown_ms(p95)),
            _ => "-".into(),
        };
        let kept = self
            .went_on
            .values()
            .fold(Share::default(), |sum, share| Share { n: sum.n + share.n, of: sum.of + share.of });
        format!(
            "n={:<4} cut off {:<18} answered {:<16} yielded {:<18} stopped {:<16} went on {:<18} silent {}",
            self.n_turns,
            self.false_cutoff.shown(),
            ms(&self.response),
            self.yielded.shown(),
            ms(&self.stop),
            kept.shown(),
            self.stayed_silent.shown(),
        )
    }
}

fn shown_ms(ms: f64) -> String {
    if ms.is_finite() { format!("{ms:.0}") } else { "never".into() }
}

/// The tables by category and by condition, as lines.
pub(super) fn tables(turns: &[&JudgedTurn]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut by_category = BTreeMap::<Category, Vec<&JudgedTurn>>::new();
    let mut by_condition = BTreeMap::<String, Vec<&JudgedTurn>>::new();
    for turn in turns {
        by_category.entry(turn.category).or_default().push(turn);
        by_condition.entry(turn.condition.to_string()).or_default().push(turn);
    }
    lines.push("by category (p50, p95 of times):".to_owned());
    for (category, turns) in by_category {
        lines.push(format!("  {:<22} {}", category.name(), Measures::of(turns.into_iter()).line()));
    }
    lines.push("by condition:".to_owned());
    for (condition, turns) in by_condition {
        lines.push(format!("  {condition:<22} {}", Measures::of(turns.into_iter()).line()));
    }
    lines
}

/// The turns in which the agent did something wrong, a line each.
pub(super) fn faults(turns: &[&JudgedTurn]) -> Vec<String> {
    let with_faults: Vec<_> =
        turns.iter().map(|turn| (turn, turn.faults())).filter(|(_, all)| !all.is_empty()).collect();
    if with_faults.is_empty() {
        return Vec::new();
    }
    let mut lines = vec!["turns that went wrong: what was said; what was heard:".to_owned()];
    lines.extend(with_faults.iter().take(MAX_NAMED).map(|(turn, faults)| {
        let JudgedTurn { place, said, heard, category, condition, .. } = turn;
        let dropped_ms = turn.verdict.as_ref().and_then(|verdict| verdict.dropped_ms);
        let after = dropped_ms.map(|ms| format!(" after {ms:.0} ms")).unwrap_or_default();
        format!("  {place}, {condition}, {}: {}{after}: {said:?}; {heard:?}", category.name(), faults.join(", "))
    }));
    if with_faults.len() > MAX_NAMED {
        lines.push(format!("  and {} more", with_faults.len() - MAX_NAMED));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::scenario::tests::turn;
    use super::*;

    fn judged(category: Category, expected: Expected, verdict: Option<Verdict>) -> JudgedTurn {
        let turn = Turn { category, ..turn(expected, &[(0, 500)]) };
        JudgedTurn::new((String::new(), &turn), String::new(), Split::Held, Condition::Clean, verdict)
    }

    fn answered(response_ms: Option<f64>, false_cutoff: bool, takeover: Option<bool>) -> JudgedTurn {
        let verdict = Verdict {
            response_ms,
            false_cutoff: Some(false_cutoff),
            takeover,
            interrupted: Some(false),
            pauses: 2,
            pauses_cut: usize::from(false_cutoff),
            ..Verdict::default()
        };
        judged(Category::Question, Expected::Answer, Some(verdict))
    }

    fn went_on(category: Category, is_so: bool) -> JudgedTurn {
        let held_ms = is_so.then_some(400.0);
        let dropped_ms = (!is_so).then_some(1_050.0);
        let verdict = Verdict { went_on: Some(is_so), dropped_ms, held_ms, ..Verdict::default() };
        judged(category, Expected::GoOn, Some(verdict))
    }

    #[test]
    fn rates_are_of_the_turns_to_which_they_apply() {
        let turns = [
            answered(Some(500.0), false, Some(false)),
            answered(Some(700.0), true, Some(false)),
            answered(None, true, Some(true)),
            answered(Some(f64::INFINITY), false, None),
            judged(Category::Interruption, Expected::Yield, None),
            judged(Category::TelevisionAlone, Expected::Wait, None),
        ];
        let measures = Measures::of(turns.iter());
        assert_eq!(measures.takeover, Share { n: 1, of: 3 });
        assert_eq!(measures.false_cutoff, Share { n: 2, of: 4 });
        assert_eq!(measures.pauses_cut, Share { n: 2, of: 8 });
        assert_eq!(measures.unanswered, Share { n: 1, of: 3 });
        assert_eq!((measures.response.percentile(50.0), measures.response.len()), (Some(700.0), 3));
        assert_eq!((measures.n_turns, measures.yielded.of), (6, 0));
        assert_eq!((measures.n_without_reply, measures.n_without_silence), (1, 1));
    }

    #[test]
    fn turns_that_went_wrong_are_named_with_what_was_said_and_heard() {
        let wrong = JudgedTurn {
            place: "2.7 slt".into(),
            said: "Is it open?".into(),
            heard: "it is".into(),
            ..answered(Some(f64::INFINITY), true, None)
        };
        let turns = [answered(Some(500.0), false, None), wrong, went_on(Category::VocalTic, false)];
        let lines = faults(&turns.iter().collect::<Vec<_>>());
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[1], r#"  2.7 slt, clean, question: not answered, cut off: "Is it open?"; "it is""#);
        assert!(lines[2].contains("the reply stopped after 1050 ms: "), "{lines:?}");
        assert_eq!(faults(&[&turns[0]]), Vec::<String>::new());
    }

    #[test]
    fn selectivity_is_by_kind() {
        let turns = [
            went_on(Category::Backchannel, true),
            went_on(Category::Backchannel, false),
            went_on(Category::VocalTic, true),
            went_on(Category::Aside, false),
        ];
        let measures = Measures::of(turns.iter());
        let of = |category| measures.selectivity(&[category]);
        assert_eq!(of(Category::Backchannel), Share { n: 1, of: 2 });
        assert_eq!((of(Category::VocalTic).percent(), of(Category::Aside).percent()), (100.0, 0.0));
        assert_eq!((of(Category::Television).of, measures.held.len()), (0, 2));
    }

    #[test]
    fn resumption_counts_what_is_repeated_and_what_is_lost() {
        assert_eq!(Resumption::new(7, 7), Resumption::default());
        assert_eq!(Resumption::new(9, 7), Resumption { repeated: 2, lost: 0 });
        assert_eq!(Resumption::new(5, 8), Resumption { repeated: 0, lost: 3 });
    }

    #[test]
    fn figures_and_tables_have_their_numbers_of_turns() {
        let cut = JudgedTurn {
            resumption: Some(Resumption { repeated: 1, lost: 0 }),
            ..judged(
                Category::Interruption,
                Expected::Yield,
                Some(Verdict { stop_ms: Some(300.0), yielded: Some(true), ..Verdict::default() }),
            )
        };
        let turns = [answered(Some(500.0), false, None), cut];
        let mut section = Section::default();
        Measures::of(turns.iter()).figures(&mut section, "held: ");
        let of = |name: &str| {
            let figure = section.figures.iter().find(|figure| figure.name == name).expect("measured");
            (figure.value, figure.n)
        };
        assert_eq!(of("held: yield rate (2 s)"), (100.0, 1));
        assert_eq!(of("held: stop latency p95"), (300.0, 1));
        assert_eq!(of("held: resumption: heard and repeated"), (1.0, 1));
        assert!(!section.figures.iter().any(|figure| figure.name.contains("takeover")), "no turn has a pause");
        let lines = tables(&turns.iter().collect::<Vec<_>>());
        assert!(lines[1].contains("question") && lines[1].contains("n=1"), "{lines:?}");
        assert!(lines.iter().any(|line| line.contains("clean") && line.contains("n=2")), "{lines:?}");
    }
}
