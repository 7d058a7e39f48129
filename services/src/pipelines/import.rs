//! Pipelines in the words of the first Chimère: a route's YAML, made into a file of ours. Whatever has no place there
//! stands in a comment at its head, with the reason.

use super::pipeline::NamedPipeline;
use crate::limits::PIPELINE_BEST_OF_MAX;
use crate::printable::{first_line, one_line};
use serde_json::{Map, Value as Json};
use std::collections::BTreeSet;
use toml::Table;

/// Stands between a prompt of the whole route and that of a step, and between texts of earlier steps.
const BETWEEN: &str = "\n\n";
/// Candidates where a route has several written and does not say how many.
const CANDIDATES: u64 = 3;

/// The text of a pipeline's file for a route. `store` is searched where the route leaves the choice to the program.
///
/// # Errors
/// If the text is no such route, or its steps make no pipeline.
pub fn imported(text: &str, store: Option<&str>) -> Result<String, String> {
    let route: Json = serde_saphyr::from_str(text).map_err(|e| format!("not YAML: {}", first_line(&e.to_string())))?;
    let Json::Object(route) = route else { return Err("it has no keys, so it is no route".into()) };
    let mut import = Import::default();
    let file = import.file(&route, store)?;
    let file = toml::to_string_pretty(&file).map_err(|e| e.to_string())?;
    NamedPipeline::parse("imported", &file).map_err(|error| error.message)?;
    Ok(import.head() + &file)
}

/// What is known while a route is read.
#[derive(Default)]
struct Import {
    /// What was left out, and why.
    left_out: Vec<String>,
    /// Names of the steps that have a text.
    names: Vec<String>,
    /// What stands before the prompt of each step.
    prompt: Option<String>,
    /// What each generation says if its step does not.
    defaults: Table,
}

impl Import {
    fn head(&self) -> String {
        let lines = self.left_out.iter().map(|line| format!("# - {}\n", one_line(line)));
        let lines: String = lines.collect();
        if lines.is_empty() { lines } else { format!("# Left out:\n{lines}") }
    }

    fn file(&mut self, route: &Map<String, Json>, store: Option<&str>) -> Result<Table, String> {
        let mut steps = Vec::new();
        for (key, value) in route {
            match (key.as_str(), value) {
                ("name" | "description" | "pipeline" | "dvts" | "pipeline_auto", _) | (_, Json::Null) => {}
                ("system_prompt", Json::String(text)) => self.prompt = Some(text.trim().to_owned()),
                ("params", Json::Object(params)) => {
                    let keys = self.params("params", params);
                    self.defaults.extend(keys);
                }
                ("thinking", Json::Object(thinking)) => self.thinking(thinking),
                ("enrich", Json::Object(enrich)) => steps.extend(self.searches(enrich, store)),
                _ => self.unused(key, value, reason(key)),
            }
        }
        let described = route.get("description").or_else(|| route.get("name")).and_then(Json::as_str);
        steps.extend(self.steps(route.get("pipeline"))?);
        self.candidates(route.get("dvts"), steps.last_mut());
        let steps: Vec<toml::Value> = steps.into_iter().map(toml::Value::Table).collect();
        Ok(table([
            ("description", described.unwrap_or_default().into()),
            // Nothing was measured that it wins.
            ("experimental", true.into()),
            ("steps", steps.into()),
        ]))
    }

    /// The keys of a generation that sampling options become.
    fn params(&mut self, path: &str, params: &Map<String, Json>) -> Table {
        let mut keys = Table::new();
        for (key, value) in params {
            match (key.as_str(), value) {
                ("temperature", Json::Number(n)) => {
                    keys.insert("temperature".into(), n.as_f64().unwrap_or_default().into());
                }
                ("max_tokens", Json::Number(n)) => {
                    keys.insert("tokens".into(), n.as_i64().unwrap_or(i64::MAX).into());
                }
                _ => self.unused(&format!("{path}.{key}"), value, "each request says it"),
            }
        }
        keys
    }

    fn thinking(&mut self, thinking: &Map<String, Json>) {
        for (key, value) in thinking {
            match (key.as_str(), value) {
                ("enabled", Json::Bool(thinks)) => {
                    self.defaults.insert("thinking".into(), (*thinks).into());
                }
                _ => self.unused(&format!("thinking.{key}"), value, "the service bounds thoughts, `[thinking]`"),
            }
        }
    }

    fn searches(&mut self, enrich: &Map<String, Json>, store: Option<&str>) -> Vec<Table> {
        let mut steps = Vec::new();
        let retrieve = |key: &str, value: toml::Value| table([("retrieve", table([(key, value)]).into())]);
        let named = enrich.get("rag_collection").and_then(Json::as_str).filter(|name| *name != "auto");
        for (key, value) in enrich {
            match (key.as_str(), value, named.or(store)) {
                ("rag_collection", ..) | (_, Json::Bool(false), _) => {}
                ("rag", Json::Bool(true), Some(store)) => steps.push(retrieve("store", store.into())),
                ("rag", ..) => self.unused("enrich.rag", value, "no store is named; `--store` names one"),
                ("web", Json::Bool(true), _) => steps.push(retrieve("web", true.into())),
                _ => self.unused(&format!("enrich.{key}"), value, "there is no such step"),
            }
        }
        steps
    }

    fn steps(&mut self, pipeline: Option<&Json>) -> Result<Vec<Table>, String> {
        match pipeline {
            None | Some(Json::Null) => Ok(vec![self.step("pipeline", &Map::new())?]),
            Some(Json::Array(all)) => {
                let one = |(at, step): (usize, &Json)| self.step_or_group(&format!("pipeline[{at}]"), step);
                all.iter().enumerate().map(one).collect()
            }
            Some(other) => Err(format!("pipeline must be a list of steps, got {}", kind(other))),
        }
    }

