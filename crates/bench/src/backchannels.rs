//! Backchannels: whether a reply goes on after "uh-huh" and stops for "no, wait", and how fast, in the paced mode.
//!
//! Sixty interjections by six voices (four of flite, two of them also at another pitch) are spoken over a story. Each word is
//! spoken alone and joined to the next one, so that it is known when each ends. The recognizer's partial transcripts follow a
//! script ([`super::scripted`]), so that only the hub's decision is measured. Every second interjection is for the report: the
//! others may be used to improve what is measured.
//!
//! The hold is measured from the first loud sample that the client sends, the cancel from the end of the word that decides. Speech
//! without words, whose length decides, is measured from the moment at which it is [`INTERRUPTS_AFTER`] long.

use super::hub_process::{Engines, Hub};
use super::questions::{VOICES, loud, replies_to, speak, speaker};
use super::scripted::{PEAK, script};
use super::talker::Talker;
use super::voice_to_voice::{SILENCE_MS, open, server_said};
use super::{BenchError, Figure, Measure, Measurement, Plan, Progress, Section, Unit, Waits, name_of};
use antiphon_client::{AudioMode, ClientError, Connection, Event, RATE, ReceivedMessage, Receiver, Reply};
use antiphon_dialog::INTERRUPTS_AFTER;
use antiphon_engine_api::tts::Tts;
use antiphon_types::{SampleRate, Samples};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// What lets a reply go on.
const BACKCHANNELS: [&str; 30] = [
    "uh-huh",
    "right",
    "okay",
    "yeah",
    "I see",
    "sure",
    "hmm",
    "oh",
    "wow",
    "really",
    "exactly",
    "great",
    "nice",
    "yes",
    "yep",
    "got it",
    "of course",
    "true",
    "cool",
    "good",
    "alright",
    "oh okay",
    "yeah yeah",
    "okay right",
    "ha ha",
    "go on",
    "I know",
    "makes sense",
    "absolutely",
    "oh really",
];

/// What stops it, and which of the words decides, from 0.
const INTERRUPTIONS: [(&str, usize); 30] = [
    ("stop", 0),
    ("wait", 0),
    ("no", 0),
    ("no wait", 0),
    ("stop please", 0),
    ("hold on", 0),
    ("but why", 0),
    ("what", 0),
    ("excuse me", 0),
    ("sorry what", 0),
    ("hey", 0),
    ("can you stop", 0),
    ("please stop", 0),
    ("pause", 0),
    ("enough", 0),
    ("tell me another one", 0),
    ("how long", 0),
    ("who said that", 0),
    ("where was that", 0),
    ("when", 0),
    ("yeah but", 1),
    ("okay but no", 1),
    ("right stop", 1),
    ("I want another story", 1),
    ("another story", 0),
    ("let me ask", 0),
    ("can I ask", 0),
    ("listen", 0),
    ("quiet please", 0),
    ("cancel", 0),
];

/// Speech for which the script has no words: its length decides.
const WORDLESS: [&str; 2] = ["another story about the sea", "the weather in the mountains"];

/// Silence between two words of an interjection.
const GAP: Duration = Duration::from_millis(40);

/// Pitches, and so speeds, of the two voices that are spoken again.
const SHIFTED: [(&str, f64); 2] = [("slt", 1.15), ("rms", 0.9)];

/// Sessions at the same time.
const AT_ONCE: usize = 6;
const ASKED_FOR: &str = "Tell me a story.";
/// Timeout for the start of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a decision is waited for after the end of an interjection.
const DECIDED_WITHIN: Duration = Duration::from_millis(1_500);

const RIGHT_PERCENT: f64 = 90.0;
const HELD_P95_MS: f64 = 60.0;
const BY_WORDS_P95_MS: f64 = 350.0;
const BY_LENGTH_P95_MS: f64 = 150.0;

/// What an interjection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Backchannel,
    /// The word at this place decides.
    Interruption(usize),
    Wordless,
}

/// A spoken interjection.
struct Interjection {
    text: &'static str,
    voice: String,
    /// The voice of the reply.
    reply_voice: &'static str,
    kind: Kind,
    /// Whether it is one of those for the report.
    is_reported: bool,
    samples: Vec<i16>,
    first_loud: usize,
    /// When each word ends, from the first loud sample.
    ends: Vec<Duration>,
}

