//! Tests of the benchmark program and its load generator against real hubs.

mod capacity;
mod cli;
mod cluster;
mod load;
mod transports;
