//! Files that are taken, and files that are not: a mistake and the words about it.

use super::super::{described, read_directory};
use super::*;

#[track_caller]
fn check(table: &[(&str, &str)]) {
    for (text, want) in table {
        let error = NamedPipeline::parse("p", text).expect_err(text).to_string();
        assert_eq!(error, format!("p.toml: {want}"), "{text}");
    }
}

fn generate(keys: &str) -> String {
    format!("steps = [{{ generate = {{ {keys} }} }}]")
}

#[test]
fn a_key_that_no_step_has_is_refused_with_its_line() {
    let wrong = NamedPipeline::parse("p", "steps = [\n  { generate = { sytem = \"a\" } },\n]").unwrap_err().to_string();
    assert!(wrong.starts_with("p.toml: line 2: unknown field `sytem`, expected one of `name`, `system`"), "{wrong}");
    let wrong = NamedPipeline::parse("p", "stpes = []").unwrap_err().to_string();
    assert!(wrong.starts_with("p.toml: line 1: unknown field `stpes`"), "{wrong}");
    let wrong = NamedPipeline::parse("p", "steps = [{ agent = {} }]").unwrap_err().to_string();
    assert!(wrong.contains("unknown field `agent`, expected one of `name`, `when`, `retrieve`"), "{wrong}");
    let wrong = NamedPipeline::parse("p", "[budget]\ntokens = \"many\"").unwrap_err().to_string();
    assert!(wrong.contains("line 2: invalid type: string \"many\""), "{wrong}");
}

#[test]
fn a_step_is_one_of_the_known_ones() {
    let one = "wants one of call, check, enough, generate, parallel, retrieve, when";
    check(&[
        ("steps = [{}]", &format!("steps[0] {one}, got none")),
        ("steps = [{ generate = {}, enough = { min = 0.5 } }]", &format!("steps[0] {one}, got enough and generate")),
        (
            "steps = [{ call = { tool = \"x\" } }]",
            "steps[0].call.tool wants the name that models call it by, SERVER__TOOL, got \"x\"",
        ),
        (
            "steps = [{ name = \"question\", generate = {} }]",
            "steps[0].generate: `question` is the user's last text, choose another name",
        ),
        ("steps = [{ retrieve = { k = 3 } }]", "steps[0].retrieve wants one of store, web, got none"),
        (
            "steps = [{ retrieve = { store = \"s\", web = true } }]",
            "steps[0].retrieve wants one of store, web, got store and web",
        ),
        (
            "steps = [{ call = { tool = \"a__b\" } }]",
            "steps wants `generate` as its last step but for checks, got call",
        ),
        (
            "steps = [{ generate = {} }, { check = { regex = \"a\", arguments = {} } }]",
            "steps[1].check.arguments belongs to `tool`, which is not there",
        ),
        (
            "steps = [{ name = \"A b\", generate = {} }]",
            "steps[0].generate: a step's name has 1 to 32 of a to z, 0 to 9 and _, got \"A b\"",
        ),
    ]);
}

#[test]
fn a_number_beyond_its_bounds_is_refused_with_both() {
    let of = |keys: &str, want: &str| (generate(keys), format!("steps[0].generate.{want}"));
    for (text, want) in [
        of("temperature = 3", "temperature must lie between 0 and 2, got 3"),
        of("tokens = 0", "tokens must lie between 1 and 1048576, got 0"),
        of("best_of = { n = 9 }", "best_of.n must lie between 2 and 8, got 9"),
        of("best_of = { n = 2, by = \"votes\" }", "best_of.by must be \"certainty\", got \"votes\""),
    ] {
        check(&[(&text, &want)]);
    }
    check(&[
        ("steps = [{ generate = {} }]\n[budget]\ntokens = -1", "budget.tokens must lie between 1 and 1048576, got -1"),
        (
            "steps = [{ generate = {} }]\n[budget]\nmilliseconds = 0",
            "budget.milliseconds must lie between 1 and 3600000, got 0",
        ),
        (
            "steps = [{ retrieve = { store = \"s\", k = 51 } }, { generate = {} }]",
            "steps[0].retrieve.k must lie between 1 and 50, got 51",
        ),
        (
            "steps = [{ retrieve = { store = \"s\", k = 8, rerank = 5 } }, { generate = {} }]",
            "steps[0].retrieve.rerank must lie between 8 and 50, got 5",
        ),
        (
            "steps = [{ generate = {} }, { check = { regex = \"a\", retry = 2 } }]",
            "steps[1].check.retry must lie between 0 and 1, got 2",
        ),
        (
            "steps = [{ retrieve = { store = \"s\" } }, { enough = { min = 1.5 } }, { generate = {} }]",
            "steps[1].enough.min must lie between 0 and 1, got 1.5",
        ),
    ]);
    let many = format!("steps = [{}]", "{ generate = {} },".repeat(33));
    check(&[(&many, "steps[32] is step 33, at most 32 are taken")]);
}

