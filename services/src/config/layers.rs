//! Lays files, variables and flags over a table of defaults, one value at a time, so that an error names the layer that
//! it came from.

use super::{Config, ConfigError, ServeArgs};
use chimere_engine::files::read_regular_text;
use std::path::Path;
use toml::{Table, Value};

/// Bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// All four layers in one table, whose every value is of its key's type; whether values fit together is not looked at.
pub(super) fn table(args: &ServeArgs, env: impl Iterator<Item = (String, String)>) -> Result<Table, ConfigError> {
    let mut table = defaults();
    if let Some(path) = &args.config {
        overlay_file(&mut table, path)?;
    }
    let mut env: Vec<_> = env.collect();
    env.sort(); // so that of two errors always the same one is reported
    for (name, value) in &env {
        overlay_env(&mut table, name, value)?;
    }
    for (section, key, value) in args.overrides() {
        section_mut(&mut table, section).insert(key.into(), value);
    }
    Ok(table)
}

/// What holds where no layer says anything.
pub(super) fn defaults() -> Table {
    Table::try_from(Config::default()).expect("the default configuration is a table of plain values")
}

fn section_mut<'a>(table: &'a mut Table, section: &str) -> &'a mut Table {
    table.get_mut(section).and_then(Value::as_table_mut).expect("flags name sections that exist")
}

fn overlay_file(table: &mut Table, path: &Path) -> Result<(), ConfigError> {
    let name = path.display().to_string();
    let text = read_regular_text(path, FILE_BYTES_MAX)
        .map_err(|e| ConfigError::Unreadable { path: name.clone(), why: e.to_string() })?;
    let file: Table =
        text.parse().map_err(|e: toml::de::Error| ConfigError::NotToml { path: name.clone(), why: e.to_string() })?;
    for (section, value) in file {
        let Value::Table(keys) = value else {
            return Err(unknown(table, &name, &section));
        };
        for (key, value) in keys {
            put(table, &name, &section, &key, value)?;
        }
    }
    Ok(())
}

/// `CHIMERE_SERVER__PORT=9000`, or `CHIMERE_DOCUMENTS__EMBEDDER__NAME=e5` of a section within one. Variables without
/// a double underscore mean something else (`CHIMERE_MODEL`) and are left alone.
fn overlay_env(table: &mut Table, name: &str, text: &str) -> Result<(), ConfigError> {
    let Some((section, key)) = name.strip_prefix("CHIMERE_").and_then(|rest| rest.rsplit_once("__")) else {
        return Ok(());
    };
    let (section, key) = (section.to_ascii_lowercase().replace("__", "."), key.to_ascii_lowercase());
    let value = match section_of(table, &section).and_then(|s| s.get(&key)) {
        Some(Value::Integer(_)) => text.parse().map(Value::Integer).ok(),
        Some(Value::Boolean(_)) => text.parse().map(Value::Boolean).ok(),
        Some(Value::Float(_)) => text.parse().map(Value::Float).ok(),
        _ => None,
    };
    put(table, name, &section, &key, value.unwrap_or_else(|| Value::String(text.into())))
}

fn put(table: &mut Table, origin: &str, section: &str, key: &str, value: Value) -> Result<(), ConfigError> {
    let full = format!("{section}.{key}");
    let old = section_of(table, section).and_then(|keys| keys.get_mut(key));
    let Some(old) = old else { return Err(unknown(table, origin, &full)) };
    if let (Value::Table(_), Value::Table(keys)) = (&*old, &value) {
        return keys.iter().try_for_each(|(key, value)| put(table, origin, &full, key, value.clone()));
    }
    let value = match (&*old, value) {
        // People write 0 and 1 for shares too.
        (Value::Float(_), Value::Integer(n)) => Value::Float(n as f64),
        (_, value) => value,
    };
    if old.type_str() != value.type_str() {
        let why = format!("wants {}, got {} {value}", article(old.type_str()), article(value.type_str()));
        return Err(ConfigError::BadValue { origin: origin.into(), key: full, why });
    }
    let before = std::mem::replace(old, value);
    // Ranges and names of variants are the struct's knowledge, so it is asked at once, while the layer is known.
    if let Err(e) = Value::Table(table.clone()).try_into::<Config>() {
        let wanted = if before.is_integer() { "is out of range" } else { "is not accepted" };
        return Err(ConfigError::BadValue {
            origin: origin.into(),
            key: full,
            why: format!("{wanted}: {}", e.message().trim()),
        });
    }
    Ok(())
}

/// The section of this dotted name.
fn section_of<'a>(table: &'a mut Table, name: &str) -> Option<&'a mut Table> {
    name.split('.').try_fold(table, |table, step| table.get_mut(step).and_then(Value::as_table_mut))
}

/// The dotted names of all keys, sections within sections included.
fn names(table: &Table, prefix: &str) -> Vec<String> {
    let name = |key: &String| if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
    let inner = |(key, value): (&String, &Value)| match value {
        Value::Table(keys) => names(keys, &name(key)),
        _ => vec![name(key)],
    };
    table.iter().flat_map(inner).collect()
}

fn article(kind: &str) -> String {
    if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { format!("an {kind}") } else { format!("a {kind}") }
}

fn unknown(table: &Table, origin: &str, key: &str) -> ConfigError {
    let nearest =
        names(table, "").into_iter().map(|k| (strsim::jaro_winkler(&k, key), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = nearest.filter(|(score, _)| *score > 0.6).map(|(_, k)| k);
    ConfigError::UnknownKey { origin: origin.into(), key: key.into(), nearest }
}
