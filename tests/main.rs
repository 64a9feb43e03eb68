//! The scenarios: one file each, all in one binary.

mod configs;
mod dialog;
mod layering;
