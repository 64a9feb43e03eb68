//! What every fault goes through: a hub with a healthy conversation (the canary), the fault beside it, and the checks behind it.
//!
//! For each fault: what the idle hub holds is counted; the canary's first answers are timed; the fault does its work while the
//! canary goes on, and checks what the faulty party sees; the canary must be answered throughout, in a time that is bounded by
//! its time before; memory must have grown by less than the area's bound; within [`Fault::back_within`] of the fault's end
//! the hub holds no more than before. A panic of the hub's own code in its log fails the fault, too. All faults of an area are
//! tried, in the short cut several at once where they wait ([`run_at_once`]); then the area fails with a list of those that did
//! not hold.

use super::process::{Answer, Hub, HubResources, Settings, TEST_TIMEOUT, ask, connect};
use crate::hub::{Socket, base64};
use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::MaybeTlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::CancellationToken;

/// The canary's worst answer beside a fault: so many times its worst before, and so much more. A conversation that waits for a
/// fault to end waits for its time limit; limits of the hub that no setting shortens are 10 s.
const LATENCY_RATIO: u32 = 4;
const LATENCY_ALLOWANCE: Duration = Duration::from_secs(4);

/// The longest a fault may take.
const FAULT_DEADLINE: Duration = Duration::from_secs(60);

/// What a fault does: it sees to it that the canary is answered beside it ([`Party::beside`]), and panics where the faulty
/// party sees something else than it must.
pub type Run = Box<dyn Fn(Party) -> BoxFuture<'static, ()> + Send + Sync>;

/// A fault.
pub struct Fault {
    /// What is done, in a few words.
    pub name: String,
    /// What the faulty party must see.
    pub sees: &'static str,
    /// Whether it belongs to the short cut in `make test`.
    pub is_short: bool,
    pub canary: Canary,
    /// How long the hub may take to give everything back.
    pub back_within: Duration,
    /// Files that remain on purpose: jobs that are kept, models that were pulled.
    pub leaves_files: bool,
    /// A hub for this fault alone.
    pub own_hub: Option<Settings>,
    pub run: Run,
}

/// The conversation beside a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// Spoken questions, spoken answers.
    Voice,
    /// Typed questions, spoken answers: while the recognizer is away.
    Typed,
    /// Typed questions, written answers: while the voice is away.
    Text,
    /// Spoken questions that are only transcribed: while the model is away.
    Transcript,
    /// Beside nothing, because the fault ends the hub; before it and after it.
    After,
}

/// A fault with the usual canary.
pub fn fault<F>(name: impl Into<String>, sees: &'static str, run: impl Fn(Party) -> F + Send + Sync + 'static) -> Fault
where
    F: Future<Output = ()> + Send + 'static,
{
    Fault {
        name: name.into(),
        sees,
        is_short: false,
        canary: Canary::Voice,
        back_within: Duration::from_secs(20),
        leaves_files: false,
        own_hub: None,
        run: Box::new(move |party| run(party).boxed()),
    }
}

impl Fault {
    /// Makes it part of the short cut.
    pub fn short(self) -> Self {
        Self { is_short: true, ..self }
    }

    pub fn beside(self, canary: Canary) -> Self {
        Self { canary, ..self }
    }

    pub fn leaving_files(self) -> Self {
        Self { leaves_files: true, ..self }
    }

    /// Gives it a hub of its own.
    pub fn alone(self, settings: Settings) -> Self {
        Self { own_hub: Some(settings), ..self }
    }
}

/// The faulty party: it has an address of its own, so that bounds of its address are not those of the canary.
#[derive(Clone)]
pub struct Party {
    pub hub: Arc<Hub>,
    pub from: Ipv4Addr,
    n_rounds: watch::Receiver<usize>,
    /// Set once the canary was answered beside the fault.
    was_beside: watch::Sender<bool>,
    most: Arc<Mutex<Option<HubResources>>>,
}

