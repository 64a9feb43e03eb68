//! Scripts of windows and words.

use super::*;

const WINDOW: u64 = 256;

/// Runs a script of steps: `say 500` and `quiet 500` are milliseconds of windows, `heard some words` is a transcript of
/// all so far, `judged 0.9` a turn model's answer at the pause, `judged-late 0.9` one for a pause before. Gives the edges as `started@ms` and `stopped@ms after ms`.
fn run(ending: Ending, script: &str) -> (String, TurnTaker) {
    let mut taker = TurnTaker::new(Thresholds::from_ms(0.5, 100, 200), ending);
    let mut now = Samples::ZERO;
    let mut edges = Vec::new();
    let ms = |at: Samples| at.as_ms(SampleRate::HZ_16000);
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (what, rest) = line.split_once(' ').unwrap();
        if what == "heard" {
            taker.partial(rest, now);
            continue;
        }
        if what.starts_with("judged") {
            let pause = taker.detector.pause(now).unwrap_or_default();
            let said_to = now - pause;
            let said_to = if what == "judged-late" { said_to.saturating_sub(Samples(WINDOW)) } else { said_to };
            taker.judged(rest.parse().unwrap(), said_to);
            continue;
        }
        let loud = what == "say";
        let end = now + Samples::from_ms(rest.parse().unwrap(), SampleRate::HZ_16000);
        while now + Samples(WINDOW) <= end {
            let start = now;
            let probability = if loud { 0.9 } else { 0.02 };
            let peak = if loud { 8_000 } else { 10 };
            now += Samples(WINDOW);
            let heard = WindowFeatures { probability, peak, level_db: -20.0, pitch_hz: Some(140.0), start, end: now };
            match taker.window(heard) {
                Some(Edge::Started { at }) => edges.push(format!("started@{}", ms(at))),
                Some(Edge::Stopped { at }) => edges.push(format!("stopped@{} after {}", ms(at), ms(now - at))),
                _ => {}
            }
        }
    }
    (edges.join(", "), taker)
}

#[track_caller]
fn check(ending: Ending, script: &str, expect: &str) {
    assert_eq!(run(ending, script).0, expect, "{script}");
}

const MEDIUM: Ending = Ending::Adaptive(Eagerness::Medium);

#[test]
fn a_fixed_wait_knows_no_words() {
    check(Ending::Silence, "say 400\nheard and\nquiet 1000", "started@0, stopped@400 after 208");
}

