//! Sessions that any hub may serve, one at a time: where their state is stored, and who owns it.
//!
//! The root's server stores a session's state here as bytes that this module does not read, releases it and takes it. A record in
//! JetStream names the owner, and each change of it is a compare-and-set with the record's revision, the fencing number: a hub
//! that has lost a session learns it from its next write, at the latest, and cannot overwrite what the new owner wrote. Nothing
//! here knows a session or a client, and no task is spawned.

use super::Cluster;
use super::peers::PeerAnswer;
use crate::jetstream::{Bucket, JetStream, RecordError};
use crate::seal::SealError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// The form of the records that is written, and the newest that is read.
const SCHEMA: u32 = 1;

/// A state of more bytes is an object of its own: a record holds less than [`Bucket::MAX_VALUE_BYTES`], its head included.
const MAX_INLINE_BYTES: usize = Bucket::MAX_VALUE_BYTES - 8 * 1024;

/// The longest state that is stored and read.
pub const MAX_STATE_BYTES: usize = 16 << 20;

/// Attempts to change a record that others change, too.
const ATTEMPTS: usize = 4;

/// The shared sessions, as one hub sees them. Cheap to clone.
///
/// Each call waits for JetStream, 5 s at most for each of its messages, and fails at once while there is no connection.
/// Cancelling leaves open whether a change was made.
#[derive(Clone)]
pub struct SharedSessions {
    cluster: Cluster,
    jetstream: JetStream,
}

/// Why a session's state cannot be stored or taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnershipError {
    /// Another hub owns the session.
    #[error("the session belongs to the hub {hub} since revision {revision}")]
    Lost {
        /// The owner's name.
        hub: String,
        /// The record's revision.
        revision: u64,
    },
    /// Several hubs want the session at once, and another one was quicker.
    #[error("another hub takes the session at this moment")]
    Contended,
    /// JetStream has no room.
    #[error("JetStream is full: {0}")]
    Full(String),
    /// JetStream cannot be reached, or did not answer in time.
    #[error("JetStream cannot be reached: {0}")]
    Away(String),
    /// The state is sealed with another key, was changed or is cut short.
    #[error("the stored session cannot be opened: {0}")]
    Sealed(SealError),
    /// A newer build wrote it.
    #[error("the stored session has schema {found}, and this build reads schemas up to {SCHEMA}: upgrade this hub")]
    Newer {
        /// Its schema.
        found: u32,
    },
    /// The record, or what it refers to, is not what a hub wrote.
    #[error("the stored session cannot be read: {0}")]
    Unreadable(String),
}

impl From<RecordError> for OwnershipError {
    fn from(error: RecordError) -> Self {
        match error {
            RecordError::Conflict => Self::Contended,
            RecordError::Full(words) => Self::Full(words),
            RecordError::Away(words) => Self::Away(words),
            RecordError::Sealed(error) => Self::Sealed(error),
            other => Self::Unreadable(other.to_string()),
        }
    }
}

/// A session that this hub owns. The next change names the revision of the last.
#[derive(Clone, Debug)]
pub struct OwnedSession {
    key: String,
    head: Head,
    revision: u64,
}

impl OwnedSession {
    /// The revision of its record: the fencing number.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How many owners it has had.
    pub fn epoch(&self) -> u64 {
        self.head.epoch
    }
}

/// A stored session, as [`SharedSessions::look`] saw it.
#[derive(Clone, Debug)]
pub struct StoredSessionView {
    key: String,
    head: Head,
    state: Vec<u8>,
    revision: u64,
}

impl StoredSessionView {
    /// What the server stored beside the state, for who may take it.
    pub fn claims(&self) -> &str {
        &self.head.claims
    }

    /// The owner's incarnation, and its name.
    pub fn owner(&self) -> (&str, &str) {
        (&self.head.hub, &self.head.name)
    }

    /// The owner has let the session go.
    pub fn is_released(&self) -> bool {
        self.head.is_released
    }

    /// The owner has let the session go with this state, and nothing has happened in it since.
    pub fn is_final(&self) -> bool {
        self.head.is_final
    }

