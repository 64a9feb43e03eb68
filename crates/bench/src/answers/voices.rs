//! The voices that speak the answers: those of the installed engine, and of folders of Kokoro and Piper.
//!
//! Each engine is in a hub of its own, which speaks by `POST /v1/audio/speech`, before the calls. A line is spoken by a
//! voice of its language only.

use super::AnswersPlan;
use crate::hub_process::{Engines, Hub};
use crate::{BenchError, Progress, name_of};
use antiphon_audio::codec;
use antiphon_types::Format;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Timeout of a request: the longest answer, by a slow voice.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Settings of a hub that only speaks. One replica: lines are spoken one after the other.
const SETTINGS: [&str; 4] = ["stt.engine=none", "vad.engine=earshot", "tts.replicas=1", "tts.timeout_ms=60000"];
/// Voices of Kokoro that speak where no voice is chosen: American, British, Spanish and French.
const KOKORO_VOICES: [&str; 9] =
    ["af_heart", "am_michael", "bf_emma", "bm_george", "af_bella", "am_adam", "ef_dora", "em_alex", "ff_siwis"];

/// A voice that can be asked to speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Voice {
    /// Index of its hub.
    hub: usize,
    /// As the engine knows it.
    id: String,
    /// BCP-47 tag; empty: English.
    language: String,
    /// Its engine's name and its own.
    pub(super) name: String,
}

impl Voice {
    /// Whether it speaks a language such as `en`.
    fn speaks(&self, language: &str) -> bool {
        let own = self.language.split(['-', '_']).next().unwrap_or_default();
        let own = if own.is_empty() { "en" } else { own };
        own.eq_ignore_ascii_case(language)
    }
}

/// The hubs that speak. Dropping it ends them.
pub(super) struct Speakers {
    http: reqwest::Client,
    hubs: Vec<Hub>,
    voices: Vec<Voice>,
}

/// An engine that speaks: its name in the report, and its settings.
struct VoiceSource {
    name: String,
    settings: Vec<String>,
}

impl Speakers {
    /// Starts a hub for each engine, and lists their voices.
    ///
    /// # Errors
    /// An engine cannot start, or no voice is left.
    pub(super) async fn start(plan: &AnswersPlan, progress: Progress<'_>) -> Result<Self, BenchError> {
        let http = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).build().map_err(failed)?;
        let mut speakers = Self { http, hubs: Vec::new(), voices: Vec::new() };
        for source in sources(plan)? {
            progress(&format!("answers: starting the voices of {}", source.name));
            let mut args = vec![name_of(Engines::Shipped)];
            let settings = SETTINGS.iter().map(|setting| (*setting).to_owned()).chain(source.settings);
            for setting in settings {
                args.extend(["--set".to_owned(), setting]);
            }
            let hub = Hub::spawn(&plan.hub, &args).await?;
            let list = speakers.http.get(format!("{}/v1/audio/voices", hub.url)).send().await.map_err(failed)?;
            let list: Value = list.error_for_status().map_err(failed)?.json().await.map_err(failed)?;
            let found = voices_of(&list, speakers.hubs.len(), &source.name);
            speakers.voices.extend(chosen(found, &plan.voices));
            speakers.hubs.push(hub);
        }
        match speakers.voices.is_empty() {
            true => Err(BenchError::Method("no engine has a voice of --voice".into())),
            false => Ok(speakers),
        }
    }

    /// The voice of a line, by a seed; `None`: no voice speaks its language.
    pub(super) fn voice(&self, language: &str, seed: u64) -> Option<Voice> {
        let fitting: Vec<&Voice> = self.voices.iter().filter(|voice| voice.speaks(language)).collect();
        if fitting.is_empty() {
            return None;
        }
        // Not the seed of the line's sound: a voice has no level of its own.
        let mut chance = StdRng::seed_from_u64(!seed);
        Some(fitting[chance.random_range(0..fitting.len())].clone())
    }

    /// The names of all voices.
    pub(super) fn names(&self) -> String {
        let names: Vec<&str> = self.voices.iter().map(|voice| voice.name.as_str()).collect();
        names.join(", ")
    }

    /// Speaks a text: mono at 24 kHz, which is [`antiphon_client::RATE`].
    pub(super) async fn speak(&self, voice: &Voice, text: &str) -> Result<Vec<i16>, BenchError> {
        let url = format!("{}/v1/audio/speech", self.hubs[voice.hub].url);
        let body = json!({"input": text, "voice": voice.id, "response_format": "pcm"});
        let spoken = self.http.post(url).json(&body).send().await.map_err(failed)?;
        let bytes = spoken.error_for_status().map_err(failed)?.bytes().await.map_err(failed)?;
        let mut samples = Vec::new();
        codec::decode(Format::Pcm16, &bytes, &mut samples)
            .map_err(|error| BenchError::Engine(format!("{} speaks {text:?}: {error}", voice.name)))?;
        Ok(samples)
    }

    /// Stops the hubs.
    pub(super) async fn stop(self) {
        for hub in self.hubs {
            hub.stop().await;
        }
    }
}

