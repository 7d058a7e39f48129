//! The reports of a request, as JSON in its reply: documented in `docs/using/clients.md`.

use super::token_report::origin_into;
use crate::actors::request::report::{
    CallReport, ChangedToken, EngramReport, ExamplesReport, PipelineReport, ProbeReport, Report, ThinkingReport,
    TurnReport,
};
use crate::actors::request::speculation_report::{SourceDrafts, SpeculationReport};
use crate::http::reply::server_items::pipeline_step;
use chimere_engine::constraint::Source;
use chimere_engine::engram::Origin;
use serde_json::{Value, json};

/// Writes a report into a reply that has its `usage` and its `timings`.
pub(super) fn write(report: &Report, reply: &mut Value) {
    let timings = &mut reply["timings"];
    match report {
        Report::Thinking(thinking) => timings["thinking"] = thinking_json(thinking),
        Report::Probe(probe) => probe_into(&mut timings["thinking"], probe),
        Report::Yielded(sources) => timings["yielded"] = sources.iter().map(Source::name).collect(),
        Report::Speculation(drafts) => timings["drafts"] = speculation_json(drafts),
        Report::Prediction(drafts) => prediction_into(&mut reply["usage"]["completion_tokens_details"], drafts),
        Report::Engram(engram) => timings["engram"] = engram_json(engram),
        Report::Examples(examples) => timings["engram"]["semantic"] = examples_json(examples),
        Report::Turn(turn) => timings["turn"] = turn_json(turn),
        Report::Pipeline(pipeline) => timings["turn"]["pipeline"] = pipeline_json(pipeline),
    }
}

fn turn_json(turn: &TurnReport) -> Value {
    let mut json = json!({"rounds": turn.rounds, "searches": turn.searches, "passages": turn.passages});
    if let Some(sufficiency) = turn.sufficiency {
        json["sufficiency"] = sufficiency.into();
    }
    if turn.rounds > 1 {
        json["own_ms"] = json!(turn.own.as_secs_f64() * 1e3);
    }
    if !turn.calls.is_empty() {
        let one = |call: &CallReport| {
            let ms = call.took.as_secs_f64() * 1e3;
            json!({"tool": call.tool, "ms": ms, "bytes": call.bytes, "error": call.failed})
        };
        json["calls"] = turn.calls.iter().map(one).collect();
    }
    json
}

fn pipeline_json(pipeline: &PipelineReport) -> Value {
    let steps: Vec<Value> = pipeline.steps.iter().map(pipeline_step).collect();
    json!({"name": pipeline.name, "steps": steps, "out_of": pipeline.early})
}

fn thinking_json(thinking: &ThinkingReport) -> Value {
    json!({"tokens": thinking.tokens, "ended": thinking.ended})
}

fn probe_into(thinking: &mut Value, probe: &ProbeReport) {
    thinking["probe_tokens"] = json!(probe.tokens);
    thinking["probe_entropy"] = json!(probe.entropy);
}

/// All drafts together, and the names of their sources.
fn speculation_json(report: &SpeculationReport) -> Value {
    let all: Vec<_> = report.sources().collect();
    let sum = |of: fn(&SourceDrafts) -> u32| all.iter().map(|(_, drafts)| of(drafts)).sum::<u32>();
    let names: Vec<_> = all.iter().map(|(kind, _)| kind.name()).collect();
    json!({
        "source": names.join(","),
        "drafted": sum(|d| d.drafted),
        "accepted": sum(|d| d.accepted),
        "steps": sum(|d| d.steps),
    })
}

fn prediction_into(details: &mut Value, drafts: &SourceDrafts) {
    details["accepted_prediction_tokens"] = json!(drafts.accepted);
    details["rejected_prediction_tokens"] = json!(drafts.drafted - drafts.accepted);
}

fn engram_json(report: &EngramReport) -> Value {
    let (hits, changed) = (report.hits, report.changed_tokens);
    let mut json = json!({"lookups": report.lookups, "hits": hits, "changed_tokens": changed});
    if let Some(sources) = &report.sources {
        json["sources"] = sources.iter().map(|token| changed_token_json(token, report)).collect();
    }
    if !report.contradicted.is_empty() {
        let name = |document: u32| name_json(document, report);
        let pair = |&(said, followed): &(u32, u32)| json!({"document": name(said), "by": name(followed)});
        json["contradicted"] = report.contradicted.iter().map(pair).collect();
    }
    json
}

/// A document's id, or its number from 0.
fn name_json(document: u32, report: &EngramReport) -> Value {
    let id = report.names.get(document as usize).and_then(|(id, _)| id.as_ref());
    id.map_or_else(|| json!(document), |id| json!(id))
}

fn changed_token_json(token: &ChangedToken, report: &EngramReport) -> Value {
    let mut json = json!({"choice": token.choice, "token": token.index, "text": token.text});
    let name = match token.origin {
        Origin::Document(place, _) => report.names.get(place.document as usize),
        Origin::Tables(_) => None,
    };
    origin_into(&mut json, token.origin, name);
    json
}

fn examples_json(examples: &ExamplesReport) -> Value {
    json!({"collection": examples.collection, "ids": examples.ids, "query_tokens": examples.query_tokens})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_adds_to_another_one_stands_behind_it_in_the_same_object() {
        let mut reply = json!({"usage": {"completion_tokens_details": {"reasoning_tokens": 0}}, "timings": {}});
        let thinking = ThinkingReport { tokens: 3, ended: vec!["model"] };
        let probe = ProbeReport { tokens: 2, entropy: 0.5, sure: false };
        let engram = EngramReport { lookups: 7, hits: 1, changed_tokens: None, ..EngramReport::default() };
        let examples = ExamplesReport { collection: "c".into(), ids: vec!["a".into()], query_tokens: 5 };
        for report in [
            Report::Thinking(thinking),
            Report::Prediction(SourceDrafts { drafted: 4, accepted: 1, steps: 1 }),
            Report::Engram(Box::new(engram)),
            Report::Probe(probe),
            Report::Examples(examples),
        ] {
            write(&report, &mut reply);
        }
        let want = concat!(
            r#"{"usage":{"completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":1,"#,
            r#""rejected_prediction_tokens":3}},"timings":{"thinking":{"tokens":3,"ended":["model"],"#,
            r#""probe_tokens":2,"probe_entropy":0.5},"engram":{"lookups":7,"hits":1,"changed_tokens":null,"#,
            r#""semantic":{"collection":"c","ids":["a"],"query_tokens":5}}}}"#
        );
        assert_eq!(reply.to_string(), want);
    }
}
