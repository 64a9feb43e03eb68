//! `antiphon-bench conversation`: conversation quality.

use super::{hub_command, progress, write_report};
use crate::conversation::{self, Category, ConversationPlan, Layout, Split, VoiceFolder};
use crate::peers::{Framework, RealModels, RealPeer};
use antiphon::cli::CliError;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What is measured, and how.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  antiphon-bench conversation                     440 turns in real time, and the curve of end of turn
  antiphon-bench conversation --quick             44 turns: a check, not a result
  antiphon-bench conversation --split held --ignore-backchannels
  antiphon-bench conversation --curve             the curve alone, without a hub
  antiphon-bench conversation --curve --words     and that of semantic_vad with a hub's recognizer
  antiphon-bench conversation --data FOLDER --layout eot-bench
  antiphon-bench conversation --split held --turn-detection semantic_vad --rig rig \
      --whisper models/whisper-base/ggml-base.bin --faster-whisper faster-whisper-base --piper en_US-joe-medium.onnx

Needs the models that make run installs; ANTIPHON_MODELS__DIR names their folder. It runs from the root of the
repository, whose clips it uses. docs/developing/conversation-quality.md has the definitions of the measures.
With --rig, as antiphon-bench peers has it, a pipecat bot has the same conversations, with the same models; with
--livekit an agent of LiveKit's has them (crates/bench/peers/livekit_bot.py names what --python needs).

Exit codes: 0 done   1 it could not be measured, or with --strict a conversation failed or the machine fell behind
2 wrong usage")]
pub struct ConversationArgs {
    /// A few dozen turns
    #[arg(long)]
    quick: bool,
    /// One half of the turns [default: both]
    #[arg(long, value_enum, value_name = "HALF")]
    split: Option<Split>,
    /// Seed of the generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Use this category wherever it is possible: for development, not a result
    #[arg(long, value_enum, value_name = "CATEGORY", conflicts_with = "data")]
    category: Option<Category>,
    /// Conversations at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    at_once: u16,
    /// More people's speech: a folder of WAV or FLAC files for each, or one of a single person
    #[arg(long, value_name = "FOLDER")]
    speech: Option<PathBuf>,
    /// English voices of a model speak in the place of flite's, such as kokoro=models/kokoro
    #[arg(long, value_name = "ENGINE=FOLDER", value_parser = voice_folder)]
    voices: Option<VoiceFolder>,
    /// Data of a published benchmark, instead of the composed conversations
    #[arg(long, value_name = "FOLDER", requires = "layout")]
    data: Option<PathBuf>,
    /// How that folder is laid out
    #[arg(long, value_enum, value_name = "LAYOUT", requires = "data")]
    layout: Option<Layout>,
    /// Only the curve of false cutoffs against latency, faster than real time
    #[arg(long)]
    curve: bool,
    /// With --curve: the curve of semantic_vad, too, with the words that a hub hears at each pause (some minutes)
    #[arg(long, requires = "curve")]
    words: bool,
    /// How turns end
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Detection::ServerVad)]
    turn_detection: Detection,
    /// Silence that ends a turn of server_vad, in ms [default: the hub's]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(50..=10_000))]
    silence_ms: Option<u64>,
    /// Let replies go on after backchannels
    #[arg(long)]
    ignore_backchannels: bool,
    /// Lock the sessions to their user's voice: by loudness, or by speaker.model (--set)
    #[arg(long)]
    speaker_lock: bool,
    /// Audio in JSON events, as every Realtime server takes it; the client stops the reply
    #[arg(long)]
    ga: bool,
    /// A setting of the hub that differs from its default
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// The folder of a pipecat bot that has the same conversations
    #[arg(long, group = "peer", value_name = "FOLDER", requires_all = ["whisper", "faster_whisper", "piper"])]
    rig: Option<PathBuf>,
    /// An agent of LiveKit's has the same conversations
    #[arg(long, group = "peer", requires_all = ["whisper", "faster_whisper", "piper"])]
    livekit: bool,
    /// A Python with pipecat-ai 1.14, or livekit-agents 1.8, and the other requirements of the bot
    #[arg(long, value_name = "FILE", default_value = ".venv-peers/bin/python")]
    python: PathBuf,
    /// The hub's Whisper model beside the bot, in ggml's form
    #[arg(long, value_name = "FILE", requires = "peer")]
    whisper: Option<PathBuf>,
    /// The bot's, the same in CTranslate2's form
    #[arg(long, value_name = "FOLDER", requires = "peer")]
    faster_whisper: Option<PathBuf>,
    /// The voice of both, Piper's, with its .onnx.json beside it
    #[arg(long, value_name = "FILE", requires = "peer")]
    piper: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a conversation failed or the machine fell behind
    #[arg(long)]
    strict: bool,
}

fn voice_folder(text: &str) -> Result<VoiceFolder, String> {
    match text.split_once('=') {
        Some((engine, folder)) if !engine.is_empty() && !folder.is_empty() => {
            Ok(VoiceFolder { engine: engine.into(), folder: folder.into() })
        }
        _ => Err("expected an engine and the folder of its model, such as kokoro=models/kokoro".into()),
    }
}

/// A type of turn detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Detection {
    /// A fixed silence
    ServerVad,
    /// A silence that adapts
    SemanticVad,
}

pub(super) async fn run(args: ConversationArgs) -> Result<(), CliError> {
    let models = args.whisper.zip(args.faster_whisper).zip(args.piper);
    let models = models.map(|((whisper_ggml, whisper_ct2), piper)| RealModels { whisper_ggml, whisper_ct2, piper });
    let framework = if args.livekit { Some(Framework::Livekit) } else { args.rig.map(Framework::Pipecat) };
    let peer = framework.zip(models);
    let peer = peer.map(|(framework, models)| RealPeer { framework, python: args.python, models });
    let plan = ConversationPlan {
        quick: args.quick,
        split: args.split,
        seed: args.seed,
        category: args.category,
        at_once: args.at_once.into(),
        speech: args.speech,
        voices: args.voices,
        data: args.layout.zip(args.data),
        curve_only: args.curve,
        with_words: args.words,
        turn_detection: Some(crate::name_of(args.turn_detection)),
        silence_ms: args.silence_ms,
        ignore_backchannels: args.ignore_backchannels,
        speaker_lock: args.speaker_lock,
        ga: args.ga,
        set: args.set,
        peer,
        hub: hub_command("hub")?,
        mock: hub_command("mock")?,
    };
    let report = conversation::run(&plan, &progress).await;
    write_report(&report, args.json, args.strict)
}
