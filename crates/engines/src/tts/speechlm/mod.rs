//! The `speechlm` engine.

mod contract;
mod files;
mod lm;
mod sampling;
#[cfg(test)]
mod testing;
