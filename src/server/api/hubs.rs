//! The turns of all hubs of a cluster: what this hub asks the others, what it replies to them, and what it reports to them as it
//! happens.
//!
//! [`super::turns`] shows them; it runs only in a cluster. A question names the viewer, because API keys have the
//! same identifiers on all hubs, and a hub replies with that viewer's turns only. News name the key whose turn they are, and the
//! hub that shows them compares. So records with their words travel between hubs; workers can neither ask for nor receive them.

use crate::server::access::limits::{self, Consumption};
use crate::server::sessions::SessionParts;
use antiphon_cluster::{Cluster, MAX_NEWS_BYTES, MAX_REPLY_BYTES, PeerNews, WatchGuard};
use antiphon_session::{News, TurnHistory, TurnRecord, Viewer};
use antiphon_types::KeyId;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;
use std::future::ready;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

/// Turns per page: the default and the maximum.
pub(super) const PAGE: usize = 100;

/// The longest wait for another hub's reply.
const REPLY_DEADLINE: Duration = Duration::from_secs(1);

/// Replies of all other hubs to one question for a page; each hub has its share.
const REPLIES_BYTES: usize = 2 * 1024 * 1024;

/// A hub's share: room for a record of the longest kind, and for what is around the records.
const MIN_SHARE_BYTES: usize = MAX_NEWS_BYTES + AROUND_BYTES;
const MAX_SHARE_BYTES: usize = MAX_REPLY_BYTES - AROUND_BYTES;

/// Bytes around the records of a reply, and around each of them.
const AROUND_BYTES: usize = 1024;
const AROUND_RECORD_BYTES: usize = 128;

/// No identifier is longer; the others need not be asked for one that is.
const MAX_ID_BYTES: usize = 256;

/// A turn as a client gets it; in a cluster with the name of its hub.
pub(in crate::server) enum ShownTurn {
    /// A turn of this hub.
    Own(Arc<TurnRecord>, Option<Arc<str>>),
    /// A turn of another hub, as that one wrote it.
    Other(Box<RawValue>),
}

impl Serialize for ShownTurn {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Own(record, None) => record.serialize(to),
            Self::Own(record, Some(hub)) => NamedHub { record, hub }.serialize(to),
            Self::Other(turn) => turn.serialize(to),
        }
    }
}

#[derive(Serialize)]
struct NamedHub<'a> {
    #[serde(flatten)]
    record: &'a TurnRecord,
    hub: &'a str,
}

/// Which turns are asked for.
pub(in crate::server) struct TurnFilter<'a> {
    pub(in crate::server) viewer: Viewer,
    pub(in crate::server) session: Option<&'a str>,
    /// A turn's id, or the `next` of a page.
    pub(in crate::server) before: Option<&'a str>,
    pub(in crate::server) limit: usize,
}

/// A page of the turns of all hubs.
#[derive(Default)]
pub(in crate::server) struct HubsPage {
    /// The newest first.
    pub(in crate::server) turns: Vec<ShownTurn>,
    pub(in crate::server) has_more: bool,
    /// Where the next page begins, for `before`.
    pub(in crate::server) next: Option<String>,
    /// Turns that these hubs keep.
    pub(in crate::server) capacity: usize,
    /// Hubs that did not reply.
    pub(in crate::server) missing: Vec<String>,
}

/// The page of all hubs, in the order of the turns' start. Waits for the others, 1 s at most, and as long again where `before`
/// is the id of a turn that this hub does not have.
pub(in crate::server) async fn page(
    cluster: &Cluster,
    turn_history: &TurnHistory,
    wanted: &TurnFilter<'_>,
) -> HubsPage {
    let before = match wanted.before {
        None => None,
        Some(text) => match place_of(cluster, turn_history, wanted.viewer, text).await {
            Ok(place) => Some(place),
            Err(nothing) => return nothing,
        },
    };
    let asked = match Who::of(wanted.viewer) {
        Some(viewer) if wanted.session.is_none_or(|session| session.len() <= MAX_ID_BYTES) => {
            let max_bytes = REPLIES_BYTES / cluster.n_peers().max(1);
            let session = wanted.session.map(str::to_owned);
            let before = before.clone();
            let limit = wanted.limit;
            ask(cluster, &Question::Page { viewer, session, before, limit, max_bytes }).await
        }
        _ => HubReplies::default(),
    };
    let (own, has_more) = placed(turn_history, wanted.viewer, wanted.session, before.as_ref(), wanted.limit);
    let mut capacity = turn_history.capacity();
    let hub: Arc<str> = cluster.name().into();
    let own = own.into_iter().map(|(place, record)| (place, ShownTurn::Own(record, Some(hub.clone())))).collect();
    let mut pages = vec![(own, has_more)];
    for reply in asked.replies {
        capacity = capacity.saturating_add(reply.capacity);
        let turns = reply.turns.into_iter().map(|turn| (turn.place, ShownTurn::Other(turn.turn))).collect();
        pages.push((turns, reply.has_more));
    }
    HubsPage { capacity, missing: asked.missing, ..merged(pages, wanted.limit) }
}

