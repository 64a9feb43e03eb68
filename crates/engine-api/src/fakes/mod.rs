//! Scripted engines for tests and benchmarks, one module per port. They respond immediately or after a configured
//! delay.

pub mod llm;
pub mod speaker;
pub mod stt;
pub mod tts;
pub mod turn;
pub mod vad;

use crate::Hop;
use std::time::Duration;

/// A worker that a fake pretends to run on.
#[derive(Clone)]
struct FakeWorker {
    name: String,
    network: Duration,
    retried: u32,
}

impl FakeWorker {
    fn new(name: &str, network: Duration) -> Self {
        Self { name: name.to_owned(), network, retried: 0 }
    }

    fn fill(&self, hop: &Hop) {
        hop.set(&self.name, self.network, self.retried);
    }
}
