//! An error as people and logs get it: with what it came from.
//!
//! Called by whoever tells an error to somebody who cannot ask for its sources. It decides nothing.

use std::error::Error;

/// The error and its causes, each once: some messages tell their cause themselves.
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
