//! Makes labelled recordings out of clips and spoken sentences: turns with pauses inside, of known length and place.
//!
//! `cli/corpus.rs` calls [`plan`] for what is to be said, [`speak`] for the audio and the labels, [`listen`] for the
//! recording. Pauses stand where people make them: after "and" and other words that want another one, at commas, in the
//! middle of a phrase, between two sentences of one turn (`turns.txt`, `|`); between clips of a reader who read on; and,
//! as the reader made them, inside each clip.
//! Their lengths are log-normal, as pauses of speech are (Campione and Véronis, 2002), with a median of 450 ms and a
//! spread of 0.6: a mean of 540 ms, within the spread of the literature on turns (0.4 to 0.7 s: Heldner and Edlund,
//! 2010). Half of the sentences, the voices, and the clips are for tuning, the other half to report of.

mod join;
mod listen;

pub use join::{Clip, speak};
pub use listen::{Detectors, ListenError, listen};

use super::dice::Dice;

/// What is said: a turn a line, `|` where the speaker pauses.
const TURNS: &str = include_str!("turns.txt");

/// The groups, each with the voices that are heard in no other: one of a man and one of a woman, or what comes near it.
const GROUPS: [(&str, [&str; 2]); 2] = [("tune", ["slt", "kal16"]), ("report", ["awb", "rms"])];

/// Turns of one session: enough for the hub to learn how the speaker pauses.
const TURNS_A_SESSION: usize = 7;

/// One speaker's turns, one after the other.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The session's name.
    pub name: String,
    /// `tune` or `report`.
    pub group: &'static str,
    /// A voice, or the reader.
    pub speaker: String,
    /// The turns.
    pub turns: Vec<PlannedTurn>,
}

/// One turn.
#[derive(Clone, Debug)]
pub struct PlannedTurn {
    /// Turns of one source are alike.
    pub source: String,
    /// What is said between the pauses.
    pub pieces: Vec<Segment>,
}

/// A stretch of speech.
#[derive(Clone, Debug)]
pub enum Segment {
    /// To be spoken.
    Text(String),
    /// To be played.
    Clip(Clip),
}

/// Sessions of all sentences, each by two voices, and of all clips, each once at the end of a turn.
pub fn plan(clips: &[Clip]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (g, (group, voices)) in GROUPS.into_iter().enumerate() {
        let of_group = TURNS.lines().enumerate().filter(|(i, _)| i % 2 == g);
        let turns: Vec<PlannedTurn> = of_group.map(|(i, line)| sentence(i, line)).collect();
        for voice in voices {
            plans.extend(sessions(group, voice, turns.clone()));
        }
        let clips: Vec<&Clip> = clips.iter().enumerate().filter(|(i, _)| i % 2 == g).map(|(_, clip)| clip).collect();
        plans.extend(sessions(group, "reader", read(&clips, g as u64)));
        plans.extend(sessions(group, "reader alone", clips.iter().map(|clip| alone(clip)).collect()));
    }
    plans
}

fn sentence(i: usize, line: &str) -> PlannedTurn {
    let pieces = line.split('|').map(|piece| Segment::Text(piece.trim().to_owned())).collect();
    PlannedTurn { source: format!("sentence {}", i + 1), pieces }
}

/// Each clip ends a turn that another one, or two, began.
fn read(clips: &[&Clip], seed: u64) -> Vec<PlannedTurn> {
    let mut dice = Dice::new(seed);
    let other = |dice: &mut Dice, not: usize| loop {
        let at = dice.below(clips.len());
        if at != not {
            return Segment::Clip(clips[at].clone());
        }
    };
    let turn = |(i, clip): (usize, &&Clip)| {
        let n = 1 + usize::from(dice.share() < 0.3);
        let mut pieces: Vec<Segment> = (0..n).map(|_| other(&mut dice, i)).collect();
        pieces.push(Segment::Clip((*clip).clone()));
        PlannedTurn { source: clip.name.clone(), pieces }
    };
    if clips.len() < 2 { Vec::new() } else { clips.iter().enumerate().map(turn).collect() }
}

/// A clip as it is: its pauses are the reader's own, at places and of lengths that were not chosen.
fn alone(clip: &Clip) -> PlannedTurn {
    PlannedTurn { source: clip.name.clone(), pieces: vec![Segment::Clip(clip.clone())] }
}

fn sessions(group: &'static str, speaker: &str, turns: Vec<PlannedTurn>) -> Vec<Plan> {
    let one = |(i, turns): (usize, &[PlannedTurn])| Plan {
        name: format!("{group}-{}-{:02}", speaker.replace(' ', "-"), i + 1),
        group,
        speaker: speaker.to_owned(),
        turns: turns.to_vec(),
    };
    turns.chunks(TURNS_A_SESSION).enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_200_turns_with_pauses_and_the_groups_share_nothing() {
        let clip = |i: usize| Clip { name: format!("clip {i}"), text: String::new(), pcm: vec![1_000; 16_000] };
        let clips: Vec<Clip> = (0..45).map(clip).collect();
        let plans = plan(&clips);
        let turns = plans.iter().flat_map(|plan| &plan.turns);
        assert!(turns.clone().count() >= 200, "{}", turns.count());
        let is_alone = |turn: &PlannedTurn| matches!(&turn.pieces[..], [Segment::Clip(_)]);
        assert!(turns.clone().all(|turn| turn.pieces.len() >= 2 || is_alone(turn)));
        assert_eq!(turns.filter(|turn| is_alone(turn)).count(), 45);
        let of = |group: &str| -> BTreeSet<String> {
            let plans = plans.iter().filter(|plan| plan.group == group);
            let pieces = plans.flat_map(|plan| plan.turns.iter().flat_map(|turn| turn.pieces.clone()));
            let name = |piece| match piece {
                Segment::Text(text) => text,
                Segment::Clip(clip) => clip.name,
            };
            pieces.map(name).collect()
        };
        let tune = of("tune");
        let report = of("report");
        let shared: Vec<_> = tune.intersection(&report).collect();
        // Openings such as "Um," say nothing of the end.
        assert!(shared.iter().all(|text| text.len() < 8), "{shared:?}");
    }
}
