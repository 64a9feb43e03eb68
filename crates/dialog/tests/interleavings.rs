//! A barge-in, a cancel and a completion race in any order: one consistent state, and nothing spoken after the stop.

use super::script::{AUTO, PATIENT, Runner};
use antiphon_dialog::{PlaybackControl, TurnDetection};
use std::time::Duration;

/// What each side does, in its own order.
const BARGE_IN: &[&str] = &["onset", "started 600", "stopped 900", "heard i3 stop it"];
const CLIENT: &[&str] = &["cancel r1", "truncate i2 500"];
const ENGINE: &[&str] = &["made r1 500", "text r1 Five six.", "made r1 500", "finished r1"];

/// All merges of three sequences that keep each one's order.
fn merges(a: &[&'static str], b: &[&'static str], c: &[&'static str]) -> Vec<Vec<&'static str>> {
    if a.is_empty() && b.is_empty() && c.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, side) in [a, b, c].into_iter().enumerate() {
        let Some((first, rest)) = side.split_first() else { continue };
        let tails = match i {
            0 => merges(rest, b, c),
            1 => merges(a, rest, c),
            _ => merges(a, b, rest),
        };
        all.extend(tails.into_iter().map(|mut tail| {
            tail.insert(0, first);
            tail
        }));
    }
    all
}

fn run(listener: PlaybackControl, detection: TurnDetection, order: &[&str]) -> Vec<String> {
    let mut runner = Runner::new(listener, Some(detection)).without_snapshots();
    for line in ["0 started 0", "1 stopped 1", "2 heard i1 tell me", "3 text r1 One two.", "3 made r1 1000"] {
        runner.run(line);
    }
    runner.run("100 sent i2 1000");
    let mut log = Vec::new();
    for (i, line) in order.iter().enumerate() {
        // The transcript belongs to the utterance that the barge-in opened, whatever its number came to be.
        let opened = log.iter().find_map(|line: &String| line.strip_prefix("open ")).unwrap_or("i3").to_owned();
        let line = line.replace("i3", &opened);
        log.push(format!("! {line}"));
        log.extend(runner.run(&format!("{} {line}", 600 + i)));
    }
    log
}

/// What must hold in every order.
fn inspect(order: &[&str], log: &[String]) {
    let at = |text: &str| log.iter().position(|line| line.starts_with(text));
    let count = |text: &str| log.iter().filter(|line| line.starts_with(text)).count();
    let story = || format!("{order:?}\n{}", log.join("\n"));
    assert_eq!(count("< response_done r1"), 1, "one end: {}", story());
    assert_eq!(count("< item_done i2"), 1, "one end of the item: {}", story());
    assert!(count("stop r1") <= 1, "stopped once at most: {}", story());
    let done = at("< response_done r1").expect("counted");
    let late = log[done + 1..].iter().find(|line| line.starts_with("< r1") || line.starts_with("< output_added r1"));
    assert_eq!(late, None, "nothing after the end: {}", story());
    if let Some(stop) = at("stop r1") {
        let spoken = log[stop..].iter().find(|line| line.contains("TranscriptDelta"));
        assert_eq!(spoken.filter(|line| line.contains("r1")), None, "nothing is spoken after a stop: {}", story());
    }
    assert_eq!(count("hold"), count("release"), "what is held is let go: {}", story());
    assert_eq!(count("< response_created r2"), 1, "the new turn is answered once: {}", story());
    assert!(at("< response_created r2") > at("< response_done r1"), "one after the other: {}", story());
}

#[test]
fn every_order_of_barge_in_cancel_and_completion_ends_well() {
    let orders = merges(BARGE_IN, CLIENT, ENGINE);
    assert_eq!(orders.len(), 3_150);
    for order in &orders {
        for listener in [PlaybackControl::Client, PlaybackControl::Server] {
            inspect(order, &run(listener, AUTO, order));
        }
        inspect(order, &run(PlaybackControl::Server, PATIENT, order));
    }
}

#[test]
fn every_order_of_a_filler_its_answer_and_a_barge_in_ends_well() {
    const FILLER: &[&str] = &["fills r1 One moment.", "made r1 300", "filled r1"];
    const ANSWER: &[&str] = &["text r1 Five six.", "made r1 500", "finished r1"];
    for order in merges(BARGE_IN, FILLER, ANSWER) {
        let mut runner = Runner::new(PlaybackControl::Server, Some(AUTO)).without_snapshots();
        runner.fill_after(Duration::from_millis(100));
        for line in ["0 started 0", "1 stopped 1", "2 heard i1 tell me", "102 tick"] {
            runner.run(line);
        }
        let mut log = Vec::new();
        for (i, line) in order.iter().enumerate() {
            let opened = log.iter().find_map(|line: &String| line.strip_prefix("open ")).unwrap_or("i3").to_owned();
            log.extend(runner.run(&format!("{} {}", 600 + i, line.replace("i3", &opened))));
        }
        let count = |text: &str| log.iter().filter(|line| line.starts_with(text)).count();
        let story = || format!("{order:?}\n{}", log.join("\n"));
        assert_eq!(count("< response_done r1"), 1, "one end: {}", story());
        assert_eq!(count("< output_added r1"), count("< output_done r1"), "what began has ended: {}", story());
        assert_eq!(count("hold"), count("release"), "what is held is let go: {}", story());
        assert!(!runner.history().contains("One moment."), "no filler in the history: {}", story());
    }
}
