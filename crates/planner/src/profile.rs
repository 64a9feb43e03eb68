//! A profile: what one conversation costs and how long each stage takes, from which the planner computes machines.
//!
//! `antiphon-bench stress --profile-out` writes one; three are built in ([`Profile::built_in`]): two from this project's
//! measured figures, and one whose voice has another server's rates. Each figure has a source in [`Profile::sources`]; one
//! without is shown as an assumption. This file reads and checks; it computes nothing.

use super::PlanError;
use super::cards::Card;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Figures of conversations, hub and stages.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name in the output.
    pub name: String,
    /// The card, of [`CARDS`](super::CARDS), for which the times of the stages on accelerators are; absent where none was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// How people talk.
    pub conversation: Conversation,
    /// What the hub needs.
    pub hub: HubProfile,
    /// What a turn waits for beside its stages.
    pub turn: TurnProfile,
    /// Speech to text.
    pub stt: StageProfile,
    /// The language model.
    pub llm: StageProfile,
    /// Text to speech.
    pub tts: StageProfile,
    /// The cluster's servers.
    pub nats: NatsProfile,
    /// Kinds of machines, by name; a price table may replace them.
    pub machines: BTreeMap<String, Machine>,
    /// Where figures come from, by their path, such as `hub.talking_cores`.
    #[serde(default)]
    pub sources: BTreeMap<String, Source>,
}

/// Where a figure comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Whether it was measured; otherwise it is an assumption.
    pub measured: bool,
    /// How, or why it was assumed.
    pub from: String,
}

/// How people talk.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// Turns a minute of a session that is talking, without queueing.
    pub turns_per_minute: f64,
    /// Length of an utterance, in seconds.
    pub speech_s: f64,
    /// Length of a reply, in seconds of sound.
    pub reply_s: f64,
    /// Share of the open sessions in which a conversation goes on, 0 to 1; the others are connected and silent.
    pub talking_share: f64,
}

/// What the hub needs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HubProfile {
    /// Processor time of a talking session, in cores.
    pub talking_cores: f64,
    /// Processor time of a silent session, in cores.
    pub idle_cores: f64,
    /// Memory of a talking session, in KiB.
    pub talking_kib: f64,
    /// Memory of a silent session, in KiB.
    pub idle_kib: f64,
    /// Memory of a hub without sessions, in MiB.
    pub base_mib: f64,
    /// What a client sends while it is connected, in kbit/s.
    pub up_kbit_s: f64,
    /// What a client receives while a reply is played, in kbit/s.
    pub down_kbit_s: f64,
    /// Kind of the machine that a hub runs on; it has the machine to itself.
    pub machine: String,
}

/// What a turn waits for beside its stages.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TurnProfile {
    /// From the end of speech to the decision that the turn is over: quantiles at equal steps from 0 to 1, in milliseconds.
    pub endpointing_ms: Vec<f64>,
    /// The hub's own time, chunking, the network and the client: quantiles as above.
    pub rest_ms: Vec<f64>,
    /// Responses that begin before that decision; absent where speculation is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speculation: Option<SpeculationProfile>,
}

/// Responses that begin before the end of the turn is sure.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SpeculationProfile {
    /// From the end of speech to the start of the stages, in milliseconds.
    pub starts_ms: f64,
    /// Share of the turns whose response was begun early and used, 0 to 1.
    pub share: f64,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct StageProfile {
    /// Display name of the engine.
    pub engine: String,
    /// Requests a turn; above 1 with speculative requests that are dropped, or with several chunks of speech.
    pub requests_per_turn: f64,
    /// How requests are served.
    pub service: Service,
    /// What an instance needs; absent for servers of others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Needs>,
    /// Settings of the stage's section of the configuration: what the instance was measured with.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, serde_json::Value>,
}

