//! Routes as people have them, and what becomes of each of their keys.

use super::super::described;
use super::*;

const ROUTE: &str = r#"
name: "Care"
description: "Plans care {safely}."
system_prompt: |
  You plan care.
  Answer as {"a": 1}.
params:
  temperature: 0.4
  max_tokens: 4096
  top_p: 0.9
thinking:
  enabled: true
  budget: 2048
engram:
  table: "~/care.engr"
lora:
  path: null   # none so far
grammar: null
enrich:
  rag: true
  rag_collection: "medical"
  web: true
dvts:
  enabled: true
  k: 3
tools_allowed: ["calculator"]
pipeline_auto: true
pipeline:
  - agent: "Evidence search"
    params: { temperature: 0.3, max_tokens: 2048 }
    system_suffix: "Look for evidence."
    iterations: 5
  - parallel:
      - agent: protocol
        system_suffix: "Write a protocol."
      - agent: risks
        params: { max_tokens: 1024 }
  - agent: dosage
"#;

#[test]
fn a_route_becomes_a_pipeline_and_what_has_no_place_is_told() {
    let file = imported(ROUTE, None).unwrap();
    let pipeline = NamedPipeline::parse("care", &file).unwrap();
    assert!(pipeline.experimental);
    assert_eq!(
        described(&pipeline),
        "care: Plans care {safely}.
  retrieve: 5 passages of the store medical
  retrieve: 5 passages of the web
  generate (evidence_search): thinks, temperature 0.3, at most 2048 tokens, with a system text
  parallel: protocol (thinks, temperature 0.4, at most 4096 tokens, with a system text, with a suffix); risks (thinks, \
         temperature 0.4, at most 1024 tokens, with a system text, with a suffix)
  generate (dosage): the most certain of 3, thinks, temperature 0.4, at most 4096 tokens, with a system text, with a \
         suffix"
    );
    let head: Vec<&str> = file.lines().take_while(|line| line.starts_with('#')).collect();
    for (line, want) in head.iter().zip([
        "# Left out:",
        "# - `params.top_p`, 0.9: each request says it",
        "# - `thinking.budget`, 2048: the service bounds thoughts",
        "# - `engram`, {\"table\":\"~/care.engr\"}: tables are built by",
        "# - `tools_allowed`, [\"calculator\"]: the model chooses no tools here",
        "# - `pipeline[0].iterations`, 5: a step runs once",
        "# - the judge of `dvts`",
    ]) {
        assert!(line.starts_with(want), "{line}");
    }
    assert_eq!(head.len(), 7, "{head:#?}");
    let table: Table = file.parse().unwrap();
    let last = &table["steps"].as_array().unwrap()[4]["generate"];
    assert_eq!(last["system"].as_str(), Some("You plan care.\nAnswer as {{\"a\": 1}}."));
    assert_eq!(
        last["suffix"].as_str(),
        Some("evidence_search:\n{evidence_search}\n\nprotocol:\n{protocol}\n\nrisks:\n{risks}")
    );
    let group = table["steps"].as_array().unwrap()[3]["parallel"].as_array().unwrap();
    assert_eq!(
        group[1]["suffix"].as_str(),
        Some("evidence_search:\n{evidence_search}"),
        "a group reads none of its own"
    );
}

#[test]
fn a_route_without_steps_is_one_generation_and_names_are_its_own() {
    let file = imported("name: x\nenrich: {rag: true, rag_collection: auto}", Some("ours")).unwrap();
    let described = described(&NamedPipeline::parse("x", &file).unwrap());
    assert_eq!(described, "x: x\n  retrieve: 5 passages of the store ours\n  generate: as the request says");
    let file = imported("pipeline: [{agent: a b}, {agent: a-b}, {agent: question}]", None).unwrap();
    let names = |file: &str| -> Vec<String> {
        let table: Table = file.parse().unwrap();
        table["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&file), ["a_b", "a_b_2", "question_2"]);
}

#[test]
fn what_is_no_route_is_refused_in_words() {
    for (text, want) in [
        ("a: [", "not YAML: "),
        ("- a", "it has no keys, so it is no route"),
        ("pipeline: 3", "pipeline must be a list of steps, got a number"),
        ("pipeline: [3]", "pipeline[0] must have keys, got a number"),
        ("pipeline: [{parallel: {}}]", "pipeline[0].parallel must be a list of steps, got keys"),
        (
            "pipeline: [{agent: a, params: {temperature: 3}}]",
            "steps[0].generate.temperature must lie between 0 and 2, got 3",
        ),
        (
            "pipeline: [{parallel: [{agent: a}, {agent: b}]}]",
            "steps wants `generate` as its last step but for checks, got parallel",
        ),
    ] {
        let error = imported(text, None).unwrap_err();
        assert!(error.starts_with(want), "{text}: {error}");
    }
}
