//! What hubs share through JetStream: sealed records with revisions ([`Bucket`]), sealed objects of any size ([`Objects`]), and
//! the queue of jobs ([`Queue`]).
//!
//! [`JetStream::open`] makes the streams that are missing and checks at start everything that a hub will do later, on a
//! connection of its own, so that large objects never delay the audio of sessions. It carries bytes, and knows neither sessions
//! nor jobs. Without `cluster.jetstream` there is none.
//!
//! | name | stream | holds | bounds |
//! | --- | --- | --- | --- |
//! | `antiphon-sessions` | `KV_antiphon-sessions` | snapshots of sessions | 1 GiB, 25 h |
//! | `antiphon-keys` | `KV_antiphon-keys` | short-lived keys | 64 MiB, 2 h |
//! | `antiphon-jobs` | `KV_antiphon-jobs` | the status of jobs | 256 MiB |
//! | `antiphon-audio` | `OBJ_antiphon-audio` | the sound of jobs, large snapshots | what is asked for |
//! | | `ANTIPHON_JOBS` | which jobs wait or are worked on | 20,000 jobs |
//!
//! Names, subjects and headers are those of NATS' key-value and object stores, so that its tools list them. Reads go to a
//! stream's leader, never to a replica that may be behind.

mod bucket;
mod objects;
mod queue;

pub use bucket::{Bucket, Change, Record};
pub use objects::{ObjectReader, ObjectWriter, Objects};
pub use queue::{Queue, Task};

use crate::link::Link;
use crate::seal::{SealError, SealingKey};
use crate::{ClusterConfig, ClusterError, subject};
use async_nats::header::{HeaderMap, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_MESSAGE_TTL, NATS_ROLLUP};
use async_nats::{Request, RequestErrorKind};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

pub(crate) const SESSIONS: &str = "antiphon-sessions";
pub(crate) const KEYS: &str = "antiphon-keys";
pub(crate) const JOBS: &str = "antiphon-jobs";
pub(crate) const AUDIO: &str = "antiphon-audio";

/// The longest wait for one reply of JetStream.
const REPLY_DEADLINE: Duration = Duration::from_secs(5);

/// The longest wait at start for JetStream to elect its leaders, and for as many of its servers as there are to be copies.
const START_DEADLINE: Duration = Duration::from_secs(15);

/// Between two attempts at start: servers do not report when they have elected a leader.
const START_PAUSE: Duration = Duration::from_millis(200);

/// The longest that a short-lived key is kept: two hours is the longest life of one.
const KEYS_FOR: Duration = Duration::from_secs(2 * 3_600);

/// The longest that a snapshot is kept after it was written: more than the longest session (`session.max_minutes`, a day). Each has a
/// time of its own besides.
const SESSIONS_FOR: Duration = Duration::from_secs(25 * 3_600);

/// How long JetStream may be without a responder at start: a server that stops ends JetStream before its connections.
const NO_RESPONDER_FOR: Duration = Duration::from_secs(2);

/// Key of the record in [`JOBS`] by which a hub checks its sealing key. It does not expire, and names no job.
const KEY_CHECK: &str = "sealing-key-check";

/// Reads of that record while other hubs write it first.
const KEY_CHECKS: usize = 4;

/// Time in which the server's refusal of a permission arrives, as in `link`.
const REFUSAL: Duration = Duration::from_millis(200);

const MIB: u64 = 1 << 20;

/// Why a record or an object was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record has another revision than the caller named: another hub has written it, or removed it.
    #[error("another hub has changed the record")]
    Conflict,
    /// A bound of the stream or of the server is reached. Nothing was written.
    #[error("JetStream is full: {0}")]
    Full(String),
    /// No connection, no leader, or no reply in time. What was to be written may have been written.
    #[error("JetStream does not answer: {0}")]
    Away(String),
    /// The record is larger than a record may be.
    #[error("the record has {found} bytes, and {most} at most are stored")]
    TooLarge {
        /// Its size.
        found: usize,
        /// [`Bucket::MAX_VALUE_BYTES`].
        most: usize,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// There is no such object, or a part of it is missing.
    #[error("the object is missing, or a part of it")]
    Missing,
    /// Anything else that JetStream answers.
    #[error("JetStream refuses it: {0}")]
    Refused(String),
}

