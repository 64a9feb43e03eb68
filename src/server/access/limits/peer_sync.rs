//! Limits of API keys over all hubs of a cluster: once a second each hub reports to the others what keys used there, and each takes that
//! from its own buckets.
//!
//! Buckets may go into debt, so what other hubs granted is paid back: over any longer time a key gets its limit once, however many
//! hubs it uses. It may get more for a moment: at most what the hubs grant it within one interval, and no more than one full bucket
//! of each. What is lost on the way, such as while NATS is away, is not reported again. Addresses and sessions are limited by
//! each hub on its own.

use super::{Limits, Resource};
use antiphon_cluster::Cluster;
use antiphon_types::KeyId;
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a hub reports.
const EVERY: Duration = Duration::from_secs(1);
/// Entries of one message: 4 KiB hold them, which is the bound of a question between hubs.
const MAX_ENTRIES: usize = 24;

/// What a key used of one resource at another hub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Consumption {
    key: String,
    /// Its place in [`Resource::ALL`].
    resource: u8,
    amount: u64,
}

/// Tells the other hubs until `stopped`. `question` writes the question that they take with [`Limits::take_consumed`].
pub(in crate::server) async fn share(
    limits: &Limits,
    cluster: &Cluster,
    question: impl Fn(Vec<Consumption>) -> Vec<u8>,
    stopped: CancellationToken,
) {
    let mut due = tokio::time::interval(EVERY);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = due.tick() => {}
            () = stopped.cancelled() => return,
        }
        let unreported = limits.unreported();
        if cluster.n_peers() == 0 {
            continue;
        }
        let reports = unreported.chunks(MAX_ENTRIES).map(|part| {
            let question = question(part.to_vec());
            async move { cluster.ask_peers(&question, EVERY).await }
        });
        futures_util::future::join_all(reports).await;
    }
}

impl Limits {
    /// What keys used since the last call, where they have a limit.
    pub(super) fn unreported(&self) -> Vec<Consumption> {
        let mut unreported = Vec::new();
        let now = self.clock.now();
        for (id, account) in self.accounts() {
            for resource in Resource::ALL {
                let amount = account.unreported[resource as usize].swap(0, Ordering::Relaxed);
                let is_limited = account.buckets.of(resource).level(now).is_some();
                if let Some(id) = id.filter(|_| amount > 0 && is_limited) {
                    unreported.push(Consumption { key: id.to_string(), resource: resource as u8, amount });
                }
            }
        }
        unreported
    }

    /// Takes from the buckets what keys used at another hub. Keys that are unknown here are passed over.
    pub(in crate::server) fn take_consumed(&self, consumed: &[Consumption], key_of: impl Fn(&str) -> Option<KeyId>) {
        let now = self.clock.now();
        let accounts = self.keys.lock().expect("no panic while locked");
        for Consumption { key, resource, amount } in consumed {
            let account = key_of(key).and_then(|id| accounts.get(&Some(id)));
            if let (Some(account), Some(resource)) = (account, Resource::ALL.get(usize::from(*resource))) {
                account.buckets.of(*resource).spend(now, *amount);
            }
        }
    }
}
