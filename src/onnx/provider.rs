//! Execution providers: which one is asked for, and which one really serves.

use super::OnnxConfig;
use ort::ep::cuda::ConvAlgorithmSearch;
use ort::ep::{CPU, CUDA, ExecutionProvider, ExecutionProviderDispatch, TensorRT};
use std::fmt;

/// What a model runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// An NVIDIA GPU, its engines built for one card; what it cannot run goes to CUDA.
    TensorRt,
}

impl Provider {
    /// The one that is configured, then those that would do instead, unless it is required.
    pub(super) fn wanted(config: &OnnxConfig) -> &'static [Self] {
        let all: &[Self] = match config.provider.as_str() {
            "tensorrt" => &[Self::TensorRt, Self::Cuda, Self::Cpu],
            "cuda" => &[Self::Cuda, Self::Cpu],
            _ => &[Self::Cpu],
        };
        if config.require { &all[..1] } else { all }
    }

    /// Whether the library was built with it.
    pub(super) fn is_in_library(self) -> bool {
        let available = match self {
            Self::Cpu => Ok(true),
            Self::Cuda => CUDA::is_available(),
            Self::TensorRt => TensorRT::is_available(),
        };
        available.unwrap_or(false)
    }

    /// As a session registers it; a failure to register is an error.
    pub(super) fn registered(self, config: &OnnxConfig) -> Vec<ExecutionProviderDispatch> {
        let cpu = CPU::default().with_arena_allocator(config.cpu_arena).build();
        let mut all = match self {
            Self::Cpu => vec![],
            Self::Cuda => vec![cuda(config).build()],
            Self::TensorRt => vec![tensorrt(config).build(), cuda(config).build()],
        };
        all.push(cpu);
        all.into_iter().map(ExecutionProviderDispatch::error_on_failure).collect()
    }

    /// The runtime's names for nodes that it places there.
    pub(super) fn places(self, name: &str) -> bool {
        match self {
            Self::Cpu => name == CPU::NAME,
            Self::Cuda => name == CUDA::NAME,
            Self::TensorRt => name == TensorRT::NAME || name == CUDA::NAME,
        }
    }
}

fn cuda(config: &OnnxConfig) -> CUDA {
    let search = match config.cudnn_conv_algo_search.as_str() {
        "EXHAUSTIVE" => ConvAlgorithmSearch::Exhaustive,
        "DEFAULT" => ConvAlgorithmSearch::Default,
        _ => ConvAlgorithmSearch::Heuristic,
    };
    let cuda = CUDA::default().with_device_id(config.device_id as i32).with_conv_algorithm_search(search);
    match config.gpu_memory_mib {
        0 => cuda,
        limit => cuda.with_memory_limit(limit as usize * 1024 * 1024),
    }
}

fn tensorrt(config: &OnnxConfig) -> TensorRT {
    TensorRT::default()
        .with_device_id(config.device_id as i32)
        .with_fp16(config.fp16)
        .with_engine_cache(true)
        .with_engine_cache_path(&config.cache_dir)
        .with_timing_cache(true)
        .with_timing_cache_path(&config.cache_dir)
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::TensorRt => "tensorrt",
        })
    }
}

/// How many of a model's nodes each provider got, as the runtime logs it while it loads one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placements(Vec<(String, usize)>);

impl Placements {
    /// Takes one line of the log; others than those on placement are passed over.
    pub(super) fn note(&mut self, line: &str) {
        let found = line.split_once(" placed on [").and_then(|(_, rest)| rest.split_once("]. Number of nodes: "));
        if let Some((name, n)) = found
            && let Ok(n) = n.trim().parse()
        {
            self.0.push((name.into(), n));
        }
    }

    /// Nodes on `provider` and in all; `None` when the runtime said nothing of it.
    pub(super) fn of(&self, provider: Provider) -> Option<(usize, usize)> {
        let all: usize = self.0.iter().map(|(_, n)| n).sum();
        let there = self.0.iter().filter(|(name, _)| provider.places(name)).map(|(_, n)| n).sum();
        (all > 0).then_some((there, all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_where_the_nodes_are() {
        let mut placements = Placements::default();
        for line in [
            "Node placements",
            " Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 12",
            "  Conv (/dec/conv)",
            " Node(s) placed on [CPUExecutionProvider]. Number of nodes: 3",
        ] {
            placements.note(line);
        }
        assert_eq!(placements.of(Provider::Cuda), Some((12, 15)));
        assert_eq!(placements.of(Provider::TensorRt), Some((12, 15)));
        assert_eq!(placements.of(Provider::Cpu), Some((3, 15)));
        assert_eq!(Placements::default().of(Provider::Cuda), None);
    }

    #[test]
    fn a_required_provider_has_no_stand_in() {
        let wanted = |provider: &str, require| {
            Provider::wanted(&OnnxConfig { provider: provider.into(), require, ..OnnxConfig::default() })
        };
        assert_eq!(wanted("tensorrt", false), [Provider::TensorRt, Provider::Cuda, Provider::Cpu]);
        assert_eq!(wanted("tensorrt", true), [Provider::TensorRt]);
        assert_eq!(wanted("cpu", true), [Provider::Cpu]);
    }
}