/// What the hubs of a cluster share. Cheap to clone.
#[derive(Clone)]
pub struct JetStream {
    shared: Arc<JetStreamContext>,
    sessions: Bucket,
    keys: Bucket,
    jobs: Bucket,
    audio: Objects,
    queue: Queue,
}

/// The connection and the key, for all parts.
pub(crate) struct JetStreamContext {
    link: Link,
    key: SealingKey,
}

impl JetStream {
    /// Connects, makes what is missing, and does once what hubs do later. `audio_bytes` bounds the object store; JetStream sets
    /// that much aside. Waits 20 s at most.
    ///
    /// # Errors
    /// Everything that keeps a hub from sharing: each names the setting to change.
    pub async fn open(config: &ClusterConfig, audio_bytes: u64) -> Result<Self, ClusterError> {
        const ROLE: &str = "hub with cluster.jetstream";
        let key = config.sealing_key()?;
        let link = Link::connect(config, ROLE, "JetStream").await?;
        let shared = Arc::new(JetStreamContext { link, key });
        let opened = Self {
            sessions: Bucket::new(&shared, SESSIONS),
            keys: Bucket::new(&shared, KEYS),
            jobs: Bucket::new(&shared, JOBS),
            audio: Objects::new(&shared),
            queue: Queue::new(&shared),
            shared,
        };
        let work = async {
            for (stream, mib, settings) in streams(config.replicas, audio_bytes) {
                opened.make(config, &stream, mib, &settings).await?;
            }
            opened.check_key(config).await?;
            opened.try_out(config).await?;
            // A refusal of what has no reply arrives behind it.
            let _ = opened.shared.link.client().flush().await;
            sleep(REFUSAL).await;
            Ok(())
        };
        let done = tokio::select! {
            // A request without a permission gets no reply.
            message = opened.shared.link.refusal() => Err(ClusterError::Permission { role: ROLE, message }),
            done = work => done,
        };
        match done {
            Ok(()) => {
                tracing::info!(replicas = config.replicas, "sharing sessions, keys and jobs through JetStream");
                Ok(opened)
            }
            Err(error) => {
                opened.leave().await;
                Err(error)
            }
        }
    }

    /// Snapshots of sessions.
    pub fn sessions(&self) -> &Bucket {
        &self.sessions
    }

    /// Short-lived keys.
    pub fn keys(&self) -> &Bucket {
        &self.keys
    }

    /// The status of jobs.
    pub fn jobs(&self) -> &Bucket {
        &self.jobs
    }

    /// The sound of jobs, and snapshots that are too large for a record.
    pub fn audio(&self) -> &Objects {
        &self.audio
    }

    /// Jobs that wait.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether the connection is up, or was less than `within` ago.
    pub fn is_reachable(&self, within: Duration) -> bool {
        self.shared.link.is_reachable(within)
    }

    /// Ends the connection.
    pub async fn leave(&self) {
        self.shared.link.close().await;
    }

    /// Gives a stream the settings of this version, or makes it. In this order, because JetStream asks for a stream's whole room
    /// again where one that is there is to be made.
    async fn make(&self, config: &ClusterConfig, stream: &str, mib: u64, settings: &Value) -> Result<(), ClusterError> {
        settled(|| async {
            let request = async |request: &str| {
                self.shared.api::<Value>(&format!("STREAM.{request}.{stream}"), settings).await.map(drop)
            };
            match request("UPDATE").await {
                Err(ApiError::Reply(ReplyError { err_code: code::NO_STREAM, .. })) => match request("CREATE").await {
                    // Another hub was quicker: with other settings, or with these, for which JetStream asks for room again.
                    Err(ApiError::Reply(said)) if said.err_code == code::OTHER_SETTINGS || said.is_full() => {
                        match request("UPDATE").await {
                            Err(ApiError::Reply(ReplyError { err_code: code::NO_STREAM, .. })) => {
                                Err(ApiError::Reply(said))
                            }
                            updated => updated,
                        }
                    }
                    made => made,
                },
                updated => updated,
            }
        })
        .await
        .map_err(|error| self.at_start(config, stream, mib, error))
    }