impl Party {
    /// Waits until the canary has been asked and answered anew, while the fault lasts. For [`Canary::After`], holds a
    /// conversation now.
    pub async fn beside(&self) {
        self.was_beside.send_replace(true);
        if let Some(held) = self.hub.held().await {
            *self.most.lock().expect("no panic") = Some(held);
        }
        let mut n_rounds = self.n_rounds.clone();
        let from = *n_rounds.borrow_and_update();
        // The round that was under way began before.
        let _ = n_rounds.wait_for(|n| *n >= from + 2).await;
    }

    /// A connection.
    pub async fn tcp(&self) -> TcpStream {
        connect(self.hub.address(), self.from).await.expect("the hub listens")
    }

    /// A request; the answer's head must come.
    pub async fn http(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let key = self.hub.settings.keys.map(|(own, _)| format!("authorization: Bearer {own}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{key}{headers}content-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        self.plain(&head, body).await
    }

    /// A request as it stands.
    pub async fn plain(&self, head: &str, body: &[u8]) -> Answer {
        ask(self.tcp().await, head, body)
            .await
            .unwrap_or_else(|| panic!("no answer to {}", &head[..head.len().min(200)]))
    }

    /// A request with a JSON body.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.http("POST", path, "content-type: application/json\r\n", body.to_string().as_bytes()).await
    }

    /// Performs the upgrade with these headers; an error is the refusal.
    pub async fn open(&self, query: &str, headers: &[(&'static str, &str)]) -> Result<Socket, Answer> {
        open(&self.hub, self.from, query, headers).await
    }

    /// A session, behind its first event.
    pub async fn connect(&self, query: &str) -> Socket {
        let key = self.hub.settings.keys.map(|(own, _)| format!("Bearer {own}"));
        let headers: Vec<_> = key.iter().map(|key| ("authorization", key.as_str())).collect();
        let mut socket = self.open(query, &headers).await.unwrap_or_else(|refusal| panic!("{refusal:?}"));
        assert_eq!(socket.next().await["type"], "session.created");
        socket
    }

    /// Holds a conversation of one question with the hub as it runs now.
    pub async fn converse(&self) {
        self.was_beside.send_replace(true);
        let mut conversation = Conversation::open(&self.hub, Canary::Voice).await;
        conversation.turn().await;
        conversation.close().await;
    }
}

async fn open(hub: &Hub, from: Ipv4Addr, query: &str, headers: &[(&'static str, &str)]) -> Result<Socket, Answer> {
    let stream = connect(hub.address(), from).await.expect("the hub listens");
    let mut request = format!("ws://{}/v1/realtime{query}", hub.address()).into_client_request().expect("a request");
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().expect("a header"));
    }
    let opened = tokio_tungstenite::client_async(request, MaybeTlsStream::Plain(stream));
    match timeout(TEST_TIMEOUT, opened).await.expect("the upgrade is answered") {
        Ok((stream, _)) => Ok(Socket { stream, frames: Vec::new() }),
        Err(WsError::Http(response)) => {
            let headers = response.headers().iter();
            let head = headers.fold(String::new(), |mut head, (name, value)| {
                let _ = writeln!(head, "{}: {}", name.as_str(), value.to_str().unwrap_or_default());
                head
            });
            let body = response.body().clone().unwrap_or_default();
            Err(Answer { status: response.status().as_u16(), head, body, is_whole: true })
        }
        Err(error) => panic!("the upgrade fails: {error}"),
    }
}

/// The canary's conversation.
struct Conversation {
    socket: Socket,
    canary: Canary,
    speech: &'static [i16],
}

impl Conversation {
    async fn open(hub: &Hub, canary: Canary) -> Self {
        let key = hub.settings.keys.map(|(_, key)| format!("Bearer {key}"));
        let headers: Vec<_> = key.iter().map(|key| ("authorization", key.as_str())).collect();
        let opened = open(hub, Ipv4Addr::LOCALHOST, "", &headers).await;
        let mut socket = opened.unwrap_or_else(|refusal| panic!("the canary is refused: {refusal:?}"));
        let first = socket.next().await;
        assert_eq!(first["type"], "session.created", "the canary is refused: {first}");
        if canary == Canary::Transcript {
            let detection = json!({"type": "server_vad", "create_response": false});
            let session = json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}});
            socket.send(json!({"type": "session.update", "session": session})).await;
            socket.until("session.updated").await;
        }
        Self { socket, canary, speech: speech() }
    }

