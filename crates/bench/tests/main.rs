//! Tests of the benchmark program and its load generator against real hubs.

mod cli;
mod cluster;
mod load;