    fn at_start(&self, config: &ClusterConfig, stream: &str, mib: u64, error: ApiError) -> ClusterError {
        let servers = config.shown_servers();
        let name = stream.to_owned();
        let message = error.to_string();
        match error {
            ApiError::NoResponder => ClusterError::NoJetStream { servers, message },
            ApiError::Silent(_) => ClusterError::Silent { servers, message },
            ApiError::Reply(said) => match said.err_code {
                code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => ClusterError::NoJetStream { servers, message },
                code::NO_REPLICAS => ClusterError::Replicas { replicas: config.replicas, name, message },
                // A server may be down.
                code::NO_PEERS => ClusterError::Placement { replicas: config.replicas, name, message },
                _ if said.is_full() => ClusterError::Storage { name, mib, message },
                code::INVALID_SETTINGS | code::OTHER_SETTINGS | code::SUBJECTS_OVERLAP => {
                    ClusterError::Stream { name, message }
                }
                _ => ClusterError::Refused { name, message },
            },
        }
    }

    /// Opens the record that the first hub has sealed, or is the first: of several first hubs, one creates it, and the others
    /// open it.
    async fn check_key(&self, config: &ClusterConfig) -> Result<(), ClusterError> {
        let mut checked = Err(RecordError::Conflict);
        for _ in 0..KEY_CHECKS {
            checked = match patiently(|| self.jobs.get(KEY_CHECK)).await {
                Ok(Some(_)) => Ok(()),
                Ok(None) => patiently(|| self.jobs.create(KEY_CHECK, b"antiphon", None)).await.map(drop),
                Err(error) => Err(error),
            };
            if checked != Err(RecordError::Conflict) {
                break;
            }
        }
        checked.map_err(|error| match error {
            RecordError::Sealed(error) => {
                ClusterError::OtherSealingKey { file: config.sealing_key.clone(), message: error.to_string() }
            }
            other => unusable(config, JOBS, other),
        })
    }

    /// Does once what a hub does later, so that a missing permission is known now.
    async fn try_out(&self, config: &ClusterConfig) -> Result<(), ClusterError> {
        let probe = format!("probe-{:016x}", rand::random::<u64>());
        let kept = Some(Duration::from_secs(60));
        let failed = |name: &str, error: RecordError| unusable(config, name, error);
        for bucket in [&self.sessions, &self.keys, &self.jobs] {
            let tried = async {
                let revision = patiently(|| bucket.put(&probe, b"probe", kept)).await?;
                bucket.get(&probe).await?;
                bucket.remove(&probe, Some(revision)).await
            };
            tried.await.map_err(|error| failed(bucket.name(), error))?;
        }
        let tried = async {
            patiently(|| self.audio.put(&probe, b"probe", kept)).await?;
            self.audio.get(&probe).await?;
            self.audio.remove(&probe).await
        };
        tried.await.map_err(|error| failed(AUDIO, error))?;
        settled(|| self.queue.make_consumer(config.replicas))
            .await
            .map_err(|error| self.at_start(config, queue::STREAM, 0, error))?;
        self.queue.try_out().await.map_err(|error| failed(queue::STREAM, error))
    }
}

/// Why a bucket or a stream cannot be used at start.
fn unusable(config: &ClusterConfig, name: &str, error: RecordError) -> ClusterError {
    match error {
        RecordError::Away(message) => ClusterError::Silent { servers: config.shown_servers(), message },
        RecordError::Full(message) => ClusterError::Full { name: name.into(), message },
        other => ClusterError::Refused { name: name.into(), message: other.to_string() },
    }
}

