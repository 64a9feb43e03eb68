//! Scripted engines for tests and benchmarks, one module a port. They answer at once or after a set delay.

pub mod llm;
pub mod stt;
pub mod tts;
pub mod turn;
pub mod vad;
