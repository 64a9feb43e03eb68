//! Engine workers over NATS: a hub's speech to text, text to speech and turn models on other machines.
//!
//! `antiphon worker` calls [`worker::serve`]; a hub's assembly joins the cluster ([`Cluster::join`]) and gets engines that
//! implement the ports of `engine-api`, so that a session does not know. The parts, from the wire up: [`frame`], the order and
//! credit of an attempt (`flow`), one attempt over a lossy connection (`exchange`, `link`), then the two sides, `hub` and
//! [`worker`]. What hubs share with each other beyond one life is in [`jetstream`], sealed by [`seal`]. This crate decides nothing about a conversation and loads no model. Besides `session` and `server` it is the only
//! one that spawns tasks, into the tracker that it is given.

mod config;
mod error;
mod exchange;
mod flow;
pub mod frame;
mod hub;
pub mod jetstream;
mod link;
mod message;
pub mod permissions;
pub mod seal;
mod stage_models;
pub mod subject;
#[cfg(feature = "testing")]
pub mod testing;
pub mod worker;

pub use config::ClusterConfig;
pub use error::ClusterError;
pub use hub::{
    Cluster, HubView, LostView, MAX_NEWS_BYTES, MAX_REPLY_BYTES, MAX_STATE_BYTES, Overview, OwnedSession,
    OwnershipError, PeerAnswer, PeerNews, PeerReply, Release, Replier, Sessions, SharedSessions, StageModelView,
    StageView, StoredSessionView, WatchGuard, WorkerView, estimate,
};
pub use jetstream::JetStream;
pub use message::{Description, HubAdvert, PROTOCOL, Protocol, Stage, StageDescription, StageLoad, WorkerAdvert};
pub use seal::SealingKey;
