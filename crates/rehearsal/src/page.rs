//! Reports as one self-contained page with the sound of each conversation. Pure.

use super::junit::escaped;
use super::report::{Check, Report, TurnReport};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark;font:16px/1.5 system-ui,sans-serif}body{max-width:52rem;margin:2rem auto;padding:0 1rem}\
h2{margin-top:2.5rem}table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;text-align:left;vertical-align:top;\
border-bottom:1px solid color-mix(in srgb,currentColor 15%,transparent)}.n{text-align:right;white-space:nowrap;opacity:.7}\
.caller{font-style:italic}.ok{color:#15803d}.no{color:#b91c1c}@media(prefers-color-scheme:dark){.ok{color:#4ade80}\
.no{color:#f87171}}audio{width:100%}.calls{font-family:ui-monospace,monospace;font-size:.9em}";

/// The reports in one page. Its sound is WAV at 24 kHz in base64: 64 KB a second.
pub fn page(reports: &[Report]) -> String {
    let n_passed = reports.iter().filter(|report| report.passed).count();
    let n = reports.len();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width\">\n<title>Rehearsal: {n_passed} of {n} passed</title>\n<style>{STYLE}</style>\n\
         <h1>{n_passed} of {n} conversations passed</h1>\n"
    );
    for report in reports {
        conversation(&mut html, report);
    }
    html
}

fn conversation(html: &mut String, report: &Report) {
    let (class, verdict) = if report.passed { ("ok", "passed") } else { ("no", "failed") };
    let name = escaped(&report.scenario);
    // Writing to a string does not fail.
    _ = writeln!(html, "<h2>{name}: <span class=\"{class}\">{verdict}</span></h2>");
    let wav = STANDARD.encode(antiphon_audio::wav::write(&report.sound));
    _ = writeln!(html, "<audio controls preload=\"none\" src=\"data:audio/wav;base64,{wav}\"></audio>");
    let measures = &report.measures;
    let ms = |ms: Option<u64>| ms.map_or("none".to_owned(), |ms| format!("{ms} ms"));
    _ = writeln!(
        html,
        "<p>{:.1} s; answers after {} (median), {} at most; longest silence of the agent {} ms; {} interruptions of the \
         caller.</p>",
        measures.seconds,
        ms(measures.answer_p50_ms),
        ms(measures.answer_max_ms),
        measures.dead_air_ms,
        measures.interruptions,
    );
    if measures.late_frames > 0 {
        _ = writeln!(
            html,
            "<p class=\"no\">{} frames were sent late: this machine was busy, and times are not to be trusted.</p>",
            measures.late_frames
        );
    }
    html.push_str("<table>\n<tr><th class=\"n\">s<th>what was said<th class=\"n\">answer after\n");
    for turn in &report.turns {
        said(html, turn);
    }
    html.push_str("</table>\n<h3>Checks</h3>\n<table>\n");
    for check in &report.checks {
        checked(html, check);
    }
    html.push_str("</table>\n");
}

fn said(html: &mut String, turn: &TurnReport) {
    let words = if turn.said.is_empty() { "(silence)".to_owned() } else { escaped(&turn.said) };
    let understood = match turn.understood.as_str() {
        "" => String::new(),
        text => format!("<br>understood: {}", escaped(text)),
    };
    let at = seconds(turn.at_ms);
    _ = writeln!(html, "<tr><td class=\"n\">{at}<td class=\"caller\">{words}{understood}<td>");
    let calls: Vec<_> = turn.calls.iter().map(|call| escaped(call)).collect();
    if !calls.is_empty() {
        _ = writeln!(html, "<tr><td><td class=\"calls\">{}<td>", calls.join("<br>"));
    }
    if !turn.reply.is_empty() {
        let at = turn.answered_at_ms.map(seconds).unwrap_or_default();
        let wait = turn.answer_ms.map(|ms| format!("{ms} ms")).unwrap_or_default();
        let reply = escaped(&turn.reply);
        _ = writeln!(html, "<tr><td class=\"n\">{at}<td>{reply}<td class=\"n\">{wait}");
    }
}

fn checked(html: &mut String, check: &Check) {
    let place = check.turn.map(|turn| format!("turn {turn}")).unwrap_or_default();
    let (class, verdict) = if check.passed { ("ok", "yes".to_owned()) } else { ("no", format!("no: {}", check.found)) };
    let expected = escaped(&check.expected);
    let verdict = escaped(&verdict);
    _ = writeln!(html, "<tr><td class=\"n\">{place}<td>{expected}<td class=\"{class}\">{verdict}");
}

fn seconds(ms: u64) -> String {
    format!("{:.1}", ms as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::report::Measures;
    use super::*;
    use antiphon_types::Pcm;

    #[test]
    fn a_page_has_words_checks_and_sound_and_nothing_of_them_is_markup() {
        let turn = TurnReport {
            at_ms: 1_250,
            said: "<b>Hi</b>".into(),
            understood: "Hi.".into(),
            answer_ms: Some(420),
            stopped_ms: None,
            answered_at_ms: Some(2_000),
            reply: "Good morning.".into(),
            calls: vec!["book({\"people\":3})".into()],
        };
        let check = Check { turn: Some(1), expected: "it answers".into(), passed: false, found: "none".into() };
        let report = Report {
            scenario: "booking".into(),
            passed: false,
            checks: vec![check],
            turns: vec![turn],
            measures: Measures { late_frames: 2, ..Measures::default() },
            sound: Pcm { rate: antiphon_client::RATE, samples: vec![0; 24] },
        };
        let page = page(&[report]);
        for part in [
            "0 of 1 conversations passed",
            "&lt;b&gt;Hi&lt;/b&gt;<br>understood: Hi.",
            "Good morning.<td class=\"n\">420 ms",
            "book({&quot;people&quot;:3})",
            "no: none",
            "data:audio/wav;base64,UklGR",
            "2 frames were sent late",
        ] {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("<b>"));
    }
}
