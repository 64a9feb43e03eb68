//! The scenarios, one file each, linked into one binary.

mod cli;
mod configs;
mod layering;
