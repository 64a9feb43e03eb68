//! What can be wrong with a model or its way here.

use std::io;
use std::path::{Path, PathBuf};

/// Why a model cannot be found, pulled or removed. Each message says what would be right.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The own registry file is wrong.
    #[error("{place}: {message}")]
    Catalog {
        /// The file.
        place: String,
        /// What is wrong in it, with the model's name.
        message: String,
    },
    /// No model has that name.
    #[error("there is no model {name:?}{}; `antiphon models list` shows them", suggestion(.near))]
    Unknown {
        /// As asked for.
        name: String,
        /// The nearest name, if one is near.
        near: Option<String>,
    },
    /// The model has no such precision.
    #[error("{name} has no precision {precision:?}; it has {}", .has.join(", "))]
    NoPrecision {
        /// The model.
        name: String,
        /// As asked for.
        precision: String,
        /// Those it has.
        has: Vec<String>,
    },
    /// The model is not on the disk.
    #[error("the model {name} is not in {}: get it with `antiphon models pull {name}`", .dir.display())]
    Absent {
        /// The model.
        name: String,
        /// Where models are.
        dir: PathBuf,
    },
    /// A file is not what was pulled.
    #[error("{}: {why}; pull the model again with `antiphon models pull`", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Another process, or another request, pulls or removes the model now.
    #[error("{0} is being pulled or removed already")]
    Busy(String),
    /// An engine works with the model.
    #[error("{0} is in use; choose another engine, or stop the hub, and try again")]
    InUse(String),
    /// The file system refuses.
    #[error("{}: {what}{}", .path.display(), hint(.source))]
    Disk {
        /// Which file or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The disk has less room than the file takes.
    #[error(
        "{}: {} MB are to come and the disk has {} MB left; make room, or set models.dir to another disk",
        .path.display(), .need.div_ceil(1_000_000), .free / 1_000_000
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Bytes that are missing of it.
        need: u64,
        /// Bytes that a user may still write.
        free: u64,
    },
    /// The setting for the proxy or the mirror is no address.
    #[error("{0}")]
    Setting(String),
    /// No connection.
    #[error(
        "{host} cannot be reached: is this machine online? A proxy is set by models.proxy or HTTPS_PROXY, a mirror by \
         models.mirror; files can also be copied by hand, see docs/guide/models.md"
    )]
    Unreachable {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The server says no.
    #[error("{address}: the server answered {status}{}", meaning(*.status))]
    Refused {
        /// What was asked for.
        address: String,
        /// HTTP.
        status: u16,
    },
    /// It sends on, over and over or away from https.
    #[error(
        "{address}: the server sends on to a place that is not safe, or without end; a mirror can be set by models.mirror"
    )]
    SentAway {
        /// What was asked for.
        address: String,
        /// How.
        #[source]
        source: reqwest::Error,
    },
    /// The transfer broke off, again and again.
    #[error("{address}: the transfer broke off after {} bytes; what is here is kept, and the next pull goes on from it", .had)]
    BrokenOff {
        /// What was asked for.
        address: String,
        /// What is on the disk.
        had: u64,
    },
    /// The file is longer or shorter than it should be.
    #[error(
        "{address}: it has {found} bytes and should have {expected}; the registry and the server do not mean the same file"
    )]
    WrongSize {
        /// What was asked for.
        address: String,
        /// By the registry, or the server's own word.
        expected: u64,
        /// What came, or was announced.
        found: u64,
    },
    /// The file is not the published one.
    #[error("{address}: wrong checksum: expected {expected}, found {found}; what was fetched has been thrown away")]
    WrongChecksum {
        /// What was asked for.
        address: String,
        /// Published.
        expected: String,
        /// Of what came.
        found: String,
    },
}

impl RegistryError {
    /// Whether there was no way to the server, or no answer worth the name: exit code 4 rather than 1.
    pub fn is_network(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused { .. } | Self::SentAway { .. } | Self::BrokenOff { .. })
    }

    pub(super) fn disk(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Disk { path, what, source }
    }
}

fn suggestion(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; did you mean {near:?}?")).unwrap_or_default()
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ": the disk is full; make room, or set models.dir to another disk. What is fetched is kept, and the next pull goes on from it"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ": not allowed; set models.dir to a folder this user may write"
        }
        _ => "",
    }
}

fn meaning(status: u16) -> &'static str {
    match status {
        401 | 403 => ": it wants an account or does not serve this place; a mirror can be set by models.mirror",
        404 | 410 => {
            ": the file is not there (any more); a newer registry can be set by models.registry, a mirror by models.mirror"
        }
        429 => ": too many requests; try again later",
        500.. => ": it has trouble of its own; try again later",
        _ => "",
    }
}
