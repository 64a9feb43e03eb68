//! What a session begins with: one that a client opens, and one that another hub has served so far.
//!
//! [`super::handle`] makes it, the actor is built from it. It spawns the writer of a replay log and nothing else.

use super::checkpoint::SnapshotSender;
use super::client_side::ClientStart;
use super::egress::Egress;
use super::expiry::SessionExpiry;
use super::ingress::Ingress;
use super::limits::{NoLimits, SessionLimits};
use super::opening::{Opening, WEBSOCKET};
use super::output::AudioMode;
use super::playback::Playback;
use super::remote;
use super::replay_log::DialogStart;
use super::replay_recorder::Recorder;
use super::setup::Setup;
use super::snapshot::{Snapshot, SnapshotError};
use super::speaking::ReplyForm;
use super::timeline::{Begins, Timeline};
use super::translate;
use antiphon_audio::codec::Delivery;
use antiphon_dialog::{Dialog, PlaybackControl};
use antiphon_engine_api::stt::SpeakerState;
use antiphon_protocol::{Dialect, Session};
use antiphon_types::{IdMint, KeyId, Requester, Samples, SessionId, Timestamp};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// More than the longest life of a session (`session.max_minutes`), for a snapshot whose clock is wrong.
const LONGEST_LIFE: Duration = Duration::from_secs(48 * 3_600);

/// See the module.
pub(super) struct Beginning {
    pub(super) id: SessionId,
    /// Whose its requests to the engines are: the key's, or the session's.
    pub(super) requester: Requester,
    pub(super) client: ClientStart,
    pub(super) form: ReplyForm,
    /// The session's beginning.
    pub(super) clock: Instant,
    pub(super) dialog: Dialog,
    pub(super) ingress: Ingress,
    pub(super) speaker: Option<SpeakerState>,
    pub(super) last_audio: Timestamp,
    pub(super) timeline: Timeline,
    pub(super) snapshots: Option<SnapshotSender>,
    /// What the client receives first; `None`: the session began on another hub, which sent it.
    pub(super) greeting: Option<Greeting>,
    /// Of the order in which the actor looks at its inputs.
    pub(super) order_seed: u64,
}

/// What the client receives first, beside the session object.
pub(super) struct Greeting {
    /// The key by which it can take the session up again.
    pub(super) resume_key: Option<String>,
}

impl Beginning {
    /// Of a session that a client opens. `seed`: of all that it draws.
    pub(super) fn opened(setup: &Arc<Setup>, id: SessionId, seed: u64, opening: Opening) -> Self {
        let session = setup.session_object(id.clone(), &opening);
        let mode = opening.mode;
        let playback = if mode == AudioMode::Events { PlaybackControl::Client } else { PlaybackControl::Server };
        let mut ids = IdMint::new(seed ^ 0x6576_656e_7473);
        let clock = Instant::now();
        let limits = opening.limits.unwrap_or_else(|| Arc::new(NoLimits));
        let transport = opening.transport.unwrap_or(WEBSOCKET);
        let begins = Begins {
            session: id.clone(),
            owner: opening.owner,
            transport,
            at: SystemTime::now(),
            seed: seed ^ 0x7475_726e,
            may_report: mode != AudioMode::Events,
            brownout: setup.brownout.clone(),
            limits: limits.clone(),
        };
        let has_extensions = mode != AudioMode::Events || opening.resume_key.is_some();
        let settings = setup.dialog_settings(&session);
        let speculation = setup.speculation.limits();
        let follow_up_after = setup.follow_up_after();
        let max_tool_rounds = setup.session.max_tool_rounds;
        let start = || DialogStart {
            settings: settings.clone(),
            playback,
            seed,
            follow_up_after,
            max_tool_rounds,
            speculation,
        };
        let consent = opening.recording_consent.as_ref();
        let recorder = setup.recorder(&id, consent, setup.turns(&session), start);
        let dialog = Dialog::new(settings, playback, seed)
            .with_follow_up_after(follow_up_after)
            .with_max_tool_rounds(max_tool_rounds)
            .with_speculation(speculation);
        let mut ingress = ingress(setup, &session, recorder);
        if opening.by_phone {
            ingress.expect_line();
        }
        ingress.reduce_noise(translate::noise_reduction(&session));
        let delivery = if transport == WEBSOCKET { Delivery::Reliable } else { Delivery::Lossy };
        Self {
            requester: requester(opening.owner, &id, &*limits),
            form: ReplyForm { mode, delivery, sees_causes: opening.sees_causes },
            clock,
            dialog,
            ingress,
            speaker: opening.language.map(|language| SpeakerState::PreferredLanguage(language.into())),
            last_audio: Timestamp::ZERO,
            timeline: Timeline::new(begins, setup.turn_history.clone(), setup.metrics.clone()),
            snapshots: opening.snapshots,
            order_seed: seed,
            client: ClientStart {
                owner: opening.owner,
                mode,
                dialect: opening.dialect,
                session,
                kind_is_fixed: opening.intent.is_some() || opening.settings.is_some(),
                conversation: ids.next("conv"),
                ids,
                egress: Egress::new(opening.resume_key.is_some(), opening.dialect),
                playback: Playback::new(lead(setup)),
                expiry: SessionExpiry::new(clock, setup.lifetime(), has_extensions),
                client_connected: true,
                n_received: 0,
                went_back_to: None,
                limits,
            },
            greeting: Some(Greeting { resume_key: opening.resume_key }),
            id,
        }
    }

