//! The ladder of brownout levels: up while the pressure is at its limit, down once it is well below, each with hysteresis.

use antiphon_types::{BrownoutLevel, Timestamp};
use std::time::Duration;

/// Pressure from which the hub is overloaded.
const ENTER_AT: f64 = 1.0;

/// Pressure below which it is not. Between both the level stays.
const LEAVE_BELOW: f64 = 0.8;

/// How long the pressure must stay at its limit for the next level up: longer than one busy moment of a local engine.
const UP_AFTER: Duration = Duration::from_secs(1);

/// How long it must stay low for the next level down, at least.
const DOWN_AFTER: Duration = Duration::from_millis(700);

/// How long at most. Each return to a level that was left a moment ago doubles the wait: a level that is what keeps the pressure
/// low is not left every second.
const DOWN_AFTER_AT_MOST: Duration = Duration::from_secs(6);

/// A level that was left this long ago counts as left for good.
const CALM: Duration = Duration::from_secs(15);

/// The level and since when what speaks for another.
#[derive(Debug)]
pub(super) struct Ladder {
    level: BrownoutLevel,
    /// When the pressure reached its limit, or the level changed since.
    over_since: Option<Timestamp>,
    /// When it fell below the lower limit, or the level changed since.
    under_since: Option<Timestamp>,
    went_down_at: Option<Timestamp>,
    down_after: Duration,
}

impl Default for Ladder {
    fn default() -> Self {
        let level = BrownoutLevel::Normal;
        Self { level, over_since: None, under_since: None, went_down_at: None, down_after: DOWN_AFTER }
    }
}

impl Ladder {
    pub(super) fn level(&self) -> BrownoutLevel {
        self.level
    }

    /// Takes the pressure; the level from now on. One step at a time.
    pub(super) fn observe(&mut self, now: Timestamp, pressure: f64) -> BrownoutLevel {
        let since = |since: Option<Timestamp>, holds: bool| holds.then(|| since.unwrap_or(now));
        self.over_since = since(self.over_since, pressure >= ENTER_AT);
        self.under_since = since(self.under_since, pressure < LEAVE_BELOW);
        let lasts = |since: Option<Timestamp>, time: Duration| since.is_some_and(|since| now.since(since) >= time);
        if lasts(self.over_since, UP_AFTER) && self.level != BrownoutLevel::NoSessions {
            let returns = self.went_down_at.is_some_and(|at| now.since(at) < CALM);
            self.down_after = if returns { (self.down_after * 2).min(DOWN_AFTER_AT_MOST) } else { DOWN_AFTER };
            self.level = self.level.up();
            self.over_since = Some(now);
        } else if lasts(self.under_since, self.down_after) && self.level != BrownoutLevel::Normal {
            self.level = self.level.down();
            self.under_since = Some(now);
            self.went_down_at = Some(now);
        }
        self.level
    }
}