/// What became of the reply.
struct Outcome {
    /// From the first loud sample.
    held: Option<Duration>,
    cleared: Option<Duration>,
    /// It was held and goes on.
    goes_on: bool,
}

pub(super) async fn measure(plan: &Plan, progress: Progress<'_>) -> Result<Measurement, BenchError> {
    progress("backchannels: speaking the interjections");
    let interjections = interjections(plan).await?;
    let how = format!(
        "{} interjections over a story, paced PCM; half of them for the report, which has the gates",
        interjections.len()
    );
    let mut section = Section::new(name_of(Measure::Backchannels), how);
    let args = [name_of(Engines::Scripted), "--set".into(), "session.ignore_backchannels=true".into()];
    let hub = Hub::spawn(&plan.hub, &args).await?;
    let mut outcomes = stream::iter(interjections.iter().enumerate().map(|(i, interjection)| {
        let url = hub.url.clone();
        // After 0.7 to 1.1 s of the response: listeners acknowledge after 0.7 s at the earliest.
        let after = Duration::from_millis(700 + (i as u64 * 137) % 400);
        async move {
            Ok::<_, BenchError>((interjection, InterruptedSession::open(&url, interjection).await?.run(after).await?))
        }
    }))
    .buffer_unordered(AT_ONCE);
    let mut judged = RecognizerResults::default();
    let mut n = 0;
    while let Some(outcome) = outcomes.next().await {
        let (interjection, outcome) = outcome?;
        judged.take(interjection, &outcome);
        n += 1;
        progress(&format!("backchannels: {n} of {}", interjections.len()));
    }
    drop(outcomes);
    judged.figures(&mut section);
    let hub_cpu_s = hub.process.cpu_s()?;
    hub.stop().await;
    Ok(Measurement { section, hub_cpu_s })
}

/// Speaks all of them, a third in a quick run.
async fn interjections(plan: &Plan) -> Result<Vec<Interjection>, BenchError> {
    let voices = VOICES.iter().map(|voice| (*voice, 1.0)).chain(SHIFTED);
    let voices: Vec<_> = voices.take(plan.turns(VOICES.len() + SHIFTED.len())).collect();
    let texts = BACKCHANNELS.iter().map(|text| (*text, Kind::Backchannel));
    let texts = texts.chain(INTERRUPTIONS.iter().map(|(text, at)| (*text, Kind::Interruption(*at))));
    let texts = texts.chain(WORDLESS.iter().map(|text| (*text, Kind::Wordless)));
    let mut speech = Speech { speaker: speaker().await?, words: HashMap::new() };
    let mut spoken = Vec::new();
    for (i, (text, kind)) in texts.enumerate() {
        for (voice, pitch) in &voices {
            spoken.push(Interjection { is_reported: i % 2 == 1, ..speech.say(text, kind, voice, *pitch).await? });
        }
    }
    Ok(spoken)
}

/// Words that were spoken, by voice and word.
struct Speech {
    speaker: Arc<dyn Tts>,
    words: HashMap<(&'static str, &'static str), Vec<i16>>,
}

impl Speech {
    async fn say(
        &mut self,
        text: &'static str,
        kind: Kind,
        voice: &'static str,
        pitch: f64,
    ) -> Result<Interjection, BenchError> {
        let shifted = SampleRate::new((f64::from(RATE.hz()) * pitch) as u32);
        let mut samples = Vec::<i16>::new();
        let mut ends = Vec::new();
        for word in text.split(' ') {
            if !self.words.contains_key(&(voice, word)) {
                let spoken = speak(&*self.speaker, word, voice).await?.samples;
                let (first, last) = loud(&spoken).ok_or(ClientError::Silent)?;
                self.words.insert((voice, word), spoken[first..=last].to_vec());
            }
            if !samples.is_empty() {
                samples.resize(samples.len() + RATE.samples_in(GAP).0 as usize, 0);
            }
            samples.extend(antiphon_audio::convert(&self.words[&(voice, word)], shifted, RATE));
            ends.push(samples.len());
        }
        let peak = samples.iter().map(|sample| sample.unsigned_abs()).max().unwrap_or(1);
        let gain = PEAK / f64::from(peak.max(1));
        samples.iter_mut().for_each(|sample| *sample = (f64::from(*sample) * gain) as i16);
        let (first_loud, _) = loud(&samples).ok_or(ClientError::Silent)?;
        let after = |end: usize| Samples(end.saturating_sub(first_loud) as u64).duration(RATE);
        let reply_voice = replies_to(voice);
        let voice = if pitch == 1.0 { voice.to_owned() } else { format!("{voice} at {pitch} of its pitch") };
        let ends = ends.into_iter().map(after).collect();
        Ok(Interjection { text, voice, reply_voice, kind, is_reported: false, samples, first_loud, ends })
    }
}

