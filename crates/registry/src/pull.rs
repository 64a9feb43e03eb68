//! Downloads a model: all files of one precision, or none.
//!
//! The command line and the server create a [`Puller`] and watch its progress. Files are downloaded one after the other
//! into `.part` files, verified, and renamed together. Where they are published in an archive, that is downloaded in
//! the same way, the missing files are taken out of it, and it is removed. Dropping the future stops immediately and
//! keeps the partial files for the next pull. A file lock ensures that only one process downloads a model at a time.

use super::disk::{FileReceipt, Receipt, is_shipped, part};
use super::download::{self, Source};
use super::unpack::{self, Member};
use super::{Entry, FileEntry, ModelsConfig, RegistryError, Variant, checksum::Hasher, format};
use antiphon_types::RetryPolicy;
use reqwest::{Client, Proxy, Url, redirect};
use serde::Serialize;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Maximum number of redirects; model hosts redirect to their storage.
const MAX_REDIRECTS: usize = 10;

/// How often a lock is tried whose file is removed meanwhile.
const MAX_LOCK_ATTEMPTS: usize = 8;

/// Progress of a download.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Current phase.
    pub phase: Phase,
    /// Current file.
    pub file: String,
    /// Number of complete files.
    pub n_done: usize,
    /// Total number of files.
    pub n_files: usize,
    /// Bytes on disk, including those of earlier pulls.
    pub bytes: u64,
    /// Total bytes, as far as known.
    pub total_bytes: u64,
}

/// Phase of the download of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The request was sent.
    #[default]
    Asking,
    /// Data is being received.
    Fetching,
    /// The checksum is being computed.
    Checking,
    /// The complete model is in place.
    Done,
}

/// Timeouts and retries of a download.
#[derive(Clone, Copy, Debug)]
pub struct PullTimeouts {
    /// Timeout for connecting.
    pub connect: Duration,
    /// Timeout for the response headers, and for each further block of data.
    pub stall: Duration,
    /// Attempts in a row without progress.
    pub retry: RetryPolicy,
}

impl Default for PullTimeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        let retry = RetryPolicy { max_retries: 4, ..RetryPolicy::unbounded(seconds(1), seconds(32)) };
        Self { connect: seconds(8), stall: seconds(60), retry }
    }
}

/// Downloads models with one set of settings.
pub struct Puller {
    config: ModelsConfig,
    client: Client,
    timeouts: PullTimeouts,
}