#[test]
fn steps_that_do_not_fit_together_are_refused() {
    check(&[
        ("steps = []", "steps wants `generate` as its last step, got none"),
        (
            "steps = [{ retrieve = { store = \"s\" } }]",
            "steps wants `generate` as its last step but for checks, got retrieve",
        ),
        (
            "steps = [{ when = { regex = \"a\", then = [{ generate = {} }] } }]",
            "steps[0].when.else wants `generate` as its last step, got none",
        ),
        (
            "steps = [{ check = { regex = \"a\" } }, { generate = {} }]",
            "steps[0].check wants `generate` or another `check` before it, got nothing",
        ),
        (
            "steps = [{ enough = { min = 0.5 } }, { generate = {} }]",
            "steps[0].enough wants `retrieve` before it, got nothing",
        ),
        (
            "steps = [{ parallel = [{ name = \"a\" }] }, { generate = {} }]",
            "steps[0].parallel has generations that must lie between 2 and 8, got 1",
        ),
        (
            "steps = [{ parallel = [{ name = \"a\" }, { name = \"a\" }] }, { generate = {} }]",
            "steps[0].parallel[1].name \"a\" stands twice",
        ),
        (
            "steps = [{ parallel = [{ name = \"a\" }, {}] }, { generate = {} }]",
            "steps[0].parallel[1].name is missing: by it the next step reads the text",
        ),
        (
            "steps = [{ generate = { temperature = 0.0, best_of = { n = 2 } } }]",
            "steps[0].generate.best_of wants choices that differ, and steps[0].generate.temperature is 0",
        ),
        (
            "steps = [{ when = { regex = \"a\", min = 0.5, then = [{ generate = {} }] } }]",
            "steps[0].when.min belongs to `decision`, which is not there",
        ),
        (
            "steps = [{ generate = { suffix = \"{plan}\" } }]",
            "steps[0].generate.suffix reads `{plan}`, which no earlier step is called (question); \
             write `{{` for a brace",
        ),
    ]);
}

#[test]
fn a_text_of_one_branch_is_read_in_it_alone() {
    let text = r#"steps = [{ when = {
        regex = "x",
        then = [{ name = "a", generate = {} }, { generate = { suffix = "{a}" } }],
        else = [{ generate = { suffix = "{a}" } }],
    } }]"#;
    let wrong = NamedPipeline::parse("p", text).unwrap_err().to_string();
    assert!(wrong.starts_with("p.toml: steps[0].when.else[0].generate.suffix reads `{a}`"), "{wrong}");
}

#[test]
fn an_expression_a_schema_and_a_file_s_ending_are_read_when_the_file_is() {
    let starts = |text: &str, want: &str| {
        let wrong = NamedPipeline::parse("p", text).unwrap_err().to_string();
        assert!(wrong.starts_with(&format!("p.toml: {want}")), "{wrong}");
    };
    starts("steps = [{ generate = {} }, { check = { regex = \"(\" } }]", "steps[1].check.regex is no expression:");
    starts("steps = [{ generate = {} }, { check = { schema = \"{\" } }]", "steps[1].check.schema must be a schema");
    starts(
        "steps = [{ when = { file_type = [\".py\"], then = [{ generate = {} }], else = [{ generate = {} }] } }]",
        "steps[0].when.file_type wants endings such as \"py\", got \".py\"",
    );
}

#[test]
fn the_examples_that_are_shipped_are_taken_and_described() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../config/pipelines");
    let all: Vec<String> = read_directory(&path).unwrap().into_iter().map(|read| described(&read.unwrap())).collect();
    let names: Vec<&str> = all.iter().map(|text| text.split(':').next().unwrap()).collect();
    assert_eq!(names, ["architect_coder", "checked_json", "docs", "triage_correlate_remediate"]);
    assert!(all[2].contains("\n  retrieve: 5 passages of the store docs"), "{}", all[2]);
}
