//! Opens the page in the browser of the desktop that the hub was started from.
//!
//! `antiphon` without a command calls it once the hub serves. It never waits for the browser, and never ends it.

use std::ffi::OsStr;
use std::io::{IsTerminal, stdout};
use std::process::Stdio;
use tokio::process::Command;

/// What opens an address as the desktop is set up.
const OPENER: &str = "xdg-open";

/// Opens the page where there is a desktop and a terminal that a person reads; whether the opener was started.
pub(super) fn open(page: &str) -> bool {
    let displays = ["WAYLAND_DISPLAY", "DISPLAY"].map(std::env::var_os);
    is_desktop(stdout().is_terminal(), displays.iter().flatten().map(AsRef::as_ref)) && start(OPENER, page)
}

fn is_desktop<'a>(is_terminal: bool, mut displays: impl Iterator<Item = &'a OsStr>) -> bool {
    is_terminal && displays.any(|display| !display.is_empty())
}

/// Starts the opener in a process group of its own, so that Ctrl-C ends the hub and not the browser.
fn start(opener: &str, page: &str) -> bool {
    let mut command = Command::new(opener);
    command.arg(page).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // tokio reaps it when it ends.
    command.spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_opened_on_a_desktop_by_a_person_only() {
        let at = |is_terminal, displays: &[&str]| is_desktop(is_terminal, displays.iter().map(OsStr::new));
        assert!(at(true, &["", ":0"]) && at(true, &["wayland-0"]));
        assert!(!at(true, &[]) && !at(true, &[""]), "a server has no display");
        assert!(!at(false, &[":0"]), "nobody reads it");
    }

    #[tokio::test]
    async fn an_opener_that_is_not_there_is_no_error() {
        assert!(!start("antiphon-has-no-such-opener", "http://127.0.0.1:8080"));
        assert!(start("true", "http://127.0.0.1:8080"));
    }
}
