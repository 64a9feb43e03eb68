//! What came of the calls: how many answers were found right in time, when, and which were not.

use super::calling::CallTrace;
use super::lines::Label;
use crate::{Figure, Section, Unit, Waits};
use std::time::Duration;

/// What is reported up to this time after the end of the last word counts; of several reports the last one does.
pub(super) const COUNTS_WITHIN: Duration = Duration::from_secs(2);
/// Share of the answers that have to be right, in per cent.
const RIGHT_PERCENT: f64 = 97.0;
/// Share of the people that may be taken for machines, in per cent.
const TAKEN_PERCENT: f64 = 1.0;

/// A call whose answer was played to its end.
#[derive(Clone, Debug)]
pub(super) struct JudgedCall {
    pub(super) label: Label,
    pub(super) text: String,
    /// Who spoke it.
    pub(super) voice: String,
    /// Level and beep.
    pub(super) sound: String,
    pub(super) trace: CallTrace,
}

impl JudgedCall {
    /// The last report up to this time, in milliseconds from the end of the last word.
    fn found(&self, until_ms: f64) -> Option<&str> {
        let in_time = self.trace.reports.iter().rev().find(|(ms, _)| *ms <= until_ms);
        in_time.map(|(_, found)| found.as_str())
    }

    /// Whether the hub has found who answers: 2 s after the last word, or after the last sound.
    fn is_right(&self, end_ms: f64) -> bool {
        self.found(end_ms + ms(COUNTS_WITHIN)) == Some(self.label.name())
    }

    /// Whether a person was taken for a machine, in time or later.
    fn is_taken_for_machine(&self) -> bool {
        let is_machine = |found: Option<&str>| found.is_some_and(|found| !["person", "unknown"].contains(&found));
        self.label == Label::Person && (is_machine(self.found(ms(COUNTS_WITHIN))) || is_machine(self.found(f64::MAX)))
    }

