//! Downloads one file into a `.part` file and resumes interrupted transfers.
//!
//! [`super::Puller`] calls [`fetch`] and renames the file afterwards. Resumed bytes must belong to the same version of
//! the file: the range request is conditional on the server's ETag, or the published checksum is verified over the
//! complete file. Without either, an interrupted transfer is restarted.

use super::disk::FileReceipt;
use super::pull::{Phase, ProgressReporter, PullTimeouts, hashed, wrong_format};
use super::{FileEntry, RegistryError};
use futures_util::{StreamExt, stream};
use reqwest::header::{CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode, Url};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

/// The slowest accepted transfer, in bytes per second, after an initial wait of twice the stall timeout. A slower
/// server is given up.
const MIN_RATE: u64 = 4 << 10;
/// Total number of requests for one file, even if each makes progress.
const MAX_ATTEMPTS: u32 = 100;

/// A file and its origin.
pub(super) struct Source<'a> {
    pub(super) client: &'a Client,
    pub(super) address: Url,
    pub(super) file: &'a FileEntry,
    pub(super) timeouts: PullTimeouts,
}

/// How an attempt ended.
enum AttemptEnd {
    /// The file is complete.
    Whole,
    /// The connection broke, or the server asks to retry; the error is reported if this was the last attempt.
    Broke(RegistryError),
    /// The transfer was too slow to finish; this does not count as progress.
    Slow(RegistryError),
}

/// Downloads the file into `part` and verifies it. Invalid data is deleted; incomplete data is kept for the next
/// attempt.
pub(super) async fn fetch(
    source: &Source<'_>,
    part: &Path,
    reporter: &mut ProgressReporter<'_>,
) -> Result<FileReceipt, RegistryError> {
    let mut pauses = source.timeouts.retry.pauses();
    let mut brought_any = false;
    let mut attempts = 0;
    loop {
        let had = length(part);
        if source.file.bytes == Some(had) {
            break;
        }
        let ended = source.attempt(part, had, reporter).await?;
        let is_slow = matches!(ended, AttemptEnd::Slow(_));
        match ended {
            AttemptEnd::Whole => break,
            // An unreachable server is not retried, unless it was reachable before.
            AttemptEnd::Broke(error @ RegistryError::Unreachable { .. }) if !brought_any => return Err(error),
            AttemptEnd::Broke(error) | AttemptEnd::Slow(error) => {
                let progressed = length(part) > had && !is_slow;
                brought_any |= progressed;
                if progressed {
                    pauses.restart();
                }
                attempts += 1;
                let pause = pauses.next().filter(|_| attempts < MAX_ATTEMPTS);
                let Some(pause) = pause else { return Err(error) };
                tracing::debug!(%error, attempts, "another attempt");
                sleep(pause).await;
            }
        }
    }
    reporter.phase(Phase::Checking);
    source.check(part).await
}

