//! Reports that a file has changed: written in place, or replaced as editors and orchestrators do it.
//!
//! `serve` watches the file of keys with it. The folder is watched, because a replaced file is another one; where the path is a
//! link, that of its target too. On systems without inotify there are no reports, and SIGHUP remains.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a file is left alone after a change, so that it is complete when it is read.
const SETTLES: Duration = Duration::from_millis(200);

/// The changes of one file.
pub(super) struct FileChanges {
    path: PathBuf,
    /// inotify's descriptor, which is read as a pipe is.
    #[cfg(target_os = "linux")]
    events: tokio::net::unix::pipe::Receiver,
}

#[cfg(target_os = "linux")]
impl FileChanges {
    /// Watches `path`, which need not exist; its folder must.
    ///
    /// # Errors
    /// The folder cannot be watched.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        use rustix::fs::inotify::{CreateFlags, init};
        let events = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let events = tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(events)?;
        let changes = Self { path: path.to_owned(), events };
        changes.watch()?;
        Ok(changes)
    }

    /// Waits until something in the file's folder has changed, and then until it settles. Cancel safe: a change that was not
    /// reported is reported by the next call.
    ///
    /// # Errors
    /// The folder cannot be watched any more.
    pub(super) async fn next(&mut self) -> io::Result<()> {
        self.events.readable().await?;
        tokio::time::sleep(SETTLES).await;
        let mut events = [0; 4_096];
        loop {
            match self.events.try_read(&mut events) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        // The target of a link may be another one now.
        self.watch()
    }

    fn watch(&self) -> io::Result<()> {
        use rustix::fs::inotify::{WatchFlags, add_watch};
        let what = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::CREATE
            | WatchFlags::DELETE;
        let folder = |path: &Path| match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        add_watch(&self.events, folder(&self.path), what)?;
        if let Ok(target) = self.path.canonicalize() {
            add_watch(&self.events, folder(&target), what)?;
        }
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
impl FileChanges {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned() })
    }

    pub(super) async fn next(&mut self) -> io::Result<()> {
        std::future::pending().await
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const TEST_TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn a_file_that_is_written_replaced_or_linked_again_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("keys");
        let other = folder.path().join("keys.tmp");
        let target = tempfile::tempdir().expect("a folder");
        let mut changes = FileChanges::of(&file).expect("watched");
        std::fs::write(&file, "one").expect("written");
        timeout(TEST_TIMEOUT, changes.next()).await.expect("reported").expect("watched");
        std::fs::write(&other, "two").expect("written");
        std::fs::rename(&other, &file).expect("replaced");
        timeout(TEST_TIMEOUT, changes.next()).await.expect("reported").expect("watched");
        assert_eq!(std::fs::read_to_string(&file).expect("there"), "two");
        let real = target.path().join("keys");
        std::fs::write(&real, "three").expect("written");
        std::os::unix::fs::symlink(&real, &other).expect("linked");
        std::fs::rename(&other, &file).expect("replaced");
        timeout(TEST_TIMEOUT, changes.next()).await.expect("reported").expect("watched");
        std::fs::write(&real, "four").expect("written");
        timeout(TEST_TIMEOUT, changes.next()).await.expect("reported").expect("watched");
        assert!(timeout(Duration::from_millis(300), changes.next()).await.is_err(), "nothing has changed");
    }
}
