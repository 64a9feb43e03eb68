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
    /// Several GPUs, for engines with replicas on each; empty: `device_id` alone.
    pub device_ids: Vec<u32>,
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
            device_ids: Vec::new(),
            fp16: false,
            cache_dir: "models/cache/tensorrt".into(),
            cudnn_conv_algo_search: "DEFAULT".into(),
            gpu_memory_mib: 0,
            cpu_arena: true,
            graph_optimization: "all".into(),
            intra_threads: 0,
        }
    }
}

impl OnnxConfig {
    /// The GPUs that replicas are spread over, in order; one entry where the processor serves.
    pub fn devices(&self) -> Vec<u32> {
        if self.device_ids.is_empty() || self.provider == "cpu" {
            vec![self.device_id]
        } else {
            self.device_ids.clone()
        }
    }

    /// The configuration of a replica, from 0: the replicas take the GPUs in turn.
    pub fn for_replica(&self, replica: usize) -> Self {
        let devices = self.devices();
        Self { device_id: devices[replica % devices.len()], device_ids: Vec::new(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_take_the_devices_in_turn() {
        let two = OnnxConfig { provider: "cuda".into(), device_ids: vec![2, 5], ..OnnxConfig::default() };
        let taken: Vec<u32> = (0..4).map(|replica| two.for_replica(replica).device_id).collect();
        assert_eq!(taken, [2, 5, 2, 5]);
        let one = OnnxConfig { provider: "cuda".into(), device_id: 3, ..OnnxConfig::default() };
        assert_eq!((one.devices(), one.for_replica(7).device_id), (vec![3], 3));
        let cpu = OnnxConfig { device_ids: vec![0, 1], ..OnnxConfig::default() };
        assert_eq!(cpu.devices(), [0], "the processor is one device");
    }
}