impl Puller {
    /// Creates a puller; opens no connection.
    pub fn new(config: &ModelsConfig, timeouts: PullTimeouts) -> Result<Self, RegistryError> {
        // Only the first installation takes effect; a second is not an error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .connect_timeout(timeouts.connect)
            .user_agent(concat!("antiphon/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::custom(onward));
        if !config.proxy.is_empty() {
            let proxy = Proxy::all(&config.proxy)
                .map_err(|error| RegistryError::Setting(format!("models.proxy {:?}: {error}", config.proxy)))?;
            builder = builder.no_proxy().proxy(proxy);
        } else if mirror(config)?.is_some_and(|url| is_loopback(&url)) {
            // No proxy can reach this machine.
            builder = builder.no_proxy();
        }
        let client =
            builder.build().map_err(|error| RegistryError::Setting(format!("no HTTPS client can be made: {error}")))?;
        Ok(Self { config: config.clone(), client, timeouts })
    }

    /// Downloads the missing files of the variant and verifies all files, including existing ones. No file is in place
    /// before all are complete. `progress` always holds the latest state. Where the installation's copy is in use
    /// ([`super::is_shipped`]), nothing is downloaded or verified.
    pub async fn pull(
        &self,
        entry: &Entry,
        variant: &Variant,
        progress: &watch::Sender<Progress>,
    ) -> Result<(), RegistryError> {
        if variant.files.iter().any(|file| file.address.is_empty()) {
            let name = entry.name.clone();
            return Err(match &entry.package {
                Some(package) => RegistryError::InPackage { name, package: package.clone() },
                None => RegistryError::Imported(name),
            });
        }
        let mut reporter = ProgressReporter::new(variant, progress);
        if is_shipped(&self.config, entry, variant) {
            reporter.phase(Phase::Done);
            return Ok(());
        }
        let lock = Arc::new(Lock::take(&self.config, &entry.name)?);
        let folder = self.config.folder(&entry.name);
        // A pull that brings nothing leaves nothing, however it ends.
        let _emptied = EmptyFolders(&folder);
        let mut receipt = Receipt::read(&folder);
        let mut moves = Vec::new();
        let mut packed = Vec::new();
        for file in &variant.files {
            reporter.begin(file);
            let path = folder.join(&file.path);
            if let Some(kept) = self.whole(file, &path, receipt.files.get(&file.path)).await? {
                reporter.end(kept.bytes);
                receipt.files.insert(file.path.clone(), kept);
                continue;
            }
            let below = path.parent().expect("a file in a folder");
            std::fs::create_dir_all(below).map_err(RegistryError::disk(below, "the folder cannot be created"))?;
            if variant.archive.is_some() {
                packed.push(file);
                continue;
            }
            let kept = download::fetch(&self.source(file)?, &part(&path), &mut reporter).await?;
            reporter.end(kept.bytes);
            receipt.files.insert(file.path.clone(), kept);
            moves.push(path);
        }
        if let Some(archive) = variant.archive.as_ref() {
            let path = part(&folder.join(&archive.path));
            if !packed.is_empty() {
                reporter.begin_archive(archive);
                download::fetch(&self.source(archive)?, &path, &mut reporter).await?;
                self.unpack(&path, archive, &packed, &folder, &lock).await?;
            }
            for file in &packed {
                let path = folder.join(&file.path);
                let checked = self.source(file)?.check(&part(&path)).await;
                if checked.is_err() {
                    discard_all(&folder, archive, &packed)?;
                }
                let kept = checked?;
                reporter.end(kept.bytes);
                receipt.files.insert(file.path.clone(), kept);
                moves.push(path);
            }
        }
        receipt.write(&folder)?;
        for path in &moves {
            std::fs::rename(part(path), path).map_err(RegistryError::disk(path, "cannot be renamed into place"))?;
            // The tag marked a .part file as complete, for a pull interrupted after it.
            let _ = std::fs::remove_file(download::tag_of(&part(path)));
        }
        if let Some(archive) = &variant.archive {
            download::discard(&part(&folder.join(&archive.path)))?;
        }
        reporter.phase(Phase::Done);
        Ok(())
    }

    fn source<'a>(&'a self, file: &'a FileEntry) -> Result<Source<'a>, RegistryError> {
        Ok(Source { client: &self.client, address: self.address(file)?, file, timeouts: self.timeouts })
    }

    /// Takes the files out of the archive at `path`, into their `.part` files. Dropping it ends the work at its next
    /// block; the lock of the model is held until then.
    async fn unpack(
        &self,
        path: &Path,
        archive: &FileEntry,
        files: &[&FileEntry],
        folder: &Path,
        lock: &Arc<Lock>,
    ) -> Result<(), RegistryError> {
        let need = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.about_bytes));
        // What an earlier unpacking left is overwritten.
        let left = files.iter().map(|file| download::length(&part(&folder.join(&file.path)))).sum();
        download::has_room(path, need, left)?;
        let member = |file: &&FileEntry| Member {
            name: file.member.clone().unwrap_or_default(),
            to: part(&folder.join(&file.path)),
            most_bytes: file.most_bytes(),
        };
        let members: Vec<_> = files.iter().map(member).collect();
        let address = self.address(archive)?.to_string();
        let lock = lock.clone();
        let dropped = CancellationToken::new();
        let _guard = dropped.clone().drop_guard();
        let from = path.to_owned();
        let unpacked = tokio::task::spawn_blocking(move || {
            let _lock = lock;
            unpack::unpack(&from, &members, &address, &dropped)
        });
        let interrupted =
            || RegistryError::disk(path, "cannot be unpacked")(std::io::Error::other("it was interrupted"));
        let unpacked = unpacked.await.unwrap_or_else(|_| Err(interrupted()));
        if matches!(unpacked, Err(RegistryError::BadArchive { .. })) {
            discard_all(folder, archive, files)?;
        }
        unpacked
    }