impl Source<'_> {
    /// Sends one request, for the bytes from `had` on if possible.
    async fn attempt(
        &self,
        part: &Path,
        had: u64,
        reporter: &mut ProgressReporter<'_>,
    ) -> Result<AttemptEnd, RegistryError> {
        let tag = std::fs::read_to_string(tag_of(part)).ok().filter(|tag| !tag.is_empty());
        let resumes = had > 0 && (tag.is_some() || self.file.sum.is_some());
        let mut request = self.client.get(self.address.clone());
        if resumes {
            request = request.header(RANGE, format!("bytes={had}-"));
            if let Some(tag) = &tag {
                request = request.header(IF_RANGE, tag);
            }
        }
        let response = match timeout(self.timeouts.stall, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(source)) if source.is_connect() || source.is_timeout() => {
                let host = self.address.host_str().unwrap_or_default().to_owned();
                return Ok(AttemptEnd::Broke(RegistryError::Unreachable { host, source }));
            }
            Ok(Err(error)) if error.is_redirect() => {
                return Err(RegistryError::SentAway { address: self.address.to_string(), source: error });
            }
            Ok(Err(_)) | Err(_) => return Ok(self.broken(had)),
        };
        let status = response.status();
        match status {
            StatusCode::OK => self.take(response, part, 0, resumes, reporter).await,
            StatusCode::PARTIAL_CONTENT if range_of(&response).is_some_and(|(from, _)| from == Some(had)) => {
                self.take(response, part, had, resumes, reporter).await
            }
            // The server has no further bytes: the file is complete.
            StatusCode::RANGE_NOT_SATISFIABLE if range_of(&response) == Some((None, Some(had))) => {
                Ok(AttemptEnd::Whole)
            }
            StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE => {
                discard(part)?;
                Ok(self.broken(0))
            }
            _ => {
                let refused = RegistryError::Refused { address: self.address.to_string(), status: status.as_u16() };
                let later = status.is_server_error() || [408, 429].contains(&status.as_u16());
                if later { Ok(AttemptEnd::Broke(refused)) } else { Err(refused) }
            }
        }
    }

    /// Appends the response body after the first `from` bytes. `resumes`: the bytes after those in `part` were asked for.
    async fn take(
        &self,
        mut response: Response,
        part: &Path,
        from: u64,
        resumes: bool,
        reporter: &mut ProgressReporter<'_>,
    ) -> Result<AttemptEnd, RegistryError> {
        let announced = match range_of(&response) {
            Some((_, total)) if from > 0 => total,
            _ => response.content_length(),
        };
        let limit = self.file.bytes.or(announced);
        let least = self.file.least_bytes();
        let most = self.file.most_bytes();
        // Where the answer is no range of the file, it may be a page of a portal or of a proxy: it says nothing of the
        // bytes that came before.
        let refuse = |expected: u64, found: u64| -> Result<AttemptEnd, RegistryError> {
            if from > 0 {
                discard(part)?;
            }
            Err(self.wrong_size(expected, found))
        };
        if let Some(announced) = announced.filter(|announced| *announced < least) {
            return refuse(self.file.bytes.unwrap_or(self.file.about_bytes), announced);
        }
        has_room(part, limit.map_or(0, |limit| limit.saturating_sub(from)), length(part).saturating_sub(from))?;
        if let Some(announced) = announced.filter(|announced| *announced > most) {
            return refuse(most, announced);
        }
        // An answer of unknown length in place of the rest is the file only if it begins like the part.
        let mut first = None;
        if resumes && from == 0 && announced.is_none() {
            first = timeout(self.timeouts.stall, response.chunk()).await.ok().and_then(Result::ok).flatten();
            let Some(piece) = &first else { return Ok(self.broken(length(part))) };
            if !begins_like(part, piece)? {
                return Err(RegistryError::OtherAnswer { address: self.address.to_string(), part: part.to_owned() });
            }
        }
        keep_tag(&response, part)?;
        let file = File::options().create(true).append(from > 0).write(true).truncate(from == 0).open(part).await;
        let mut file = file.map_err(RegistryError::disk(part, "cannot be written"))?;
        let mut had = from;
        let mut pieces = stream::iter(first.map(Ok)).chain(response.bytes_stream());
        reporter.fetched(had, limit);
        let mut waited = Duration::ZERO;
        let whole = loop {
            let begun = Instant::now();
            let next = timeout(self.timeouts.stall, pieces.next()).await;
            waited += begun.elapsed();
            if waited > 2 * self.timeouts.stall + Duration::from_secs((had - from) / MIN_RATE) {
                file.flush().await.map_err(RegistryError::disk(part, "cannot be written"))?;
                return Ok(AttemptEnd::Slow(RegistryError::BrokenOff { address: self.address.to_string(), had }));
            }
            let piece = match next {
                Ok(Some(Ok(piece))) => piece,
                Ok(None) => break limit.is_none_or(|limit| had == limit),
                Ok(Some(Err(_))) | Err(_) => break false,
            };
            had += piece.len() as u64;
            if had > limit.unwrap_or(most) {
                drop(file);
                discard(part)?;
                return Err(self.wrong_size(limit.unwrap_or(most), had));
            }
            file.write_all(&piece).await.map_err(RegistryError::disk(part, "cannot be written"))?;
            reporter.fetched(had, limit);
        };
        // tokio's file reports a failed write at the next call: without the flush a full disk would be missed.
        file.flush().await.map_err(RegistryError::disk(part, "cannot be written"))?;
        if !whole {
            return Ok(self.broken(had));
        }
        file.sync_all().await.map_err(RegistryError::disk(part, "cannot be written"))?;
        Ok(AttemptEnd::Whole)
    }

    /// Computes the checksum of the file on disk and compares it; where none is published, checks format and size.
    pub(super) async fn check(&self, part: &Path) -> Result<FileReceipt, RegistryError> {
        let computed = hashed(part).await?;
        let found = computed.n_bytes();
        let expected = self.file.bytes;
        if expected.is_some_and(|expected| expected != found) || found == 0 {
            discard(part)?;
            return Err(self.wrong_size(expected.unwrap_or(self.file.about_bytes), found));
        }
        if self.file.sum.is_none() {
            if let Some(expected) = wrong_format(part, self.file).await? {
                discard(part)?;
                return Err(RegistryError::WrongFormat { address: self.address.to_string(), expected });
            }
            if found < self.file.least_bytes() {
                discard(part)?;
                return Err(self.wrong_size(self.file.about_bytes, found));
            }
        }
        if let Some(sum) = &self.file.sum {
            let found = computed.like(sum);
            if found != *sum {
                discard(part)?;
                let address = self.address.to_string();
                let expected = sum.to_string();
                return Err(RegistryError::WrongChecksum { address, expected, found: found.to_string() });
            }
        }
        Ok(FileReceipt { bytes: found, sha256: computed.sha256() })
    }

    fn broken(&self, had: u64) -> AttemptEnd {
        AttemptEnd::Broke(RegistryError::BrokenOff { address: self.address.to_string(), had })
    }

    fn wrong_size(&self, expected: u64, found: u64) -> RegistryError {
        RegistryError::WrongSize { address: self.address.to_string(), expected, found }
    }
}

