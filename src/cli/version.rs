//! `antiphon --version`: the program's version; with `--json` also what it was built from and which formats it reads.

use super::{CliError, print};
use crate::server::JOBS_VERSION;
use antiphon_cluster::PROTOCOL;
use antiphon_engines::table;
use antiphon_session::{SNAPSHOT_SCHEMA, replay_log};
use serde_json::{Value, json};

/// The commit that a release was built from; `None` where the build did not name it.
const COMMIT: Option<&str> = option_env!("ANTIPHON_COMMIT");

pub(super) fn run(as_json: bool) -> Result<(), CliError> {
    if as_json { print::json(&described()) } else { print::line(&format!("antiphon {}", env!("CARGO_PKG_VERSION"))) }
}

fn described() -> Value {
    json!({
        "name": "antiphon",
        "version": env!("CARGO_PKG_VERSION"),
        "commit": COMMIT.filter(|commit| !commit.is_empty()),
        "platform": format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        "features": table::built_features(),
        "protocols": { "realtime": "ga", "cluster": format!("{}.{}", PROTOCOL.major, PROTOCOL.minor) },
        "formats": { "jobs": JOBS_VERSION, "snapshots": SNAPSHOT_SCHEMA, "replay_logs": replay_log::VERSION },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_that_upgrades_depend_on_have_versions() {
        let described = described();
        assert_eq!(described["version"], env!("CARGO_PKG_VERSION"));
        for version in ["/formats/jobs", "/formats/snapshots", "/formats/replay_logs"] {
            assert!(described.pointer(version).is_some_and(Value::is_u64), "{version}: {described}");
        }
        let features = described["features"].as_array().expect("a list");
        assert!(features.iter().any(|feature| feature == "whisper"), "{features:?}");
    }
}
