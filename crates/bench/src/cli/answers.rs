//! `antiphon-bench answers`: who answers a call out.

use super::{hub_command, progress, write_report};
use crate::answers::{self, AnswerSplit, AnswersPlan};
use antiphon::cli::CliError;
use clap::Args;
use std::path::PathBuf;

/// What is measured, and how.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench answers                          the 100 answers that were held back, by the installed voice
  antiphon-bench answers --quick                  20 of them: a check, not a result
  antiphon-bench answers --kokoro models/kokoro --piper models/piper-en_US-joe-medium
  antiphon-bench answers --split dev --seed 2 --at-once 1
  antiphon-bench answers --kokoro models/kokoro --voice af_bella --voice am_adam

A hub of its own calls phones of the benchmark by SIP, which play greetings, screening prompts, menus and people's words
in real time, at -12 to -30 dB, with a line's noise; three of four answering machines beep. An answer is spoken by a
voice of its language, at a number of its country, and left out where there is none. Of several reports the last one
within 2 s counts.

Goals: 97 % right within 2 s of the last word; at most 1 % of the people taken for machines, at any time. What went
wrong is listed with when it was reported, from the last word on, and with what the recognizer heard.

Needs the models that make run installs; ANTIPHON_MODELS__DIR names their folder. It runs from the root of the
repository, whose test set it uses. All of it takes some ten minutes beside the voices' work; Kokoro needs half of the
length of what it speaks.

Exit codes: 0 done   1 it could not be measured, or with --strict a missed goal   2 wrong usage")]
pub struct AnswersArgs {
    /// 20 answers
    #[arg(long)]
    quick: bool,
    /// The part of the test set
    #[arg(long, value_enum, value_name = "PART", default_value_t = AnswerSplit::Held)]
    split: AnswerSplit,
    /// The test set: label, language and text, with tabs between them
    #[arg(long, value_name = "FILE", default_value = answers::LINES)]
    lines: PathBuf,
    /// Seed of voices, levels, beeps and pauses
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Calls at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=32))]
    at_once: u16,
    /// A voice that speaks; may be given several times [default: the installed ones, and nine of Kokoro]
    #[arg(long, value_name = "ID")]
    voice: Vec<String>,
    /// A folder of Kokoro, whose voices speak, too
    #[arg(long, value_name = "FOLDER")]
    kokoro: Option<PathBuf>,
    /// A folder of a Piper voice, which speaks, too; may be given several times
    #[arg(long, value_name = "FOLDER")]
    piper: Vec<PathBuf>,
    /// A setting of the hub that differs from its default
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a goal is missed
    #[arg(long)]
    strict: bool,
}

pub(super) async fn run(args: AnswersArgs) -> Result<(), CliError> {
    let plan = AnswersPlan {
        quick: args.quick,
        lines: args.lines,
        split: args.split,
        seed: args.seed,
        at_once: args.at_once.into(),
        voices: args.voice,
        kokoro: args.kokoro,
        piper: args.piper,
        set: args.set,
        hub: hub_command("hub")?,
    };
    let report = answers::run(&plan, &progress).await;
    write_report(&report, args.json, args.strict)
}