/// The engines of a plan.
fn sources(plan: &AnswersPlan) -> Result<Vec<VoiceSource>, BenchError> {
    let mut sources = vec![VoiceSource { name: "installed".into(), settings: Vec::new() }];
    let kokoro = plan.kokoro.iter().map(|folder| ("kokoro", folder));
    let piper = plan.piper.iter().map(|folder| ("piper", folder));
    for (engine, folder) in kokoro.chain(piper) {
        let settings = vec![format!("tts.engine={engine}"), format!("tts.model={}", whole_path(folder)?)];
        sources.push(VoiceSource { name: engine.into(), settings });
    }
    Ok(sources)
}

/// The path from the root: a hub looks for others in the models' folder, too.
fn whole_path(folder: &Path) -> Result<String, BenchError> {
    let wrong = |error: std::io::Error| BenchError::Clips(format!("{}: {error}", folder.display()));
    let path = folder.canonicalize().map_err(wrong)?;
    Ok(path.display().to_string())
}

/// The voices of a hub's list.
fn voices_of(list: &Value, hub: usize, source: &str) -> Vec<Voice> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let voice = |value: &Value| {
        let id = text(&value["id"]);
        Voice { hub, name: format!("{source} {id}"), id, language: text(&value["language"]) }
    };
    list["voices"].as_array().map(|voices| voices.iter().map(voice).collect()).unwrap_or_default()
}

/// Of the voices of an engine those with these ids; without ids those of [`KOKORO_VOICES`], or all where none of them is
/// there.
fn chosen(voices: Vec<Voice>, ids: &[String]) -> Vec<Voice> {
    if !ids.is_empty() {
        return voices.into_iter().filter(|voice| ids.contains(&voice.id)).collect();
    }
    let known: Vec<Voice> = voices.iter().filter(|voice| KOKORO_VOICES.contains(&voice.id.as_str())).cloned().collect();
    if known.is_empty() { voices } else { known }
}

fn failed(error: reqwest::Error) -> BenchError {
    BenchError::Engine(format!("the hub's speech API: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ids: &[(&str, &str)]) -> Vec<Voice> {
        let voices: Vec<Value> = ids.iter().map(|(id, language)| json!({"id": id, "language": language})).collect();
        voices_of(&json!({"voices": voices}), 0, "kokoro")
    }

    #[test]
    fn a_voice_speaks_its_language() {
        let voices = found(&[("af_heart", "en-US"), ("ef_dora", "es"), ("x", "")]);
        let of = |language: &str| voices.iter().map(|voice| voice.speaks(language)).collect::<Vec<_>>();
        assert_eq!(of("en"), [true, false, true]);
        assert_eq!(of("es"), [false, true, false]);
        assert_eq!(voices[0].name, "kokoro af_heart");
    }

    #[test]
    fn voices_are_those_that_were_chosen_or_the_best_known() {
        let ids = |voices: Vec<Voice>| voices.into_iter().map(|voice| voice.id).collect::<Vec<_>>();
        let all = || found(&[("af_heart", "en-US"), ("af_sky", "en-US")]);
        assert_eq!(ids(chosen(all(), &[])), ["af_heart"]);
        assert_eq!(ids(chosen(all(), &["af_sky".to_owned()])), ["af_sky"]);
        assert_eq!(ids(chosen(found(&[("joe", "en")]), &[])), ["joe"]);
    }
}
