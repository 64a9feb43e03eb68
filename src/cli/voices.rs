//! `antiphon voices`: lists, adds and removes custom voices of a running hub, by its `/v1/audio/voices`.
//!
//! It holds no voice itself: the hub's engine checks a recording, and serves the next request with it.

use super::target::{HubArgs, printable};
use super::{CliError, print};
use clap::{Args, Subcommand};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest wait for an added voice: the hub gives its engine a minute to condition it.
const ADDING: Duration = Duration::from_secs(180);

/// What to do with voices.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
A custom voice is made from a recording of 10 to 15 seconds, of one person who speaks in a quiet room, and needs an engine that
clones voices (tts.engine). The speaker has to agree; the statement is kept with the voice. Files of your own in tts.voices_dir
are voices too, after the hub's next start.

Examples:
  antiphon voices list
  antiphon voices add Anna anna.wav --consent \"I, Anna, agree that this hub clones my voice.\"
  antiphon voices remove Anna
  antiphon voices list --url https://voice.example.org --key-env MY_KEY --json | jq -r .voices[].id")]
pub enum VoicesCommand {
    /// Show the voices of the hub's engine
    List(ListArgs),
    /// Add a voice
    Add(AddArgs),
    /// Remove a voice that was added
    Remove(RemoveArgs),
}

/// What to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    hub: HubArgs,
}

/// What to add.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// What the voice is called
    name: String,
    /// The recording: WAV, MP3, FLAC, Ogg, M4A or WebM
    recording: PathBuf,
    /// The speaker's statement, or the id of one
    #[arg(long, value_name = "TEXT")]
    consent: String,
    /// The words of the recording; some engines clone better with them
    #[arg(long, value_name = "TEXT")]
    transcript: Option<String>,
    /// The language that is spoken in it [default: the engine's first]
    #[arg(long, value_name = "TAG")]
    language: Option<String>,
    #[command(flatten)]
    hub: HubArgs,
}

/// What to remove.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// Its id, or its name
    voice: String,
    #[command(flatten)]
    hub: HubArgs,
}

pub(super) async fn run(command: VoicesCommand) -> Result<(), CliError> {
    match command {
        VoicesCommand::List(args) => list(&args).await,
        VoicesCommand::Add(args) => add(&args).await,
        VoicesCommand::Remove(args) => remove(&args).await,
    }
}

async fn list(args: &ListArgs) -> Result<(), CliError> {
    let answer = args.hub.answer(request(&args.hub, Method::GET, None)?).await?;
    if args.hub.is_json() {
        return print::json(&answer);
    }
    let voices = answer["voices"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    for voice in voices {
        let seconds = voice["recording_ms"].as_u64().map(|ms| format!("{:.1} s", ms as f64 / 1e3));
        let kind = match (voice["custom"] == true, voice["removable"] == true) {
            (false, _) => "the engine's",
            (true, false) => "the operator's",
            (true, true) => "added",
        };
        let line = [
            format!("{:<24}", shown(&voice["id"])),
            format!("{:<24}", shown(&voice["name"])),
            format!("{:<8}", shown(&voice["language"])),
            format!("{:>7}", seconds.unwrap_or_default()),
            kind.to_owned(),
        ];
        text += &format!("{}\n", line.join("  "));
    }
    for voice in answer["unusable"].as_array().into_iter().flatten() {
        text += &format!("{:<24}  cannot be used: {}\n", shown(&voice["id"]), shown(&voice["reason"]));
    }
    if answer["library"].is_null() {
        text += "\nThe hub's engine clones no voices.\n";
    }
    print::line(text.trim_end())
}

async fn add(args: &AddArgs) -> Result<(), CliError> {
    let recording = tokio::fs::read(&args.recording).await;
    let recording = recording.map_err(|error| CliError::file("read", &args.recording, &error))?;
    let file = args.recording.file_name().unwrap_or_else(|| Path::new("recording").as_os_str());
    let mut form = Form::new()
        .text("name", args.name.clone())
        .text("consent", args.consent.clone())
        .part("audio_sample", Part::bytes(recording).file_name(file.to_string_lossy().into_owned()));
    for (field, value) in [("ref_text", &args.transcript), ("language", &args.language)] {
        if let Some(value) = value {
            form = form.text(field, value.clone());
        }
    }
    let request = request(&args.hub, Method::POST, None)?.timeout(ADDING).multipart(form);
    let voice = args.hub.answer(request).await?;
    if args.hub.is_json() {
        return print::json(&voice);
    }
    let note = voice["note"].as_str().map(|note| format!(". {}", printable(note))).unwrap_or_default();
    print::line(&format!("{}: added as {}{note}", shown(&voice["name"]), shown(&voice["id"])))
}

async fn remove(args: &RemoveArgs) -> Result<(), CliError> {
    let answer = args.hub.answer(request(&args.hub, Method::DELETE, Some(&args.voice))?).await?;
    if args.hub.is_json() {
        return print::json(&answer);
    }
    print::line(&format!("{}: removed", shown(&answer["id"])))
}

fn request(hub: &HubArgs, method: Method, voice: Option<&str>) -> Result<RequestBuilder, CliError> {
    let path: Vec<&str> = ["v1", "audio", "voices"].into_iter().chain(voice).collect();
    hub.request(method, &path)
}

/// A text of the hub without characters that could colour a terminal.
fn shown(value: &Value) -> String {
    printable(value.as_str().unwrap_or_default())
}
