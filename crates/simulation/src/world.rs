//! One small world on virtual time: one or two sessions, their engines and clients, and what must hold at the end.

use super::client::{Client, Manner, TOOLS};
use super::engines::{self, Temper};
use super::grammar::Grammar;
use super::probe::Probe;
use antiphon::replay::Dice;
use antiphon_dialog::ResponseUsage;
use antiphon_dialog::turn::TurnConfig;
use antiphon_engine_api::mcp::McpConfig;
use antiphon_protocol::{RateLimit, SessionKind};
use antiphon_session::{
    AudioMode, LimitReached, Opening, SessionConfig, SessionLimits, Setup, SpeculationConfig, TurnHistory,
};
use antiphon_telemetry::Metrics;
use antiphon_types::{Brownout, BrownoutLevel, Compute, Samples};
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the tasks of a session that has ended may go on.
const ENDS_WITHIN: Duration = Duration::from_millis(100);

/// How long a session takes to end once the server drains, after its work: nothing but the way there.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);

/// How a world's sessions end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Everything settles, then the client goes.
    Settled,
    /// Everything settles, then the server drains.
    Drained,
    /// The sessions live to their end by the clock.
    Expired,
    /// The handle is dropped at this time.
    Dropped(Duration),
    /// The handle is stopped at a step of an engine or of the client, from within it.
    Killed(u64),
}

/// What became of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// The invariants that did not hold; empty: all did.
    pub violations: Vec<String>,
    /// The last lines of its log, or all of them where that was asked for.
    pub log: Vec<String>,
    /// A hash of the whole log. The same seed gives the same.
    pub hash: u64,
}

thread_local! {
    /// The message of the last panic on this thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs the world of `seed` to its end, in a runtime of its own on this thread. Blocks for some milliseconds. `verbose`: its
/// whole log is kept.
pub fn simulate(seed: u64, verbose: bool) -> Outcome {
    static HOOK: Once = Once::new();
    // A panic in a task is caught by the runtime, which reports it only to a caller that waits for the task.
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_ours = tokio::runtime::Handle::try_current().is_ok();
            PANIC.with_borrow_mut(|last| *last = Some(info.to_string().replace('\n', ": ")));
            if !is_ours {
                before(info);
            }
        }));
    });
    PANIC.set(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without IO needs nothing of the system");
    let _guard = runtime.enter();
    let dice = Dice::new(seed);
    let ending = Ending::draw(&mut dice.fork(1));
    let kill_at = if let Ending::Killed(step) = ending { Some(step) } else { None };
    let probe = Probe::new(dice.fork(2), kill_at, verbose);
    let run = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(run(&dice, ending, &probe))));
    drop(_guard);
    drop(runtime);
    if run.is_err() || PANIC.with_borrow(Option::is_some) {
        let what = PANIC.take().unwrap_or_default();
        probe.violated(format!("a panic: {what}"));
    }
    let (log, hash, violations) = probe.end();
    Outcome { seed, violations, log, hash }
}

impl Ending {
    fn draw(dice: &mut Dice) -> Self {
        match dice.below(20) {
            0..9 => Self::Settled,
            9..13 => Self::Drained,
            13 => Self::Expired,
            14..16 => Self::Dropped(dice.ms(12_000)),
            _ => Self::Killed(dice.below(400) as u64),
        }
    }
}

async fn run(dice: &Dice, ending: Ending, probe: &Arc<Probe>) {
    let mut draws = dice.fork(3);
    let temper = Temper::draw(&mut draws);
    let limits = draws.chance(0.15).then(|| Arc::new(Limits(probe.clone())));
    let setup = Arc::new(setup(&mut draws, temper, ending, probe));
    let is_transcription = draws.chance(0.1);
    let transcribes = is_transcription;
    let n_sessions = 1 + usize::from(draws.chance(0.2));
    probe.log("!", &format!("{ending:?}, {temper:?}, {n_sessions} sessions"));
    let mut clients = Vec::new();
    let mut handles = Vec::new();
    for n in 0..n_sessions {
        let manner = Manner {
            mode: draws.pick(&[AudioMode::Events, AudioMode::Events, AudioMode::Pcm16, AudioMode::Opus]),
            resumable: draws.chance(0.25),
            slow: draws.chance(0.2),
            cancels: temper.dead,
            n_actions: 2 + draws.below(16),
        };
        probe.log("!", &format!("{manner:?}"));
        let opening = Opening {
            mode: manner.mode,
            intent: is_transcription.then_some(SessionKind::Transcription),
            resume_key: manner.resumable.then(|| "key".to_owned()),
            limits: limits.clone().map(|limits| limits as Arc<dyn SessionLimits>),
            ..Opening::default()
        };
        let handle = Arc::new(setup.open_seeded(opening, draws.next()));
        probe.on_kill(&handle);
        let grammar = Grammar::new(manner.framing(), transcribes);
        clients.push(Client::new(manner, &handle, probe, dice.fork(10 + n as u64), grammar));
        handles.push(handle);
    }
    let brownout = climb(setup.brownout.clone(), draws.clone());
    tokio::select! {
        biased;
        () = converse(&clients, &setup, ending, probe) => {}
        () = brownout => {}
    }
    drop((clients, handles));
    probe.forget_handles();
    setup.tasks.close();
    if timeout(ENDS_WITHIN, setup.tasks.wait()).await.is_err() {
        probe.violated(format!("{} tasks go on after the end", setup.tasks.len()));
    }
    let live = probe.n_live();
    if !live.is_empty() {
        probe.violated(format!("engines still serve after the end: {live:?}"));
    }
    if let Some(limits) = limits.filter(|limits| Arc::strong_count(limits) > 1) {
        probe.violated(format!("{} leases of limits are held after the end", Arc::strong_count(&limits) - 1));
    }
    if Arc::strong_count(&setup) > 1 {
        probe.violated("something holds the setup after the end".into());
    }
    check_turns(&setup.turn_history, probe);
}

