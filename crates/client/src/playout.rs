//! The agent's track: which samples of which reply sounded when, with holds and cuts.
//!
//! For callers that keep a whole conversation; [`Reply`](crate::Reply) follows one response. Pure: times are in ms since the
//! session began. Audio plays from its arrival on, behind what was received before. A
//! hold stops the track, a resume continues it where it stood, a clear drops what has not sounded.

use crate::RATE;

/// Samples above this level are audible: -50 dBFS.
const AUDIBLE: u16 = 104;
/// Silence of the agent below this does not separate two sounds: Full-Duplex-Bench v1.5 merges such gaps.
pub const MERGED_GAP_MS: f64 = 500.0;

/// A stretch of the agent's audible sound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sound {
    /// Its first audible sample.
    pub from_ms: f64,
    /// Behind its last one.
    pub to_ms: f64,
    /// Which reply: its place in [`Playout::items`].
    pub item: usize,
}

/// One reply of the agent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// Its id.
    pub id: String,
    /// Its text, as far as it was received.
    pub text: String,
    /// Its sound, as far as it was received; after a clear, as far as it sounded.
    pub samples: Vec<i16>,
    /// Samples that were received, whatever became of them.
    pub n_received: usize,
    /// When it was cleared.
    pub cleared_ms: Option<f64>,
}

/// The agent's track.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Playout {
    /// The replies, in the order of their first event.
    pub items: Vec<Item>,
    /// What was audible, and what is going to be, in order.
    pub sounds: Vec<Sound>,
    /// Times at which the track was held, and went on.
    pub holds: Vec<(f64, Option<f64>)>,
    plays_until_ms: f64,
}

fn length_ms(samples: usize) -> f64 {
    samples as f64 * 1_000.0 / f64::from(RATE.hz())
}

impl Playout {
    /// The place of a reply, which may be new.
    pub fn item(&mut self, id: &str) -> usize {
        match self.items.iter().position(|item| item.id == id) {
            Some(at) => at,
            None => {
                self.items.push(Item { id: id.to_owned(), ..Item::default() });
                self.items.len() - 1
            }
        }
    }

    fn held_since(&self) -> Option<f64> {
        match self.holds.last() {
            Some((at, None)) => Some(*at),
            _ => None,
        }
    }

    /// Audio of a reply arrives.
    pub fn audio(&mut self, id: &str, samples: &[i16], now_ms: f64) {
        let at = self.item(id);
        self.items[at].n_received += samples.len();
        if self.items[at].cleared_ms.is_some() {
            return;
        }
        // While it is held, time stands still for what arrives.
        let begins = self.plays_until_ms.max(self.held_since().unwrap_or(now_ms));
        self.plays_until_ms = begins + length_ms(samples.len());
        self.items[at].samples.extend_from_slice(samples);
        let is_audible = |sample: &i16| sample.unsigned_abs() >= AUDIBLE;
        let first = samples.iter().position(is_audible);
        let last = samples.iter().rposition(is_audible);
        let (Some(first), Some(last)) = (first, last) else { return };
        let sound = Sound { from_ms: begins + length_ms(first), to_ms: begins + length_ms(last + 1), item: at };
        match self.sounds.last_mut() {
            // The pauses within speech are no silence of the agent.
            Some(before) if before.item == at && sound.from_ms - before.to_ms < MERGED_GAP_MS => {
                before.to_ms = sound.to_ms;
            }
            _ => self.sounds.push(sound),
        }
    }

    /// The server has held the reply.
    pub fn hold(&mut self, now_ms: f64) {
        if self.held_since().is_none() {
            self.holds.push((now_ms, None));
        }
    }

    /// The reply goes on where it was held.
    pub fn resume(&mut self, now_ms: f64) {
        let Some(since) = self.held_since() else { return };
        if let Some(hold) = self.holds.last_mut() {
            hold.1 = Some(now_ms);
        }
        let pause = now_ms - since;
        if self.plays_until_ms > since {
            self.plays_until_ms += pause;
        }
        let mut moved = Vec::new();
        for sound in std::mem::take(&mut self.sounds) {
            if sound.to_ms <= since {
                moved.push(sound);
            } else if sound.from_ms >= since {
                moved.push(Sound { from_ms: sound.from_ms + pause, to_ms: sound.to_ms + pause, ..sound });
            } else {
                moved.push(Sound { to_ms: since, ..sound });
                moved.push(Sound { from_ms: now_ms, to_ms: sound.to_ms + pause, ..sound });
            }
        }
        self.sounds = moved;
    }