    /// What went wrong, for people.
    fn note(&self) -> String {
        let Self { label, text, voice, sound, trace } = self;
        let reports: Vec<String> =
            trace.reports.iter().map(|(ms, found)| format!("{found} at {:+.1} s", ms / 1e3)).collect();
        let reports = if reports.is_empty() { "nothing".to_owned() } else { reports.join(", ") };
        let label = label.name();
        format!("{label}, found {reports}: {text:?} by {voice}, {sound}; heard {:?}", trace.heard)
    }
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Adds the figures of calls, and a note for each that went wrong.
pub(super) fn add_to(section: &mut Section, calls: &[JudgedCall]) {
    let share = |name: String, n: usize, of: usize| {
        let percent = 100.0 * n as f64 / of.max(1) as f64;
        Figure::new(name, Unit::Of("%"), percent, of)
    };
    let n_right = |calls: &[&JudgedCall]| calls.iter().filter(|call| call.is_right(0.0)).count();
    let all: Vec<&JudgedCall> = calls.iter().collect();
    let right = share("right within 2 s of the last word".into(), n_right(&all), all.len());
    section.figures.push(right.at_least(RIGHT_PERCENT));
    let n_after_sound = calls.iter().filter(|call| call.is_right(call.trace.sound_end_ms)).count();
    section.figures.push(share("right within 2 s of the last sound".into(), n_after_sound, calls.len()));
    for label in Label::ALL {
        let of: Vec<&JudgedCall> = calls.iter().filter(|call| call.label == label).collect();
        if !of.is_empty() {
            section.figures.push(share(format!("{}: right", label.name()), n_right(&of), of.len()));
        }
    }
    let n_people = calls.iter().filter(|call| call.label == Label::Person).count();
    let n_taken = calls.iter().filter(|call| call.is_taken_for_machine()).count();
    if n_people > 0 {
        let taken = share("people taken for machines".into(), n_taken, n_people);
        section.figures.push(taken.at_most(TAKEN_PERCENT));
    }
    let mut decided = Waits::default();
    for call in calls {
        match call.trace.reports.last() {
            Some((ms, _)) => decided.push_ms(*ms),
            None => decided.push_endless(),
        }
    }
    section.percentile("last word to the decision", &decided, 50.0, None);
    section.percentile("last word to the decision", &decided, 95.0, None);
    let n_revised = calls.iter().filter(|call| call.trace.reports.len() > 1).count();
    section.figures.push(Figure::new("decisions that changed", Unit::Count, n_revised as f64, calls.len()));
    let wrong = calls.iter().filter(|call| !call.is_right(0.0) || call.is_taken_for_machine());
    section.notes.extend(wrong.map(JudgedCall::note));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(label: Label, reports: &[(f64, &str)]) -> JudgedCall {
        let reports = reports.iter().map(|(ms, found)| (*ms, (*found).to_owned())).collect();
        let trace = CallTrace { reports, sound_end_ms: 1_000.0, heard: "hello".into() };
        JudgedCall { label, text: "Hello?".into(), voice: "kokoro af_heart".into(), sound: "-20 dB".into(), trace }
    }

    #[test]
    fn the_last_report_within_2_s_counts() {
        let right = |label, reports: &[(f64, &str)]| call(label, reports).is_right(0.0);
        assert!(right(Label::Person, &[(900.0, "person")]));
        assert!(right(Label::Voicemail, &[(-3_000.0, "voicemail")]), "before the end");
        assert!(right(Label::Person, &[(900.0, "person"), (2_500.0, "voicemail")]), "what changed later");
        assert!(!right(Label::Voicemail, &[(-900.0, "voicemail"), (1_900.0, "ivr")]), "what changed in time");
        assert!(!right(Label::Voicemail, &[(2_100.0, "voicemail")]), "late");
        assert!(!right(Label::Person, &[]));
        assert!(call(Label::Voicemail, &[(2_100.0, "voicemail")]).is_right(1_000.0), "in time after the beep");
    }

    #[test]
    fn a_person_is_taken_for_a_machine_whenever_that_is_reported() {
        let taken = |label, reports: &[(f64, &str)]| call(label, reports).is_taken_for_machine();
        assert!(taken(Label::Person, &[(2_500.0, "voicemail")]));
        assert!(taken(Label::Person, &[(500.0, "ivr"), (2_500.0, "person")]));
        assert!(!taken(Label::Person, &[(500.0, "unknown"), (900.0, "person")]));
        assert!(!taken(Label::Person, &[]));
        assert!(!taken(Label::Ivr, &[(500.0, "voicemail")]));
    }

    #[test]
    fn figures_are_shares_of_their_kind_and_what_was_wrong_is_told() {
        let calls = [
            call(Label::Person, &[(700.0, "person")]),
            call(Label::Person, &[(-100.0, "voicemail")]),
            call(Label::Ivr, &[(300.0, "screening"), (1_500.0, "ivr")]),
            call(Label::Voicemail, &[]),
        ];
        let mut section = Section::new("answers", "");
        add_to(&mut section, &calls);
        let value = |name: &str| section.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value);
        assert_eq!(value("right within 2 s of the last word"), Some(50.0));
        assert_eq!((value("person: right"), value("ivr: right")), (Some(50.0), Some(100.0)));
        assert_eq!((value("voicemail: right"), value("screening: right")), (Some(0.0), None));
        assert_eq!(value("people taken for machines"), Some(50.0));
        assert_eq!(value("last word to the decision p50"), Some(700.0));
        assert_eq!(value("last word to the decision p95"), Some(f64::INFINITY));
        assert_eq!(value("decisions that changed"), Some(1.0));
        let mut machines = Section::new("answers", "");
        add_to(&mut machines, &calls[2..]);
        let of_people = machines.figures.iter().filter(|figure| figure.name.contains("people"));
        assert_eq!(of_people.count(), 0, "no person was called");
        assert_eq!(section.notes.len(), 2, "{:?}", section.notes);
        assert!(section.notes[0].starts_with("person, found voicemail at -0.1 s: \"Hello?\" by kokoro af_heart"));
        assert!(section.notes[1].starts_with("voicemail, found nothing: "), "{}", section.notes[1]);
    }
}