    /// The revision of its record.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

#[derive(Clone, Serialize, Deserialize)]
struct Head {
    schema: u32,
    /// The owner's incarnation.
    hub: String,
    name: String,
    /// Grows with each owner.
    epoch: u64,
    is_released: bool,
    /// The state is the last: nothing has happened in the session since.
    is_final: bool,
    claims: String,
    /// The object that holds the state, and its length; `None`: the state follows the head.
    object: Option<StateObject>,
}

/// An object that holds a state: its name and its length.
type StateObject = (String, usize);

/// The objects of a record, after a write that was to name another one.
#[derive(Debug, PartialEq, Eq)]
struct StateObjects {
    /// The one that the record names, as far as is known.
    named: Option<StateObject>,
    /// One that the record does not name.
    needless: Option<StateObject>,
}

impl StateObjects {
    fn after(write: &Result<(), OwnershipError>, before: Option<StateObject>, new: Option<StateObject>) -> Self {
        match write {
            Ok(()) => Self { named: new, needless: before },
            // It may have been made: either of them may be named. The other goes at the end of its time.
            Err(OwnershipError::Away(_)) => Self { named: before, needless: None },
            Err(_) => Self { named: before, needless: new },
        }
    }
}

/// Omits the claims.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Head");
        shown.field("name", &self.name).field("epoch", &self.epoch).field("is_released", &self.is_released);
        shown.finish_non_exhaustive()
    }
}

/// What a hub did with a session that it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// It stored the final state and stopped, or has no such session any more.
    Done,
    /// NATS says that there is no such hub.
    Gone,
    /// It did not answer in time.
    Silent,
}

impl SharedSessions {
    /// The sessions in this JetStream.
    pub fn new(cluster: Cluster, jetstream: JetStream) -> Self {
        Self { cluster, jetstream }
    }

    /// Stores a session that begins on this hub. `key` names it: letters and digits. `claims`: for [`StoredSessionView::claims`]. `ttl`: how
    /// long it may live.
    ///
    /// # Errors
    /// See [`OwnershipError`].
    pub async fn create(
        &self,
        key: &str,
        claims: String,
        state: &[u8],
        ttl: Duration,
    ) -> Result<OwnedSession, OwnershipError> {
        let head = Head {
            schema: SCHEMA,
            hub: self.cluster.id().into(),
            name: self.cluster.name().into(),
            epoch: 1,
            is_released: false,
            is_final: false,
            claims,
            object: None,
        };
        let mut owned = OwnedSession { key: key.into(), head, revision: 0 };
        let value = self.value(&mut owned, state, ttl).await?;
        match self.jetstream.sessions().create(key, &value, Some(ttl)).await {
            Ok(revision) => owned.revision = revision,
            // An attempt whose reply was lost has created it.
            Err(RecordError::Conflict) => self.write(&mut owned, &value, ttl).await?,
            Err(error) => return Err(error.into()),
        }
        log(&owned, "stored");
        Ok(owned)
    }

    /// Stores the session's state. `is_final`: the session is let go, and any hub may take it at once.
    ///
    /// # Errors
    /// [`OwnershipError::Lost`]: another hub owns it, and this one must not act in it any more; see [`OwnershipError`].
    pub async fn save(
        &self,
        owned: &mut OwnedSession,
        state: &[u8],
        is_final: bool,
        ttl: Duration,
    ) -> Result<(), OwnershipError> {
        let before = owned.head.object.take();
        owned.head.is_released = is_final;
        owned.head.is_final = is_final;
        let written = async {
            let value = self.value(owned, state, ttl).await?;
            self.write(owned, &value, ttl).await
        };
        let written = written.await;
        let StateObjects { named, needless } = StateObjects::after(&written, before, owned.head.object.take());
        owned.head.object = named;
        if let Some((object, _)) = needless {
            // If this fails, it goes at the end of its time.
            let _ = self.jetstream.audio().remove(&object).await;
        }
        written?;
        log(owned, if is_final { "released" } else { "stored" });
        Ok(())
    }

    /// Lets the session go with the state that is stored, a checkpoint.
    ///
    /// # Errors
    /// As [`SharedSessions::save`].
    pub async fn release(&self, owned: &mut OwnedSession, ttl: Duration) -> Result<(), OwnershipError> {
        let Some(seen) = self.look(&owned.key).await? else { return Ok(()) };
        self.check_owner(owned, &seen.head, seen.revision)?;
        owned.revision = seen.revision;
        owned.head = seen.head;
        owned.head.is_released = true;
        let value = encode(&owned.head, &seen.state);
        self.write(owned, &value, ttl).await?;
        log(owned, "released");
        Ok(())
    }

