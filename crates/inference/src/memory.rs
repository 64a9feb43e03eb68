//! Memory that an engine has freed, given back to the system.
//!
//! The supervisor of an engine's thread calls it when an engine was stopped because it is not needed. It never frees anything
//! itself. An engine's model is many small pieces in one of glibc's arenas. glibc keeps freed pieces below one that is in use,
//! and gives pages in the middle of an arena back only when it is asked to. docs/developing/measurements.md has the figures.

#![allow(unsafe_code, reason = "glibc's malloc_trim is declared here")]

/// Gives pages back to the system that the allocator holds and nothing uses. Blocks while the kernel takes them: for an
/// engine's own thread. Does nothing with another C library than glibc.
pub(crate) fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    malloc_trim(0);
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
unsafe extern "C" {
    /// Thread-safe: it takes the lock of one arena after the other. `pad`: bytes to keep at the end of the heap. Returns 1 where
    /// pages were given back, else 0.
    safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
}
