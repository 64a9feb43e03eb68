//! The scenarios: one file each, all in one binary.

mod dialog;
