//! The reducer's rules, each a named test: golden scripts of events in and actions out.

mod captions;
mod guessing;
mod idle;
mod interleavings;
mod remote;
mod rules;
mod script;
mod tools;
mod truncation;
mod waiting;
