//! From a file as it is typed to a pipeline as it is meant: bounds, names that exist, and steps that fit together.

use super::error::PipelineError;
use super::file::{
    RawBestOf, RawCall, RawCheck, RawForm, RawGenerate, RawPipeline, RawRetrieve, RawStep, RawWhen, only_one, read,
};
use super::form::{
    CallStep, CheckRule, CheckStep, GenerateStep, PipelineBudget, PipelineStep, RetrieveFrom, RetrieveStep, StepKind,
    Test,
};
use super::names::is_step_name;
use super::pipeline::NamedPipeline;
use super::program::program;
use super::template::{QUESTION, Template};
use super::tool::ToolUse;
use crate::limits::{
    PIPELINE_BEST_OF_MAX, PIPELINE_DEPTH_MAX, PIPELINE_MILLISECONDS_MAX, PIPELINE_PARALLEL_MAX, PIPELINE_STEPS_MAX,
    PIPELINE_TOKENS_MAX, RERANK_DOCUMENTS_MAX, STORE_RESULTS_MAX,
};
use crate::text::grammar::AnswerForm;
use regex::{Regex, RegexBuilder};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Passages where a file does not say.
const K: u32 = 5;
/// The least probability where a file does not say.
const MIN: f64 = 0.5;
/// Bytes of a compiled expression.
const REGEX_BYTES_MAX: usize = 1 << 20;
/// The only measure by which the best of several choices is found.
const BY: &str = "certainty";

impl NamedPipeline {
    /// Reads a file's text.
    ///
    /// # Errors
    /// Names the file, the key, what was wanted and what came.
    pub fn parse(name: &str, text: &str) -> Result<Self, PipelineError> {
        let wrong = |message| PipelineError { file: format!("{name}.toml"), message };
        let RawPipeline { description, experimental, budget, steps } = read(text).map_err(wrong)?;
        let mut reader = RowReader { known: vec![QUESTION.into()], steps: 0 };
        let budget = PipelineBudget {
            tokens: optional("budget.tokens", budget.tokens, 1..=PIPELINE_TOKENS_MAX.into()).map_err(wrong)?,
            time: optional("budget.milliseconds", budget.milliseconds, 1..=PIPELINE_MILLISECONDS_MAX as i64)
                .map_err(wrong)?
                .map(|ms: u32| Duration::from_millis(ms.into())),
        };
        let steps = reader.row("steps", steps, 0).map_err(wrong)?;
        ends_in_an_answer("steps", &steps).map_err(wrong)?;
        let program = program(&steps);
        Ok(Self { name: name.into(), description, experimental, budget, steps, program })
    }
}

/// What is known at a place of the file.
struct RowReader {
    /// Names of the texts that can be read there: the question, and those of generations and calls before it.
    known: Vec<Arc<str>>,
    /// Steps that were read so far.
    steps: usize,
}

impl RowReader {
    fn row(&mut self, path: &str, raw: Vec<RawStep>, depth: usize) -> Result<Vec<PipelineStep>, String> {
        if depth > PIPELINE_DEPTH_MAX {
            return Err(format!("{path} lies in {depth} branches, at most {PIPELINE_DEPTH_MAX} are taken"));
        }
        let mut steps: Vec<PipelineStep> = Vec::with_capacity(raw.len());
        for (at, raw) in raw.into_iter().enumerate() {
            self.steps += 1;
            if self.steps > PIPELINE_STEPS_MAX {
                return Err(format!("{path}[{at}] is step {}, at most {PIPELINE_STEPS_MAX} are taken", self.steps));
            }
            let step = self.step(&format!("{path}[{at}]"), raw, depth)?;
            fits_behind(&format!("{path}[{at}]"), &step, steps.last())?;
            steps.push(step);
        }
        Ok(steps)
    }

