//! Parses environment variables of the form `ANTIPHON_<SECTION>__<KEY>`.

use super::file::{no_fallback_key, unknown_key, unknown_section, wrong_value};
use super::former;
use super::rules;
use super::suggest::nearest;
use super::{Layers, Origin, Problem};
use antiphon_types::setting::{Key, Rule};
use toml::Value;

/// Prefix of all the hub's environment variables.
const PREFIX: &str = "ANTIPHON_";

/// Adds the environment's settings, and the problems found in them, to `layers`.
pub(super) fn read(env: &[(String, String)], layers: &mut Layers) {
    let mut ours: Vec<_> = env.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // Sorted, so that messages have a stable order.
    ours.sort();
    for (name, text) in ours {
        match setting(name, text) {
            Ok(Some((key, value))) => layers.set(key, value, Origin::Variable(name.clone())),
            Ok(None) => {}
            Err(message) => layers.problems.push(Problem { origin: Origin::Variable(name.clone()), message }),
        }
    }
}

/// The setting of a variable; `None` for a variable that is not a setting, such as `ANTIPHON_LOG`.
fn setting(name: &str, text: &str) -> Result<Option<(&'static Key, Value)>, String> {
    let Some((section, key)) = name[PREFIX.len()..].split_once("__") else {
        return match meant(name) {
            Some(key) => Err(format!("did you mean {}?", variable(key.section, key.name))),
            None => Ok(None),
        };
    };
    let section = section.to_lowercase();
    let key = key.to_lowercase();
    if !rules::sections().contains(&section.as_str()) {
        return Err(unknown_section(&section));
    }
    let Some(known) = rules::find(&section, &key) else {
        if let Some(former) = former::find(&section, &key) {
            return Err(former.advice(variable));
        }
        let near = nearest(&key, rules::names(&section)).and_then(|near| rules::find(&section, near));
        return Err(match near {
            Some(near) => format!("there is no such key; did you mean {}?", variable(near.section, near.name)),
            None => unknown_key(&section, &key),
        });
    };
    let wrong = |written: String| {
        let problem = entry_problem(known, text).or_else(|| fallback_problem(known, text));
        problem.unwrap_or_else(|| wrong_value(known, &written))
    };
    let value = parse(known, text).map_err(wrong)?;
    Ok(Some((known, value)))
}

/// The first problem of an entry, where the value is a table of tables.
fn entry_problem(key: &Key, text: &str) -> Option<String> {
    if rules::entry_keys(key).is_empty() {
        return None;
    }
    let Some(Value::Table(entries)) = toml_value(text.trim()) else { return None };
    entries.iter().flat_map(|(entry, value)| rules::entry_problems(key, entry, value)).next()
}

/// The first problem of a fallback engine's keys.
fn fallback_problem(key: &Key, text: &str) -> Option<String> {
    if !matches!(key.rule, Rule::Fallback) {
        return None;
    }
    let Some(Value::Table(table)) = toml_value(text.trim()) else { return None };
    let stage = key.section;
    let of_key = table.iter().find_map(|(name, value)| match rules::fallback_key(stage, name) {
        None => Some(no_fallback_key(stage, name)),
        Some(known) => (!rules::allows(known, value)).then(|| wrong_value(known, &value.to_string())),
    });
    let lacks_engine = !table.is_empty() && !table.contains_key("engine");
    let problem = of_key.or_else(|| lacks_engine.then(|| "its engine is missing: set engine".to_owned()))?;
    Some(format!("{stage}.fallback: {problem}"))
}

/// The key whose variable has two underscores where `name` has one.
fn meant(name: &str) -> Option<&'static Key> {
    rules::keys().find(|key| variable(key.section, key.name).replacen("__", "_", 1) == name.to_uppercase())
}

fn variable(section: &str, key: &str) -> String {
    format!("{PREFIX}{}__{}", section.to_uppercase(), key.to_uppercase())
}

/// Parses a value of `key`. Lists are separated by commas or written as in TOML. The error is the quoted
/// text.
pub(super) fn parse(key: &Key, text: &str) -> Result<Value, String> {
    let trimmed = text.trim();
    let value = match &key.rule {
        Rule::Switch => trimmed.parse().ok().map(Value::Boolean),
        Rule::Whole(..) => trimmed.parse().ok().map(Value::Integer),
        Rule::Number(..) => trimmed.parse().ok().map(Value::Float),
        rule if rules::is_list(rule) && trimmed.starts_with('[') => toml_value(trimmed),
        Rule::Wholes(..) if trimmed.starts_with('[') => toml_value(trimmed),
        Rule::Wholes(..) => toml_value(&format!("[{trimmed}]")),
        rule if rules::is_list(rule) => {
            let items = trimmed.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(Value::Array(items.map(|item| Value::String(item.into())).collect()))
        }
        Rule::Fields
        | Rule::ByLanguage(..)
        | Rule::TextsByName(..)
        | Rule::Routes
        | Rule::Accounts
        | Rule::Trunks
        | Rule::Fallback => toml_value(trimmed),
        _ => Some(Value::String(text.into())),
    };
    value.filter(|value| rules::allows(key, value)).ok_or_else(|| format!("{text:?}"))
}

fn toml_value(text: &str) -> Option<Value> {
    toml::from_str::<toml::Table>(&format!("value = {text}")).ok()?.remove("value")
}
