//! Conversation quality: end of turn, interruptions, selectivity and resumption, by the field's measures.
//!
//! [`generator`] composes conversations from [`voices`] under conditions ([`acoustics`]), with labels ([`scenario`]).
//! [`runner`] talks them to a hub of its own over WebSockets ([`link`]), in real time, several at once; the hub has the
//! installed engines and a scripted language model ([`story`]). A bot of pipecat's or LiveKit's may have the same
//! conversations behind it ([`pipecat`]), with the same models. [`judge`] compares labels with the agent's track ([`playout`]),
//! [`measures`] adds up. [`endpointing`] sweeps the end of turn over the same turns, faster than real time, with the words
//! of [`pause_words`], too. [`layouts`] reads the data of published benchmarks instead.
//!
//! What was heard of a reply that was cut is what the recognizer of the same hub makes of its sound, when all
//! conversations are over.

pub(crate) mod acoustics;
mod endpointing;
mod generator;
mod judge;
mod layouts;
mod lines;
mod link;
mod measures;
mod pause_words;
mod pipecat;
mod runner;
mod scenario;
pub(crate) mod story;
mod voices;

pub use layouts::Layout;
pub use scenario::{Category, Split};
pub use voices::VoiceFolder;

use super::hub_process::{Engines, Hub};
use super::machine::Machine;
use super::noise::best_vad;
use super::peers::{Bot, RealPeer};
use super::real::recognizer;
use super::{BenchError, Figure, HubCommand, Process, Progress, Report, Section, Unit, name_of};
use antiphon_audio::wav;
use antiphon_client::{AudioMode, RATE};
use antiphon_types::Pcm;
use endpointing::{EndedTurn, HeardTurn, Point, SILENCES_MS, Setting, THRESHOLDS};
use futures_util::{StreamExt, stream};
use judge::judge;
use link::SessionOptions;
use measures::{JudgedTurn, Measures, Resumption, faults, tables};
use reqwest::multipart::{Form, Part};
use runner::Recorded;
use scenario::{Conversation, Expected};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use story::Storyteller;
use tokio::time::sleep;

/// Time between the starts of conversations that run at once.
const STAGGER: Duration = Duration::from_millis(1_700);
/// Timeout of a request by REST.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Frames of which more than this share were late: the machine fell behind, and the figures are void.
const LATE_PERCENT: f64 = 1.0;
/// The shortest sound of a reply that is recognized, in samples: 0.3 s.
const SHORTEST_HEARD: usize = RATE.hz() as usize * 3 / 10;

/// What to measure and how.
#[derive(Clone, Debug)]
pub struct ConversationPlan {
    /// A few dozen turns: a check, not a result.
    pub quick: bool,
    /// One half; `None`: both.
    pub split: Option<Split>,
    /// Of the generator.
    pub seed: u64,
    /// Turns of this category wherever one may stand.
    pub category: Option<Category>,
    /// Conversations at once.
    pub at_once: usize,
    /// Further people's speech.
    pub speech: Option<PathBuf>,
    /// Voices in the place of flite's.
    pub voices: Option<VoiceFolder>,
    /// A published benchmark's data, instead of the generator's.
    pub data: Option<(Layout, PathBuf)>,
    /// Only the curve.
    pub curve_only: bool,
    /// The curve of the waits that adapt to the words, too, which a hub hears: without conversations, as with them.
    pub with_words: bool,
    /// `server_vad` or `semantic_vad`; `None`: the hub's default.
    pub turn_detection: Option<String>,
    /// Silence that ends a turn of `server_vad`, in ms; `None`: the hub's default.
    pub silence_ms: Option<u64>,
    /// Whether backchannels are ignored; `false`: the hub's default.
    pub ignore_backchannels: bool,
    /// Whether sessions are locked to their user's voice; `false`: the hub's default.
    pub speaker_lock: bool,
    /// Audio in JSON events, as every Realtime server takes it.
    pub ga: bool,
    /// Settings of the hub, `SECTION.KEY=VALUE`.
    pub set: Vec<String>,
    /// A bot that has the same conversations behind the hub, whose models the hub then has, too.
    pub peer: Option<RealPeer>,
    /// Command that starts a hub.
    pub hub: HubCommand,
    /// Command that starts mock engines.
    pub mock: HubCommand,
}

