//! The reducer's rules, each a named test: golden scripts of events in and actions out.

mod backchannels;
mod captions;
mod filler;
mod idle;
mod interleavings;
mod language;
mod remote;
mod rules;
mod script;
mod speaker;
mod speculation;
mod tools;
mod truncation;
mod waiting;