    /// Drops what has not sounded. Returns the reply that was cut, and how much of it was heard, in ms.
    pub fn clear(&mut self, now_ms: f64) -> Option<(usize, f64)> {
        let at_ms = self.held_since().unwrap_or(now_ms);
        if let Some(hold) = self.holds.last_mut().filter(|(_, until)| until.is_none()) {
            hold.1 = Some(now_ms);
        }
        let unheard_ms = (self.plays_until_ms - at_ms).max(0.0);
        self.plays_until_ms = self.plays_until_ms.min(at_ms);
        self.sounds.retain(|sound| sound.from_ms < at_ms);
        self.sounds.iter_mut().for_each(|sound| sound.to_ms = sound.to_ms.min(at_ms));
        let at = self.items.iter().rposition(|item| !item.samples.is_empty())?;
        let item = &mut self.items[at];
        if item.cleared_ms.is_some() {
            return None;
        }
        let unheard = (unheard_ms * f64::from(RATE.hz()) / 1_000.0) as usize;
        let kept = item.samples.len().saturating_sub(unheard);
        item.samples.truncate(kept);
        item.cleared_ms = Some(at_ms);
        Some((at, length_ms(kept)))
    }

    /// Whether something is still to sound.
    pub fn is_playing(&self, now_ms: f64) -> bool {
        self.held_since().is_some_and(|since| self.plays_until_ms > since) || self.plays_until_ms > now_ms
    }

    /// When the last sound has ended, unless it is held.
    pub fn ends_ms(&self) -> f64 {
        self.plays_until_ms
    }

    /// When the reply that sounds now became audible; `None`: none does.
    pub fn audible_since(&self, now_ms: f64) -> Option<f64> {
        let sound = self.sounds.last().filter(|_| self.is_playing(now_ms) && self.held_since().is_none())?;
        let first = self.sounds.iter().find(|other| other.item == sound.item)?;
        (first.from_ms <= now_ms).then_some(first.from_ms)
    }

    /// The last reply and how much of it has sounded, in ms.
    pub fn heard(&self, now_ms: f64) -> Option<(&str, f64)> {
        let item = self.items.iter().rfind(|item| !item.samples.is_empty())?;
        let left_ms = (self.plays_until_ms - self.held_since().unwrap_or(now_ms)).max(0.0);
        Some((&item.id, (length_ms(item.samples.len()) - left_ms).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loud(ms: usize) -> Vec<i16> {
        vec![1_000; ms * RATE.hz() as usize / 1_000]
    }

    fn quiet(ms: usize) -> Vec<i16> {
        vec![0; ms * RATE.hz() as usize / 1_000]
    }

    fn spans(playout: &Playout) -> Vec<(f64, f64, usize)> {
        playout.sounds.iter().map(|sound| (sound.from_ms, sound.to_ms, sound.item)).collect()
    }

    #[test]
    fn sound_is_what_is_audible_and_a_short_gap_does_not_part_it() {
        let mut playout = Playout::default();
        playout.audio("a", &[quiet(40), loud(60)].concat(), 1_000.0);
        playout.audio("a", &[quiet(300), loud(100)].concat(), 1_010.0);
        assert_eq!(spans(&playout), [(1_040.0, 1_500.0, 0)]);
        playout.audio("b", &loud(20), 1_020.0);
        assert_eq!(spans(&playout)[1], (1_500.0, 1_520.0, 1));
        assert_eq!(playout.audible_since(1_030.0), None);
        assert!(playout.is_playing(1_519.0) && !playout.is_playing(1_520.0));
    }

    #[test]
    fn a_hold_moves_what_comes_after_it() {
        let mut playout = Playout::default();
        playout.audio("a", &loud(1_000), 0.0);
        playout.hold(400.0);
        assert!(playout.is_playing(5_000.0));
        playout.audio("a", &loud(200), 500.0);
        playout.resume(700.0);
        assert_eq!(spans(&playout), [(0.0, 400.0, 0), (700.0, 1_500.0, 0)]);
        assert_eq!(playout.heard(800.0), Some(("a", 500.0)));
        assert_eq!(playout.holds, [(400.0, Some(700.0))]);
        assert_eq!(playout.audible_since(800.0), Some(0.0));
    }

    #[test]
    fn a_cut_keeps_what_was_heard() {
        let mut playout = Playout::default();
        playout.audio("a", &loud(1_000), 0.0);
        playout.hold(300.0);
        assert_eq!(playout.clear(500.0), Some((0, 300.0)), "the hold ended the sound");
        assert_eq!(spans(&playout), [(0.0, 300.0, 0)]);
        assert_eq!(playout.items[0].samples.len(), loud(300).len());
        playout.audio("a", &loud(100), 510.0);
        assert_eq!(spans(&playout).len(), 1, "a reply that was cut does not sound again");
        playout.audio("b", &loud(100), 900.0);
        assert_eq!(spans(&playout)[1], (900.0, 1_000.0, 1));
        assert_eq!(playout.clear(950.0), Some((1, 50.0)));
        assert_eq!(playout.clear(960.0), None);
    }
}