/// A turn of another hub.
pub(in crate::server) enum RemoteTurn {
    /// It is there.
    Turn(ShownTurn),
    /// No hub that replied has it; those did not.
    Nowhere(Vec<String>),
}

/// Asks the other hubs for a turn; waits for 1 s at most.
pub(in crate::server) async fn find(cluster: &Cluster, viewer: Viewer, id: &str) -> RemoteTurn {
    let mut asked = ask_for(cluster, viewer, id).await;
    match asked.replies.iter_mut().find_map(|reply| reply.turns.pop()) {
        Some(turn) => RemoteTurn::Turn(ShownTurn::Other(turn.turn)),
        None => RemoteTurn::Nowhere(asked.missing),
    }
}

/// Tells the other hubs what API keys use here, until `stopped`. Does nothing without a cluster.
pub(in crate::server) async fn share_limits(sessions: &SessionParts, stopped: CancellationToken) {
    let Some(cluster) = sessions.hubs() else { return };
    limits::share(&sessions.access.limits, &cluster, |consumed| to_json(&Question::Consumption { consumed }), stopped)
        .await;
}

/// From now on, other hubs' questions are answered. Does nothing without a cluster.
pub(in crate::server) fn reply_to_others(sessions: &Arc<SessionParts>) {
    if let Some(cluster) = sessions.hubs() {
        let turn_history = sessions.setup.turn_history.clone();
        let name = Arc::<str>::from(cluster.name());
        let handover = sessions.handover.clone();
        let limited = Arc::downgrade(&sessions.access);
        cluster.reply_with(Arc::new(move |question| match serde_json::from_slice(question) {
            Ok(Question::Release { key }) => {
                let handover = handover.clone();
                Box::pin(async move {
                    handover?.hand_over(key).await;
                    Some(to_json(&Reply::default()))
                })
            }
            Ok(Question::Consumption { consumed }) => {
                if let Some(access) = limited.upgrade() {
                    access.limits.take_consumed(&consumed, key_of);
                }
                Box::pin(ready(Some(to_json(&Reply::default()))))
            }
            Ok(question) => Box::pin(ready(reply(&turn_history, &name, question))),
            // What this build does not understand.
            Err(_) => Box::pin(ready(None)),
        }));
    }
}

/// Reports each change of a turn to the other hubs while a client watches there, until `stopped`.
pub(in crate::server) async fn tell_others(sessions: &SessionParts, stopped: CancellationToken) {
    let Some(cluster) = sessions.hubs() else { return };
    let (_, _, mut listening) = sessions.setup.turn_history.listen(Viewer::All, None);
    loop {
        let news = tokio::select! {
            () = stopped.cancelled() => return,
            news = listening.next() => news,
        };
        match news {
            Some(News::Changed(entry)) if cluster.is_watched() => {
                let turn = json_of(&entry.record, cluster.name());
                let owner = entry.record.owner.map(|owner| owner.to_string());
                cluster.publish_news(to_json(&Change { owner, turn }).into());
            }
            Some(News::Changed(_)) => {}
            Some(News::Missed(n)) => cluster.skip_news(n),
            None => return,
        }
    }
}

/// The changes of other hubs' turns that a viewer may see. The others publish as long as it exists.
pub(in crate::server) struct Others {
    news: broadcast::Receiver<PeerNews>,
    viewer: Viewer,
    _watching: WatchGuard,
}

/// What it yields.
pub(in crate::server) enum OtherNews {
    /// A turn has changed.
    Changed(ShownTurn),
    /// This many changes were missed; 0: it is not known how many.
    Missed(u64),
}

impl Others {
    /// Returns once the other hubs are asked to publish; waits for none of them.
    pub(in crate::server) async fn watch(cluster: &Cluster, viewer: Viewer) -> Self {
        let news = cluster.news();
        Self { news, viewer, _watching: cluster.watch().await }
    }

