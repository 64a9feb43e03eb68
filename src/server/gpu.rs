//! The graphics cards' load, for the dashboard and the metrics.
//!
//! The driver's library is looked for once, when somebody first asks. A query may take milliseconds, so it runs on a thread
//! for such work and at most once a second; between two, the last answer stands.

use crate::telemetry::gpu::{Card, Cards};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// How long an answer stands.
const STANDS: Duration = Duration::from_millis(900);

/// The cards. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Gpus(Arc<Shared>);

#[derive(Default)]
struct Shared {
    cards: OnceLock<Option<Cards>>,
    last: Mutex<Option<(Instant, Vec<Card>)>>,
}

impl Gpus {
    /// All cards, or `None` where there is no library or no card.
    pub(super) async fn read(&self) -> Option<Vec<Card>> {
        if let Some((at, cards)) = self.0.last.lock().expect("no panic while locked").as_ref()
            && at.elapsed() < STANDS
        {
            return Some(cards.clone());
        }
        let known_absent = matches!(self.0.cards.get(), Some(None));
        if known_absent {
            return None;
        }
        let shared = self.0.clone();
        tokio::task::spawn_blocking(move || shared.ask()).await.ok().flatten()
    }
}

impl Shared {
    fn ask(&self) -> Option<Vec<Card>> {
        let cards = self.cards.get_or_init(Cards::open).as_ref()?.read();
        if cards.is_empty() {
            return None;
        }
        *self.last.lock().expect("no panic while locked") = Some((Instant::now(), cards.clone()));
        Some(cards)
    }
}