/// How a stage serves requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Service {
    /// A server of others: its latency does not depend on our load.
    External {
        /// Median time to the first output, in milliseconds.
        p50_ms: f64,
        /// Its 95th percentile.
        p95_ms: f64,
        /// Its 99th percentile.
        p99_ms: f64,
    },
    /// A request holds a slot from its start to its end: decoders, slots of a language model.
    Slots {
        /// Slots of an instance.
        slots: usize,
        /// Times by the number of slots in use, by ascending batch.
        points: Vec<SlotPoint>,
        /// Standard deviation of the times divided by their mean.
        variation: f64,
    },
    /// Requests share runs: a request joins the next run and takes part in several.
    Runs {
        /// Requests in a run at most, of an instance.
        slots: usize,
        /// Runs that a request takes.
        runs_per_request: f64,
        /// Duration of a run by the requests in it, by ascending batch.
        points: Vec<RunPoint>,
        /// Standard deviation of the runs of a request divided by their mean. The model does not use it: the number of
        /// requests that take turns does not depend on it.
        variation: f64,
    },
}

/// Times of a request when this number of slots is in use.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SlotPoint {
    /// Slots in use.
    pub batch: f64,
    /// From the slot to the first output, in milliseconds.
    pub first_ms: f64,
    /// How long the slot is held, in milliseconds.
    pub hold_ms: f64,
}

/// Duration of a run with this number of requests in it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunPoint {
    /// Requests in the run.
    pub batch: f64,
    /// Its duration, in milliseconds.
    pub run_ms: f64,
}

/// What one instance of a stage needs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// Kind of the machine.
    pub machine: String,
    /// Cores.
    pub cores: f64,
    /// Memory of the machine, in GiB.
    pub memory_gib: f64,
    /// Accelerators; a fraction where instances share one.
    pub accelerators: f64,
    /// Memory of its accelerators that an instance takes at least, in GB of 10^9 bytes; 0 where it is not known.
    #[serde(default)]
    pub card_gb: f64,
}

/// The cluster's servers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NatsProfile {
    /// Processor time of nats-server for a stream, in cores.
    pub stream_cores: f64,
    /// The way to a worker and back, added to each request, in milliseconds.
    pub hop_ms: f64,
    /// Kind of the machine of a server.
    pub machine: String,
}

/// A kind of machine.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Cores.
    pub cores: f64,
    /// Memory, in GiB.
    pub memory_gib: f64,
    /// Accelerators, such as GPUs.
    #[serde(default)]
    pub accelerators: f64,
}

/// Names of the profiles that are built in; the first one is the default.
pub const BUILT_IN: [&str; 3] = ["gpu", "processor", "s1-mini-a10g"];

impl Profile {
    /// A profile that is part of this program; `None` if no profile has this name.
    pub fn built_in(name: &str) -> Option<Self> {
        let text = match name {
            "gpu" => include_str!("profiles/gpu.json"),
            "processor" => include_str!("profiles/processor.json"),
            "s1-mini-a10g" => include_str!("profiles/s1-mini-a10g.json"),
            _ => return None,
        };
        Some(Self::parse(text).expect("a test reads all"))
    }

    /// Reads and checks a profile.
    ///
    /// # Errors
    /// It is not JSON of this form, or a figure is out of range; the text names it.
    pub fn parse(text: &str) -> Result<Self, PlanError> {
        let profile: Self = serde_json::from_str(text).map_err(|error| PlanError::Profile(error.to_string()))?;
        profile.check()?;
        Ok(profile)
    }

