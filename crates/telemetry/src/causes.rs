//! Formats an error together with its causes, for users and logs.
//!
//! Used wherever an error leaves the program and its sources would otherwise be lost.

use std::error::Error;

/// The error and its causes, each once: some messages already contain their cause.
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
