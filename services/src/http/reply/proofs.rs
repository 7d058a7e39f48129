//! What has been proved of an answer without anybody's word: its form, its citations, a tool's test. A check by a model
//! proves nothing.

use crate::actors::request::output::Output;
use crate::citations::named_sources;
use crate::learning::TruthSource;
use crate::pipelines::{CheckRule, NamedPipeline, PipelineStep, StepKind};
use crate::text::grammar::AnswerForm;
use crate::turn::options::ChatRequest;
use std::sync::Arc;

/// The checks of a request, and what came of them.
pub(super) struct AnswerProofs {
    /// The answer has to keep to a schema that says more than that it is an object.
    by_schema: bool,
    /// All texts that the answer may cite stand in the conversation.
    by_citations: bool,
    citations: usize,
    pipeline: Option<Arc<NamedPipeline>>,
    /// Of a pipeline's checks since its last step that wrote something; none where one failed.
    passed: Option<Vec<TruthSource>>,
}

impl AnswerProofs {
    /// Those that a request asks for.
    pub(super) fn of(chat: &ChatRequest) -> Self {
        let searches = chat.file_search.is_some() || chat.web.is_some();
        let alone = !searches && chat.hosted.is_empty() && chat.mcp.is_empty() && chat.pipeline.is_none();
        let form = chat.generation.form.as_ref().map(|asked| &asked.form);
        let says_more = |form: &&AnswerForm| match form {
            AnswerForm::Json { schema, .. } => {
                schema.as_object().is_some_and(|keys| keys.keys().any(|key| key != "type"))
            }
            _ => false,
        };
        Self {
            by_schema: alone && form.is_some_and(|form| says_more(&form)),
            by_citations: alone && !chat.sources.is_empty(),
            citations: 0,
            pipeline: chat.pipeline.clone(),
            passed: Some(Vec::new()),
        }
    }

    /// Looks at an output on its way out.
    pub(super) fn see(&mut self, output: &Output) {
        match output {
            Output::Delta { delta, .. } => self.citations += delta.citations.len(),
            Output::PipelineStep(report) => {
                let rule = self.pipeline.as_ref().and_then(|pipeline| rule_of(&pipeline.steps, &report.name));
                match rule {
                    // What was checked before is another text than what this step writes.
                    None => self.passed = Some(Vec::new()),
                    Some(_) if report.outcome != "passed" => self.passed = None,
                    Some(rule) => self.passed.iter_mut().for_each(|passed| passed.extend(proof_of(rule))),
                }
            }
            _ => {}
        }
    }

    /// All that is proved of the answer with this text.
    pub(super) fn of_answer(self, text: &str) -> Vec<TruthSource> {
        let mut proofs = self.passed.filter(|_| self.pipeline.is_some()).unwrap_or_default();
        if self.by_schema && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
            proofs.push(TruthSource::Schema);
        }
        if self.by_citations && self.citations > 0 && self.citations == named_sources(text) {
            proofs.push(TruthSource::VerifiedCitation);
        }
        proofs.sort_unstable();
        proofs.dedup();
        proofs
    }
}

/// The rule of a check of this name, if the step of this name is one.
fn rule_of<'a>(steps: &'a [PipelineStep], name: &str) -> Option<&'a CheckRule> {
    steps.iter().find_map(|step| match &step.kind {
        StepKind::Check(check) if *step.name == *name => Some(&check.rule),
        StepKind::When { then, otherwise, .. } => rule_of(then, name).or_else(|| rule_of(otherwise, name)),
        _ => None,
    })
}

/// What a passed check proves. A verified citation is none here: the passages that a pipeline finds are not in the
/// conversation.
fn proof_of(rule: &CheckRule) -> Option<TruthSource> {
    match rule {
        CheckRule::Schema(_) => Some(TruthSource::Schema),
        CheckRule::Regex(_) => Some(TruthSource::ExactCheck),
        CheckRule::Tool(_) => Some(TruthSource::ToolTest),
        CheckRule::Cited(_) | CheckRule::Decision { .. } => None,
    }
}