/// Runs everything. What fails is reported with its reason.
pub async fn run(plan: &ConversationPlan, progress: Progress<'_>) -> Report {
    let mut report = Report::new(plan.quick);
    if let Err(error) = measure(plan, &mut report.sections, progress).await {
        report.sections.push(Section::failed("conversation", &error));
    }
    report
}

/// The material of a run.
struct Material {
    conversations: Vec<Conversation>,
    turns: Vec<EndedTurn>,
    notes: Vec<String>,
    source: String,
}

/// Adds the sections that could be measured, also where a later one fails.
async fn measure(
    plan: &ConversationPlan,
    sections: &mut Vec<Section>,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    if let Some(peer) = &plan.peer {
        peer.check()?;
    }
    let material = match &plan.data {
        Some((layout, folder)) => published(*layout, folder.clone()).await?,
        None => composed(plan, progress).await?,
    };
    let measured = measure_material(plan, &material, sections, progress).await;
    if let Some(section) = sections.first_mut() {
        section.notes.extend(material.notes);
    }
    measured
}

async fn measure_material(
    plan: &ConversationPlan,
    material: &Material,
    sections: &mut Vec<Section>,
    progress: Progress<'_>,
) -> Result<(), BenchError> {
    let mut args = vec![name_of(Engines::Conversation)];
    let of_peer = plan.peer.iter().flat_map(|peer| peer.models.settings());
    for setting in of_peer.chain(plan.set.iter().cloned()) {
        args.extend(["--set".to_owned(), setting]);
    }
    let are_held = !material.conversations.is_empty() && !plan.curve_only;
    if are_held {
        progress("conversation: the first start, which measures models that were never measured here");
        Hub::spawn(&plan.hub, &args).await?.stop().await;
        sections.extend(with_hub(plan, &args, material, progress).await?);
        if let Some(peer) = &plan.peer {
            sections.extend(with_peer(plan, peer, &args, material, progress).await?);
        }
    }
    if !material.turns.is_empty() {
        let (vad, mut heard) = heard(material, progress).await?;
        if are_held || plan.with_words {
            sections.push(swept_with_words(plan, &args, material, &vad, &mut heard, progress).await?);
        }
        sections.push(swept(material, &vad, heard).await?);
    }
    match sections.is_empty() {
        true => Err(BenchError::Clips("this data has conversations alone, and no turns for --curve".into())),
        false => Ok(()),
    }
}

async fn composed(plan: &ConversationPlan, progress: Progress<'_>) -> Result<Material, BenchError> {
    let n = if plan.quick { generator::N_QUICK } else { generator::N_CONVERSATIONS };
    let splits = match plan.split {
        Some(split) => vec![split],
        None => vec![Split::Held, Split::Dev],
    };
    let speakers = voices::speakers(&splits, plan.speech.clone(), plan.voices.clone(), progress).await?;
    // The curve is of one half.
    let swept = splits[0];
    let seed = plan.seed;
    let only = plan.category;
    let names: Vec<String> =
        speakers.iter().map(|speaker| format!("{} ({})", speaker.name, name_of(speaker.split))).collect();
    progress("conversation: composing");
    let compose = move || {
        let all = splits.into_iter().flat_map(|split| generator::conversations(&speakers, split, n, seed, only));
        all.collect::<Vec<_>>()
    };
    let conversations = tokio::task::spawn_blocking(compose).await?;
    for conversation in &conversations {
        for turn in &conversation.turns {
            let named =
                |error| BenchError::Method(format!("{}, {}: {error}", conversation.speaker, turn.category.name()));
            turn.check().map_err(named)?;
        }
    }
    let turns = conversations.iter().filter(|one| one.split == swept).flat_map(ended_turns).collect();
    let alone = only.map(|only| format!(", {} above all", only.name())).unwrap_or_default();
    let source = format!("composed, seed {seed}{alone}");
    let notes = vec![format!("speakers: {}", names.join(", "))];
    Ok(Material { conversations, turns, notes, source })
}