    /// Its stages with the names of their sections in the configuration, in the order of a turn.
    pub fn stages(&self) -> [(&'static str, &StageProfile); 3] {
        [("stt", &self.stt), ("llm", &self.llm), ("tts", &self.tts)]
    }

    /// The figures that were not measured, each with the reason for its value.
    pub fn assumptions(&self) -> Vec<(String, String)> {
        let stage = |name: &str| ["requests_per_turn", "service", "needs"].map(|of| format!("{name}.{of}"));
        let hub = ["talking_cores", "idle_cores", "talking_kib", "idle_kib", "base_mib", "up_kbit_s", "down_kbit_s"];
        let conversation = ["turns_per_minute", "speech_s", "reply_s", "talking_share"];
        let turn = ["endpointing_ms", "rest_ms", "speculation"];
        let paths = conversation.map(|of| format!("conversation.{of}")).into_iter();
        let paths = paths.chain(hub.map(|of| format!("hub.{of}"))).chain(turn.map(|of| format!("turn.{of}")));
        let paths = paths.chain(["stt", "llm", "tts"].into_iter().flat_map(stage));
        let paths = paths.chain(["nats.stream_cores", "nats.hop_ms", "card"].map(str::to_owned));
        let why = |path: String| match self.sources.get(&path) {
            Some(source) if source.measured => None,
            Some(source) => Some((path, source.from.clone())),
            None => Some((path, "no source is given".to_owned())),
        };
        paths.filter(|path| self.has(path)).filter_map(why).collect()
    }

    /// Whether the profile has the optional part of this path.
    fn has(&self, path: &str) -> bool {
        let needs = |of: &str| self.stages().iter().any(|(name, stage)| *name == of && stage.needs.is_some());
        match path.split_once('.') {
            Some(("turn", "speculation")) => self.turn.speculation.is_some(),
            Some((stage, "needs")) => needs(stage),
            None => self.card.is_some(),
            _ => true,
        }
    }

    /// Checks ranges.
    ///
    /// # Errors
    /// The first figure that is out of range.
    pub fn check(&self) -> Result<(), PlanError> {
        if let Some(card) = &self.card {
            Card::named(card)?;
        }
        let Conversation { turns_per_minute, speech_s, reply_s, talking_share } = self.conversation;
        positive("conversation.turns_per_minute", turns_per_minute)?;
        positive("conversation.speech_s", speech_s)?;
        positive("conversation.reply_s", reply_s)?;
        share("conversation.talking_share", talking_share)?;
        let hub = &self.hub;
        positive("hub.talking_cores", hub.talking_cores)?;
        let rest = [
            ("hub.idle_cores", hub.idle_cores),
            ("hub.talking_kib", hub.talking_kib),
            ("hub.idle_kib", hub.idle_kib),
            ("hub.base_mib", hub.base_mib),
            ("hub.up_kbit_s", hub.up_kbit_s),
            ("hub.down_kbit_s", hub.down_kbit_s),
            ("nats.stream_cores", self.nats.stream_cores),
            ("nats.hop_ms", self.nats.hop_ms),
        ];
        rest.into_iter().try_for_each(|(path, value)| not_negative(path, value))?;
        quantiles("turn.endpointing_ms", &self.turn.endpointing_ms)?;
        quantiles("turn.rest_ms", &self.turn.rest_ms)?;
        if let Some(SpeculationProfile { starts_ms, share: of }) = self.turn.speculation {
            not_negative("turn.speculation.starts_ms", starts_ms)?;
            share("turn.speculation.share", of)?;
        }
        for (name, stage) in self.stages() {
            stage.check(name)?;
            let needs = stage.needs.iter().map(|needs| needs.machine.as_str());
            for machine in needs.chain([hub.machine.as_str(), self.nats.machine.as_str()]) {
                if !self.machines.contains_key(machine) {
                    return Err(PlanError::Profile(format!("machines.{machine} is missing")));
                }
            }
        }
        Ok(())
    }
}

impl StageProfile {
    /// Whether instances of it are ours to size.
    pub fn is_external(&self) -> bool {
        matches!(self.service, Service::External { .. })
    }

