//! The brownout level: what a hub does without while it is overloaded.
//!
//! The server's load monitor sets it; sessions, engines and routes read it where they would begin work that can be left out. It
//! never decides anything itself.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// How much a hub does without, least first. Each level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BrownoutLevel {
    /// Everything is done.
    #[default]
    Normal,
    /// No speculative response is started.
    NoSpeculation,
    /// Speech is generated less far ahead, and batches do not wait for company.
    ShortLookAhead,
    /// New sessions get the smaller engines, where some are configured.
    SmallerEngines,
    /// No new job is accepted.
    NoJobs,
    /// No new request of the speech API is accepted.
    NoSpeechRequests,
    /// No new session is accepted.
    NoSessions,
}

impl BrownoutLevel {
    /// All levels, least first.
    pub const ALL: [Self; 7] = [
        Self::Normal,
        Self::NoSpeculation,
        Self::ShortLookAhead,
        Self::SmallerEngines,
        Self::NoJobs,
        Self::NoSpeechRequests,
        Self::NoSessions,
    ];

    /// Its number: 0 to 6.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::NoSpeculation => "no_speculation",
            Self::ShortLookAhead => "short_look_ahead",
            Self::SmallerEngines => "smaller_engines",
            Self::NoJobs => "no_jobs",
            Self::NoSpeechRequests => "no_speech_requests",
            Self::NoSessions => "no_sessions",
        }
    }

    /// The next level up; the last one stays.
    pub fn up(self) -> Self {
        Self::ALL[(self as usize + 1).min(Self::ALL.len() - 1)]
    }

    /// The next level down; the first one stays.
    pub fn down(self) -> Self {
        Self::ALL[(self as usize).saturating_sub(1)]
    }
}

/// The level of a server, shared by all that read it. Cloning it gives the same one; reading takes no lock.
#[derive(Clone, Debug, Default)]
pub struct Brownout(Arc<AtomicU8>);

impl Brownout {
    /// The level now.
    pub fn level(&self) -> BrownoutLevel {
        BrownoutLevel::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    /// Whether the level is `level` or higher.
    pub fn is_at_least(&self, level: BrownoutLevel) -> bool {
        self.level() >= level
    }

    /// Sets the level.
    pub fn set(&self, level: BrownoutLevel) {
        self.0.store(level.number(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbered_in_order_and_end_at_both_ends() {
        for (at, level) in BrownoutLevel::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(level.number()), at);
            assert_eq!(serde_json::to_value(level).expect("a string"), level.as_str());
        }
        assert_eq!(BrownoutLevel::Normal.down(), BrownoutLevel::Normal);
        assert_eq!(BrownoutLevel::NoSessions.up(), BrownoutLevel::NoSessions);
    }

    #[test]
    fn a_clone_sees_the_level_that_is_set() {
        let brownout = Brownout::default();
        let seen = brownout.clone();
        brownout.set(BrownoutLevel::NoJobs);
        assert_eq!(seen.level(), BrownoutLevel::NoJobs);
        assert!(seen.is_at_least(BrownoutLevel::NoSpeculation) && !seen.is_at_least(BrownoutLevel::NoSessions));
    }
}
