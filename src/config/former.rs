//! Settings of earlier versions: their new names, or that they are gone.
//!
//! The readers of files and of the environment ask for a name that no rule knows, so that an old file is refused with what
//! to write now. A former setting is never taken as if it had its new name: two names for one setting would have to be ranked.

/// A setting that an earlier version had.
#[derive(Debug)]
pub struct FormerKey {
    /// Its section.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Section and name of the setting that took its place; `None`: nothing did.
    pub now: Option<(&'static str, &'static str)>,
    /// The first version without it.
    pub since: &'static str,
}

/// The settings of earlier versions. To rename a setting, add its old name here.
pub const FORMER_KEYS: &[FormerKey] = &[
    FormerKey { section: "onnx", name: "library", now: Some(("onnx", "runtime")), since: "0.2.0" },
    FormerKey { section: "stt", name: "model_dir", now: None, since: "0.2.0" },
    FormerKey { section: "tts", name: "lanes", now: Some(("tts", "replicas")), since: "0.2.0" },
];

/// The setting of an earlier version with this name.
pub(super) fn find(section: &str, name: &str) -> Option<&'static FormerKey> {
    FORMER_KEYS.iter().find(|key| key.section == section && key.name == name)
}

impl FormerKey {
    /// What to do about it; `written` is how the reader's source writes a setting.
    pub(super) fn advice(&self, written: impl Fn(&str, &str) -> String) -> String {
        let Self { section, name, now, since } = self;
        match now {
            Some((section_now, name_now)) => {
                let write = written(section_now, name_now);
                format!("{section}.{name} is {section_now}.{name_now} since version {since}: write {write}")
            }
            None => format!("{section}.{name} is gone since version {since}: remove it"),
        }
    }
}
