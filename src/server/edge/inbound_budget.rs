//! The memory for messages of clients that await processing: of each session, and of all together.
//!
//! Each connection's reader ([`super::unfinished`]) and each call takes a share before a message goes to its session;
//! where there is none, the socket is not read. Messages themselves are not here.

use super::websocket::MAX_MESSAGE_BYTES;
use antiphon_session::BudgetPermit;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Inbound messages of all clients that await processing. Above this limit, sockets are not read.
const INBOUND_BUDGET_BYTES: usize = 256 * 1024 * 1024;

/// The part of the inbound budget available to incomplete messages. Clients that never complete theirs leave the other
/// half to complete messages.
const UNFINISHED_BUDGET_BYTES: usize = INBOUND_BUDGET_BYTES / 2;

/// Inbound messages of one client that await processing: two of the maximum size. Above this limit, that client's
/// socket is not read; other clients are unaffected.
const SESSION_BUDGET_BYTES: usize = 2 * MAX_MESSAGE_BYTES;

/// Unit of the inbound budgets, in bytes.
pub(super) const BUDGET_UNIT: usize = 1024;

/// The budgets that all sessions share.
pub(in crate::server) struct InboundBudget {
    common: Arc<Semaphore>,
    unfinished: Arc<Semaphore>,
}

impl InboundBudget {
    pub(super) fn new() -> Self {
        Self {
            common: Arc::new(Semaphore::new(INBOUND_BUDGET_BYTES / BUDGET_UNIT)),
            unfinished: Arc::new(Semaphore::new(UNFINISHED_BUDGET_BYTES / BUDGET_UNIT)),
        }
    }

    /// The inbound budget of one session.
    pub(in crate::server) fn of_session() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(SESSION_BUDGET_BYTES / BUDGET_UNIT))
    }

    /// Inbound messages that await processing, in KiB.
    pub(in crate::server) fn in_use_kib(&self) -> usize {
        (INBOUND_BUDGET_BYTES / BUDGET_UNIT).saturating_sub(self.common.available_permits()) * BUDGET_UNIT / 1024
    }

    /// Waits for a message's share of its session's budget, and then of the global budget: a client that waits for its
    /// own holds nothing of the global one. Cancel safe.
    pub(in crate::server) async fn take(&self, own: &Arc<Semaphore>, bytes: usize) -> BudgetPermit {
        let units = Self::units(bytes) as u32;
        let own = own.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        let common = self.common.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        BudgetPermit { own, common }
    }

    /// The same for a part of an incomplete message, with its share of the budget for incomplete messages.
    pub(super) async fn take_unfinished(
        &self,
        own: &Arc<Semaphore>,
        bytes: usize,
    ) -> (BudgetPermit, OwnedSemaphorePermit) {
        let units = Self::units(bytes) as u32;
        let unfinished = self.unfinished.clone().acquire_many_owned(units).await.expect("the budget is never closed");
        (self.take(own, bytes).await, unfinished)
    }

    /// Budget units for `bytes`: at least one, at most the budget of a session.
    pub(super) fn units(bytes: usize) -> usize {
        bytes.div_ceil(BUDGET_UNIT).clamp(1, SESSION_BUDGET_BYTES / BUDGET_UNIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn no_session_takes_what_the_others_need() {
        let inbound = InboundBudget::new();
        let greedy = InboundBudget::of_session();
        let modest = InboundBudget::of_session();
        let mut held = Vec::new();
        while let Ok(share) = timeout(SOON, inbound.take(&greedy, MAX_MESSAGE_BYTES)).await {
            held.push(share);
        }
        assert_eq!(held.len() * MAX_MESSAGE_BYTES, SESSION_BUDGET_BYTES);
        assert!(timeout(SOON, inbound.take(&greedy, 1)).await.is_err(), "it has taken all it may");
        timeout(SOON, inbound.take(&modest, MAX_MESSAGE_BYTES)).await.expect("another has its own");
        held.pop();
        timeout(SOON, inbound.take(&greedy, MAX_MESSAGE_BYTES)).await.expect("what was worked on is given back");
    }
}