    fn check(&self, name: &str) -> Result<(), PlanError> {
        positive(&format!("{name}.requests_per_turn"), self.requests_per_turn)?;
        let path = |of: &str| format!("{name}.service.{of}");
        match &self.service {
            Service::External { p50_ms, p95_ms, p99_ms } => {
                positive(&path("p50_ms"), *p50_ms)?;
                ascending(&path("p50_ms, p95_ms, p99_ms"), &[*p50_ms, *p95_ms, *p99_ms])?;
            }
            Service::Slots { slots, points, variation } => {
                positive(&path("slots"), *slots as f64)?;
                not_negative(&path("variation"), *variation)?;
                ascending(&path("points: batch"), &points.iter().map(|point| point.batch).collect::<Vec<_>>())?;
                for point in points {
                    positive(&path("points: first_ms"), point.first_ms)?;
                    positive(&path("points: hold_ms"), point.hold_ms)?;
                }
            }
            Service::Runs { slots, runs_per_request, points, variation } => {
                positive(&path("slots"), *slots as f64)?;
                positive(&path("runs_per_request"), *runs_per_request)?;
                not_negative(&path("variation"), *variation)?;
                ascending(&path("points: batch"), &points.iter().map(|point| point.batch).collect::<Vec<_>>())?;
                points.iter().try_for_each(|point| positive(&path("points: run_ms"), point.run_ms))?;
            }
        }
        match (&self.needs, self.is_external()) {
            (None, false) => Err(PlanError::Profile(format!("{name}.needs is missing"))),
            (Some(needs), _) => {
                positive(&format!("{name}.needs.cores"), needs.cores)?;
                not_negative(&format!("{name}.needs.memory_gib"), needs.memory_gib)?;
                not_negative(&format!("{name}.needs.accelerators"), needs.accelerators)?;
                not_negative(&format!("{name}.needs.card_gb"), needs.card_gb)
            }
            (None, true) => Ok(()),
        }
    }
}

fn bad(path: &str, what: &str) -> PlanError {
    PlanError::Profile(format!("{path} must be {what}"))
}

fn positive(path: &str, value: f64) -> Result<(), PlanError> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(bad(path, "above 0")) }
}

fn not_negative(path: &str, value: f64) -> Result<(), PlanError> {
    if value.is_finite() && value >= 0.0 { Ok(()) } else { Err(bad(path, "0 or more")) }
}

fn share(path: &str, value: f64) -> Result<(), PlanError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(bad(path, "from 0 to 1")) }
}

fn ascending(path: &str, values: &[f64]) -> Result<(), PlanError> {
    let is_ascending = values.windows(2).all(|pair| pair[0] <= pair[1]);
    if is_ascending && !values.is_empty() { Ok(()) } else { Err(bad(path, "ascending, one at least")) }
}

fn quantiles(path: &str, values: &[f64]) -> Result<(), PlanError> {
    values.iter().try_for_each(|value| not_negative(path, *value))?;
    ascending(path, values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_profiles_that_are_built_in_are_right_and_name_their_sources() {
        for name in BUILT_IN {
            let profile = Profile::built_in(name).expect("it is listed");
            assert_eq!(profile.name, name);
            let unnamed: Vec<_> =
                profile.assumptions().into_iter().filter(|(_, why)| why == "no source is given").collect();
            assert!(unnamed.is_empty(), "{name}: {unnamed:?}");
            let text = serde_json::to_string(&profile).expect("JSON");
            assert_eq!(Profile::parse(&text).expect("its own form"), profile);
        }
        assert!(Profile::built_in("nothing").is_none());
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let change = |path: &[&str], value: serde_json::Value| {
            let mut profile: serde_json::Value =
                serde_json::from_str(include_str!("profiles/gpu.json")).expect("it is JSON");
            let at = path.iter().fold(&mut profile, |at, key| &mut at[*key]);
            *at = value;
            Profile::parse(&profile.to_string()).expect_err("out of range").to_string()
        };
        for (path, value, says) in [
            (&["conversation", "talking_share"][..], 1.5.into(), "conversation.talking_share must be from 0 to 1"),
            (&["hub", "talking_cores"], 0.into(), "hub.talking_cores must be above 0"),
            (&["tts", "service", "points"], serde_json::json!([]), "points: batch must be ascending, one at least"),
            (&["turn", "rest_ms"], serde_json::json!([3, 1]), "turn.rest_ms must be ascending"),
            (&["stt", "needs", "machine"], "unknown".into(), "machines.unknown is missing"),
            (&["stt", "needs"], serde_json::Value::Null, "stt.needs is missing"),
            (&["nats", "speed"], 1.into(), "unknown field `speed`"),
        ] {
            let said = change(path, value);
            assert!(said.contains(says), "{said}");
        }
    }
}
