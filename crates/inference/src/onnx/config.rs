//! The `[onnx]` section.

use serde::{Deserialize, Serialize};

/// Settings of ONNX Runtime. Each key is documented in `configs/default.toml`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OnnxConfig {
    /// The library's file, or the folder it lies in; empty: it is searched for.
    pub runtime: String,
    /// `cpu`, `cuda` or `tensorrt`.
    pub provider: String,
    /// Whether a model that the provider does not serve is refused rather than run on the processor.
    pub require: bool,
    /// Which GPU.
    pub device_id: u32,
    /// `tensorrt`: whether it may compute in half precision.
    pub fp16: bool,
    /// `tensorrt`: the folder for engines and timings.
    pub cache_dir: String,
    /// `cuda`: `HEURISTIC`, `EXHAUSTIVE` or `DEFAULT`.
    pub cudnn_conv_algo_search: String,
    /// `cuda`: the arena's limit in MiB; 0: none.
    pub gpu_memory_mib: u64,
    /// Whether the processor's memory comes from an arena that keeps its memory.
    pub cpu_arena: bool,
    /// `all`, `extended`, `basic` or `none`.
    pub graph_optimization: String,
    /// Threads of one model's run; 0: as many as there are cores.
    pub intra_threads: usize,
}

impl Default for OnnxConfig {
    fn default() -> Self {
        Self {
            runtime: String::new(),
            provider: "cpu".into(),
            require: false,
            device_id: 0,
            fp16: false,
            cache_dir: "models/cache/tensorrt".into(),
            cudnn_conv_algo_search: "HEURISTIC".into(),
            gpu_memory_mib: 0,
            cpu_arena: true,
            graph_optimization: "all".into(),
            intra_threads: 0,
        }
    }
}