    /// The next news; never, once the hub has left the cluster. Cancel safe. What was missed may have been others' changes.
    pub(in crate::server) async fn next(&mut self) -> OtherNews {
        loop {
            match self.news.recv().await {
                Ok(PeerNews::Update(update)) => {
                    let Ok(change) = serde_json::from_slice::<Change>(&update) else { continue };
                    let is_seen = match self.viewer {
                        Viewer::All => true,
                        Viewer::Key(key) => change.owner.as_deref().and_then(key_of) == Some(key),
                        Viewer::Nobody => false,
                    };
                    if is_seen && is_object(&change.turn) {
                        return OtherNews::Changed(ShownTurn::Other(change.turn));
                    }
                }
                Ok(PeerNews::Missed(n)) | Err(RecvError::Lagged(n)) => return OtherNews::Missed(n),
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// What a hub asks another one.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
enum Question {
    /// The turns before a place, the newest first.
    Page { viewer: Who, session: Option<String>, before: Option<TurnPosition>, limit: usize, max_bytes: usize },
    /// One turn.
    Turn { viewer: Who, id: String },
    /// To hand a session over: its client is at the hub that asks.
    Release { key: String },
    /// To take from its limits what API keys used at the hub that asks.
    Consumption { consumed: Vec<Consumption> },
}

/// The question for the session of this key; see [`crate::server::sessions::handover`].
pub(in crate::server) fn release(key: &str) -> Vec<u8> {
    to_json(&Question::Release { key: key.to_owned() })
}

/// Whose turns.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Who {
    All,
    Key(String),
}

impl Who {
    /// `None` for a viewer who sees nothing.
    fn of(viewer: Viewer) -> Option<Self> {
        match viewer {
            Viewer::All => Some(Self::All),
            Viewer::Key(key) => Some(Self::Key(key.to_string())),
            Viewer::Nobody => None,
        }
    }

    fn viewer(&self) -> Viewer {
        match self {
            Self::All => Viewer::All,
            Self::Key(key) => key_of(key).map_or(Viewer::Nobody, Viewer::Key),
        }
    }
}

/// The key of this identifier.
fn key_of(text: &str) -> Option<KeyId> {
    let number = u128::from_str_radix(text, 16).ok()?;
    let key = KeyId::new(number.to_be_bytes());
    (key.to_string() == text).then_some(key)
}

/// What it replies.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Reply {
    turns: Vec<PlacedTurn>,
    has_more: bool,
    capacity: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct PlacedTurn {
    place: TurnPosition,
    turn: Box<RawValue>,
}

/// A turn has changed.
#[derive(Debug, Serialize, Deserialize)]
struct Change {
    /// The API key of its session; none where its hub has no keys.
    owner: Option<String>,
    turn: Box<RawValue>,
}

/// A turn's place among those of all hubs: later ones are greater.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct TurnPosition {
    /// When it began, in microseconds since 1970.
    at_us: u64,
    id: String,
}

impl TurnPosition {
    fn of(turn: &TurnRecord) -> Self {
        let since = turn.origin.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { at_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX), id: turn.id.clone() }
    }
}

/// As `next` and `before` of a list show it: `turn_...@1700000000000000`.
impl fmt::Display for TurnPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.id, self.at_us)
    }
}

impl FromStr for TurnPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (id, at_us) = text.split_once('@').filter(|_| text.len() <= MAX_ID_BYTES).ok_or(())?;
        Ok(Self { at_us: at_us.parse().map_err(|_| ())?, id: id.into() })
    }
}

/// The place that `before` names: a place itself, or a turn on any hub. Where there is none, the page is empty, as it is for a
/// turn that is not kept any more.
async fn place_of(
    cluster: &Cluster,
    turn_history: &TurnHistory,
    viewer: Viewer,
    before: &str,
) -> Result<TurnPosition, HubsPage> {
    if let Ok(place) = before.parse() {
        return Ok(place);
    }
    if let Some(turn) = turn_history.find(viewer, before) {
        return Ok(TurnPosition::of(&turn));
    }
    let mut asked = ask_for(cluster, viewer, before).await;
    match asked.replies.iter_mut().find_map(|reply| reply.turns.pop()) {
        Some(turn) => Ok(turn.place),
        None => {
            let capacity =
                asked.replies.iter().fold(turn_history.capacity(), |sum, reply| sum.saturating_add(reply.capacity));
            Err(HubsPage { capacity, missing: asked.missing, ..HubsPage::default() })
        }
    }
}

/// Replies, and the names of the hubs that gave none.
#[derive(Default)]
struct HubReplies {
    replies: Vec<Reply>,
    missing: Vec<String>,
}