/// The turns that begin in silence, with their noise.
fn ended_turns(conversation: &Conversation) -> Vec<EndedTurn> {
    let in_silence = conversation.turns.iter().filter(|turn| turn.expected == Expected::Answer);
    let ended = in_silence.map(|turn| EndedTurn {
        name: format!("{}, {}", conversation.speaker, turn.category.name()),
        samples: turn.samples.clone(),
        pauses: turn.pauses(),
        end_ms: turn.end_ms(),
        bed: conversation.bed.clone(),
        condition: Some(conversation.condition),
    });
    ended.collect()
}

async fn published(layout: Layout, folder: PathBuf) -> Result<Material, BenchError> {
    let source = format!("{}, {}", name_of(layout), folder.display());
    let read = tokio::task::spawn_blocking(move || layouts::read(layout, &folder)).await?;
    let samples = read.map_err(|error| BenchError::Clips(error.to_string()))?;
    let n_left_out = samples.left_out.len();
    let mut notes: Vec<String> = samples.left_out.iter().map(|error| format!("left out: {error}")).collect();
    if n_left_out > 0 {
        notes.insert(0, format!("{n_left_out} samples were left out"));
    }
    if samples.turns.is_empty() && samples.conversations.is_empty() {
        return Err(BenchError::Clips(notes.join("; ")));
    }
    Ok(Material { conversations: samples.conversations, turns: samples.turns, notes, source })
}

// In real time

/// A conversation with what was recorded of it.
struct Run<'a> {
    /// Its place among the conversations.
    place: usize,
    conversation: &'a Conversation,
    recorded: Recorded,
}

/// All conversations with one agent.
struct Runs<'a> {
    /// Whose.
    agent: String,
    done: Vec<Run<'a>>,
    failures: Vec<String>,
    /// The fraction of the processors that others used; see [`Machine::others_since`].
    others: Option<f64>,
}

/// Talks to a hub, which also hears what was heard of the replies that were cut.
async fn with_hub(
    plan: &ConversationPlan,
    args: &[String],
    material: &Material,
    progress: Progress<'_>,
) -> Result<Vec<Section>, BenchError> {
    let hub = Hub::spawn(&plan.hub, args).await?;
    let agent = format!("{} hears", recognizer(&hub.url).await?);
    let mode = if plan.ga { AudioMode::Ga } else { AudioMode::Pcm16 };
    let options = SessionOptions::Realtime { url: hub.url.clone(), mode, update: session_update(plan) };
    let runs = in_real_time(plan, material, &options, hub.process, agent, progress).await?;
    let judged = judged(&runs.done, &hub.url, progress).await?;
    hub.stop().await;
    Ok(sections(plan, material, runs, &judged, ""))
}

/// Talks to the peer's bot. A hub hears afterwards what was heard of the replies that were cut.
async fn with_peer(
    plan: &ConversationPlan,
    peer: &RealPeer,
    args: &[String],
    material: &Material,
    progress: Progress<'_>,
) -> Result<Vec<Section>, BenchError> {
    let name = peer.name();
    progress(&format!("conversation: {name} starts"));
    let mock = Hub::spawn(&plan.mock, &["--story".to_owned()]).await?;
    let bot = Bot::with_models(peer, &mock).await?;
    let options = SessionOptions::Bot { url: bot.url.clone() };
    let agent = format!("{name} with the same recognizer and voice, its own detection of turns");
    let runs = in_real_time(plan, material, &options, bot.process, agent, progress).await?;
    drop(bot);
    mock.stop().await;
    let hub = Hub::spawn(&plan.hub, args).await?;
    let judged = judged(&runs.done, &hub.url, progress).await?;
    hub.stop().await;
    Ok(sections(plan, material, runs, &judged, &format!(", {name}")))
}

