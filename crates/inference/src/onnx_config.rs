//! The `[onnx]` section.

use antiphon_types::setting::Rule;

antiphon_types::settings! {
    /// ONNX Runtime, which runs neural models.
    pub struct OnnxConfig in "onnx" {
        /// The path of ONNX Runtime's library, or of its folder. Empty: ORT_DYLIB_PATH, the program's own
        /// folder, then models/onnxruntime and models/onnxruntime-gpu.
        pub runtime: String = String::new(), Rule::Text;
        /// The execution provider. "cpu"; "cuda": an NVIDIA GPU, else the processor; "tensorrt": the same GPU
        /// with engines built for it, else "cuda". See docs/guide/models.md.
        pub provider: String = "cpu".into(), Rule::OneOf(&["cpu", "cuda", "tensorrt"]);
        /// Whether the hub refuses to start when no part of a model can run on the provider; else it runs on
        /// the next one.
        pub require: bool = false, Rule::Switch;
        /// cuda, tensorrt: index of the GPU.
        pub device_id: u32 = 0, Rule::Whole(0, 255, "number of the GPU");
        /// cuda, tensorrt: several GPUs, such as [0, 1], over which instances are spread (tts.replicas). Empty:
        /// device_id alone.
        pub device_ids: Vec<u32> = Vec::new(), Rule::Wholes(0, 255, "numbers of GPUs");
        /// tensorrt: whether it may compute in half precision.
        pub fp16: bool = false, Rule::Switch;
        /// tensorrt: the folder for its engines and the timings of its searches.
        pub cache_dir: String = "models/cache/tensorrt".into(), Rule::Name;
        /// cuda: how an algorithm is chosen for each new shape. "DEFAULT": the first; "HEURISTIC": by an
        /// estimate; "EXHAUSTIVE": by timing all, which takes seconds.
        pub cudnn_conv_algo_search: String = "DEFAULT".into(), Rule::OneOf(&["HEURISTIC", "EXHAUSTIVE", "DEFAULT"]);
        /// cuda: the most memory that each model may allocate on the GPU. 0: no limit.
        pub gpu_memory_mib: u64 = 0, Rule::Whole(0, 1_048_576, "MiB");
        /// Whether memory of a run is kept for the next one. false: slower, and small when idle.
        pub cpu_arena: bool = true, Rule::Switch;
        /// Graph optimization level: "all", "extended", "basic" or "none".
        pub graph_optimization: String = "all".into(), Rule::OneOf(&["all", "extended", "basic", "none"]);
        /// Threads per run of a model. 0: one per core.
        pub intra_threads: usize = 0, Rule::Whole(0, 256, "threads");
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