/// The streams, with their bounds in MiB and their settings.
fn streams(replicas: usize, audio_bytes: u64) -> Vec<(String, u64, Value)> {
    let bucket = |name: &str, mib: u64, max_age: Duration| {
        let stream = format!("KV_{name}");
        let settings = json!({
            "name": stream, "subjects": [format!("$KV.{name}.>")], "retention": "limits", "storage": "file",
            "discard": "new", "num_replicas": replicas, "max_msgs_per_subject": 1, "max_bytes": mib * MIB,
            "max_msg_size": Bucket::MAX_VALUE_BYTES + 4_096, "max_age": max_age.as_nanos() as u64, "max_msgs": -1,
            "max_consumers": -1, "allow_rollup_hdrs": true, "deny_delete": true, "allow_msg_ttl": true,
            "duplicate_window": Duration::from_secs(120).as_nanos() as u64,
        });
        (stream, mib, settings)
    };
    let audio = json!({
        "name": format!("OBJ_{AUDIO}"), "subjects": [format!("$O.{AUDIO}.C.>"), format!("$O.{AUDIO}.M.>")],
        "retention": "limits", "storage": "file", "discard": "new", "num_replicas": replicas, "max_msgs": -1,
        "max_bytes": audio_bytes, "max_consumers": -1, "allow_rollup_hdrs": true, "allow_msg_ttl": true,
        "duplicate_window": Duration::from_secs(120).as_nanos() as u64,
    });
    let queue = json!({
        "name": queue::STREAM, "subjects": [subject::any_job()], "retention": "workqueue", "storage": "file",
        "discard": "new", "discard_new_per_subject": true, "num_replicas": replicas, "max_msgs_per_subject": 1,
        "max_msgs": 20_000, "max_bytes": 16 * MIB, "max_msg_size": 4_096, "max_consumers": -1,
        "duplicate_window": Duration::from_secs(120).as_nanos() as u64,
    });
    vec![
        bucket(SESSIONS, 1_024, SESSIONS_FOR),
        bucket(KEYS, 64, KEYS_FOR),
        bucket(JOBS, 256, Duration::ZERO),
        (format!("OBJ_{AUDIO}"), audio_bytes / MIB, audio),
        (queue::STREAM.to_owned(), 16, queue),
    ]
}

/// What a hub publishes to for all of this, for [`permissions`](crate::permissions): the API's requests for these streams only,
/// their subjects, and acknowledgements.
pub(crate) fn published() -> Vec<String> {
    let api = |rest: String| format!("$JS.API.{rest}");
    let mut subjects = Vec::new();
    for (stream, ..) in streams(1, 0) {
        for request in ["CREATE", "UPDATE", "MSG.GET"] {
            subjects.push(api(format!("STREAM.{request}.{stream}")));
        }
    }
    subjects.push(api(format!("STREAM.PURGE.OBJ_{AUDIO}")));
    // Those who follow a bucket make a consumer of a random name.
    for bucket in [SESSIONS, KEYS, JOBS] {
        for request in ["CREATE", "MSG.NEXT", "DELETE", "INFO"] {
            subjects.push(api(format!("CONSUMER.{request}.KV_{bucket}.>")));
        }
    }
    for request in ["CREATE", "MSG.NEXT"] {
        subjects.push(api(format!("CONSUMER.{request}.{}.{}", queue::STREAM, queue::CONSUMER)));
    }
    subjects.extend([SESSIONS, KEYS, JOBS].map(|bucket| format!("$KV.{bucket}.>")));
    subjects.extend([format!("$O.{AUDIO}.>"), format!("$JS.ACK.{}.>", queue::STREAM), subject::any_job()]);
    subjects
}

/// Tries again while JetStream has no leader, or too few servers.
async fn settled<F: Future<Output = Result<(), ApiError>>>(work: impl Fn() -> F) -> Result<(), ApiError> {
    let begun = Instant::now();
    loop {
        let done = work().await;
        let patience = match &done {
            Err(ApiError::NoResponder) => NO_RESPONDER_FOR,
            Err(error) if error.is_passing() => START_DEADLINE,
            _ => return done,
        };
        if begun.elapsed() >= patience {
            return done;
        }
        sleep(START_PAUSE).await;
    }
}