    /// One question and its answer; the time to the first of the answer.
    async fn turn(&mut self) -> Duration {
        timeout(TEST_TIMEOUT, self.ask())
            .await
            .unwrap_or_else(|_| panic!("the canary has no answer within {TEST_TIMEOUT:?}"))
    }

    async fn ask(&mut self) -> Duration {
        let begun = Instant::now();
        let socket = &mut self.socket;
        match self.canary {
            Canary::Voice | Canary::After | Canary::Transcript => {
                // Faster than real time: turn time is sample time.
                socket.append(self.speech).await;
            }
            Canary::Typed | Canary::Text => {
                let item =
                    json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]});
                socket.send(json!({"type": "conversation.item.create", "item": item})).await;
                let modality = if self.canary == Canary::Text { "text" } else { "audio" };
                socket.send(json!({"type": "response.create", "response": {"output_modalities": [modality]}})).await;
            }
        }
        let (first, last) = match self.canary {
            Canary::Voice | Canary::After | Canary::Typed => ("response.output_audio.delta", "response.done"),
            Canary::Text => ("response.output_text.delta", "response.done"),
            Canary::Transcript => {
                let completed = "conversation.item.input_audio_transcription.completed";
                (completed, completed)
            }
        };
        let mut heard = None;
        loop {
            let event = socket.next().await;
            let kind = event["type"].as_str().unwrap_or_default();
            assert_ne!(kind, "error", "the canary gets an error: {event}");
            if kind == first && heard.is_none() {
                heard = Some(begun.elapsed());
            }
            if kind == last {
                if kind == "response.done" {
                    assert_eq!(event["response"]["status"], "completed", "the canary's answer: {event}");
                }
                return heard.unwrap_or_else(|| panic!("the canary's answer has no {first}: {event}"));
            }
        }
    }

    async fn close(mut self) {
        let _ = self.socket.stream.close(None).await;
        while let Ok(Some(Ok(_))) = timeout(TEST_TIMEOUT, self.socket.stream.next()).await {}
    }
}

/// A spoken second and the silence that ends the turn, at 24 kHz; made once by the program itself.
pub fn speech() -> &'static [i16] {
    use std::sync::OnceLock;
    static SPEECH: OnceLock<Vec<i16>> = OnceLock::new();
    SPEECH.get_or_init(|| {
        let program = std::env::var("ANTIPHON").unwrap_or_else(|_| env!("CARGO_BIN_EXE_antiphon").to_owned());
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("speech.wav");
        let mut said = std::process::Command::new(program);
        said.args(["say", "Hello, are you there?", "-o"]).arg(&file).env_clear().env("ANTIPHON_TTS__ENGINE", "flite");
        said.current_dir(folder.path());
        let output = said.output().expect("the program runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = std::fs::read(&file).expect("a file");
        let rate = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
        let samples: Vec<i16> =
            bytes[44..].chunks_exact(2).map(|pair| i16::from_le_bytes([pair[0], pair[1]])).collect();
        // Repeated samples are good enough for a detector of speech.
        let n = samples.len() * 24_000 / rate as usize;
        let spoken = (0..n).map(|i| samples[i * rate as usize / 24_000]);
        spoken.chain(std::iter::repeat_n(0, 24_000)).collect()
    })
}

/// Faults of an area whose faults wait rather than compute that are tried at once, each beside a hub of its own.
const LANES: usize = 3;

/// What became of a fault: its row of the table, and why it did not hold.
struct Tried {
    row: String,
    broken: Option<String>,
}