    fn step(&mut self, path: &str, raw: RawStep, depth: usize) -> Result<PipelineStep, String> {
        let RawStep { name, when, retrieve, enough, generate, parallel, check, call } = raw;
        let given = BTreeMap::from([
            ("when", when.is_some()),
            ("retrieve", retrieve.is_some()),
            ("enough", enough.is_some()),
            ("call", call.is_some()),
            ("generate", generate.is_some()),
            ("parallel", parallel.is_some()),
            ("check", check.is_some()),
        ]);
        let word = only_one(path, &given)?;
        let path = format!("{path}.{word}");
        let name = step_name(&path, name, word)?;
        let kind = match (when, retrieve, enough, generate, parallel, check, call) {
            (Some(raw), ..) => self.when(&path, raw, depth)?,
            (_, Some(raw), ..) => StepKind::Retrieve(retrieve_step(&path, raw)?),
            (_, _, Some(raw), ..) => StepKind::Enough(probability(&format!("{path}.min"), Some(raw.min))?),
            (_, _, _, Some(raw), ..) => StepKind::Generate(self.generate(&path, raw, Some(name.clone()))?),
            (_, _, _, _, Some(raw), ..) => self.parallel(&path, raw)?,
            (.., Some(raw), _) => StepKind::Check(Arc::new(self.check(&path, raw)?)),
            (.., Some(raw)) => StepKind::Call(Arc::new(self.call(&path, raw, &name)?)),
            _ => return Err(format!("{path} says nothing")),
        };
        if matches!(kind, StepKind::Generate(_) | StepKind::Call(_)) {
            self.known.push(name.clone());
        }
        Ok(PipelineStep { name, kind })
    }

    fn when(&mut self, path: &str, raw: RawWhen, depth: usize) -> Result<StepKind, String> {
        let RawWhen { regex, file_type, decision, min, then, otherwise } = raw;
        let given = BTreeMap::from([
            ("regex", regex.is_some()),
            ("file_type", file_type.is_some()),
            ("decision", decision.is_some()),
        ]);
        only_one(path, &given)?;
        only_with(path, ("min", min.is_some()), ("decision", decision.is_some()))?;
        let test = match (regex, file_type, decision) {
            (Some(text), ..) => Test::Regex(expression(&format!("{path}.regex"), &text)?),
            (_, Some(types), _) => Test::FileType(endings(&format!("{path}.file_type"), types)?),
            (.., statement) => Test::Decision {
                statement: words(&format!("{path}.decision"), statement.unwrap_or_default())?,
                min: probability(&format!("{path}.min"), min)?,
            },
        };
        if then.is_empty() {
            return Err(format!("{path}.then wants a step at least, got none"));
        }
        // A text of one branch is not there in the other one, nor behind both.
        let known = self.known.len();
        let then = self.row(&format!("{path}.then"), then, depth + 1)?;
        self.known.truncate(known);
        let otherwise = self.row(&format!("{path}.else"), otherwise, depth + 1)?;
        self.known.truncate(known);
        Ok(StepKind::When { test, then, otherwise })
    }

    fn generate(&self, path: &str, raw: RawGenerate, name: Option<Arc<str>>) -> Result<Arc<GenerateStep>, String> {
        let RawGenerate { name: own, system, suffix, thinking, temperature, tokens, form, best_of } = raw;
        let name = match (name, own) {
            (Some(name), None) => name,
            (None, Some(own)) => step_name(path, Some(own), "")?,
            (None, None) => return Err(format!("{path}.name is missing: by it the next step reads the text")),
            (Some(_), Some(_)) => return Err(format!("{path}.name belongs to the step: write it beside `generate`")),
        };
        self.is_new(path, &name)?;
        let template = |key: &str, text: Option<String>| self.template(&format!("{path}.{key}"), text);
        let temperature = temperature.map(|t| within(&format!("{path}.temperature"), t, 0.0..=2.0)).transpose()?;
        let best_of = best_of.map(|raw| best(&format!("{path}.best_of"), &raw)).transpose()?.unwrap_or(1);
        if best_of > 1 && temperature == Some(0.0) {
            return Err(format!("{path}.best_of wants choices that differ, and {path}.temperature is 0"));
        }
        Ok(Arc::new(GenerateStep {
            name,
            system: template("system", system)?,
            suffix: template("suffix", suffix)?,
            thinking,
            temperature: temperature.map(|t| t as f32),
            tokens: optional(&format!("{path}.tokens"), tokens, 1..=PIPELINE_TOKENS_MAX.into())?,
            form: form.map(|raw| answer_form(&format!("{path}.form"), raw)).transpose()?,
            best_of,
        }))
    }

    fn call(&self, path: &str, raw: RawCall, name: &str) -> Result<CallStep, String> {
        let RawCall { tool, arguments, otherwise } = raw;
        self.is_new(path, name)?;
        let tool = ToolUse::parse(path, (&tool, arguments), &self.known)?;
        Ok(CallStep { tool, otherwise: self.template(&format!("{path}.else"), otherwise)? })
    }

    /// A name that a file gives stands for one text. Of steps that have the name of their kind the last one is read.
    fn is_new(&self, path: &str, name: &str) -> Result<(), String> {
        let unnamed = ["generate", "call"].contains(&name);
        match self.known.iter().any(|known| **known == *name) && !unnamed {
            true if name == QUESTION => Err(format!("{path}: `{name}` is the user's last text, choose another name")),
            true => Err(format!("{path}: an earlier step is called `{name}` too")),
            false => Ok(()),
        }
    }

