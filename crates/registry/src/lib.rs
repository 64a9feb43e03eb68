//! The model registry: which models exist, where their files are on disk, and how they are downloaded.
//!
//! `models/registry.toml`, built into the binary, lists the models ([`Catalog`]); [`locate`] finds a model's files on
//! disk; [`Puller`] downloads them; [`install()`] places files that an operator brings ([`Brought`]). `engines` locates models; the command line and the server list and download
//! them. A model is a folder below `models.dir`. This crate never loads a model, has no engine-specific code, and
//! downloads only on request.
//!
//! An incomplete download is never used: a file is written under a name that ends in `.part`, verified, and renamed
//! once all files of its precision are complete. A model with a missing file counts as absent.

mod brought;
mod catalog;
mod checksum;
mod config;
mod disk;
mod download;
mod entry;
mod error;
mod format;
mod install;
mod pull;
#[cfg(test)]
mod pull_host;
#[cfg(test)]
mod pull_tests;
mod unpack;

pub use brought::{Brought, BroughtFile};
pub use catalog::{BUILT_IN, Catalog, ModelRequest};
pub use checksum::{Sum, sha256};
pub use config::ModelsConfig;
pub use disk::{LocatedModel, OnDisk, folder_of, is_shipped, locate, on_disk, remove};
pub use entry::{Entry, FileEntry, Stage, Variant};
pub use error::RegistryError;
pub use install::{FileToPlace, install};
pub use pull::{Phase, Progress, PullTimeouts, Puller};