/// The same for a record.
async fn patiently<T, F: Future<Output = Result<T, RecordError>>>(work: impl Fn() -> F) -> Result<T, RecordError> {
    let until = Instant::now() + START_DEADLINE;
    loop {
        match work().await {
            Err(RecordError::Away(_)) if Instant::now() < until => sleep(START_PAUSE).await,
            done => return done,
        }
    }
}

/// Error codes of JetStream's API.
mod code {
    pub(super) const NO_STREAM: u64 = 10_059;
    pub(super) const NO_PEERS: u64 = 10_005;
    pub(super) const INVALID_SETTINGS: u64 = 10_052;
    pub(super) const SUBJECTS_OVERLAP: u64 = 10_065;
    pub(super) const UNAVAILABLE: u64 = 10_008;
    pub(super) const NO_MESSAGE: u64 = 10_037;
    pub(super) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10_039;
    pub(super) const OTHER_SETTINGS: u64 = 10_058;
    pub(super) const WRONG_REVISION: u64 = 10_071;
    pub(super) const NO_REPLICAS: u64 = 10_074;
    pub(super) const NOT_ENABLED: u64 = 10_076;
    pub(super) const STORE_FAILED: u64 = 10_077;
    pub(super) const WRONG_REVISION_CONSTANT: u64 = 10_164;
    /// Of the account, of the server, of its storage, of its memory, of a stream.
    pub(super) const FULL: [u64; 5] = [10_002, 10_023, 10_047, 10_028, 10_122];
}

/// An error in a reply.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct ReplyError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl ReplyError {
    fn is_full(&self) -> bool {
        // The store's failures have one code, and say what they are in words.
        let says = |words: &str| self.description.contains(words);
        code::FULL.contains(&self.err_code)
            || self.err_code == code::STORE_FAILED
                && (says("maximum bytes") || says("maximum messages") || says("no space") || says("insufficient"))
    }
}

/// Why a request to JetStream failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// It has no responder.
    #[error("no server answers for JetStream")]
    NoResponder,
    /// No reply in time, or no connection.
    #[error("{0}")]
    Silent(String),
    /// An error in the reply.
    #[error("{} ({})", .0.description, .0.err_code)]
    Reply(ReplyError),
}

impl ApiError {
    /// Whether it may pass by itself: leaders are being elected, or a server starts and the others do not know yet what room it
    /// has.
    fn is_passing(&self) -> bool {
        match self {
            Self::NoResponder => false,
            Self::Silent(_) => true,
            Self::Reply(said) => [code::UNAVAILABLE, code::NO_PEERS].contains(&said.err_code),
        }
    }
}

impl From<ApiError> for RecordError {
    fn from(error: ApiError) -> Self {
        let message = error.to_string();
        match error {
            ApiError::NoResponder | ApiError::Silent(_) => Self::Away(message),
            ApiError::Reply(said) => match said.err_code {
                code::WRONG_REVISION | code::WRONG_REVISION_CONSTANT => Self::Conflict,
                code::NO_MESSAGE => Self::Missing,
                code::UNAVAILABLE | code::NOT_ENABLED | code::NOT_ENABLED_FOR_ACCOUNT => Self::Away(message),
                _ if said.is_full() => Self::Full(message),
                _ => Self::Refused(message),
            },
        }
    }
}

/// A message of a stream.
pub(crate) struct StreamMessage {
    pub(crate) revision: u64,
    pub(crate) payload: Vec<u8>,
    /// The headers as NATS writes them; empty if there are none.
    pub(crate) headers: Vec<u8>,
}

impl StreamMessage {
    /// Whether it stands for a record that was removed.
    pub(crate) fn is_removal(&self) -> bool {
        self.headers.windows(bucket::OPERATION.len()).any(|bytes| bytes == bucket::OPERATION.as_bytes())
    }
}

