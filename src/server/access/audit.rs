//! The audit log (`server.audit_log`): who did what, when, with which outcome, as lines of JSON.
//!
//! [`super::security`] and the session slots write to it; a task of the server ([`Writer::run`]) appends to the file. A line holds
//! the key's name, the client's address, the action and the id of what it was done to: never content, a key, a query or a body.
//! Writing never waits: where the writer is behind, a line is dropped, and the next one says how many.

use antiphon_types::KeyId;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Lines that wait for the disk, about 300 bytes each.
const WAITING: usize = 1_024;
/// Lines that are written in one go.
const AT_ONCE: usize = 256;

/// One line, without its time.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Line<'a> {
    /// What was done, such as `session.start`.
    pub(in crate::server) action: &'static str,
    pub(in crate::server) key: Option<KeyId>,
    /// The key's name.
    pub(in crate::server) name: Option<&'a str>,
    pub(in crate::server) address: Option<IpAddr>,
    /// The id of what it was done to, or the route.
    pub(in crate::server) target: Option<&'a str>,
    /// `ok`, or why not.
    pub(in crate::server) outcome: &'a str,
    /// Lines like this one that were left out before it.
    pub(in crate::server) left_out: u64,
}

#[derive(Serialize)]
struct AuditLine<'a> {
    at: String,
    action: &'a str,
    key: Option<&'a str>,
    key_id: Option<String>,
    address: Option<IpAddr>,
    target: Option<&'a str>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    left_out: u64,
    /// Lines that were lost before this one because the disk was behind.
    #[serde(skip_serializing_if = "is_zero")]
    lost: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

enum Order {
    Line(String),
    /// Opens the file again: it was renamed.
    Reopen,
}

/// The log; without a file it does nothing.
#[derive(Default)]
pub(in crate::server) struct Audit {
    sender: Option<mpsc::Sender<Order>>,
    lost: AtomicU64,
}

/// The task's part.
pub(in crate::server) struct Writer {
    path: PathBuf,
    file: File,
    orders: mpsc::Receiver<Order>,
}

impl Audit {
    /// Opens the file; empty: no log. Blocks for the opening.
    ///
    /// # Errors
    /// The file cannot be opened or created.
    pub(in crate::server) fn open(path: &str) -> std::io::Result<(Self, Option<Writer>)> {
        if path.is_empty() {
            return Ok((Self::default(), None));
        }
        let path = PathBuf::from(path);
        let why = |error: std::io::Error| {
            std::io::Error::new(error.kind(), format!("server.audit_log: {}: {error}", path.display()))
        };
        let file = opened(&path).map_err(why)?;
        let (sender, orders) = mpsc::channel(WAITING);
        Ok((Self { sender: Some(sender), lost: AtomicU64::new(0) }, Some(Writer { path, file, orders })))
    }

    /// Adds a line. Never waits.
    pub(in crate::server) fn write(&self, line: Line<'_>) {
        let Some(sender) = &self.sender else { return };
        let Line { action, key, name, address, target, outcome, left_out } = line;
        let Ok(place) = sender.try_reserve() else {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let written = AuditLine {
            at: format!("{:.3}", jiff::Timestamp::now()),
            action,
            key: name,
            key_id: key.map(|key| key.to_string()),
            address,
            target,
            outcome,
            left_out,
            lost: self.lost.swap(0, Ordering::Relaxed),
        };
        place.send(Order::Line(serde_json::to_string(&written).expect("string keys and no failing parts")));
    }

    /// Opens the file again, so that the old one may have been renamed.
    pub(in crate::server) fn reopen(&self) {
        if let Some(sender) = &self.sender
            && sender.try_send(Order::Reopen).is_err()
        {
            tracing::warn!("the audit log cannot be reopened now: send SIGHUP again");
        }
    }
}

impl Writer {
    /// Writes until `stopped`, and then what waits.
    pub(in crate::server) async fn run(mut self, stopped: CancellationToken) {
        let mut orders = Vec::with_capacity(AT_ONCE);
        loop {
            tokio::select! {
                biased;
                n = self.orders.recv_many(&mut orders, AT_ONCE) => if n == 0 { return },
                () = stopped.cancelled() => return,
            }
            let writer = self;
            let taken = std::mem::take(&mut orders);
            // A disk may block for long.
            let written = tokio::task::spawn_blocking(move || writer.take(taken)).await;
            let Ok(writer) = written else { return };
            self = writer;
        }
    }

    fn take(mut self, orders: Vec<Order>) -> Self {
        let mut text = String::new();
        for order in orders {
            match order {
                Order::Line(line) => {
                    text.push_str(&line);
                    text.push('\n');
                }
                Order::Reopen => {
                    self.append(&mut text);
                    match opened(&self.path) {
                        Ok(file) => self.file = file,
                        Err(error) => {
                            tracing::error!(%error, "the audit log cannot be reopened; the old file stays in use");
                        }
                    }
                }
            }
        }
        self.append(&mut text);
        self
    }

    fn append(&mut self, text: &mut String) {
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            let lost = text.lines().count();
            tracing::error!(%error, lost, "the audit log cannot be written");
        }
        text.clear();
    }
}

fn opened(path: &Path) -> std::io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn lines_are_lost_and_counted_where_the_disk_is_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        let (audit, writer) = Audit::open(path.to_str().unwrap()).unwrap();
        for _ in 0..WAITING + 7 {
            audit.write(Line { action: "session.start", outcome: "ok", ..Line::default() });
        }
        let stop = CancellationToken::new();
        let running = writer.unwrap().run(stop.clone());
        let rest = async {
            while audit.sender.as_ref().unwrap().capacity() < WAITING {
                tokio::task::yield_now().await;
            }
            audit.write(Line { action: "session.end", outcome: "ok", ..Line::default() });
            std::fs::rename(&path, folder.path().join("audit.1")).unwrap();
            while audit.sender.as_ref().unwrap().capacity() < WAITING {
                tokio::task::yield_now().await;
            }
            audit.reopen();
            audit.write(Line { action: "config.reload", outcome: "ok", ..Line::default() });
            stop.cancel();
        };
        tokio::join!(running, rest);
        let old = lines(&folder.path().join("audit.1"));
        assert_eq!(old.len(), WAITING + 1);
        assert_eq!((&old[WAITING]["action"], &old[WAITING]["lost"]), (&"session.end".into(), &7.into()));
        assert!(old[0].get("lost").is_none());
        let new = lines(&path);
        assert_eq!((new.len(), &new[0]["action"]), (1, &"config.reload".into()));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Audit::open("/nowhere/audit").err().unwrap().to_string().contains("server.audit_log"));
    }
}