async fn in_real_time<'a>(
    plan: &ConversationPlan,
    material: &'a Material,
    options: &SessionOptions,
    process: Process,
    agent: String,
    progress: Progress<'_>,
) -> Result<Runs<'a>, BenchError> {
    let before = Machine::now();
    let cpu_before_s = process.cpu_s()?;
    let n = material.conversations.len();
    let one = |(i, conversation): (usize, &'_ Conversation)| {
        let options = options.clone();
        let conversation = conversation.clone();
        let delay = if i < plan.at_once { STAGGER * i as u32 } else { Duration::ZERO };
        async move {
            sleep(delay).await;
            (i, runner::run(&options, &conversation).await)
        }
    };
    let mut running = stream::iter(material.conversations.iter().enumerate().map(one)).buffer_unordered(plan.at_once);
    let mut done = Vec::new();
    let mut failures = Vec::new();
    while let Some((i, recorded)) = running.next().await {
        let conversation = &material.conversations[i];
        match recorded {
            Ok(recorded) => done.push(Run { place: i, conversation, recorded }),
            Err(error) => failures.push(format!("a conversation of {} failed: {error}", conversation.speaker)),
        }
        progress(&format!("conversation: {} of {n}", done.len() + failures.len()));
    }
    drop(running);
    let cpu_s = process.cpu_s()? - cpu_before_s;
    let others = before.zip(Machine::now()).map(|(before, after)| after.others_since(&before, cpu_s));
    Ok(Runs { agent, done, failures, others })
}

fn sections(
    plan: &ConversationPlan,
    material: &Material,
    runs: Runs<'_>,
    judged: &[JudgedTurn],
    suffix: &str,
) -> Vec<Section> {
    if runs.done.is_empty() {
        let error = BenchError::Engine("not a single conversation could be held".into());
        let mut section = Section::failed(format!("conversation{suffix}"), &error);
        section.notes = runs.failures;
        return vec![section];
    }
    let mut sections = Vec::new();
    for split in [Split::Held, Split::Dev] {
        let of_split: Vec<&JudgedTurn> = judged.iter().filter(|turn| turn.split == split).collect();
        if of_split.is_empty() {
            continue;
        }
        let how = format!(
            "{}; {} turns in real time, {} conversations at once, {}; the {} half",
            material.source,
            of_split.len(),
            plan.at_once,
            runs.agent,
            name_of(split)
        );
        let mut section = Section::new(format!("conversation, {}{suffix}", name_of(split)), how);
        Measures::of(of_split.iter().copied()).figures(&mut section, "");
        word_figures(&mut section, &runs.done, split);
        section.notes.extend(tables(&of_split));
        section.notes.extend(faults(&of_split));
        section.others = runs.others;
        sections.push(section);
    }
    if let Some(section) = sections.first_mut() {
        lateness(section, &runs.done);
        let n_failed = runs.failures.len();
        let n = runs.done.len() + n_failed;
        let failed = Figure::new("conversations that failed", Unit::Count, n_failed as f64, n);
        section.figures.push(failed.at_most(0.0));
        section.notes.extend(runs.failures);
    }
    sections
}

fn session_update(plan: &ConversationPlan) -> Value {
    let mut detection = json!({"type": plan.turn_detection.as_deref().unwrap_or("server_vad")});
    if let Some(silence_ms) = plan.silence_ms {
        detection["silence_duration_ms"] = silence_ms.into();
    }
    if plan.ignore_backchannels {
        detection["ignore_backchannels"] = true.into();
    }
    if plan.speaker_lock {
        detection["speaker_lock"] = true.into();
    }
    let input = json!({"turn_detection": detection});
    json!({"type": "session.update", "session": {"type": "realtime", "audio": {"input": input}}})
}