/// The silence after the last and only end, in ms.
#[track_caller]
fn waited(ending: Ending, script: &str) -> u64 {
    let edges = run(ending, script).0;
    assert_eq!(edges.matches("stopped").count(), 1, "{edges}");
    edges.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_whole_question_is_answered_soon_and_an_open_one_waited_for() {
    let question = waited(MEDIUM, "say 1200\nquiet 100\nheard what is twelve times seven\nquiet 5000");
    assert!((160..550).contains(&question), "{question}");
    let open = waited(MEDIUM, "say 1200\nquiet 100\nheard what is twelve times\nquiet 5000");
    assert!((1_500..2_500).contains(&open), "{open}");
    let begun = waited(MEDIUM, "say 1200\nquiet 100\nheard i would like to know\nquiet 5000");
    assert!((3_000..4_100).contains(&begun), "{begun}");
}

#[test]
fn a_pause_in_the_middle_does_not_end_the_turn() {
    let script = "say 900\nquiet 100\nheard i would like to know\nquiet 1400\nsay 1200\nquiet 100
        heard i would like to know what is twelve times seven\nquiet 2000";
    check(MEDIUM, script, "started@0, stopped@3584 after 240");
    check(Ending::Adaptive(Eagerness::High), script, "started@0, stopped@3584 after 128");
}

#[test]
fn english_words_are_judged_by_their_completeness_and_others_by_rules() {
    let completeness = |words: &str| {
        let taker = run(MEDIUM, &format!("say 1200\nquiet 100\nheard {words}\nquiet 5000")).1;
        taker.decision().unwrap().hints.completeness
    };
    assert!(completeness("is there a pharmacy near the market").unwrap() > 0.5);
    assert!(completeness("the clause in section nine").unwrap() < -0.5);
    assert_eq!(completeness("gibt es eine apotheke"), None);
    let statement = waited(MEDIUM, "say 1200\nquiet 100\nheard the clause in section nine\nquiet 5000");
    let question = waited(MEDIUM, "say 1200\nquiet 100\nheard is there a pharmacy near the market\nquiet 5000");
    assert!(statement > 3 * question, "{statement} {question}");
}

#[test]
fn short_answers_do_not_wait() {
    check(MEDIUM, "say 300\nquiet 100\nheard yes\nquiet 2000", "started@0, stopped@288 after 176");
}

#[test]
fn words_of_an_earlier_pause_say_nothing() {
    let script = "say 600\nquiet 100\nheard what is twelve times seven\nsay 600\nquiet 3000";
    let (edges, taker) = run(MEDIUM, script);
    assert_eq!(taker.decision().unwrap().hints.wording, Wording::Unknown, "{edges}");
}

#[test]
fn without_words_the_wait_is_the_eagerness() {
    let wait = |eagerness| {
        let edges = run(Ending::Adaptive(eagerness), "say 300\nquiet 9000").0;
        edges.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let waits = [Eagerness::Low, Eagerness::Medium, Eagerness::High].map(wait);
    assert_eq!(waits, [2_016, 1_008, 512]);
}

#[test]
fn a_speaker_who_pauses_long_is_given_more_time() {
    let slow = "say 500\nquiet 900\nsay 500\nquiet 900\nsay 500\nquiet 3000";
    let (_, taker) = run(MEDIUM, slow);
    let decision = taker.decision().unwrap();
    assert_eq!(decision.hints.n_pauses, 2);
    assert!(decision.wait.as_millis() > 1_100, "{decision:?}");
    let cut = run(MEDIUM, "say 600\nquiet 1300\nsay 600\nquiet 2500").1;
    assert_eq!(cut.decision().unwrap().hints.n_pauses, 1, "a turn cut in two was one");
}

#[test]
fn a_turn_model_counts_for_the_pause_it_heard() {
    let model = |script| run(MEDIUM, script).1.decision().unwrap().hints.model;
    assert_eq!(model("say 900\nquiet 100\njudged 0.9\nquiet 3000"), Some(0.9));
    assert_eq!(model("say 900\nquiet 100\njudged-late 0.9\nquiet 3000"), None);
    assert_eq!(model("say 900\nquiet 100\njudged 0.3\nquiet 100\nsay 400\nquiet 3000"), None);
    let after =
        |judged: &str| waited(MEDIUM, &format!("say 1200\nquiet 100\nheard i would like to know\n{judged}quiet 5000"));
    let over = after("judged 0.98\n");
    let unknown = after("");
    let not_over = after("judged 0.02\n");
    assert!(over < unknown && unknown <= not_over, "{over} {unknown} {not_over}");
}

#[test]
fn a_pause_is_told_once() {
    let mut taker = run(MEDIUM, "say 496").1;
    taker.set(Thresholds::from_ms(0.5, 100, 200).with_pause(Some(Samples(1_600))), MEDIUM);
    let mut asked = Vec::new();
    for (i, loud) in
        [(0, false), (1, true), (2, false)].into_iter().flat_map(|(n, loud)| (0..20).map(move |i| (n * 20 + i, loud)))
    {
        let start = Samples(31 * WINDOW + i * WINDOW);
        let (probability, peak) = if loud { (0.9, 8_000) } else { (0.02, 10) };
        let end = start + Samples(WINDOW);
        let edge = taker.window(WindowFeatures { probability, peak, level_db: -20.0, pitch_hz: None, start, end });
        if matches!(edge, Some(Edge::Paused { .. })) {
            asked.push(i);
        }
    }
    assert_eq!(asked, [6, 46]);
}

#[test]
fn the_eagerness_may_change_in_the_middle_of_a_pause() {
    let mut taker = run(MEDIUM, "say 496\nquiet 400").1;
    taker.set(Thresholds::from_ms(0.5, 100, 200), Ending::Silence);
    let start = Samples(56 * WINDOW);
    let end = Samples(57 * WINDOW);
    let edge =
        taker.window(WindowFeatures { probability: 0.02, peak: 10, level_db: -60.0, pitch_hz: None, start, end });
    assert!(matches!(edge, Some(Edge::Stopped { .. })), "{edge:?}");
    assert!(taker.decision().is_none());
}

#[test]
fn what_was_said_before_a_turn_was_cut_in_two_counts_on() {
    let spoken = |gap_ms: u32| {
        let (edges, taker) = run(MEDIUM, &format!("say 1500\nquiet {gap_ms}\nsay 600\nquiet 300"));
        assert_eq!(edges.matches("started").count(), 2, "{edges}");
        taker.decision().unwrap().hints.spoken.as_millis()
    };
    // The first windows of an utterance, of which it is not sure yet that they are speech, are not counted.
    assert_eq!([spoken(1_300), spoken(2_900)], [1_872, 480]);
}
