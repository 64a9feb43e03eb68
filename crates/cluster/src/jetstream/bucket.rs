//! Sealed records with revisions: a key-value store of NATS.

use super::{JetStreamContext, RecordError, With};
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_stream::try_stream;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use std::sync::Arc;
use std::time::Duration;

/// The header of a message that stands for a removed record.
pub(super) const OPERATION: &str = "KV-Operation";

/// How long it is seen that a record was removed, by those who follow the bucket.
const REMOVED_FOR: Duration = Duration::from_secs(3_600);

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was put, opened.
    pub value: Vec<u8>,
    /// Grows with each change of any record of the bucket: the fencing number for the next change.
    pub revision: u64,
}

/// A change of one record.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its key.
    pub key: String,
    /// The revision of the change.
    pub revision: u64,
    /// What it holds now; `None` if it was removed. A record that cannot be opened is an error of its own.
    pub value: Option<Result<Vec<u8>, crate::seal::SealError>>,
}

/// A bucket of records, all sealed under `<bucket>/<key>`. Cheap to clone.
///
/// Each call waits for JetStream's reply, 5 s at most, and fails at once while there is no connection. Cancelling leaves open
/// whether the change was made. After [`RecordError::Away`], too, it may have been made: read the record again.
#[derive(Clone)]
pub struct Bucket {
    shared: Arc<JetStreamContext>,
    name: &'static str,
}

impl Bucket {
    /// The largest value: half of NATS' usual limit of a message, since replies carry it in base64. What is larger belongs into
    /// [`Objects`](super::Objects).
    pub const MAX_VALUE_BYTES: usize = 512 << 10;

    pub(super) fn new(shared: &Arc<JetStreamContext>, name: &'static str) -> Self {
        Self { shared: shared.clone(), name }
    }

    /// The bucket's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Reads a record from the leader; `None` if there is none. Keys have letters, digits, `-`, `_` and `=`.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn get(&self, key: &str) -> Result<Option<Record>, RecordError> {
        let stored = self.shared.stored(&self.stream(), &self.subject(key), None).await?;
        match stored.filter(|stored| !stored.is_removal()) {
            Some(stored) => {
                let value = self.shared.key.open(&self.sealed_name(key), &stored.payload)?;
                Ok(Some(Record { value, revision: stored.revision }))
            }
            None => Ok(None),
        }
    }

    /// Writes a record that does not exist; returns its revision. `ttl`: how long it is kept, where that is shorter than the
    /// bucket keeps records.
    ///
    /// # Errors
    /// [`RecordError::Conflict`] if it exists; see [`RecordError`].
    pub async fn create(&self, key: &str, value: &[u8], ttl: Option<Duration>) -> Result<u64, RecordError> {
        match self.write(key, value, ttl, Some(0)).await {
            // What is left of a removed record is one of its revisions.
            Err(RecordError::Conflict) => match self.shared.stored(&self.stream(), &self.subject(key), None).await? {
                Some(stored) if stored.is_removal() => self.write(key, value, ttl, Some(stored.revision)).await,
                Some(_) => Err(RecordError::Conflict),
                None => self.write(key, value, ttl, Some(0)).await,
            },
            done => done,
        }
    }

    /// Replaces the record of this revision; returns the new one.
    ///
    /// # Errors
    /// [`RecordError::Conflict`] if it has another revision; see [`RecordError`].
    pub async fn update(
        &self,
        key: &str,
        value: &[u8],
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<u64, RecordError> {
        self.write(key, value, ttl, Some(revision)).await
    }

    /// Writes a record whatever is there; returns its revision.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn put(&self, key: &str, value: &[u8], ttl: Option<Duration>) -> Result<u64, RecordError> {
        self.write(key, value, ttl, None).await
    }

    /// Removes a record, of this revision if one is named.
    ///
    /// # Errors
    /// [`RecordError::Conflict`] if it has another revision; see [`RecordError`].
    pub async fn remove(&self, key: &str, revision: Option<u64>) -> Result<(), RecordError> {
        let with =
            With { expected: revision, ttl: Some(REMOVED_FOR), rolls_up: true, header: Some((OPERATION, "PURGE")) };
        self.shared.publish(self.subject(key), Bytes::new(), with).await?;
        Ok(())
    }

    /// All records, then their changes, in the order of their revisions. Of changes of one record that follow each other quickly
    /// the last one is seen in any case, those before it perhaps. Ends with an error when JetStream is away for long.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn watch(&self) -> Result<BoxStream<'static, Result<Change, RecordError>>, RecordError> {
        let away = |error: &dyn std::error::Error| RecordError::Away(error.to_string());
        let context = async_nats::jetstream::new(self.shared.link.client().clone());
        let stream = context.get_stream_no_info(self.stream()).await.map_err(|error| away(&error))?;
        let config = pull::OrderedConfig {
            // Without a name it would ask on a subject that permits consumers of any name and filter.
            name: Some(format!("follower-{:016x}", rand::random::<u64>())),
            deliver_policy: DeliverPolicy::LastPerSubject,
            filter_subject: self.subject(">"),
            ..pull::OrderedConfig::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| away(&error))?;
        let mut messages = consumer.messages().await.map_err(|error| away(&error))?;
        let this = self.clone();
        let changes = try_stream! {
            while let Some(message) = messages.try_next().await.map_err(|error| RecordError::Away(error.to_string()))? {
                let Some(key) = message.subject.strip_prefix(&this.subject("")).map(str::to_owned) else { continue };
                let revision = message.info().map_err(|error| RecordError::Refused(error.to_string()))?.stream_sequence;
                let is_removal = message.headers.as_ref().is_some_and(|headers| headers.get(OPERATION).is_some());
                // Without one, JetStream reports why it is gone, such as its age.
                let is_marker = message.payload.is_empty();
                let value = (!is_removal && !is_marker)
                    .then(|| this.shared.key.open(&this.sealed_name(&key), &message.payload));
                yield Change { key, revision, value };
            }
        };
        Ok(changes.boxed())
    }

    async fn write(
        &self,
        key: &str,
        value: &[u8],
        ttl: Option<Duration>,
        expected: Option<u64>,
    ) -> Result<u64, RecordError> {
        if value.len() > Self::MAX_VALUE_BYTES {
            return Err(RecordError::TooLarge { found: value.len(), most: Self::MAX_VALUE_BYTES });
        }
        let sealed = self.shared.key.seal(&self.sealed_name(key), value);
        let with = With { expected, ttl, ..With::default() };
        Ok(self.shared.publish(self.subject(key), sealed.into(), with).await?)
    }

    fn stream(&self) -> String {
        format!("KV_{}", self.name)
    }

    fn subject(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.name)
    }

    /// What is authenticated with the record.
    fn sealed_name(&self, key: &str) -> String {
        format!("{}/{key}", self.name)
    }
}