    fn step_or_group(&mut self, path: &str, step: &Json) -> Result<Table, String> {
        let step = keys(path, step)?;
        let Some(group) = step.get("parallel") else { return self.step(path, step) };
        let Json::Array(group) = group else {
            return Err(format!("{path}.parallel must be a list of steps, got {}", kind(group)));
        };
        // Steps of one group do not read each other.
        let before = self.names.clone();
        let mut added = Vec::new();
        let mut generations: Vec<Table> = Vec::new();
        for (at, step) in group.iter().enumerate() {
            let path = format!("{path}.parallel[{at}]");
            let (name, mut generation) = self.generation(&path, keys(&path, step)?)?;
            added.extend(self.names.drain(before.len()..));
            generation.insert("name".into(), name.into());
            generations.push(generation);
        }
        self.names.extend(added);
        Ok(match <[Table; 1]>::try_from(generations) {
            Ok([mut alone]) => {
                let name = alone.remove("name").unwrap_or_else(|| "generate".into());
                table([("name", name), ("generate", alone.into())])
            }
            Err(several) => {
                let several: Vec<toml::Value> = several.into_iter().map(toml::Value::Table).collect();
                table([("parallel", several.into())])
            }
        })
    }

    fn step(&mut self, path: &str, step: &Map<String, Json>) -> Result<Table, String> {
        let (name, generation) = self.generation(path, step)?;
        Ok(table([("name", name.into()), ("generate", generation.into())]))
    }

    /// The name and the keys of a step's generation.
    fn generation(&mut self, path: &str, step: &Map<String, Json>) -> Result<(String, Table), String> {
        let mut keys = self.defaults.clone();
        let mut own = None;
        for (key, value) in step {
            match (key.as_str(), value) {
                ("agent", _) | (_, Json::Null) => {}
                ("params", Json::Object(params)) => keys.extend(self.params(&format!("{path}.params"), params)),
                ("system_suffix", Json::String(text)) => own = Some(text.trim().to_owned()),
                _ => self.unused(&format!("{path}.{key}"), value, reason(key)),
            }
        }
        let prompts: Vec<&str> = self.prompt.iter().chain(&own).map(String::as_str).collect();
        if !prompts.is_empty() {
            keys.insert("system".into(), plain(&prompts.join(BETWEEN)).into());
        }
        if !self.names.is_empty() {
            let read = |name: &String| format!("{name}:\n{{{name}}}");
            let texts: Vec<String> = self.names.iter().map(read).collect();
            keys.insert("suffix".into(), texts.join(BETWEEN).into());
        }
        let agent = step.get("agent").and_then(Json::as_str).unwrap_or("generate");
        Ok((self.named(agent), keys))
    }

    /// A name for a step that no other one has.
    fn named(&mut self, agent: &str) -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let name: String = agent.chars().map(letter).take(28).collect();
        let taken: BTreeSet<&str> = self.names.iter().map(String::as_str).chain(["question", ""]).collect();
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        let own = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name.as_str()));
        let own = own.unwrap_or(name);
        self.names.push(own.clone());
        own
    }

    /// The best of several candidates becomes the most certain one.
    fn candidates(&mut self, dvts: Option<&Json>, last: Option<&mut Table>) {
        let Some(Json::Object(dvts)) = dvts else { return };
        if dvts.get("enabled") != Some(&Json::Bool(true)) {
            return;
        }
        let n = dvts.get("k").and_then(Json::as_u64).unwrap_or(CANDIDATES).clamp(2, PIPELINE_BEST_OF_MAX.into());
        if let Some(toml::Value::Table(generation)) = last.and_then(|step| step.get_mut("generate")) {
            generation.insert("best_of".into(), table([("n", (n as i64).into())]).into());
        }
        self.left_out.push("the judge of `dvts`: the most certain of the candidates is taken".into());
    }

    fn unused(&mut self, path: &str, value: &Json, why: &str) {
        let empty = match value {
            Json::Null | Json::Bool(false) => true,
            // A path that is not set.
            Json::Object(fields) => fields.values().all(Json::is_null),
            Json::Array(all) => all.is_empty(),
            _ => false,
        };
        if !empty {
            let shown: String = value.to_string().chars().take(80).collect();
            self.left_out.push(format!("`{path}`, {shown}: {why}"));
        }
    }
}

/// Why a key has no place.
fn reason(key: &str) -> &'static str {
    match key {
        "engram" => "tables are built by `chimere engram build` and named in `[engram]` or by requests",
        "lora" => "adapters are models of their own, `[adapters]`",
        "grammar" => "a step's `form` takes a schema, an expression or choices",
        "tools_allowed" => "the model chooses no tools here; a step `call` runs one, `retrieve` with `web` searches",
        "iterations" => "a step runs once",
        "pre_act" => "a step before the others can write a plan",
        _ => "there is no such key here",
    }
}

fn table<const N: usize>(keys: [(&str, toml::Value); N]) -> Table {
    keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A text in which braces are braces.
fn plain(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "nothing",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "keys",
    }
}

fn keys<'a>(path: &str, value: &'a Json) -> Result<&'a Map<String, Json>, String> {
    value.as_object().ok_or_else(|| format!("{path} must have keys, got {}", kind(value)))
}

#[cfg(test)]
#[path = "tests/import.rs"]
mod tests;
