//! Evaluates a local speech recognizer on folders of WAV files (mono, 16 kHz) with a `manifest.jsonl` of lines
//! `{"file":..,"text":..,"voice":..,"answer":..}`. It reports word errors, correct sentences, sentences that the
//! offline assistant answers correctly, CPU time per second of audio, and the duration of `finish`. `answer` is a part
//! of the correct answer, several parts separated by `|`, or `?` for any real answer; without it, the answer to `text`
//! is the correct one.
//!
//! `cargo run --example stt_eval -- [-v] FOLDER...`; `-v` prints the transcripts that differ from the text.
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use antiphon_assistant::Assistant;
use antiphon_engine_api::stt::{Stt, SttOptions};
use antiphon_engines::stt::{SttConfig, sphinx};
use antiphon_types::chat::Message;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Silence that the hub leaves around speech, in samples: 300 ms of pre-roll, 200 ms at the end.
const PRE_ROLL: usize = 4_800;
const SILENCE: usize = 3_200;

/// The provisional transcript is requested 100 ms before the end.
const GUESS: usize = 1_600;

/// Samples pushed at a time, as in a session: 20 ms.
const PIECE: usize = 320;

#[derive(serde::Deserialize)]
struct Line {
    file: String,
    text: String,
    #[serde(default)]
    voice: String,
    answer: Option<String>,
}

#[derive(Default)]
struct Tally {
    n_clips: usize,
    n_right: usize,
    n_answered: usize,
    n_words: usize,
    n_errors: usize,
    n_sure: usize,
    n_guessed: usize,
    seconds: f64,
    finish: Vec<Duration>,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let verbose = std::env::args().any(|argument| argument == "-v");
    let began = Instant::now();
    let engine =
        sphinx::open(&SttConfig { decoders: 1, ..SttConfig::default() }, Some(antiphon_assistant::vocabulary()))?;
    println!("loaded in {:?}, {} MiB resident", began.elapsed(), resident_mib());
    for folder in std::env::args().skip(1).filter(|argument| argument != "-v") {
        measure(&engine, Path::new(&folder), verbose).await?;
    }
    println!("{} MiB resident at the end", resident_mib());
    Ok(())
}

async fn measure(engine: &dyn Stt, folder: &Path, verbose: bool) -> anyhow::Result<()> {
    let manifest = std::fs::read_to_string(folder.join("manifest.jsonl"))?;
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let cpu = cpu_seconds();
    for line in manifest.lines() {
        let line: Line = serde_json::from_str(line)?;
        let pcm = hound::WavReader::open(folder.join(&line.file))?.into_samples().collect::<Result<Vec<i16>, _>>()?;
        let tally = tallies.entry(line.voice.clone()).or_default();
        clip(engine, &line, &pcm, tally, verbose).await?;
    }
    let cpu = cpu_seconds() - cpu;
    println!("{}", folder.display());
    for (voice, tally) in &mut tallies {
        tally.finish.sort();
        let at = |share: f64| tally.finish[((tally.finish.len() - 1) as f64 * share) as usize];
        println!(
            "  {voice:8} {:3} clips, {:5.1} % right, {:5.1} % answered, WER {:.3}, {:5.1} % by grammar, guess = final {:5.1} %, finish p50 {:?} p95 {:?}",
            tally.n_clips,
            percent(tally.n_right, tally.n_clips),
            percent(tally.n_answered, tally.n_clips),
            tally.n_errors as f64 / tally.n_words as f64,
            percent(tally.n_sure, tally.n_clips),
            percent(tally.n_guessed, tally.n_clips),
            at(0.5),
            at(0.95)
        );
    }
    let seconds: f64 = tallies.values().map(|tally| tally.seconds).sum();
    println!("  {:.3} CPU-seconds a second of audio ({seconds:.0} s)", cpu / seconds);
    Ok(())
}

async fn clip(engine: &dyn Stt, line: &Line, pcm: &[i16], tally: &mut Tally, verbose: bool) -> anyhow::Result<()> {
    let mut utterance =
        engine.open(SttOptions { vocabulary: Some(antiphon_assistant::vocabulary()), ..SttOptions::default() }).await?;
    let pcm = [vec![0; PRE_ROLL].as_slice(), pcm, &[0; SILENCE]].concat();
    let end = pcm.len() - GUESS;
    for piece in pcm[..end].chunks(PIECE) {
        utterance.push(piece.to_vec()).await?;
    }
    let guess = utterance.provisional().await?;
    for piece in pcm[end..].chunks(PIECE) {
        utterance.push(piece.to_vec()).await?;
    }
    utterance.partial().await?;
    let began = Instant::now();
    let heard = utterance.finish().await?;
    tally.finish.push(began.elapsed());
    let (said, words) = (normal(&line.text), normal(&heard.text));
    let errors = strsim::generic_levenshtein(&said, &words);
    let answered = match &line.answer {
        Some(part) => answered(part, &heard.text),
        None => errors == 0 || alike(&said.join(" "), &heard.text),
    };
    if verbose && (errors > 0 || !answered) {
        let mark = if answered { ' ' } else { '!' };
        println!("  {mark} {} said: {} | heard: {} {:?}", line.file, said.join(" "), heard.text, heard.confidence);
    }
    tally.n_clips += 1;
    tally.n_right += usize::from(errors == 0);
    tally.n_answered += usize::from(answered);
    tally.n_words += said.len();
    tally.n_errors += errors;
    tally.n_sure += usize::from(heard.confidence.is_some());
    tally.n_guessed += usize::from(guess.text == heard.text);
    tally.seconds += pcm.len() as f64 / 16_000.0;
    Ok(())
}

/// Whether the assistant's answer to the transcript contains one of the parts.
fn answered(parts: &str, heard: &str) -> bool {
    let answer = Assistant::new().answer(&[Message::User(heard.to_owned())]);
    match parts {
        "?" => !answer.contains("no language model"),
        parts => parts.split('|').any(|part| answer.contains(part)),
    }
}

/// Whether the assistant may give the same answer to both; answers can be random, so many are compared.
fn alike(said: &str, heard: &str) -> bool {
    let assistant = Assistant::new();
    let answer = |text: &str| assistant.answer(&[Message::User(text.to_owned())]);
    let heard = answer(heard);
    (0..100).any(|_| answer(said) == heard)
}

fn normal(text: &str) -> Vec<String> {
    let keep = |c: char| if c.is_alphanumeric() || c == '\'' { c.to_ascii_lowercase() } else { ' ' };
    text.chars().map(keep).collect::<String>().split_whitespace().map(str::to_owned).collect()
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole as f64
}

/// User and system time of this process, from `/proc/self/stat` (fields 14 and 15, in hundredths of a second).
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

fn resident_mib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096 / (1 << 20)
}