/// Runs an area: its shared hub, then each fault. `ANTIPHON_FAULTS=all` runs all of them, else the short cut is run; any other
/// value runs those whose names contain it.
pub async fn run(area: &'static str, settings: Settings, memory_mib: u64, faults: Vec<Fault>) {
    run_in_lanes(1, area, &settings, memory_mib, &faults).await;
}

/// The same of an area whose faults wait for time limits of the hub: the short cut tries several of them at once.
pub async fn run_at_once(area: &'static str, settings: Settings, memory_mib: u64, faults: Vec<Fault>) {
    let n_lanes = if wanted().is_empty() { LANES } else { 1 };
    run_in_lanes(n_lanes, area, &settings, memory_mib, &faults).await;
}

fn wanted() -> String {
    std::env::var("ANTIPHON_FAULTS").unwrap_or_default()
}

async fn run_in_lanes(n_lanes: usize, area: &'static str, settings: &Settings, memory_mib: u64, faults: &[Fault]) {
    let wanted = wanted();
    let chosen = |fault: &&Fault| match wanted.as_str() {
        "" => fault.is_short,
        "all" => true,
        part => fault.name.contains(part) || area == part,
    };
    let chosen: Vec<&Fault> = faults.iter().filter(chosen).collect();
    let next = AtomicUsize::new(0);
    let lanes = (0..n_lanes).map(|_| lane(area, settings, memory_mib, &chosen, &next));
    let mut tried: Vec<(usize, Tried)> = join_all(lanes).await.into_iter().flatten().collect();
    tried.sort_by_key(|(n, _)| *n);
    let rows: Vec<String> = tried.iter().map(|(_, one)| one.row.clone()).collect();
    let broken: Vec<String> = tried.into_iter().filter_map(|(_, one)| one.broken).collect();
    report(area, &rows);
    assert!(broken.is_empty(), "{} of {} faults did not hold:\n{}", broken.len(), rows.len(), broken.join("\n"));
}

/// Tries faults until none is left, beside a hub that they share; each with its number.
async fn lane(
    area: &str,
    settings: &Settings,
    memory_mib: u64,
    faults: &[&Fault],
    next: &AtomicUsize,
) -> Vec<(usize, Tried)> {
    let mut shared = None;
    let mut all = Vec::new();
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        let Some(fault) = faults.get(n) else { return all };
        let begun = Instant::now();
        let hub = match (&fault.own_hub, &shared) {
            (None, Some(hub)) => Arc::clone(hub),
            (own, _) => {
                let hub = Hub::start(own.as_ref().unwrap_or(settings).clone()).await;
                warm(&hub, fault.canary).await;
                if own.is_none() {
                    shared = Some(hub.clone());
                }
                hub
            }
        };
        let tried = AssertUnwindSafe(timeout(FAULT_DEADLINE, attempt(&hub, fault, n, memory_mib))).catch_unwind().await;
        let result = match tried {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(format!("it is not over after {FAULT_DEADLINE:?}")),
            Err(panic) => Err(words(&*panic)),
        };
        let (held, broken) = match result {
            Ok(row) => (row, None),
            Err(why) => {
                // The next fault gets a hub that nothing has happened to.
                shared = None;
                let broken = format!("{area}: {}: {why}\n  must see: {}\n{}", fault.name, fault.sees, tail(&hub));
                hub.kill().await;
                ("DID NOT HOLD".to_owned(), Some(broken))
            }
        };
        let row = format!("| {area} | {} | {held} | {:.1} s |", fault.name, begun.elapsed().as_secs_f64());
        all.push((n, Tried { row, broken }));
    }
}