/// Fails before the download if the disk has too little space for the file. `given_back` is the number of bytes of an
/// earlier transfer that will be overwritten.
pub(super) fn has_room(part: &Path, need: u64, given_back: u64) -> Result<(), RegistryError> {
    let Some(disk) = part.parent().and_then(|folder| rustix::fs::statvfs(folder).ok()) else {
        // If the file system does not report free space, a full disk is detected by a failing write.
        return Ok(());
    };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(given_back);
    if free < need {
        return Err(RegistryError::NoRoom { path: part.to_owned(), need, free });
    }
    Ok(())
}

/// `bytes FROM-TO/TOTAL`, and `bytes */TOTAL` of a refusal (RFC 9110, section 14.4).
fn range_of(response: &Response) -> Option<(Option<u64>, Option<u64>)> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?;
    let (span, total) = range.split_once('/')?;
    let from = span.split_once('-').and_then(|(from, _)| from.parse().ok());
    Some((from, total.parse().ok()))
}

/// The file that stores the ETag of `part`.
pub(super) fn tag_of(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_owned();
    name.push(".tag");
    name.into()
}

/// Stores a strong ETag; a weak one does not guarantee identical bytes.
fn keep_tag(response: &Response, part: &Path) -> Result<(), RegistryError> {
    let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.starts_with('"'));
    match tag {
        Some(tag) => std::fs::write(tag_of(part), tag).map_err(RegistryError::disk(&tag_of(part), "cannot be written")),
        None => remove(&tag_of(part)),
    }
}

/// Whether a file and `piece` are the same as far as both go.
fn begins_like(path: &Path, piece: &[u8]) -> Result<bool, RegistryError> {
    let file = std::fs::File::open(path).map_err(RegistryError::disk(path, "cannot be read"))?;
    let mut begin = Vec::new();
    file.take(piece.len() as u64).read_to_end(&mut begin).map_err(RegistryError::disk(path, "cannot be read"))?;
    Ok(piece.starts_with(&begin))
}

/// The bytes of a file; 0 where there is none.
pub(super) fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Removes a file on its way, and its tag.
pub(super) fn discard(part: &Path) -> Result<(), RegistryError> {
    remove(part)?;
    remove(&tag_of(part))
}

fn remove(path: &Path) -> Result<(), RegistryError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RegistryError::disk(path, "cannot be removed")(error))
        }
        _ => Ok(()),
    }
}
