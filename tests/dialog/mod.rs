//! The reducer's rules, each a named test: golden scripts of events in and actions out.

mod interleavings;
mod remote;
mod rules;
mod script;
mod tools;
