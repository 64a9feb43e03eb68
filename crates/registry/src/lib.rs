//! The models the hub knows, where they lie, and how they get there.
//!
//! `models/registry.toml`, built into the binary, says what there is ([`Catalog`]); [`locate`] finds a model's files on the
//! disk; [`pull`](pull()) fetches them. `engines` asks what is there, `cli` and `server` show and pull it. A model is a
//! folder below `models.dir`. This module loads no model, knows no engine, and fetches nothing unless it is told to.
//!
//! What is half fetched never counts: a file is written under a name that ends in `.part`, checked, and moved into place
//! when all files of its precision are whole; a model with a file missing is not there.

mod catalog;
mod checksum;
mod config;
mod disk;
mod download;
mod entry;
mod error;
mod pull;
#[cfg(test)]
mod pull_host;
#[cfg(test)]
mod pull_tests;

pub use catalog::{BUILT_IN, Catalog, Wanted};
pub use checksum::Sum;
pub use config::ModelsConfig;
pub use disk::{Located, OnDisk, locate, on_disk, remove};
pub use entry::{Entry, FileEntry, Stage, Variant};
pub use error::RegistryError;
pub use pull::{Phase, Progress, PullTimeouts, Puller};