async fn converse(clients: &[Client], setup: &Setup, ending: Ending, probe: &Probe) {
    let each = futures_util::future::join_all(clients.iter().map(|client| async {
        tokio::select! {
            biased;
            () = client.read() => {}
            () = one(client, setup, ending, probe) => {}
        }
    }));
    let stops_at = async {
        match ending {
            Ending::Dropped(at) => sleep(at).await,
            _ => probe.kill.cancelled().await,
        }
    };
    tokio::select! {
        biased;
        _ = each => {}
        () = stops_at => {}
    }
}

async fn one(client: &Client, setup: &Setup, ending: Ending, probe: &Probe) {
    client.talk().await;
    client.settle().await;
    if client.is_closed() {
        return;
    }
    match ending {
        Ending::Settled | Ending::Dropped(_) | Ending::Killed(_) => {}
        Ending::Drained => {
            // Speech that a client may still commit keeps a session, up to the server's own deadline.
            client.clear().await;
            setup.drain.cancel();
            // Turns may begin by themselves until then, and dead engines hold them up.
            let patience = if client.cancels() { Duration::from_secs(120) } else { Duration::from_secs(900) };
            if timeout(DRAINS_WITHIN + patience, client.closed()).await.is_err() && !client.cancels() {
                probe.violated("the session does not end when the server drains".into());
            }
        }
        Ending::Expired => {
            let life = Duration::from_secs(60 * u64::from(setup.session.max_minutes) + 1);
            if timeout(life, client.closed()).await.is_err() {
                probe.violated("the session outlives its time".into());
            }
        }
    }
}

/// The level goes up and down while the world runs, in a quarter of the worlds.
async fn climb(brownout: Brownout, mut dice: Dice) {
    if dice.chance(0.75) {
        return std::future::pending().await;
    }
    loop {
        brownout.set(dice.pick(&BrownoutLevel::ALL));
        sleep(Duration::from_millis(100) + dice.ms(2_000)).await;
    }
}

fn setup(dice: &mut Dice, temper: Temper, ending: Ending, probe: &Arc<Probe>) -> Setup {
    let engines = engines::engines(probe, temper);
    let session = SessionConfig {
        max_minutes: if ending == Ending::Expired { 1 } else { 600 },
        create_response: dice.chance(0.9),
        interrupt_response: dice.chance(0.9),
        ignore_backchannels: dice.chance(0.5),
        max_utterance_seconds: dice.pick(&[1, 300, 300]),
        lead_ms: dice.pick(&[60, 300]),
        history_tokens: dice.pick(&[200, 8_000]),
        ..SessionConfig::default()
    };
    let speculation = SpeculationConfig { after_ms: dice.pick(&[0, 80, 80]), ..SpeculationConfig::default() };
    Setup {
        turn_history: Arc::new(TurnHistory::new(100, true, engines.names())),
        engines,
        turn: TurnConfig::default(),
        speculation,
        session,
        voice: "tone".into(),
        speed: 1.0,
        instructions: "Answer.".into(),
        model: "simulated".into(),
        language: None,
        language_voices: Default::default(),
        stt_timeout: dice.pick(&[Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20)]),
        mcp: engines::mcp(probe, temper),
        mcp_config: McpConfig { allowed_servers: vec![TOOLS.into()], ..McpConfig::default() },
        hub_servers: Vec::new(),
        sealing: None,
        brownout: Brownout::default(),
        metrics: Metrics::new(),
        tasks: TaskTracker::new(),
        drain: CancellationToken::new(),
    }
}

/// Of each turn: no more was heard than sent, and no more sent than made; the critical path is without gaps.
fn check_turns(history: &TurnHistory, probe: &Probe) {
    for turn in history.latest(100, None) {
        let audio = &turn.audio;
        if audio.sent_ms > audio.generated_ms + 0.01 || audio.heard_ms > audio.sent_ms + 0.01 {
            probe.violated(format!("of {} more was heard than sent, or sent than made: {audio:?}", turn.id));
        }
        let gaps = turn.parts.windows(2).any(|pair| pair[0].to_ms != pair[1].from_ms);
        let backwards = turn.parts.iter().any(|part| part.to_ms < part.from_ms);
        if gaps || backwards {
            probe.violated(format!("the critical path of {} has gaps: {:?}", turn.id, turn.parts));
        }
        let end = turn.parts.last().map(|part| part.to_ms);
        if let (Some(end), Some(whole)) = (end, turn.voice_to_voice_ms)
            && end != whole
        {
            probe.violated(format!("the critical path of {} ends at {end}, not {whole}", turn.id));
        }
    }
}

/// Limits that are reached now and then.
struct Limits(Arc<Probe>);

impl SessionLimits for Limits {
    fn audio_received(&self, _: Samples) -> Duration {
        self.0.draw(|dice| if dice.chance(0.02) { dice.ms(1_500) } else { Duration::ZERO })
    }

    fn may_respond(&self) -> Result<(), LimitReached> {
        match self.0.draw(|dice| dice.chance(0.1)) {
            true => Err(LimitReached("Too many responses.".into())),
            false => Ok(()),
        }
    }

    fn response_begun(&self) {}

    fn response_done(&self, _: &ResponseUsage) {}

    fn speculation_dropped(&self, _: u64) {}

    fn turn(&self) {}

    fn computed(&self, _: Compute) {}

    fn state(&self) -> Vec<RateLimit> {
        vec![RateLimit { name: "requests", limit: 10, remaining: 5, reset_seconds: 1.0 }]
    }
}