    /// The receipt entry of the file if it is in place and valid; `kept` is the recorded one. An invalid file is
    /// deleted.
    async fn whole(
        &self,
        file: &FileEntry,
        path: &Path,
        kept: Option<&FileReceipt>,
    ) -> Result<Option<FileReceipt>, RegistryError> {
        if !path.is_file() {
            return Ok(None);
        }
        let computed = hashed(path).await?;
        let found = FileReceipt { bytes: computed.n_bytes(), sha256: computed.sha256() };
        let as_published =
            file.sum.as_ref().map(|_| file.sums().any(|published| computed.like(published) == *published));
        let as_pulled = kept.map(|kept| *kept == found);
        let right_size = file.bytes.is_none_or(|bytes| bytes == found.bytes) && found.bytes > 0;
        let right_form =
            as_published.is_some() || found.bytes >= file.least_bytes() && wrong_format(path, file).await?.is_none();
        if as_published.or(as_pulled).unwrap_or(true) && right_size && right_form {
            return Ok(Some(found));
        }
        tracing::warn!(file = %path.display(), "the file is damaged and is fetched again");
        std::fs::remove_file(path).map_err(RegistryError::disk(path, "is damaged and cannot be removed"))?;
        Ok(None)
    }

    /// The download address: with a mirror, the same path there.
    fn address(&self, file: &FileEntry) -> Result<Url, RegistryError> {
        let wrong = |error| RegistryError::Setting(format!("{}: {error}", file.address));
        let url = Url::parse(&file.address).map_err(|error| wrong(error.to_string()))?;
        match mirror(&self.config)? {
            Some(mirror) => {
                let path = format!("{}{}", mirror.path().trim_end_matches('/'), url.path());
                let mut moved = mirror;
                moved.set_path(&path);
                Ok(moved)
            }
            None => Ok(url),
        }
    }
}

/// Removes an archive and what came of it.
fn discard_all(folder: &Path, archive: &FileEntry, files: &[&FileEntry]) -> Result<(), RegistryError> {
    let mut all = files.iter().copied().chain([archive]);
    all.try_for_each(|file| download::discard(&part(&folder.join(&file.path))))
}

fn mirror(config: &ModelsConfig) -> Result<Option<Url>, RegistryError> {
    if config.mirror.is_empty() {
        return Ok(None);
    }
    let wrong = |why: String| RegistryError::Setting(format!("models.mirror {:?}: {why}", config.mirror));
    Ok(Some(Url::parse(&config.mirror).map_err(|error| wrong(error.to_string()))?))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Follows redirects to https addresses, and from http to http if the host stays the same or both addresses are on this
/// machine. No key is ever sent, so none is forwarded.
fn onward(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let is_safe = attempt.previous().last().is_some_and(|from| may_redirect(from, attempt.url()));
    if attempt.previous().len() > MAX_REDIRECTS || !is_safe {
        return attempt.error("the server sends on to a place that is not safe, or without end");
    }
    attempt.follow()
}

fn may_redirect(from: &Url, to: &Url) -> bool {
    let same_host = from.host_str() == to.host_str() && from.port_or_known_default() == to.port_or_known_default();
    match to.scheme() {
        "https" => true,
        "http" => from.scheme() == "http" && (same_host || is_loopback(from) && is_loopback(to)),
        _ => false,
    }
}

pub(super) async fn hashed(path: &Path) -> Result<Hasher, RegistryError> {
    let read = path.to_owned();
    let named = path.to_owned();
    let computed = tokio::task::spawn_blocking(move || Hasher::of_file(&read)).await;
    let computed = computed.unwrap_or_else(|_| Err(std::io::Error::other("reading was interrupted")));
    computed.map_err(RegistryError::disk(&named, "cannot be read"))
}

/// What the file at `path` should be, where it is something else than its name says.
pub(super) async fn wrong_format(path: &Path, file: &FileEntry) -> Result<Option<&'static str>, RegistryError> {
    let read = path.to_owned();
    let name = file.path.clone();
    let checked = tokio::task::spawn_blocking(move || format::mismatch(&read, &name)).await;
    let checked = checked.unwrap_or_else(|_| Err(std::io::Error::other("reading was interrupted")));
    checked.map_err(RegistryError::disk(path, "cannot be read"))
}

/// Publishes the progress of a download.
pub(super) struct ProgressReporter<'a> {
    progress: &'a watch::Sender<Progress>,
    state: Progress,
    /// Bytes of the complete files.
    before: u64,
    /// Bytes of the files after the current one.
    after: u64,
    about: u64,
}

impl<'a> ProgressReporter<'a> {
    fn new(variant: &Variant, progress: &'a watch::Sender<Progress>) -> Self {
        let all = variant.about_bytes();
        let state = Progress { n_files: variant.files.len(), total_bytes: all, ..Progress::default() };
        Self { progress, state, before: 0, after: all, about: 0 }
    }

