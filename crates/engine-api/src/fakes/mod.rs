//! Scripted engines for tests and benchmarks, one module per port. They respond immediately or after a configured
//! delay.

pub mod llm;
pub mod stt;
pub mod tts;
pub mod turn;
pub mod vad;
