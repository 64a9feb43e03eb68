//! Sealed objects of any size: an object store of NATS, written and read piece by piece.
//!
//! An object is cut into pieces, each sealed with the object's name, its number and whether it is the last one: pieces cannot be
//! exchanged, left out or appended. Readers ask for one piece after the other, so that a slow reader holds one piece in memory.
//! Every object has a time to live, so that what a dead hub left behind goes by itself.

use super::{AUDIO, ApiError, JetStreamContext, RecordError, With};
use async_stream::try_stream;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The bytes of an object, piece by piece.
pub type ObjectReader = BoxStream<'static, Result<Bytes, RecordError>>;

/// Bytes of a piece before it is sealed: that of NATS' tools.
const PIECE_BYTES: usize = 128 << 10;

/// The store of objects. Cheap to clone. Calls wait and fail like those of [`Bucket`](super::Bucket), a piece at a time.
#[derive(Clone)]
pub struct Objects {
    shared: Arc<JetStreamContext>,
}

/// What NATS' tools know of an object.
#[derive(Serialize, Deserialize)]
struct Info {
    name: String,
    bucket: String,
    /// Names its pieces.
    nuid: String,
    /// Bytes with seals.
    size: u64,
    chunks: u64,
    digest: String,
    mtime: String,
    #[serde(default)]
    deleted: bool,
}

impl Objects {
    pub(super) fn new(shared: &Arc<JetStreamContext>) -> Self {
        Self { shared: shared.clone() }
    }

    /// Writes an object, in the place of one of the same name. It is there once this returns, complete, or not at all.
    ///
    /// # Errors
    /// See [`RecordError`]; nothing is left then, at the latest after `ttl`.
    pub async fn put(&self, name: &str, bytes: &[u8], ttl: Option<Duration>) -> Result<(), RecordError> {
        let mut writer = self.write(name, ttl);
        let written = async {
            writer.push(bytes).await?;
            writer.finish_ref().await
        };
        match written.await {
            Ok(()) => Ok(()),
            Err(error) => {
                writer.abandon().await;
                Err(error)
            }
        }
    }

    /// Begins to write an object, which is there once [`ObjectWriter::finish`] returns.
    pub fn write(&self, name: &str, ttl: Option<Duration>) -> ObjectWriter {
        ObjectWriter {
            shared: self.shared.clone(),
            name: name.into(),
            nuid: format!("{:032x}", rand::random::<u128>()),
            ttl,
            piece: Vec::new(),
            chunks: 0,
            size: 0,
            digest: Sha256::new(),
        }
    }

    /// Reads a small object; `None` if there is none.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, RecordError> {
        let Some(mut pieces) = self.read(name).await? else { return Ok(None) };
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.next().await {
            bytes.extend_from_slice(&piece?);
        }
        Ok(Some(bytes))
    }

    /// Reads an object piece by piece; `None` if there is none. An object that is removed meanwhile ends with
    /// [`RecordError::Missing`], never too early without an error.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn read(&self, name: &str) -> Result<Option<ObjectReader>, RecordError> {
        let Some(info) = self.info(name).await? else { return Ok(None) };
        let shared = self.shared.clone();
        let name = name.to_owned();
        let pieces = try_stream! {
            let subject = subject_of_pieces(&info.nuid);
            let mut from = 1;
            for at in 0..info.chunks {
                let stored = shared.stored(&stream(), &subject, Some(from)).await?.ok_or(RecordError::Missing)?;
                from = stored.revision + 1;
                let is_last = at + 1 == info.chunks;
                let piece = shared.key.open(&sealed_name(&name, at, is_last), &stored.payload)?;
                if !piece.is_empty() {
                    yield Bytes::from(piece);
                }
            }
        };
        Ok(Some(pieces.boxed()))
    }

    /// Removes an object; nothing happens if there is none.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn remove(&self, name: &str) -> Result<(), RecordError> {
        let info = self.info(name).await?;
        // The description first: then no reader begins an object that is being removed.
        purge(&self.shared, &subject_of_info(name)).await?;
        if let Some(info) = info {
            purge(&self.shared, &subject_of_pieces(&info.nuid)).await?;
        }
        Ok(())
    }

    /// How many objects there are; hubs have no permission to ask.
    ///
    /// # Errors
    /// See [`RecordError`].
    #[cfg(feature = "testing")]
    pub async fn count(&self) -> Result<usize, RecordError> {
        #[derive(Deserialize)]
        struct Reply {
            state: State,
        }
        #[derive(Deserialize)]
        struct State {
            #[serde(default)]
            subjects: std::collections::HashMap<String, u64>,
        }
        let asked = json!({"subjects_filter": format!("$O.{AUDIO}.M.>")});
        let reply: Reply = self.shared.api(&format!("STREAM.INFO.{}", stream()), &asked).await?;
        Ok(reply.state.subjects.len())
    }

    async fn info(&self, name: &str) -> Result<Option<Info>, RecordError> {
        let Some(stored) = self.shared.stored(&stream(), &subject_of_info(name), None).await? else { return Ok(None) };
        let info: Info = serde_json::from_slice(&stored.payload)
            .map_err(|error| RecordError::Refused(format!("a malformed description of an object: {error}")))?;
        let is_plain = info.nuid.bytes().all(|byte| byte.is_ascii_alphanumeric()) && !info.nuid.is_empty();
        Ok((!info.deleted && is_plain).then_some(info))
    }
}