    fn begin(&mut self, file: &FileEntry) {
        self.about = file.about_bytes;
        self.after = self.after.saturating_sub(file.about_bytes);
        self.state.file = file.path.clone();
        self.phase(Phase::Asking);
    }

    /// The download of an archive begins, of which files of their size come: what is still to come is what it has.
    fn begin_archive(&mut self, archive: &FileEntry) {
        self.about = archive.about_bytes;
        self.after = 0;
        self.state.file = archive.path.clone();
        self.phase(Phase::Asking);
    }

    /// Reports that `had` bytes of the current file are on disk; `total` is its size according to the server.
    pub(super) fn fetched(&mut self, had: u64, total: Option<u64>) {
        self.about = total.unwrap_or(self.about.max(had));
        self.state.bytes = self.before + had;
        self.state.total_bytes = self.before + self.about + self.after;
        self.phase(Phase::Fetching);
    }

    pub(super) fn phase(&mut self, phase: Phase) {
        self.state.phase = phase;
        self.progress.send_replace(self.state.clone());
    }

    fn end(&mut self, bytes: u64) {
        self.before += bytes;
        self.state.n_done += 1;
        self.state.bytes = self.before;
        self.state.total_bytes = self.before + self.after;
        self.progress.send_replace(self.state.clone());
    }
}

/// Removes the folder of a model, and those in it, where they are empty when it is dropped.
pub(super) struct EmptyFolders<'a>(pub(super) &'a Path);

impl Drop for EmptyFolders<'_> {
    fn drop(&mut self) {
        remove_empty(self.0);
    }
}

/// Removes empty folders from the innermost one on.
fn remove_empty(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(&entry.path());
        }
    }
    // The system refuses where there is something in it.
    let _ = std::fs::remove_dir(folder);
}

/// Held while a model is downloaded or removed; visible to other processes and requests. Its file ends with it.
pub(super) struct Lock {
    path: PathBuf,
    /// The lock lasts as long as the file is open.
    file: File,
    /// The folder of models was made for it, and goes with it if it is still empty.
    made_dir: bool,
}

impl Lock {
    /// Acquires the model's lock without waiting.
    pub(super) fn take(config: &ModelsConfig, name: &str) -> Result<Self, RegistryError> {
        let dir = Path::new(&config.dir);
        let made_dir = !dir.exists();
        std::fs::create_dir_all(dir).map_err(RegistryError::disk(dir, "the folder of models.dir cannot be created"))?;
        let path: PathBuf = dir.join(format!(".{name}.lock"));
        for _ in 0..MAX_LOCK_ATTEMPTS {
            let file = File::options().create(true).append(true).open(&path);
            let file = file.map_err(RegistryError::disk(&path, "cannot be written"))?;
            match file.try_lock() {
                // The holder before may have removed it since it was opened: a lock that no other process can see.
                Ok(()) if is_at(&file, &path) => return Ok(Self { path, file, made_dir }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(error)) => return Err(RegistryError::disk(&path, "cannot be locked")(error)),
            }
        }
        Err(RegistryError::Busy(name.into()))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if is_at(&self.file, &self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
        if let Some(dir) = self.path.parent().filter(|_| self.made_dir) {
            let _ = std::fs::remove_dir(dir);
        }
    }
}

/// Whether the file at this path is the open one.
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let open = file.metadata().map(id);
    let there = std::fs::metadata(path).map(id);
    open.is_ok_and(|open| there.is_ok_and(|there| open == there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_never_leave_https_and_never_reach_another_host_over_http() {
        for (from, to, expected) in [
            ("https://hub.example/a", "https://cdn.example/a", true),
            ("http://mirror.example/a", "https://cdn.example/a", true),
            ("http://mirror.example/a", "http://mirror.example/b", true),
            ("http://127.0.0.1:1/a", "http://localhost:2/a", true),
            ("https://hub.example/a", "http://hub.example/a", false),
            ("https://hub.example/a", "http://127.0.0.1/a", false),
            ("http://mirror.example/a", "http://169.254.169.254/a", false),
            ("http://127.0.0.1/a", "http://cdn.example/a", false),
            ("https://hub.example/a", "file:///etc/hosts", false),
        ] {
            let [from, to] = [from, to].map(|url| Url::parse(url).unwrap());
            assert_eq!(may_redirect(&from, &to), expected, "{from} -> {to}");
        }
    }
}