    /// Of a session that another hub has served so far. Decoders, echo, noise reduction and the user's voice start empty.
    ///
    /// # Errors
    /// [`SnapshotError::Unreadable`]: a setting that this build refuses.
    pub(super) fn resumed(
        setup: &Arc<Setup>,
        snapshot: Snapshot,
        dialect: Dialect,
        snapshots: Option<SnapshotSender>,
        limits: Option<Arc<dyn SessionLimits>>,
    ) -> Result<Self, SnapshotError> {
        let session = Session::from_stored(snapshot.session)
            .map_err(|error| SnapshotError::Unreadable(error.param.unwrap_or(error.message)))?;
        let id = session.id.clone();
        let mode = snapshot.mode;
        let wall_now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The session's clock goes on while no hub serves it. Clocks of two machines differ, and it never goes back.
        let since_written = wall_now.saturating_sub(snapshot.wall);
        let elapsed = snapshot.at.since_start().saturating_add(since_written).min(wall_now);
        let limits = limits.unwrap_or_else(|| Arc::new(NoLimits));
        let begins = Begins {
            session: id.clone(),
            owner: snapshot.owner,
            // Only sessions over WebSockets are resumed.
            transport: WEBSOCKET,
            at: UNIX_EPOCH + wall_now.saturating_sub(elapsed),
            seed: 0,
            may_report: mode != AudioMode::Events,
            brownout: setup.brownout.clone(),
            limits: limits.clone(),
        };
        let timeline = Timeline::new(begins, setup.turn_history.clone(), setup.metrics.clone());
        let left = Duration::from_secs(session.expires_at).saturating_sub(wall_now).min(LONGEST_LIFE);
        if !setup.session.record.is_empty() {
            tracing::info!(session = %id, "a session that began on another hub is not recorded");
        }
        let vad = setup.engines.vad.clone();
        let mut ingress = ingress(setup, &session, Recorder::default()).heard_elsewhere(vad, snapshot.input);
        ingress.reduce_noise(translate::noise_reduction(&session));
        let dialect = Dialect { beta: snapshot.beta, ..dialect };
        let received = snapshot.received;
        Ok(Self {
            requester: requester(snapshot.owner, &id, &*limits),
            // A snapshot does not say from where its client calls.
            form: ReplyForm { mode, delivery: Delivery::Reliable, sees_causes: false },
            clock: Instant::now().checked_sub(elapsed).unwrap_or_else(Instant::now),
            dialog: snapshot.dialog.with_servers(&remote::declared(&session.tools)).without_speaker(),
            ingress,
            speaker: None,
            last_audio: Timestamp::new(elapsed),
            timeline: timeline.behind(snapshot.turns.0, snapshot.turns.1),
            snapshots: snapshots.map(|snapshots| snapshots.behind(received)),
            order_seed: received,
            client: ClientStart {
                owner: snapshot.owner,
                mode,
                dialect,
                session,
                kind_is_fixed: snapshot.kind_is_fixed,
                conversation: snapshot.conversation,
                ids: snapshot.ids,
                egress: Egress::resumed(snapshot.log, dialect),
                playback: Playback::new(lead(setup)).resumed(snapshot.playback),
                expiry: SessionExpiry::resumed(Instant::now(), left, setup.lifetime(), true),
                client_connected: snapshot.client_connected,
                n_received: received,
                went_back_to: snapshot.went_back_to,
                limits,
            },
            greeting: None,
            id,
        })
    }
}

/// Whose the requests of a session are. Without a key a session fails by itself, and counts with the others of its client.
fn requester(owner: Option<KeyId>, session: &SessionId, limits: &dyn SessionLimits) -> Requester {
    let own = || {
        let session = Requester::of(session);
        limits.client().map_or(session, |client| session.within(client))
    };
    owner.map_or_else(own, Requester::from)
}

/// A microphone without audio yet.
fn ingress(setup: &Setup, session: &Session, recorder: Recorder) -> Ingress {
    let format = translate::format(session.audio.input.format);
    let kept = setup.engines.turn.as_ref().map_or(Samples::ZERO, |model| model.span());
    let mut ingress = Ingress::new(setup.engines.vad.clone(), format, setup.turns(session), recorder).keeping(kept);
    ingress.lock_speaker(setup.locks_speaker(session).then(|| setup.engines.speaker.clone()).flatten());
    ingress
}

/// How far ahead of the playhead frames are sent.
fn lead(setup: &Setup) -> Duration {
    Duration::from_millis(u64::from(setup.session.lead_ms))
}
