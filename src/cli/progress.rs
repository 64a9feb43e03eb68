//! One line of progress on stderr, where that is a terminal; it goes away when the work is done. Elsewhere nothing is shown.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How often the sign before the words moves.
const TICK: Duration = Duration::from_millis(120);

/// The line. Dropping it removes it.
pub struct Progress(Option<ProgressBar>);

impl Progress {
    /// Shows what is done now, such as "loading the engines".
    pub fn new(what: impl Into<String>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a template of known keys"));
        bar.set_message(what.into());
        bar.enable_steady_tick(TICK);
        Self(Some(bar))
    }

    /// Shows what is done from now on.
    pub fn now(&self, what: impl Into<String>) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.into());
        }
    }

    /// Removes the line before something is printed, until [`Self::now`] shows it again.
    pub fn hide(&self) {
        if let Some(bar) = &self.0 {
            bar.set_message("");
            bar.suspend(|| ());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