/// An object that is being written. Dropping it without [`finish`](Self::finish) leaves pieces that are not read until their
/// time to live ends; [`abandon`](Self::abandon) removes them.
pub struct ObjectWriter {
    shared: Arc<JetStreamContext>,
    name: String,
    nuid: String,
    ttl: Option<Duration>,
    /// What is not sent yet: less than two pieces.
    piece: Vec<u8>,
    chunks: u64,
    size: u64,
    digest: Sha256,
}

impl ObjectWriter {
    /// Appends bytes; waits for JetStream's reply to each full piece.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            // The last piece is sealed as such, so one full piece is kept back.
            if self.piece.len() == PIECE_BYTES {
                self.send(false).await?;
            }
            let n = rest.len().min(PIECE_BYTES - self.piece.len());
            self.piece.extend_from_slice(&rest[..n]);
            rest = &rest[n..];
        }
        Ok(())
    }

    /// Publishes the object, in the place of one of the same name.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub async fn finish(mut self) -> Result<(), RecordError> {
        match self.finish_ref().await {
            Ok(()) => Ok(()),
            Err(error) => {
                self.abandon().await;
                Err(error)
            }
        }
    }

    async fn finish_ref(&mut self) -> Result<(), RecordError> {
        self.send(true).await?;
        let objects = Objects { shared: self.shared.clone() };
        let before = objects.info(&self.name).await?;
        let info = Info {
            name: self.name.clone(),
            bucket: AUDIO.into(),
            nuid: self.nuid.clone(),
            size: self.size,
            chunks: self.chunks,
            digest: format!("SHA-256={}", URL_SAFE.encode(self.digest.clone().finalize())),
            mtime: rfc3339(SystemTime::now()),
            deleted: false,
        };
        let info = serde_json::to_vec(&info).expect("texts and numbers are JSON");
        let with = With { ttl: self.ttl, rolls_up: true, ..With::default() };
        self.shared.publish(subject_of_info(&self.name), info.into(), with).await?;
        if let Some(before) = before {
            // They cannot be read any more; should this fail, they go with their time to live.
            let _ = purge(&self.shared, &subject_of_pieces(&before.nuid)).await;
        }
        Ok(())
    }

    /// Removes what was written so far. Should that fail, it goes with its time to live.
    pub async fn abandon(self) {
        let _ = purge(&self.shared, &subject_of_pieces(&self.nuid)).await;
    }

    async fn send(&mut self, is_last: bool) -> Result<(), RecordError> {
        let sealed = self.shared.key.seal(&sealed_name(&self.name, self.chunks, is_last), &self.piece);
        self.digest.update(&sealed);
        self.size += sealed.len() as u64;
        let with = With { ttl: self.ttl, ..With::default() };
        self.shared.publish(subject_of_pieces(&self.nuid), sealed.into(), with).await?;
        self.chunks += 1;
        self.piece.clear();
        Ok(())
    }
}

async fn purge(shared: &JetStreamContext, subject: &str) -> Result<(), ApiError> {
    shared.api::<Value>(&format!("STREAM.PURGE.{}", stream()), &json!({"filter": subject})).await.map(drop)
}

fn stream() -> String {
    format!("OBJ_{AUDIO}")
}

fn subject_of_pieces(nuid: &str) -> String {
    format!("$O.{AUDIO}.C.{nuid}")
}

fn subject_of_info(name: &str) -> String {
    format!("$O.{AUDIO}.M.{}", URL_SAFE.encode(name))
}

fn sealed_name(name: &str, at: u64, is_last: bool) -> String {
    format!("{AUDIO}/{at}{}/{name}", if is_last { "." } else { "" })
}

/// A time as NATS writes it: UTC.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let days = seconds.div_euclid(86_400);
    let of_day = seconds.rem_euclid(86_400);
    // Days to a date of the Gregorian calendar, counted from 1 March of year 0 (Hinnant, "chrono-compatible date algorithms").
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let hour = of_day / 3_600;
    let minute = of_day / 60 % 60;
    let second = of_day % 60;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400 + 3_661), "2000-02-29T01:01:01Z");
        assert_eq!(at(1_795_379_999), "2026-11-22T20:39:59Z");
    }
}