async fn ask_for(cluster: &Cluster, viewer: Viewer, id: &str) -> HubReplies {
    match Who::of(viewer) {
        Some(viewer) if id.len() <= MAX_ID_BYTES => ask(cluster, &Question::Turn { viewer, id: id.into() }).await,
        _ => HubReplies::default(),
    }
}

async fn ask(cluster: &Cluster, question: &Question) -> HubReplies {
    let mut asked = HubReplies::default();
    for peer in cluster.ask_peers(&to_json(question), REPLY_DEADLINE).await {
        match peer.reply.and_then(|reply| serde_json::from_slice::<Reply>(&reply).ok()) {
            Some(mut reply) => {
                reply.turns.retain(|turn| is_object(&turn.turn));
                asked.replies.push(reply);
            }
            None => asked.missing.push(peer.hub),
        }
    }
    asked
}

/// Replies to another hub's question for turns.
fn reply(turn_history: &TurnHistory, hub: &str, question: Question) -> Option<Vec<u8>> {
    let mut reply = Reply { capacity: turn_history.capacity(), ..Reply::default() };
    match question {
        Question::Release { .. } | Question::Consumption { .. } => return None,
        Question::Turn { viewer, id } => {
            if let Some(record) = turn_history.find(viewer.viewer(), &id) {
                reply.turns.push(PlacedTurn { place: TurnPosition::of(&record), turn: json_of(&record, hub) });
            }
        }
        Question::Page { viewer, session, before, limit, max_bytes } => {
            let max_bytes = max_bytes.clamp(MIN_SHARE_BYTES, MAX_SHARE_BYTES);
            let limit = limit.min(PAGE);
            let (turns, has_more) = placed(turn_history, viewer.viewer(), session.as_deref(), before.as_ref(), limit);
            reply.has_more = has_more;
            let mut n_bytes = 0;
            for (place, record) in turns {
                let turn = json_of(&record, hub);
                // Words are cut long before: this takes words that are all escapes in JSON.
                if turn.get().len() > MAX_NEWS_BYTES {
                    continue;
                }
                n_bytes += turn.get().len() + AROUND_RECORD_BYTES;
                if n_bytes > max_bytes {
                    reply.has_more = true;
                    break;
                }
                reply.turns.push(PlacedTurn { place, turn });
            }
        }
    }
    Some(to_json(&reply))
}

/// At most `limit` turns of this hub in the order of all hubs, the newest first, and whether there are more.
fn placed(
    turn_history: &TurnHistory,
    viewer: Viewer,
    session: Option<&str>,
    before: Option<&TurnPosition>,
    limit: usize,
) -> (Vec<(TurnPosition, Arc<TurnRecord>)>, bool) {
    let turns = turn_history.page(viewer, session, None, usize::MAX).turns;
    let mut turns: Vec<_> = turns.into_iter().map(|turn| (TurnPosition::of(&turn), turn)).collect();
    turns.retain(|(place, _)| before.is_none_or(|before| place < before));
    turns.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    let has_more = turns.len() > limit;
    turns.truncate(limit);
    (turns, has_more)
}

/// One page of several, each the newest first with whether its hub has more. A hub's older turns are not known, so nothing is
/// listed that is older than the last turn of a hub that has more.
fn merged(pages: Vec<(Vec<(TurnPosition, ShownTurn)>, bool)>, limit: usize) -> HubsPage {
    let mut has_more = false;
    let mut oldest: Option<TurnPosition> = None;
    let mut all = Vec::new();
    for (turns, is_cut) in pages {
        if is_cut {
            has_more = true;
            let last = turns.iter().map(|(place, _)| place).min().cloned();
            oldest = oldest.max(last);
        }
        all.extend(turns);
    }
    all.retain(|(place, _)| oldest.as_ref().is_none_or(|oldest| place >= oldest));
    all.sort_unstable_by(|one, other| other.0.cmp(&one.0));
    has_more |= all.len() > limit;
    all.truncate(limit);
    let next = all.last().filter(|_| has_more).map(|(place, _)| place.to_string());
    let turns = all.into_iter().map(|(_, turn)| turn).collect();
    HubsPage { turns, has_more, next, ..HubsPage::default() }
}

/// The record in JSON with the name of its hub.
fn json_of(record: &TurnRecord, hub: &str) -> Box<RawValue> {
    to_raw_value(&NamedHub { record, hub }).expect("records have string keys and no failing parts")
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("string keys and no failing parts")
}

fn is_object(json: &RawValue) -> bool {
    json.get().starts_with('{')
}
