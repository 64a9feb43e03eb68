//! When which call or registration has something to do next: one time for each.

use super::{CallId, RegistrarId};
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum TimerOwner {
    Call(CallId),
    Registrar(RegistrarId),
}

/// See the module.
#[derive(Default)]
pub(super) struct Timers {
    order: BTreeSet<(Instant, TimerOwner)>,
    times: HashMap<TimerOwner, Instant>,
}

impl Timers {
    pub(super) fn set(&mut self, owner: TimerOwner, at: Option<Instant>) {
        let before = match at {
            Some(at) => self.times.insert(owner, at),
            None => self.times.remove(&owner),
        };
        if let Some(before) = before {
            self.order.remove(&(before, owner));
        }
        if let Some(at) = at {
            self.order.insert((at, owner));
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// One whose time has come; it has no further time until it is set.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<TimerOwner> {
        let (at, owner) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.set(owner, None);
        Some(owner)
    }
}