    fn template(&self, path: &str, text: Option<String>) -> Result<Option<Template>, String> {
        let read = text.map(|text| Template::parse(&text, &self.known));
        read.transpose().map_err(|why| format!("{path} {why}"))
    }

    fn parallel(&mut self, path: &str, raw: Vec<RawGenerate>) -> Result<StepKind, String> {
        within(path, raw.len(), 2..=PIPELINE_PARALLEL_MAX)
            .map_err(|why| why.replace("must", "has generations that must"))?;
        let mut steps: Vec<Arc<GenerateStep>> = Vec::with_capacity(raw.len());
        for (at, raw) in raw.into_iter().enumerate() {
            let path = format!("{path}[{at}]");
            let step = self.generate(&path, raw, None)?;
            if step.best_of > 1 {
                return Err(format!("{path}.best_of cannot stand in `parallel`: give the step alone"));
            }
            if steps.iter().any(|other| other.name == step.name) {
                return Err(format!("{path}.name {:?} stands twice", step.name));
            }
            steps.push(step);
        }
        self.known.extend(steps.iter().map(|step| step.name.clone()));
        Ok(StepKind::Parallel(steps))
    }

    fn check(&self, path: &str, raw: RawCheck) -> Result<CheckStep, String> {
        let RawCheck { schema, regex, cited, tool, arguments, decision, min, retry, why, otherwise } = raw;
        let given = BTreeMap::from([
            ("schema", schema.is_some()),
            ("regex", regex.is_some()),
            ("cited", cited.is_some()),
            ("tool", tool.is_some()),
            ("decision", decision.is_some()),
        ]);
        only_one(path, &given)?;
        only_with(path, ("min", min.is_some()), ("decision", decision.is_some()))?;
        only_with(path, ("arguments", arguments.is_some()), ("tool", tool.is_some()))?;
        let rule = match (schema, regex, cited, tool, decision) {
            (Some(text), ..) => CheckRule::Schema(schema_of(&format!("{path}.schema"), &text)?),
            (_, Some(text), ..) => CheckRule::Regex(expression(&format!("{path}.regex"), &text)?),
            (_, _, _, Some(tool), _) => CheckRule::Tool(ToolUse::parse(path, (&tool, arguments), &self.known)?),
            (_, _, Some(n), ..) => CheckRule::Cited(within(&format!("{path}.cited"), n, 1..=100)? as u32),
            (.., statement) => CheckRule::Decision {
                statement: words(&format!("{path}.decision"), statement.unwrap_or_default())?,
                min: probability(&format!("{path}.min"), min)?,
            },
        };
        Ok(CheckStep {
            rule,
            retry: retry.map(|n| within(&format!("{path}.retry"), n, 0..=1)).transpose()? == Some(1),
            why: why.map(|text| words(&format!("{path}.why"), text)).transpose()?,
            otherwise: self.template(&format!("{path}.else"), otherwise)?,
        })
    }
}

/// What may stand behind what.
fn fits_behind(path: &str, step: &PipelineStep, before: Option<&PipelineStep>) -> Result<(), String> {
    let before = before.map(|step| &step.kind);
    match &step.kind {
        StepKind::Check(_) if !matches!(before, Some(StepKind::Generate(_) | StepKind::Check(_))) => {
            let came = before.map_or("nothing", StepKind::name);
            Err(format!("{path}.check wants `generate` or another `check` before it, got {came}"))
        }
        StepKind::Enough(_) if !matches!(before, Some(StepKind::Retrieve(_))) => {
            let came = before.map_or("nothing", StepKind::name);
            Err(format!("{path}.enough wants `retrieve` before it, got {came}"))
        }
        _ => Ok(()),
    }
}

/// Every way through must have a text at its end that can be the answer.
fn ends_in_an_answer(path: &str, steps: &[PipelineStep]) -> Result<(), String> {
    let last = steps.iter().rposition(|step| !matches!(step.kind, StepKind::Check(_)));
    let Some(at) = last else { return Err(format!("{path} wants `generate` as its last step, got none")) };
    match &steps[at].kind {
        StepKind::Generate(_) => Ok(()),
        StepKind::When { then, otherwise, .. } => {
            let path = format!("{path}[{at}].when");
            ends_in_an_answer(&format!("{path}.then"), then)?;
            ends_in_an_answer(&format!("{path}.else"), otherwise)
        }
        other => Err(format!("{path} wants `generate` as its last step but for checks, got {}", other.name())),
    }
}

