//! Reads a file key by key, so that every problem is found and reported with its line.

use super::former;
use super::rules;
use super::suggest::nearest;
use super::{Layers, Origin, Problem};
use antiphon_types::setting::{Key, Rule};
use std::path::Path;
use toml::Spanned;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// Adds the file's settings, and the problems found in them, to `layers`.
pub(super) fn read(path: &Path, text: &str, layers: &mut Layers) {
    let mut file = File { path, text, layers };
    match DeTable::parse(text) {
        Ok(table) => file.sections(table.get_ref()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            file.problem(at, format!("this is no TOML: {}", one_line(error.message())));
        }
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
    layers: &'a mut Layers,
}

impl File<'_> {
    fn sections(&mut self, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            let at = name.span().start;
            let name = name.get_ref().as_ref();
            match value.get_ref() {
                DeValue::Table(keys) if rules::sections().contains(&name) => self.keys(name, keys),
                DeValue::Table(_) => self.problem(at, unknown_section(name)),
                _ if rules::sections().contains(&name) => {
                    self.problem(at, format!("{name} is a section: write [{name}] and its keys below it"));
                }
                _ => self.problem(at, stray_key(name)),
            }
        }
    }

    fn keys(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in in_order(table) {
            match rules::find(section, name.get_ref()) {
                Some(key @ Key { rule: Rule::Fallback, .. }) if self.has_problems_in(key, value) => {}
                Some(key) if !rules::entry_keys(key).is_empty() && self.has_problems_in_entries(key, value) => {}
                Some(key) => self.value(key, value),
                None => self.problem(name.span().start, unknown_key(section, name.get_ref())),
            }
        }
    }

    /// Reports what is wrong with the keys of a fallback engine, each with its line; `false`: nothing is.
    fn has_problems_in(&mut self, fallback: &Key, value: &Spanned<DeValue<'_>>) -> bool {
        let DeValue::Table(table) = value.get_ref() else { return false };
        let n_before = self.layers.problems.len();
        let stage = fallback.section;
        if !table.is_empty() && !in_order(table).iter().any(|(name, _)| name.get_ref() == "engine") {
            self.problem(value.span().start, format!("{stage}.fallback: its engine is missing: set engine"));
        }
        for (name, value) in in_order(table) {
            let Some(key) = rules::fallback_key(fallback.section, name.get_ref()) else {
                let message = no_fallback_key(stage, name.get_ref());
                self.problem(name.span().start, format!("{stage}.fallback: {message}"));
                continue;
            };
            if !plain(value.get_ref()).is_some_and(|value| rules::allows(key, &value)) {
                let written = one_line(self.text.get(value.span()).unwrap_or_default());
                let message = wrong_value(key, &written);
                self.problem(value.span().start, format!("{stage}.fallback: {message}"));
            }
        }
        self.layers.problems.len() > n_before
    }

    /// Reports what is wrong with the entries of a table of tables, each with its line; `false`: nothing is.
    fn has_problems_in_entries(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) -> bool {
        let DeValue::Table(entries) = value.get_ref() else { return false };
        let n_before = self.layers.problems.len();
        for (entry, value) in in_order(entries) {
            let at = entry.span().start;
            let entry: &str = entry.get_ref().as_ref();
            let DeValue::Table(table) = value.get_ref() else {
                self.problem(at, rules::no_entry(key, entry));
                continue;
            };
            let fields = in_order(table);
            let names = fields.iter().map(|(name, _)| &**name.get_ref());
            if let Some(message) = rules::entry_lacks(key, entry, names) {
                self.problem(at, message);
            }
            for (name, value) in fields {
                let written = one_line(self.text.get(value.span()).unwrap_or_default());
                let read = plain(value.get_ref());
                let problem = rules::entry_key_problem(key, entry, name.get_ref(), read.as_ref(), &written);
                if let Some(message) = problem {
                    self.problem(name.span().start, message);
                }
            }
        }
        self.layers.problems.len() > n_before
    }

    fn value(&mut self, key: &Key, value: &Spanned<DeValue<'_>>) {
        let written = self.text.get(value.span()).unwrap_or_default();
        let value_at = value.span().start;
        match plain(value.get_ref()) {
            Some(value) if rules::allows(key, &value) => {
                let origin = self.origin(value_at);
                self.layers.set(key, value, origin);
            }
            _ => self.problem(value_at, wrong_value(key, &one_line(written))),
        }
    }

    fn problem(&mut self, at: usize, message: String) {
        let origin = self.origin(at);
        self.layers.problems.push(Problem { origin, message });
    }

    fn origin(&self, at: usize) -> Origin {
        let line = self.text.as_bytes()[..at.min(self.text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
        Origin::File { path: self.path.into(), line }
    }
}

/// The message for an invalid value `written` at `key`.
pub(super) fn wrong_value(key: &Key, written: &str) -> String {
    let nearest = nearest(written.trim_matches('"'), rules::words(key));
    let hint = nearest.map(|word| format!("; did you mean {word:?}?")).unwrap_or_default();
    // A common mistake is a secret in place of its variable's name, also within a table, or a password in a URL:
    // neither is repeated.
    let is_origin = matches!(key.rule, Rule::Origins | Rule::OriginOrNone);
    let is_address = is_origin || matches!(key.rule, Rule::Url | Rule::UrlOrNone | Rule::Urls | Rule::NatsServers);
    let is_table = matches!(key.rule, Rule::Fallback) || !rules::entry_keys(key).is_empty();
    let has_keys = is_table && written.contains(['{', '=']);
    let secret = matches!(key.rule, Rule::Variable) || is_address && written.contains('@') || has_keys;
    let written = if secret { "(not shown)" } else { written };
    format!("{}.{} = {written}: write {}{hint}", key.section, key.name, rules::expects(key))
}

/// The message for a section that does not exist.
pub(super) fn unknown_section(name: &str) -> String {
    match nearest(name, rules::sections()) {
        Some(near) => format!("there is no section [{name}]; did you mean [{near}]?"),
        None => format!("there is no section [{name}]; the sections are {}", rules::sections().join(", ")),
    }
}

/// The message for a key that its section does not have.
pub(super) fn unknown_key(section: &str, name: &str) -> String {
    if let Some(former) = former::find(section, name) {
        return former.advice(|now, name| match now == section {
            true => name.to_owned(),
            false => format!("{name} below [{now}]"),
        });
    }
    if let Some(near) = nearest(name, rules::names(section)) {
        return format!("there is no key {name} in [{section}]; did you mean {near}?");
    }
    if let Some(other) = rules::keys().find(|key| key.name == name) {
        return format!("there is no key {name} in [{section}]; it belongs into [{}]", other.section);
    }
    let names: Vec<_> = rules::names(section).collect();
    format!("there is no key {name} in [{section}]; its keys are {}", names.join(", "))
}

/// The message for a key that a fallback engine of this stage does not have.
pub(super) fn no_fallback_key(stage: &str, name: &str) -> String {
    match rules::find(stage, name) {
        Some(known) => format!("a fallback has no {}; it belongs into [{stage}]", known.name),
        None => unknown_key(stage, name),
    }
}

fn stray_key(name: &str) -> String {
    match rules::keys().find(|key| key.name == name) {
        Some(key) => format!("{name} stands outside a section; write it below [{}]", key.section),
        None => format!("{name} stands outside a section; the sections are {}", rules::sections().join(", ")),
    }
}

/// The table's entries in the order of the file, so that problems are reported from top to bottom.
fn in_order<'a, 'i>(table: &'a DeTable<'i>) -> Vec<(&'a Spanned<toml::de::DeString<'i>>, &'a Spanned<DeValue<'i>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

/// The value without its spans; `None` for types that no key accepts.
fn plain(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::String(text.as_ref().to_owned()),
        DeValue::Integer(n) => Value::Integer(i64::from_str_radix(n.as_str(), n.radix()).ok()?),
        DeValue::Float(n) => Value::Float(n.as_str().parse().ok()?),
        DeValue::Boolean(yes) => Value::Boolean(*yes),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| plain(item.get_ref())).collect::<Option<_>>()?),
        DeValue::Table(entries) => {
            let entry = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let name: &toml::de::DeString<'_> = name.get_ref();
                Some((name.as_ref().to_owned(), plain(value.get_ref())?))
            };
            Value::Table(entries.iter().map(entry).collect::<Option<_>>()?)
        }
        DeValue::Datetime(_) => return None,
    })
}

/// At most 60 characters on one line, because a message is one line.
fn one_line(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &words[..end]),
        None => words,
    }
}
