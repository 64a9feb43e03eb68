//! Execution providers: the configured one, and the one that actually serves.

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
    /// The configured one, then its fallbacks, unless it is required.
    pub(super) fn requested(config: &OnnxConfig) -> &'static [Self] {
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

    /// For a session to register; a failure to register is an error.
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

    /// The runtime's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Cpu => CPU::NAME,
            Self::Cuda => CUDA::NAME,
            Self::TensorRt => TensorRT::NAME,
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
    /// Reads one line of the log; lines that are not about placement are skipped.
    pub(super) fn note(&mut self, line: &str) {
        let found = line.split_once(" placed on [").and_then(|(_, rest)| rest.split_once("]. Number of nodes: "));
        if let Some((name, n)) = found
            && let Ok(n) = n.trim().parse()
        {
            self.0.push((name.into(), n));
        }
    }

    /// Whether the runtime reported the placement, and no node is on `provider`.
    pub(super) fn pass_over(&self, provider: Provider) -> bool {
        !self.0.is_empty() && !self.0.iter().any(|(name, n)| name == provider.name() && *n > 0)
    }
}

/// How many nodes each provider got: `CUDA 12, CPU 3`.
impl fmt::Display for Placements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("unknown");
        }
        for (i, (name, n)) in self.0.iter().enumerate() {
            let name = name.strip_suffix("ExecutionProvider").unwrap_or(name);
            write!(f, "{}{name} {n}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
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
        assert_eq!(placements.to_string(), "CUDA 12, CPU 3");
        assert!(!placements.pass_over(Provider::Cuda) && !placements.pass_over(Provider::Cpu));
        assert!(placements.pass_over(Provider::TensorRt), "CUDA is no TensorRT");
        placements.note("All nodes placed on [TensorrtExecutionProvider]. Number of nodes: 1");
        assert!(!placements.pass_over(Provider::TensorRt));
        let unsaid = Placements::default();
        assert!(!unsaid.pass_over(Provider::Cuda), "nothing is known");
        assert_eq!(unsaid.to_string(), "unknown");
    }

    #[test]
    fn a_required_provider_has_no_stand_in() {
        let requested = |provider: &str, require| {
            Provider::requested(&OnnxConfig { provider: provider.into(), require, ..OnnxConfig::default() })
        };
        assert_eq!(requested("tensorrt", false), [Provider::TensorRt, Provider::Cuda, Provider::Cpu]);
        assert_eq!(requested("tensorrt", true), [Provider::TensorRt]);
        assert_eq!(requested("cpu", true), [Provider::Cpu]);
    }
}