/// Judges all turns, and asks the recognizer what was heard of the replies that were cut.
async fn judged(runs: &[Run<'_>], url: &str, progress: Progress<'_>) -> Result<Vec<JudgedTurn>, BenchError> {
    let http = client()?;
    let story = Storyteller::new();
    let mut all = Vec::new();
    for (n, run) in runs.iter().enumerate() {
        progress(&format!("conversation: what was heard, {} of {}", n + 1, runs.len()));
        let Conversation { split, condition, .. } = *run.conversation;
        for (i, turn) in run.conversation.turns.iter().enumerate() {
            let verdict = run.recorded.observed(i).map(|observed| judge(turn, &observed));
            // Where there was nothing to speak over, the turn did not happen as it is labelled.
            let needs_reply = matches!(turn.expected, Expected::Yield | Expected::GoOn);
            let verdict = verdict.filter(|verdict| !needs_reply || verdict.over.is_some());
            let place = format!("{}.{} {}", run.place + 1, i + 1, run.conversation.speaker);
            let mut one = JudgedTurn::new((place, turn), run.recorded.heard(i), split, condition, verdict);
            if let Some(cut) =
                one.verdict.as_ref().filter(|verdict| verdict.yielded == Some(true)).and_then(|verdict| verdict.over)
            {
                one.resumption = resumption(&run.recorded, cut, &story, &http, url).await?;
            }
            all.push(one);
        }
    }
    Ok(all)
}

/// What the next reply repeats or leaves out; `None` where that cannot be said.
async fn resumption(
    recorded: &Recorded,
    cut: usize,
    story: &Storyteller,
    http: &reqwest::Client,
    url: &str,
) -> Result<Option<Resumption>, BenchError> {
    let items = &recorded.playout.items;
    let item = &items[cut];
    let place = story.place_of(&item.text);
    let next = items[cut + 1..].iter().find_map(|next| story.place_of(&next.text));
    let (Some(place), Some(next)) = (place, next) else { return Ok(None) };
    if item.cleared_ms.is_none() || item.samples.len() < SHORTEST_HEARD {
        return Ok(None);
    }
    let n_heard = story.n_heard(place, &transcribed(http, url, &item.samples).await?);
    // The story begins again behind its end.
    if next + SHORTEST_REPLY < place {
        return Ok(None);
    }
    Ok(Some(Resumption::new(place + n_heard, next)))
}

/// What the hub at `url` hears in English sound, mono at [`RATE`].
async fn transcribed(http: &reqwest::Client, url: &str, samples: &[i16]) -> Result<String, BenchError> {
    let sound = wav::write(&Pcm { rate: RATE, samples: samples.to_vec() });
    let part = Part::bytes(sound).file_name("heard.wav");
    let form = Form::new().part("file", part).text("model", "whisper-1").text("language", "en");
    let answer = http.post(format!("{url}/v1/audio/transcriptions")).multipart(form).send().await.map_err(failed)?;
    let answer: Value = answer.error_for_status().map_err(failed)?.json().await.map_err(failed)?;
    Ok(answer["text"].as_str().unwrap_or_default().to_owned())
}

/// A next reply that begins this many words before the one that was cut is one of the story's next round.
const SHORTEST_REPLY: usize = story::REPLY_WORDS;

fn client() -> Result<reqwest::Client, BenchError> {
    reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build().map_err(failed)
}

fn failed(error: reqwest::Error) -> BenchError {
    BenchError::Engine(format!("the hub's speech API: {error}"))
}

/// The user's words that were heard wrongly.
fn word_figures(section: &mut Section, runs: &[Run<'_>], split: Split) {
    let mut wrong = 0;
    let mut of = 0;
    for run in runs.iter().filter(|run| run.conversation.split == split) {
        for (i, turn) in run.conversation.turns.iter().enumerate() {
            if let Some((n_wrong, n_words)) = run.recorded.word_errors(i, turn) {
                wrong += n_wrong;
                of += n_words;
            }
        }
    }
    if of > 0 {
        let percent = 100.0 * wrong as f64 / of as f64;
        section.figures.push(Figure::new("user's words wrong", Unit::Of("%"), percent, of));
    }
}

/// Whether the machine kept up.
fn lateness(section: &mut Section, runs: &[Run<'_>]) {
    let n_frames: usize = runs.iter().map(|run| run.recorded.n_frames).sum();
    let n_late: usize = runs.iter().map(|run| run.recorded.n_late).sum();
    let latest_ms = runs.iter().map(|run| run.recorded.latest_ms).fold(0.0, f64::max);
    let percent = 100.0 * n_late as f64 / n_frames.max(1) as f64;
    section.figures.push(Figure::new("frames sent late", Unit::Of("%"), percent, n_frames).at_most(LATE_PERCENT));
    section.figures.push(Figure::new("the latest frame", Unit::Ms, latest_ms, n_frames));
    if percent > LATE_PERCENT {
        section.notes.push("the machine fell behind: the figures of this run are void".into());
    }
}

// The curve

/// What the best installed detector made of all turns, and its name.
async fn heard(material: &Material, progress: Progress<'_>) -> Result<(String, Vec<HeardTurn>), BenchError> {
    let vad = best_vad().await?;
    let name = vad.name().to_owned();
    let mut heard = Vec::new();
    let turns: Arc<[EndedTurn]> = material.turns.clone().into();
    for i in 0..turns.len() {
        progress(&format!("conversation: the curve, turn {} of {}", i + 1, turns.len()));
        let vad = vad.clone();
        let turns = turns.clone();
        let hear = move || endpointing::hear(&*vad, &turns[i]).map_err(|error| format!("{}: {error}", turns[i].name));
        heard.push(tokio::task::spawn_blocking(hear).await?.map_err(BenchError::Engine)?);
    }
    Ok((name, heard))
}

/// The curve of a silence.
async fn swept(material: &Material, vad: &str, heard: Vec<HeardTurn>) -> Result<Section, BenchError> {
    let curve =
        move || endpointing::silences().into_iter().map(|setting| endpointing::point(&heard, setting)).collect();
    let curve: Vec<Point> = tokio::task::spawn_blocking(curve).await?;
    let how = format!(
        "{}; {vad} and a fixed silence, {} thresholds and {} silences; in this process, the decision alone",
        material.source,
        THRESHOLDS.len(),
        SILENCES_MS.len()
    );
    let mut section = Section::new("end of turn, swept", how);
    curve_figures(&mut section, &curve, "");
    section.notes.push("threshold, silence: pauses cut off; mean latency:".into());
    section.notes.extend(curve.iter().map(point_line));
    Ok(section)
}

/// The curve of the waits that adapt to the words, which a hub hears at each pause.
async fn swept_with_words(
    plan: &ConversationPlan,
    args: &[String],
    material: &Material,
    vad: &str,
    heard: &mut [HeardTurn],
    progress: Progress<'_>,
) -> Result<Section, BenchError> {
    let hub = Hub::spawn(&plan.hub, args).await?;
    let recognizer = recognizer(&hub.url).await?;
    let http = client()?;
    let n = heard.len();
    for (i, (turn, heard)) in material.turns.iter().zip(heard.iter_mut()).enumerate() {
        progress(&format!("conversation: words at the pauses, turn {} of {n}", i + 1));
        heard.words = pause_words::at_pauses(turn, heard, &http, &hub.url).await?;
    }
    hub.stop().await;
    let mut took: Vec<Duration> = heard.iter().flat_map(|turn| turn.words.iter().map(|words| words.took)).collect();
    took.sort_unstable();
    let curve = |is_in: &dyn Fn(&HeardTurn) -> bool| -> Vec<Point> {
        let point = |setting| endpointing::point(heard.iter().filter(|turn| is_in(turn)), setting);
        endpointing::factors().into_iter().map(point).collect()
    };
    let how = format!(
        "{}; {vad}, and {recognizer} at {} pauses, one after the other; semantic_vad at medium eagerness, {} factors of its \
         waits; the decision alone",
        material.source,
        took.len(),
        endpointing::factors().len()
    );
    let mut section = Section::new("end of turn with words, swept", how);
    let all = curve(&|_| true);
    curve_figures(&mut section, &all, "");
    own_figures(&mut section, &all, "");
    if heard.iter().any(|turn| turn.is_clean) && heard.iter().any(|turn| !turn.is_clean) {
        let clean = curve(&|turn| turn.is_clean);
        curve_figures(&mut section, &clean, ", clean speech");
        own_figures(&mut section, &clean, ", clean speech");
    }
    if let Some(median) = took.get(took.len() / 2) {
        let median_ms = 1e3 * median.as_secs_f64();
        section.figures.push(Figure::new("words of a pause p50", Unit::Ms, median_ms, took.len()));
    }
    section.notes.push("factor: pauses cut off; mean latency:".into());
    section.notes.extend(all.iter().map(point_line));
    Ok(section)
}

/// What a curve says at the rates and latencies that are compared.
fn curve_figures(section: &mut Section, curve: &[Point], of: &str) {
    let n_pauses = curve.first().map_or(0, |point| point.n_pauses);
    let n_turns = curve.first().map_or(0, |point| point.n_turns);
    // Without a pause there is nothing to cut off.
    let budgets_ms: &[f64] = if n_pauses > 0 { &[300.0, 600.0] } else { &[] };
    for budget_ms in budgets_ms {
        if let Some(percent) = endpointing::cutoffs_at(curve, *budget_ms) {
            let figure = format!("false cutoffs at {budget_ms:.0} ms mean latency{of}");
            section.figures.push(Figure::new(figure, Unit::Of("%"), percent, n_pauses));
        }
    }
    for percent in [5.0, 10.0] {
        if let Some(ms) = endpointing::latency_at(curve, percent) {
            let figure = format!("mean latency at {percent:.0} % false cutoffs{of}");
            section.figures.push(Figure::new(figure, Unit::Ms, ms, n_turns));
        }
    }
}

/// What the waits do as they are.
fn own_figures(section: &mut Section, curve: &[Point], of: &str) {
    let Some(own) = curve.iter().find(|point| point.setting == Setting::Adaptive { factor: 1.0 }) else { return };
    if own.n_pauses > 0 {
        let name = format!("false cutoffs as it is{of}");
        section.figures.push(Figure::new(name, Unit::Of("%"), own.cutoff_percent(), own.n_pauses));
    }
    let latency = Figure::new(format!("mean latency as it is{of}"), Unit::Ms, own.latency_ms, own.n_turns);
    section.figures.push(latency);
}

fn point_line(point: &Point) -> String {
    let setting = match point.setting {
        Setting::Silence { threshold, silence_ms } => format!("{threshold:.1}, {silence_ms:>5} ms"),
        Setting::Adaptive { factor } => format!("{factor:>5.2}"),
    };
    let latency = match point.latency_ms.is_finite() {
        true => format!("{:.0} ms", point.latency_ms),
        false => "never".to_owned(),
    };
    let Point { n_cut, n_pauses, .. } = point;
    let mut line = format!("  {setting}: {:>5.1} % ({n_cut} of {n_pauses}); {latency}", point.cutoff_percent());
    if point.n_endless > 0 {
        line += &format!(" ({} of {} turns did not end)", point.n_endless, point.n_turns);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::scenario::Condition;
    use super::scenario::tests::turn;
    use super::*;

    fn plan() -> ConversationPlan {
        ConversationPlan {
            quick: true,
            split: None,
            seed: 1,
            category: None,
            at_once: 1,
            speech: None,
            voices: None,
            data: None,
            curve_only: false,
            with_words: false,
            turn_detection: None,
            silence_ms: None,
            ignore_backchannels: false,
            speaker_lock: false,
            ga: false,
            set: Vec::new(),
            peer: None,
            hub: HubCommand { program: "none".into(), args: Vec::new() },
            mock: HubCommand { program: "none".into(), args: Vec::new() },
        }
    }

    #[test]
    fn a_session_has_the_hubs_defaults_unless_asked_otherwise() {
        let detection =
            |plan: &ConversationPlan| session_update(plan)["session"]["audio"]["input"]["turn_detection"].clone();
        assert_eq!(detection(&plan()), json!({"type": "server_vad"}));
        let plan = ConversationPlan { silence_ms: Some(300), ignore_backchannels: true, speaker_lock: true, ..plan() };
        let expected = json!({
            "type": "server_vad", "silence_duration_ms": 300, "ignore_backchannels": true, "speaker_lock": true,
        });
        assert_eq!(detection(&plan), expected);
    }

    #[test]
    fn without_a_pause_there_is_no_rate_of_false_cutoffs() {
        let point = |factor, n_pauses, latency_ms| Point {
            setting: Setting::Adaptive { factor },
            n_cut: 0,
            n_pauses,
            latency_ms,
            n_turns: 2,
            n_endless: 0,
        };
        let names = |n_pauses| {
            let curve = [point(0.5, n_pauses, 200.0), point(1.0, n_pauses, f64::INFINITY)];
            let mut section = Section::default();
            curve_figures(&mut section, &curve, "");
            own_figures(&mut section, &curve, "");
            section.figures.into_iter().map(|figure| figure.name).collect::<Vec<_>>()
        };
        let at_rates = ["mean latency at 5 % false cutoffs", "mean latency at 10 % false cutoffs"];
        assert_eq!(names(0), [at_rates[0], at_rates[1], "mean latency as it is"]);
        assert_eq!(names(3).iter().filter(|name| name.starts_with("false cutoffs")).count(), 3);
        assert!(point_line(&point(1.0, 3, f64::INFINITY)).ends_with("(0 of 3); never"));
    }

    #[test]
    fn conversations_that_fail_are_counted_and_without_any_other_nothing_is_measured() {
        let conversation = Conversation {
            split: Split::Held,
            speaker: "a".into(),
            condition: Condition::Clean,
            turns: Vec::new(),
            bed: Vec::new(),
        };
        let material =
            Material { conversations: Vec::new(), turns: Vec::new(), notes: Vec::new(), source: "composed".into() };
        let failures = || vec!["a conversation of b failed: refused".to_owned()];
        let runs = |done| Runs { agent: "a hub".into(), done, failures: failures(), others: None };
        let none = sections(&plan(), &material, runs(Vec::new()), &[], ", pipecat");
        assert_eq!((none.len(), none[0].name.as_str()), (1, "conversation, pipecat"));
        assert_eq!(none[0].failure.as_deref(), Some("not a single conversation could be held"));
        assert_eq!(none[0].notes, failures());
        let done = vec![Run { place: 0, conversation: &conversation, recorded: Recorded::default() }];
        let turn = turn(Expected::Answer, &[(0, 500)]);
        let judged = JudgedTurn::new((String::new(), &turn), String::new(), Split::Held, Condition::Clean, None);
        let some = sections(&plan(), &material, runs(done), &[judged], "");
        let figure = some[0].figures.iter().find(|figure| figure.name == "conversations that failed").expect("counted");
        assert_eq!((figure.value, figure.n, figure.passes()), (1.0, 2, Some(false)));
        assert_eq!(some[0].notes.last(), failures().first());
    }

    #[test]
    fn a_machine_that_falls_behind_voids_the_run() {
        let conversation = Conversation {
            split: Split::Held,
            speaker: "a".into(),
            condition: Condition::Clean,
            turns: Vec::new(),
            bed: Vec::new(),
        };
        let notes = |n_late| {
            let recorded = Recorded { n_frames: 1_000, n_late, latest_ms: 130.0, ..Recorded::default() };
            let mut section = Section::default();
            lateness(&mut section, &[Run { place: 0, conversation: &conversation, recorded }]);
            (section.figures[0].passes(), section.notes.len())
        };
        assert_eq!((notes(10), notes(11)), ((Some(true), 0), (Some(false), 1)));
    }

    #[tokio::test]
    async fn samples_that_are_left_out_are_named_and_the_rest_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let error = published(Layout::Turnbench, folder.path().to_path_buf()).await.err().expect("empty");
        assert!(error.to_string().contains("no sample of this layout"), "{error}");
        std::fs::create_dir(folder.path().join("1")).expect("made");
        let error = published(Layout::Turnbench, folder.path().to_path_buf()).await.err().expect("no sound");
        assert!(error.to_string().contains("speaker_1_audio.wav"), "{error}");
    }
}