/// One conversation, behind which threads, pools and caches are as they stay.
async fn warm(hub: &Hub, canary: Canary) {
    let mut conversation = Conversation::open(hub, canary).await;
    conversation.turn().await;
    conversation.close().await;
    if hub.settings.has_jobs {
        let body = json!({"voice": "alloy", "input": "Hello.", "response_format": "pcm"}).to_string();
        let head = "POST /v1/audio/speech/jobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
        let head = format!("{head}content-length: {}\r\n\r\n", body.len());
        let stream = connect(hub.address(), Ipv4Addr::LOCALHOST).await.expect("the hub listens");
        ask(stream, &head, body.as_bytes()).await.expect("an answer").is(&[202]);
        // It is done once its voice has been asked for.
        let asked = hub.upstreams.tts.n_requests();
        let done = async {
            while hub.upstreams.tts.n_requests() == asked || hub.upstreams.open() > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = timeout(Duration::from_secs(2), done).await;
    }
    assert!(nothing_open(hub).await, "the hub does not come to rest after its first conversation");
}

/// Waits until nothing of a conversation is left.
async fn nothing_open(hub: &Hub) -> bool {
    let over = async {
        loop {
            let held = hub.held().await;
            if held.is_some_and(|held| {
                ["sessions", "connections", "upstream connections"].iter().all(|one| held.0[one] == 0)
            }) {
                // The task of the connection that asked ends behind its answer.
                tokio::time::sleep(Duration::from_millis(100)).await;
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TEST_TIMEOUT, over).await.is_ok()
}

/// The least that is held over a few looks: a connection that has just ended may still be counted.
pub async fn at_rest(hub: &Hub) -> HubResources {
    let mut least: Option<HubResources> = None;
    for _ in 0..5 {
        let held = hub.held().await.expect("the hub says what it holds");
        least = Some(match least {
            None => held,
            Some(least) => HubResources(least.0.iter().map(|(name, n)| (*name, *n.min(&held.0[name]))).collect()),
        });
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    least.expect("looked at")
}

/// Tries one fault; its row of the table, or why it did not hold.
#[allow(clippy::disallowed_methods)]
async fn attempt(hub: &Arc<Hub>, fault: &Fault, n: usize, memory_mib: u64) -> Result<String, String> {
    let before = at_rest(hub).await;
    let resident = hub.resident();
    let logged = hub.log().len();
    let mut canary = Conversation::open(hub, fault.canary).await;
    let mut usual = Duration::ZERO;
    for _ in 0..2 {
        usual = usual.max(canary.turn().await);
    }
    let (rounds, n_rounds) = watch::channel(0);
    let stop = CancellationToken::new();
    let is_beside = fault.canary != Canary::After;
    let singing = if is_beside {
        Some(tokio::spawn(sing(hub.clone(), canary, rounds, stop.clone())))
    } else {
        canary.close().await;
        None
    };
    let was_beside = watch::Sender::new(false);
    let most = Arc::new(Mutex::new(None));
    // 127.1.0.1 and further: each fault has an address of its own.
    let from = Ipv4Addr::new(127, 1, (n / 250) as u8, (n % 250 + 1) as u8);
    let party = Party { hub: hub.clone(), from, n_rounds, was_beside: was_beside.clone(), most: most.clone() };
    let done = AssertUnwindSafe((fault.run)(party)).catch_unwind().await;
    stop.cancel();
    let sung = match singing {
        Some(singing) => singing.await.map_err(|error| match error.try_into_panic() {
            Ok(panic) => format!("the canary was not answered: {}", words(&*panic)),
            Err(error) => error.to_string(),
        }),
        None => Ok(Song::default()),
    };
    done.map_err(|panic| format!("the faulty party: {}", words(&*panic)))?;
    let song = sung?;
    if !*was_beside.borrow() {
        return Err("the canary was not answered beside it: the fault calls neither beside() nor converse()".into());
    }
    let most_allowed = usual * LATENCY_RATIO + LATENCY_ALLOWANCE;
    if song.worst > most_allowed {
        return Err(format!("the canary waited for {:?}, {usual:?} before it; {most_allowed:?} at most", song.worst));
    }
    let grown = hub.resident().max(song.resident).saturating_sub(resident) >> 20;
    if grown > memory_mib {
        return Err(format!("the hub has grown by {grown} MiB; {memory_mib} MiB at most"));
    }
    let ended = Instant::now();
    let left = loop {
        let left = match hub.held().await {
            Some(held) => held.beyond(&before),
            None => vec![("an answer", 1)],
        };
        let left: Vec<_> = left.into_iter().filter(|(name, _)| !(fault.leaves_files && *name == "files")).collect();
        if left.is_empty() || ended.elapsed() > fault.back_within {
            break left;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    if !left.is_empty() {
        return Err(format!("not given back within {:?}: {left:?}", fault.back_within));
    }
    if let Some(panic) = hub.log().split_off(logged).lines().find(|line| is_own_panic(line)) {
        return Err(format!("the hub's log has a panic: {panic}"));
    }
    let held = most.lock().expect("no panic").take().map(|most: HubResources| most.beyond(&before)).unwrap_or_default();
    let held = held.iter().map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>().join(", ");
    let ms = |time: Duration| time.as_millis();
    let canary =
        if is_beside { format!("{} ms, {} ms before", ms(song.worst), ms(usual)) } else { "answered after it".into() };
    let held = if held.is_empty() { "-".to_owned() } else { held };
    Ok(format!("{canary} | {grown} MiB | {held}; all back after {} ms", ms(ended.elapsed())))
}

/// What became of the canary beside a fault.
#[derive(Default)]
struct Song {
    /// The longest wait, for an answer or for a new session.
    worst: Duration,
    /// The most resident memory that was seen.
    resident: u64,
}

/// Asks and is answered until `stop`, and opens a second session each time, as a newcomer does.
async fn sing(hub: Arc<Hub>, mut canary: Conversation, rounds: watch::Sender<usize>, stop: CancellationToken) -> Song {
    let mut song = Song::default();
    while !stop.is_cancelled() {
        song.worst = song.worst.max(canary.turn().await);
        let begun = Instant::now();
        let newcomer = Conversation::open(&hub, Canary::Voice).await;
        song.worst = song.worst.max(begun.elapsed());
        newcomer.close().await;
        song.resident = song.resident.max(hub.resident());
        rounds.send_modify(|n| *n += 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    canary.close().await;
    song
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".into())
}

/// Whether a line of the log is a panic of the hub's own code. Those of libraries that read foreign sound are caught, and answered
/// with a status; with overflow checks, as here, they have some.
fn is_own_panic(line: &str) -> bool {
    line.contains("panicked at ") && !line.contains("/registry/src/")
}

/// The end of the hub's log.
fn tail(hub: &Hub) -> String {
    let log = hub.log();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(12)..].iter().fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "  hub: {}", &line[..line.floor_char_boundary(300)]);
        text
    })
}

/// Writes the area's part of the table, which `make faults` prints at the end.
fn report(area: &str, rows: &[String]) {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(format!("{area}.md")), rows.join("\n") + "\n").expect("written");
}

/// An item of the conversation: a typed question.
pub fn typed(text: &str) -> Value {
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]});
    json!({"type": "conversation.item.create", "item": item})
}

/// Audio of a client, in an event.
pub fn append(pcm: &[i16]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64(pcm)})
}

/// Sends a message that the hub may refuse to read, because it has closed.
pub async fn send(socket: &mut Socket, message: impl Into<Message>) {
    let _ = timeout(TEST_TIMEOUT, socket.stream.send(message.into())).await;
}

/// The code of the hub's close frame; `None` if the connection ended without one. All before it is read.
pub async fn closed(socket: &mut Socket) -> Option<u16> {
    loop {
        match timeout(TEST_TIMEOUT, socket.stream.next()).await.expect("the hub closes") {
            Some(Ok(Message::Close(frame))) => return frame.map(|frame| frame.code.into()),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => return None,
        }
    }
}

/// The next error event's code; others are read.
pub async fn error_of(socket: &mut Socket) -> String {
    let events = socket.until("error").await;
    events.last().expect("an error")["error"]["code"].as_str().unwrap_or_default().to_owned()
}