impl Interjection {
    fn session(&self) -> Value {
        let words: Vec<_> = match self.kind {
            Kind::Wordless => Vec::new(),
            _ => self.text.split(' ').zip(self.ends.iter().copied()).collect(),
        };
        let input = json!({
            "turn_detection": {"type": "server_vad", "silence_duration_ms": SILENCE_MS, "create_response": false},
            "transcription": {"model": "whisper-1", "prompt": script(&words)},
        });
        let audio = json!({"input": input, "output": {"voice": self.reply_voice}});
        json!({"type": "session.update", "session": {"type": "realtime", "audio": audio}})
    }

    fn is_right(&self, outcome: &Outcome) -> bool {
        match self.kind {
            Kind::Backchannel => outcome.cleared.is_none() && outcome.goes_on,
            Kind::Interruption(_) | Kind::Wordless => outcome.cleared.is_some(),
        }
    }

    /// When enough was said to decide, from the first loud sample.
    fn decided_at(&self) -> Duration {
        match self.kind {
            Kind::Interruption(at) => self.ends[at],
            Kind::Backchannel | Kind::Wordless => INTERRUPTS_AFTER,
        }
    }
}

/// Results with one recognizer.
#[derive(Default)]
struct RecognizerResults {
    /// Right and all, of backchannels and interruptions, of those for the report and the others.
    reported: [(usize, usize); 2],
    others: [(usize, usize); 2],
    held: Waits,
    by_words: Waits,
    by_length: Waits,
    /// Interruptions that stopped the reply later than [`BY_WORDS_P95_MS`].
    late: Vec<String>,
    wrong: Vec<String>,
}

impl RecognizerResults {
    fn take(&mut self, interjection: &Interjection, outcome: &Outcome) {
        let is_right = interjection.is_right(outcome);
        let half = if interjection.is_reported { &mut self.reported } else { &mut self.others };
        let count = |(n_right, n): &mut (usize, usize)| (*n_right, *n) = (*n_right + usize::from(is_right), *n + 1);
        let since_decided = outcome.cleared.map(|at| at.saturating_sub(interjection.decided_at()));
        match interjection.kind {
            Kind::Backchannel => count(&mut half[0]),
            Kind::Interruption(_) => count(&mut half[1]),
            Kind::Wordless => add(&mut self.by_length, since_decided),
        }
        if interjection.is_reported && interjection.kind != Kind::Wordless {
            add(&mut self.held, outcome.held);
            if let (Kind::Interruption(_), Some(wait)) = (interjection.kind, since_decided) {
                self.by_words.push(wait);
                if wait.as_secs_f64() * 1e3 > BY_WORDS_P95_MS {
                    let Interjection { voice, text, .. } = interjection;
                    let wait_ms = wait.as_millis();
                    self.late
                        .push(format!("late: {voice}, {text:?} stopped the reply {wait_ms} ms after it was decided"));
                }
            }
        }
        if !is_right {
            let became = match (outcome.held, outcome.cleared) {
                (_, Some(after)) => format!("stopped the reply after {} ms", after.as_millis()),
                (Some(_), None) if outcome.goes_on => "did not stop the reply".into(),
                (Some(_), None) => "left the reply held".into(),
                (None, None) => "was not heard".into(),
            };
            self.wrong.push(format!("{}, {:?} {became}", interjection.voice, interjection.text));
        }
    }

