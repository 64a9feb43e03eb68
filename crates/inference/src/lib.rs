//! What runs local models: pools of engines on threads of their own, batch scheduling, and ONNX Runtime.
//!
//! `engines` builds its local engines on it. It knows no stage, no model family and no session, and sets no deadline.

mod memory;
#[cfg(feature = "onnx")]
pub mod onnx;
mod onnx_config;
pub mod pool;
mod supervisor;

pub use onnx_config::OnnxConfig;