    /// The session ends.
    ///
    /// # Errors
    /// As [`SharedSessions::save`]; the record goes at the end of its time then.
    pub async fn remove(&self, owned: &OwnedSession) -> Result<(), OwnershipError> {
        self.jetstream.sessions().remove(&owned.key, Some(owned.revision)).await?;
        if let Some((object, _)) = &owned.head.object {
            let _ = self.jetstream.audio().remove(object).await;
        }
        Ok(())
    }

    /// What is stored of a session; `None` if there is none. Takes nothing.
    ///
    /// # Errors
    /// See [`OwnershipError`].
    pub async fn look(&self, key: &str) -> Result<Option<StoredSessionView>, OwnershipError> {
        let Some(record) = self.jetstream.sessions().get(key).await? else { return Ok(None) };
        let (head, state) = decode(&record.value)?;
        Ok(Some(StoredSessionView { key: key.into(), head, state, revision: record.revision }))
    }

    /// Takes the session as it was seen, and its state.
    ///
    /// # Errors
    /// [`OwnershipError::Contended`]: it has changed since; see [`OwnershipError`].
    pub async fn take(
        &self,
        seen: StoredSessionView,
        ttl: Duration,
    ) -> Result<(OwnedSession, Vec<u8>), OwnershipError> {
        let StoredSessionView { key, mut head, mut state, revision } = seen;
        let from = std::mem::replace(&mut head.name, self.cluster.name().into());
        head.hub = self.cluster.id().into();
        head.epoch += 1;
        head.is_released = false;
        head.is_final = false;
        let value = encode(&head, &state);
        let revision = self.jetstream.sessions().update(&key, &value, revision, Some(ttl)).await?;
        let owned = OwnedSession { key, head, revision };
        tracing::info!(
            record = short(&owned.key),
            from,
            epoch = owned.head.epoch,
            revision,
            "this hub owns the session now"
        );
        if let Some((object, n_bytes)) = &owned.head.object {
            if *n_bytes > MAX_STATE_BYTES {
                return Err(OwnershipError::Unreadable(format!("its state has {n_bytes} bytes")));
            }
            let stored = self.jetstream.audio().get(object).await?;
            state = stored.ok_or_else(|| OwnershipError::Unreadable("its state is missing".into()))?;
        }
        Ok((owned, state))
    }

    /// Asks the owner of a session to hand it over, and waits until it has, `longest` at most.
    pub async fn ask_for(&self, seen: &StoredSessionView, question: &[u8], longest: Duration) -> Release {
        match self.cluster.ask_hub(&seen.head.hub, question, longest).await {
            PeerAnswer::Reply(_) => Release::Done,
            PeerAnswer::Gone => Release::Gone,
            PeerAnswer::Silent => Release::Silent,
        }
    }

    /// The same of a session of which nothing is stored: asks all other hubs.
    pub async fn ask_all_for(&self, question: &[u8], longest: Duration) {
        self.cluster.ask_peers(question, longest).await;
    }

    /// This hub's incarnation.
    pub fn hub(&self) -> &str {
        self.cluster.id()
    }

    /// Writes the record, against the revision of the last write. Where that has changed although this hub owns it (a reply
    /// that was lost, a store that lost its newest entry), it is written against the one that is there.
    async fn write(&self, owned: &mut OwnedSession, value: &[u8], ttl: Duration) -> Result<(), OwnershipError> {
        let sessions = self.jetstream.sessions();
        for _ in 0..ATTEMPTS {
            match sessions.update(&owned.key, value, owned.revision, Some(ttl)).await {
                Ok(revision) => {
                    owned.revision = revision;
                    return Ok(());
                }
                Err(RecordError::Conflict) => {}
                Err(error) => return Err(error.into()),
            }
            match sessions.get(&owned.key).await? {
                Some(record) => {
                    match decode(&record.value) {
                        Ok((head, _)) => self.check_owner(owned, &head, record.revision)?,
                        // No hub has taken the session so.
                        Err(OwnershipError::Unreadable(_)) => {}
                        // A newer build has.
                        Err(OwnershipError::Newer { .. }) => {
                            return Err(OwnershipError::Lost {
                                hub: "of a newer build".into(),
                                revision: record.revision,
                            });
                        }
                        Err(error) => return Err(error),
                    }
                    tracing::warn!(
                        record = short(&owned.key),
                        expected = owned.revision,
                        found = record.revision,
                        "the stored session has another revision than this hub, its owner, has written"
                    );
                    owned.revision = record.revision;
                }
                None => match sessions.create(&owned.key, value, Some(ttl)).await {
                    Ok(revision) => {
                        tracing::warn!(
                            record = short(&owned.key),
                            revision,
                            "the stored session was lost, and is stored again"
                        );
                        owned.revision = revision;
                        return Ok(());
                    }
                    Err(RecordError::Conflict) => {}
                    Err(error) => return Err(error.into()),
                },
            }
        }
        Err(OwnershipError::Contended)
    }