/// What a message is published with.
#[derive(Clone, Copy, Default)]
pub(crate) struct With<'a> {
    /// The revision that the subject's last message must have; 0: there must be none.
    pub(crate) expected: Option<u64>,
    /// How long it is kept, in whole seconds, 1 at least.
    pub(crate) ttl: Option<Duration>,
    /// Whether it replaces what the subject holds.
    pub(crate) rolls_up: bool,
    pub(crate) header: Option<(&'a str, &'a str)>,
}

impl JetStreamContext {
    /// A request to JetStream's API.
    pub(crate) async fn api<T: DeserializeOwned>(&self, name: &str, payload: &Value) -> Result<T, ApiError> {
        let payload = if payload.is_null() { Bytes::new() } else { payload.to_string().into() };
        self.request(format!("$JS.API.{name}"), Request::new().payload(payload)).await
    }

    /// Publishes to a stream and returns the message's sequence number in it, the revision of a record.
    pub(crate) async fn publish(&self, subject: String, payload: Bytes, with: With<'_>) -> Result<u64, ApiError> {
        #[derive(Deserialize)]
        struct Publication {
            seq: u64,
        }
        let mut headers = HeaderMap::new();
        if let Some(revision) = with.expected {
            headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, revision.to_string().as_str());
        }
        if let Some(ttl) = with.ttl {
            headers.insert(NATS_MESSAGE_TTL, format!("{}s", ttl.as_secs().max(1)).as_str());
        }
        if with.rolls_up {
            headers.insert(NATS_ROLLUP, "sub");
        }
        if let Some((name, value)) = with.header {
            headers.insert(name, value);
        }
        let request = Request::new().payload(payload).headers(headers);
        Ok(self.request::<Publication>(subject, request).await?.seq)
    }

    /// The last message of a subject, or the first one from a sequence number on; `None` if there is none.
    pub(crate) async fn stored(
        &self,
        stream: &str,
        subject: &str,
        from: Option<u64>,
    ) -> Result<Option<StreamMessage>, ApiError> {
        #[derive(Deserialize)]
        struct Reply {
            message: Message,
        }
        #[derive(Deserialize)]
        struct Message {
            seq: u64,
            #[serde(default)]
            data: String,
            #[serde(default)]
            hdrs: String,
        }
        let asked = match from {
            None => json!({"last_by_subj": subject}),
            Some(from) => json!({"seq": from, "next_by_subj": subject}),
        };
        let message = match self.api::<Reply>(&format!("STREAM.MSG.GET.{stream}"), &asked).await {
            Ok(reply) => reply.message,
            Err(ApiError::Reply(ReplyError { err_code: code::NO_MESSAGE, .. })) => return Ok(None),
            Err(error) => return Err(error),
        };
        let decode = |text: &str| STANDARD.decode(text).map_err(|_| ApiError::Silent("a malformed reply".into()));
        Ok(Some(StreamMessage {
            revision: message.seq,
            payload: decode(&message.data)?,
            headers: decode(&message.hdrs)?,
        }))
    }

    async fn request<T: DeserializeOwned>(&self, subject: String, request: Request) -> Result<T, ApiError> {
        #[derive(Deserialize)]
        struct ErrorReply {
            error: Option<ReplyError>,
        }
        if !self.link.state().is_connected {
            return Err(ApiError::Silent("there is no connection to NATS".into()));
        }
        let request = request.timeout(Some(REPLY_DEADLINE));
        // The client's own deadline does not bound the wait for room in its queue.
        let reply = timeout(REPLY_DEADLINE + REFUSAL, self.link.client().send_request(subject, request)).await;
        let reply = match reply {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => return Err(ApiError::NoResponder),
            Ok(Err(error)) => return Err(ApiError::Silent(error.to_string())),
            Err(_) => return Err(ApiError::Silent(format!("no reply within {} s", REPLY_DEADLINE.as_secs()))),
        };
        if let Ok(ErrorReply { error: Some(said) }) = serde_json::from_slice(&reply.payload) {
            return Err(ApiError::Reply(said));
        }
        serde_json::from_slice(&reply.payload).map_err(|_| ApiError::Silent("a malformed reply".into()))
    }
}
