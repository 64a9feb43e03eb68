//! How much memory a listener takes, and how many listeners fit.

use super::contract::Contract;
use antiphon_inference::onnx::OnnxConfig;

/// Slots at most where their number is left to the hub, on the processor and on a GPU.
const CPU_SLOTS: usize = 8;
const GPU_SLOTS: usize = 32;
/// Memory for caches on a GPU where `onnx.gpu_memory_mib` does not say what there is.
const GPU_CACHE_BYTES: usize = 4 << 30;

/// Slots whose caches fit: on the processor into a quarter of the memory that is available, on a GPU into half of what
/// `onnx.gpu_memory_mib` allows. The rest is for weights, and for the moment in which the batch is assembled again.
pub(super) fn slots_that_fit(bytes_per_slot: usize, on_cpu: bool, gpu_memory: Option<usize>) -> usize {
    let (bytes, most) = match on_cpu {
        true => (available_memory() / 4, CPU_SLOTS),
        false => (gpu_memory.map_or(GPU_CACHE_BYTES, |bytes| bytes / 2), GPU_SLOTS),
    };
    (bytes / bytes_per_slot.max(1)).clamp(1, most)
}

/// Memory of a model's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSize {
    /// For one token of one listener, in bytes.
    pub bytes_per_token: usize,
    /// For the longest sequence, in bytes: twice its tokens where the cache grows, since old and new exist while a step runs.
    pub bytes_per_slot: usize,
    /// Slots that fit now, on the configured provider.
    pub slots_that_fit: usize,
}

/// The caches of a built-in family in a precision (`fp16`, `q4f16`: two bytes a number, others four), without loading the
/// model. Blocks while the free memory is read.
pub fn cache_size(contract: &Contract, precision: &str, onnx: &OnnxConfig) -> CacheSize {
    let bytes_per_token =
        contract.cache_bytes_per_token(if precision.ends_with("f16") || precision == "fp16" { 2 } else { 4 });
    let bytes_per_slot = contract.slot_bytes(bytes_per_token / contract.cache_bytes_per_token(1));
    let gpu_memory = (onnx.gpu_memory_mib > 0).then_some(onnx.gpu_memory_mib as usize * 1024 * 1024);
    let slots_that_fit = slots_that_fit(bytes_per_slot, onnx.provider == "cpu", gpu_memory);
    CacheSize { bytes_per_token, bytes_per_slot, slots_that_fit }
}

/// `MemAvailable` of Linux; 4 GiB where it is not known.
fn available_memory() -> usize {
    let known = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?.to_owned();
        line.split_whitespace().nth(1)?.parse::<usize>().ok()
    });
    known.map_or(4 << 30, |kib| kib * 1024)
}