    fn figures(self, section: &mut Section) {
        let names = ["backchannels that the reply survived", "interruptions that stopped it"];
        for (what, (n_right, n)) in names.iter().zip(self.reported) {
            let share = Figure::new(*what, Unit::Of("%"), percent(n_right, n), n);
            section.figures.push(share.at_least(RIGHT_PERCENT));
        }
        for (what, (n_right, n)) in names.iter().zip(self.others) {
            let name = format!("{what}, the other half");
            section.figures.push(Figure::new(name, Unit::Of("%"), percent(n_right, n), n));
        }
        for (what, waits, bound) in [
            ("to the hold", &self.held, HELD_P95_MS),
            ("from the deciding word to the cancel", &self.by_words, BY_WORDS_P95_MS),
            ("from 1 s without words to the cancel", &self.by_length, BY_LENGTH_P95_MS),
        ] {
            if !waits.is_empty() {
                section.percentile(what, waits, 50.0, None);
                section.percentile(what, waits, 95.0, Some(bound));
            }
        }
        section.notes.extend(self.late);
        section.notes.extend(self.wrong);
    }
}

fn add(waits: &mut Waits, wait: Option<Duration>) {
    match wait {
        Some(wait) => waits.push(wait),
        None => waits.push_endless(),
    }
}

fn percent(n: usize, of: usize) -> f64 {
    100.0 * n as f64 / of.max(1) as f64
}

/// A session in which an interjection is spoken over a reply.
struct InterruptedSession<'a> {
    interjection: &'a Interjection,
    talker: Talker,
    receiver: Receiver,
    reply: Reply,
    spoken: Option<Instant>,
    held: Option<Instant>,
    cleared: Option<Instant>,
    is_held: bool,
}

impl<'a> InterruptedSession<'a> {
    async fn open(url: &str, interjection: &'a Interjection) -> Result<Self, ClientError> {
        let Connection { sender, receiver } = open(url, AudioMode::Pcm16, &interjection.session()).await?;
        Ok(Self {
            interjection,
            talker: Talker::new(sender),
            receiver,
            reply: Reply::default(),
            spoken: None,
            held: None,
            cleared: None,
            is_held: false,
        })
    }

    async fn run(mut self, after: Duration) -> Result<Outcome, ClientError> {
        self.talker.sender.say_in_text(ASKED_FOR).await?;
        let mut speaks = false;
        let mut end = Instant::now() + RESPONSE_TIMEOUT;
        let length = Samples(self.interjection.samples.len() as u64).duration(RATE);
        while self.cleared.is_none() {
            tokio::select! {
                biased;
                () = sleep_until(end) => break,
                received = self.receiver.next() => self.take(received?, Instant::now())?,
                () = self.talker.due() => {
                    let now = Instant::now();
                    if !speaks && self.reply.audible().is_some_and(|at| now >= at + after) {
                        self.talker.say(self.interjection.samples.clone());
                        speaks = true;
                        end = now + length + DECIDED_WITHIN;
                    }
                    let (at, n_said) = self.talker.step().await?;
                    if speaks && n_said > self.interjection.first_loud {
                        self.spoken.get_or_insert(at);
                    }
                }
            }
        }
        self.talker.sender.close().await;
        let spoken =
            self.spoken.ok_or(ClientError::TimedOut { what: "the reply to speak over", after: RESPONSE_TIMEOUT })?;
        let wait = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(spoken));
        let goes_on = self.held.is_some() && !self.is_held;
        Ok(Outcome { held: wait(self.held), cleared: wait(self.cleared), goes_on })
    }

    fn take(&mut self, received: ReceivedMessage, now: Instant) -> Result<(), ClientError> {
        match received {
            ReceivedMessage::Audio { item_id, samples } => self.reply.take(&item_id, &samples, now),
            ReceivedMessage::Event(Event::Held { .. }) => {
                self.held.get_or_insert(now);
                self.is_held = true;
                self.reply.hold(now);
            }
            ReceivedMessage::Event(Event::Resumed { .. }) => {
                // A hold before the first word had another cause.
                self.held = self.held.filter(|_| self.spoken.is_some());
                self.is_held = false;
                self.reply.resume(now);
            }
            ReceivedMessage::Event(Event::Cleared {}) => self.cleared = Some(now),
            ReceivedMessage::Event(Event::Error { error }) => return Err(server_said(error)),
            ReceivedMessage::Event(_) | ReceivedMessage::Resumed(_) => {}
        }
        Ok(())
    }
}
