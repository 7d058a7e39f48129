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

/// `CHIMERE_SERVER__PORT=9000`. Variables without a double underscore mean something else (`CHIMERE_MODEL`) and are
/// left alone.
fn overlay_env(table: &mut Table, name: &str, text: &str) -> Result<(), ConfigError> {
    let Some((section, key)) = name.strip_prefix("CHIMERE_").and_then(|rest| rest.split_once("__")) else {
        return Ok(());
    };
    let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
    let value = match table.get(&section).and_then(|s| s.get(&key)) {
        Some(Value::Integer(_)) => text.parse().map(Value::Integer).ok(),
        Some(Value::Boolean(_)) => text.parse().map(Value::Boolean).ok(),
        Some(Value::Float(_)) => text.parse().map(Value::Float).ok(),
        _ => None,
    };
    put(table, name, &section, &key, value.unwrap_or_else(|| Value::String(text.into())))
}

fn put(table: &mut Table, origin: &str, section: &str, key: &str, value: Value) -> Result<(), ConfigError> {
    let full = format!("{section}.{key}");
    let Some(Value::Table(keys)) = table.get_mut(section) else { return Err(unknown(table, origin, &full)) };
    let Some(old) = keys.get_mut(key) else { return Err(unknown(table, origin, &full)) };
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

fn article(kind: &str) -> String {
    if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { format!("an {kind}") } else { format!("a {kind}") }
}

fn unknown(table: &Table, origin: &str, key: &str) -> ConfigError {
    let known = table.iter().flat_map(|(section, keys)| {
        keys.as_table().into_iter().flat_map(|t| t.keys()).map(move |key| format!("{section}.{key}"))
    });
    let nearest = known.map(|k| (strsim::jaro_winkler(&k, key), k)).max_by(|a, b| a.0.total_cmp(&b.0));
    let nearest = nearest.filter(|(score, _)| *score > 0.6).map(|(_, k)| k);
    ConfigError::UnknownKey { origin: origin.into(), key: key.into(), nearest }
}