fn step_name(path: &str, name: Option<String>, kind: &str) -> Result<Arc<str>, String> {
    match name {
        None => Ok(kind.into()),
        Some(name) if is_step_name(&name) => Ok(name.into()),
        Some(name) => {
            Err(format!("{path}: a step's name has 1 to 32 of a to z, 0 to 9 and _, got {:?}", shortened(&name)))
        }
    }
}

fn retrieve_step(path: &str, raw: RawRetrieve) -> Result<RetrieveStep, String> {
    let RawRetrieve { store, web, k, rerank } = raw;
    only_one(path, &BTreeMap::from([("store", store.is_some()), ("web", web)]))?;
    let k = optional(&format!("{path}.k"), k, 1..=STORE_RESULTS_MAX as i64)?.unwrap_or(K);
    let most = STORE_RESULTS_MAX.min(RERANK_DOCUMENTS_MAX) as i64;
    let rerank = optional(&format!("{path}.rerank"), rerank, i64::from(k)..=most)?;
    let from = match store {
        Some(store) => RetrieveFrom::Store(words(&format!("{path}.store"), store)?),
        None => RetrieveFrom::Web,
    };
    Ok(RetrieveStep { from, k, rerank })
}

fn answer_form(path: &str, raw: RawForm) -> Result<AnswerForm, String> {
    let RawForm { schema, regex, choice } = raw;
    let given =
        BTreeMap::from([("schema", schema.is_some()), ("regex", regex.is_some()), ("choice", choice.is_some())]);
    only_one(path, &given)?;
    Ok(match (schema, regex, choice) {
        (Some(text), ..) => {
            AnswerForm::Json { schema: schema_of(&format!("{path}.schema"), &text)?, compact: false, closed: false }
        }
        (_, Some(text), _) => {
            expression(&format!("{path}.regex"), &text)?;
            AnswerForm::Regex(text)
        }
        (.., choice) => {
            let texts = choice.unwrap_or_default();
            if texts.is_empty() {
                return Err(format!("{path}.choice wants a text at least, got none"));
            }
            AnswerForm::Choice(texts)
        }
    })
}

fn best(path: &str, raw: &RawBestOf) -> Result<u32, String> {
    match raw.by.as_deref() {
        None | Some(BY) => {}
        Some(other) => return Err(format!("{path}.by must be {BY:?}, got {:?}", shortened(other))),
    }
    Ok(within(&format!("{path}.n"), raw.n, 2..=PIPELINE_BEST_OF_MAX.into())? as u32)
}

fn schema_of(path: &str, text: &str) -> Result<Json, String> {
    serde_json::from_str(text).map_err(|error| format!("{path} must be a schema written as JSON: {error}"))
}

fn expression(path: &str, text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build();
    built.map_err(|error| format!("{path} is no expression: {}", error.to_string().replace('\n', " ")))
}

fn endings(path: &str, types: Vec<String>) -> Result<Vec<String>, String> {
    let plain = |ending: &String| (1..=16).contains(&ending.len()) && ending.chars().all(|c| c.is_ascii_alphanumeric());
    match types.iter().find(|ending| !plain(ending)) {
        _ if types.is_empty() => Err(format!("{path} wants an ending at least, got none")),
        Some(other) => Err(format!("{path} wants endings such as \"py\", got {:?}", shortened(other))),
        None => Ok(types.into_iter().map(|ending| ending.to_ascii_lowercase()).collect()),
    }
}

fn words(path: &str, text: String) -> Result<String, String> {
    if text.trim().is_empty() { Err(format!("{path} wants a text, got {text:?}")) } else { Ok(text) }
}

fn probability(path: &str, got: Option<f64>) -> Result<f64, String> {
    within(path, got.unwrap_or(MIN), 0.0..=1.0)
}

fn only_with(path: &str, (key, there): (&str, bool), (other, has): (&str, bool)) -> Result<(), String> {
    if there && !has { Err(format!("{path}.{key} belongs to `{other}`, which is not there")) } else { Ok(()) }
}

fn optional(path: &str, got: Option<i64>, range: RangeInclusive<i64>) -> Result<Option<u32>, String> {
    got.map(|got| within(path, got, range).map(|got| got as u32)).transpose()
}

fn within<T: PartialOrd + Display>(path: &str, got: T, range: RangeInclusive<T>) -> Result<T, String> {
    if range.contains(&got) {
        return Ok(got);
    }
    Err(format!("{path} must lie between {} and {}, got {got}", range.start(), range.end()))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
#[path = "tests/files.rs"]
mod tests;
