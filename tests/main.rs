//! The scenarios, one file each, linked into one binary.

mod configs;
mod layering;
