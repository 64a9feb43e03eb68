//! Reports as JUnit XML, which build servers read: a suite for each scenario, a case for each check. Pure.

use super::report::{Check, Report};
use std::fmt::Write;

/// The reports in one document.
pub fn junit(reports: &[Report]) -> String {
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for report in reports {
        suite(&mut xml, report);
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn suite(xml: &mut String, report: &Report) {
    let name = escaped(&report.scenario);
    let n_failed = report.checks.iter().filter(|check| !check.passed).count();
    let n_checks = report.checks.len();
    let seconds = report.measures.seconds;
    // Writing to a string does not fail.
    _ = writeln!(
        xml,
        "  <testsuite name=\"{name}\" tests=\"{n_checks}\" failures=\"{n_failed}\" time=\"{seconds:.3}\">"
    );
    for check in &report.checks {
        case(xml, &name, check);
    }
    xml.push_str("  </testsuite>\n");
}

fn case(xml: &mut String, suite: &str, check: &Check) {
    let place = check.turn.map(|turn| format!("turn {turn}: ")).unwrap_or_default();
    let name = escaped(&format!("{place}{}", check.expected));
    if check.passed {
        _ = writeln!(xml, "    <testcase classname=\"{suite}\" name=\"{name}\"/>");
        return;
    }
    let found = escaped(&check.found);
    _ = writeln!(xml, "    <testcase classname=\"{suite}\" name=\"{name}\"><failure message=\"{found}\"/></testcase>");
}

/// A text for XML and HTML; characters that XML cannot hold are left out.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::report::Measures;
    use super::*;
    use antiphon_types::Pcm;

    #[test]
    fn checks_are_cases_and_their_texts_are_escaped() {
        let check = |turn, expected: &str, found: &str| Check {
            turn,
            expected: expected.into(),
            passed: found.is_empty(),
            found: found.into(),
        };
        let report = Report {
            scenario: "a & b".into(),
            passed: false,
            checks: vec![check(Some(1), "says \"hi\"", ""), check(None, "ends", "<gone>\u{1}")],
            turns: Vec::new(),
            measures: Measures { seconds: 1.5, ..Measures::default() },
            sound: Pcm { rate: antiphon_client::RATE, samples: Vec::new() },
        };
        let expected = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n\
            \x20 <testsuite name=\"a &amp; b\" tests=\"2\" failures=\"1\" time=\"1.500\">\n\
            \x20   <testcase classname=\"a &amp; b\" name=\"turn 1: says &quot;hi&quot;\"/>\n\
            \x20   <testcase classname=\"a &amp; b\" name=\"ends\"><failure message=\"&lt;gone&gt;\"/></testcase>\n\
            \x20 </testsuite>\n</testsuites>\n";
        assert_eq!(junit(&[report]), expected);
    }

    #[test]
    fn a_conversation_that_could_not_be_held_is_a_failure() {
        let xml = junit(&[Report::not_held("booking", "connection refused".into())]);
        assert!(xml.contains("<testsuite name=\"booking\" tests=\"1\" failures=\"1\""), "{xml}");
        assert!(xml.contains("<failure message=\"connection refused\"/>"), "{xml}");
    }
}