    fn check_owner(&self, owned: &OwnedSession, head: &Head, revision: u64) -> Result<(), OwnershipError> {
        // A record of an earlier owner is one that the store went back to.
        if head.epoch < owned.head.epoch || head.hub == owned.head.hub && head.epoch == owned.head.epoch {
            return Ok(());
        }
        tracing::info!(
            record = short(&owned.key),
            epoch = owned.head.epoch,
            owned_revision = owned.revision,
            owner = head.name,
            owner_epoch = head.epoch,
            revision,
            "a write was refused: another hub owns the session"
        );
        Err(OwnershipError::Lost { hub: head.name.clone(), revision })
    }

    /// The record's value; a large state becomes an object first.
    async fn value(&self, owned: &mut OwnedSession, state: &[u8], ttl: Duration) -> Result<Vec<u8>, OwnershipError> {
        if state.len() > MAX_STATE_BYTES {
            return Err(OwnershipError::Full(format!("a session of {} bytes is not stored", state.len())));
        }
        owned.head.object = None;
        if state.len() <= MAX_INLINE_BYTES {
            return Ok(encode(&owned.head, state));
        }
        let object = format!("session-{}-{}-{:016x}", short(&owned.key), owned.head.epoch, rand::random::<u64>());
        self.jetstream.audio().put(&object, state, Some(ttl)).await?;
        owned.head.object = Some((object, state.len()));
        Ok(encode(&owned.head, &[]))
    }
}

fn log(owned: &OwnedSession, what: &'static str) {
    let record = short(&owned.key);
    let epoch = owned.head.epoch;
    let revision = owned.revision;
    match owned.head.is_released {
        true => tracing::info!(record, epoch, revision, "the session was {what}"),
        false => tracing::debug!(record, epoch, revision, "the session was {what}"),
    }
}

/// Enough of a key for the log.
fn short(key: &str) -> &str {
    key.get(..12).unwrap_or(key)
}

/// The head as a line of JSON, then the state.
fn encode(head: &Head, state: &[u8]) -> Vec<u8> {
    let mut value = serde_json::to_vec(head).unwrap_or_default();
    value.push(b'\n');
    value.extend_from_slice(state);
    value
}

fn decode(value: &[u8]) -> Result<(Head, Vec<u8>), OwnershipError> {
    #[derive(Deserialize)]
    struct SchemaOnly {
        schema: u32,
    }
    let unreadable = |what: &str| OwnershipError::Unreadable(what.into());
    let end = value.iter().position(|byte| *byte == b'\n').ok_or_else(|| unreadable("it has no head"))?;
    let line = &value[..end];
    let state = &value[end + 1..];
    let SchemaOnly { schema } = serde_json::from_slice(line).map_err(|_| unreadable("its head is no JSON"))?;
    if schema > SCHEMA {
        return Err(OwnershipError::Newer { found: schema });
    }
    let head = serde_json::from_slice(line).map_err(|_| unreadable("a field of its head is missing"))?;
    Ok((head, state.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_kept_while_the_record_may_name_it() {
        let before = || Some(("before".to_owned(), 1));
        let new = || Some(("new".to_owned(), 2));
        let after = |write: Result<(), OwnershipError>| StateObjects::after(&write, before(), new());
        assert_eq!(after(Ok(())), StateObjects { named: new(), needless: before() });
        let unanswered = after(Err(OwnershipError::Away("no reply within 5 s".into())));
        assert_eq!(unanswered, StateObjects { named: before(), needless: None });
        assert_eq!(after(Err(OwnershipError::Contended)), StateObjects { named: before(), needless: new() });
    }
}
