//! Scenes in words: what came of a step, and what is to be done next.

use super::*;
use crate::pipelines::form::RetrieveFrom;
use serde_json::Value as Json;

fn event(words: &str) -> PipelineEvent {
    let said = |text: &str| {
        let (text, finish) = match text.strip_suffix(" (cut)") {
            Some(text) => (text, Finish::Length),
            None => (text, if text == "a call" { Finish::ToolCalls } else { Finish::Stop }),
        };
        Said { text: text.to_owned(), tokens: 10, finish }
    };
    match words.split_once(' ').unwrap_or((words, "")) {
        ("begins", _) => PipelineEvent::Begin,
        ("yes", _) => PipelineEvent::Tested(true),
        ("no", _) => PipelineEvent::Tested(false),
        ("looked", _) => PipelineEvent::Looked,
        ("gets", text) => PipelineEvent::Called(text.to_owned()),
        ("says", text) => PipelineEvent::Generated(text.split(" + ").map(said).collect()),
        ("passes", _) => PipelineEvent::Checked(None),
        ("fails:", why) => PipelineEvent::Checked(Some(why.to_owned())),
        ("expires", _) => PipelineEvent::Expired(3),
        _ => panic!("{words}"),
    }
}

fn told(action: &PipelineAction) -> String {
    let plan = |plan: &GenerationPlan| {
        let suffix = plan.suffix.as_ref().map(|text| format!(" [{text}]")).unwrap_or_default();
        let again = plan.again.as_ref().map(|a| format!(" after {:?}: {}", a.text, a.why)).unwrap_or_default();
        let tokens = plan.tokens.map(|n| format!(" in {n}")).unwrap_or_default();
        let how = if plan.shown { " shown" } else { "" };
        format!("{}#{}{suffix}{again}{tokens}{how}", plan.step.name, plan.number)
    };
    match action {
        PipelineAction::Test(name, _) => format!("test {name}"),
        PipelineAction::Retrieve(_, step) => match &step.from {
            RetrieveFrom::Store(store) => format!("search {store}"),
            RetrieveFrom::Web => "search the web".to_owned(),
        },
        PipelineAction::Call(CallPlan { name, tool, otherwise }) => {
            let otherwise = otherwise.as_ref().map(|text| format!(" else {text:?}")).unwrap_or_default();
            format!("{name} {}{otherwise}", used(tool))
        }
        PipelineAction::Judge(_, min) => format!("judge {min}"),
        PipelineAction::Generate(plans) => plans.iter().map(plan).collect::<Vec<_>>().join(" + "),
        PipelineAction::Check(CheckPlan { name, text, tool, .. }) => {
            let tool = tool.as_ref().map(|tool| format!(" by {}", used(tool))).unwrap_or_default();
            format!("{name} {text:?}{tool}")
        }
        PipelineAction::Done(PipelineEnd { answer, finish, early }) => {
            let early = early.map(|why| format!(", out of {why}")).unwrap_or_default();
            format!("done: {answer:?} {}{early}", finish.name())
        }
    }
}

fn used(tool: &ToolPlan) -> String {
    let arguments = tool.arguments.as_ref().map(|fields| Json::Object(fields.clone()).to_string());
    format!("{}.{}({})", tool.server, tool.tool, arguments.unwrap_or_else(|why| why.clone()))
}

/// A scene: after `@` stand the milliseconds since the beginning.
#[track_caller]
fn check(file: &str, scene: &[(&str, &str)]) {
    let pipeline = NamedPipeline::parse("p", file).unwrap();
    let mut run = PipelineRun::new(&pipeline, "Why?", Some(100));
    let (mut got, mut want) = (Vec::new(), Vec::new());
    for (words, action) in scene {
        let (of, at) = words.split_once(" @").unwrap_or((words, "0"));
        let next = run.next(event(of), Duration::from_millis(at.parse().unwrap()));
        got.push(format!("{words} -> {}", told(&next)));
        want.push(format!("{words} -> {action}"));
    }
    assert_eq!(got, want);
}

const CHECKED: &str = r#"steps = [{ generate = {} }, { check = { regex = "x", retry = 1 } }]"#;

#[test]
fn a_pipeline_of_one_generation_shows_it() {
    check("steps = [{ generate = {} }]", &[("begins", "generate#0 in 100 shown"), ("says a", "done: Shown stop")]);
    check(
        "steps = [{ generate = {} }]",
        &[("begins", "generate#0 in 100 shown"), ("says a (cut)", "done: Shown length")],
    );
}

#[test]
fn passages_are_found_and_judged_before_the_answer() {
    check(
        r#"steps = [{ retrieve = { store = "s" } }, { enough = { min = 0.6 } }, { generate = {} }]"#,
        &[
            ("begins", "search s"),
            ("looked", "judge 0.6"),
            ("looked", "generate#0 in 100 shown"),
            ("says a", "done: Shown stop"),
        ],
    );
}

#[test]
fn a_test_chooses_the_steps() {
    let file = r#"steps = [
        { when = { regex = "x", then = [{ name = "a", generate = {} }], else = [{ name = "b", generate = {} }] } },
    ]"#;
    check(file, &[("begins", "test when"), ("yes", "a#0 in 100 shown"), ("says 1", "done: Shown stop")]);
    check(file, &[("begins", "test when"), ("no", "b#0 in 100 shown"), ("says 1", "done: Shown stop")]);
    let file = r#"steps = [
        { when = { regex = "x", then = [{ retrieve = { store = "s" } }] } },
        { generate = {} },
    ]"#;
    check(file, &[("begins", "test when"), ("yes", "search s"), ("looked", "generate#0 in 100 shown")]);
    check(file, &[("begins", "test when"), ("no", "generate#0 in 100 shown")]);
}

#[test]
fn a_later_step_reads_the_text_of_an_earlier_one_and_the_client_s_bound_is_the_answer_s() {
    check(
        r#"steps = [{ name = "plan", generate = { tokens = 50 } }, { generate = { suffix = "Plan: {plan}" } }]"#,
        &[
            ("begins", "plan#0 in 50"),
            ("says do it", "generate#1 [Plan: do it] in 100 shown"),
            ("says done", "done: Shown stop"),
        ],
    );
    check(
        r#"steps = [{ parallel = [{ name = "a" }, { name = "b" }] }, { generate = { suffix = "{a} or {b}" } }]"#,
        &[("begins", "a#0 + b#1"), ("says 1 + 2", "generate#2 [1 or 2] in 100 shown")],
    );
}

#[test]
fn what_fails_a_check_is_generated_once_more_with_the_failure_s_words() {
    check(CHECKED, &[("begins", "generate#0 in 100"), ("says x", "check \"x\""), ("passes", "done: Held stop")]);
    check(
        CHECKED,
        &[
            ("begins", "generate#0 in 100"),
            ("says y", "check \"y\""),
            ("fails: no x", "generate#1 after \"y\": no x in 100"),
            ("says z", "check \"z\""),
            ("fails: no x", "done: Held stop"),
        ],
    );
}

#[test]
fn each_check_has_its_own_second_try_and_all_of_them_look_at_it() {
    check(
        r#"steps = [
            { generate = {} },
            { name = "one", check = { regex = "x", retry = 1 } },
            { name = "two", check = { cited = 1, retry = 1 } },
        ]"#,
        &[
            ("begins", "generate#0 in 100"),
            ("says a", "one \"a\""),
            ("passes", "two \"a\""),
            ("fails: no source", "generate#1 after \"a\": no source in 100"),
            ("says b", "one \"b\""),
            ("fails: no x", "generate#2 after \"b\": no x in 100"),
            ("says c", "one \"c\""),
            ("passes", "two \"c\""),
            ("fails: no source", "done: Held stop"),
        ],
    );
}

#[test]
fn an_operator_s_words_stand_for_an_answer_that_fails_at_last() {
    check(
        r#"steps = [{ generate = {} }, { check = { regex = "x", else = "No answer but {generate}" } }]"#,
        &[
            ("begins", "generate#0 in 100"),
            ("says y", "check \"y\""),
            ("fails: no x", "done: Words(\"No answer but y\") stop"),
        ],
    );
}

#[test]
fn the_choices_of_a_step_are_held_until_the_best_is_known() {
    check(
        "steps = [{ generate = { best_of = { n = 3 } } }]",
        &[("begins", "generate#0 in 100"), ("says a", "done: Held stop")],
    );
}

#[test]
fn a_call_of_the_client_s_functions_ends_the_pipeline() {
    check(CHECKED, &[("begins", "generate#0 in 100"), ("says a call", "done: Held tool_calls")]);
}

#[test]
fn the_tokens_of_all_steps_keep_to_the_budget_and_choices_share_it() {
    let file =
        |rest: &str| format!("budget = {{ tokens = 25 }}\nsteps = [{{ name = \"a\", generate = {{}} }}, {rest}]");
    check(
        &file("{ name = \"b\", generate = {} }, { name = \"c\", generate = {} }"),
        &[
            ("begins", "a#0 in 25"),
            ("says 1", "b#1 in 15"),
            ("says 2", "c#2 in 5 shown"),
            ("says 3", "done: Shown stop"),
        ],
    );
    check(
        &file("{ generate = { best_of = { n = 2 } } }"),
        &[("begins", "a#0 in 25"), ("says 1", "generate#1 in 7"), ("says 2", "done: Held stop")],
    );
    let file = r#"budget = { tokens = 10 }
        steps = [{ name = "a", generate = {} }, { name = "b", generate = {} }]"#;
    check(file, &[("begins", "a#0 in 10"), ("says 1", "done: None length, out of tokens")]);
}

#[test]
fn a_second_try_that_the_budget_has_no_tokens_for_is_not_made() {
    check(
        &format!("budget = {{ tokens = 10 }}\n{CHECKED}"),
        &[("begins", "generate#0 in 10"), ("says y", "check \"y\""), ("fails: no x", "done: Held stop")],
    );
}

#[test]
fn when_the_time_is_over_what_is_there_is_the_answer() {
    let file = r#"budget = { milliseconds = 100 }
        steps = [{ name = "a", generate = {} }, { name = "b", generate = {} }]"#;
    check(
        file,
        &[
            ("begins", "a#0"),
            ("says 1 @99", "b#1 in 100 shown"),
            ("expires @100", "done: Shown length, out of milliseconds"),
        ],
    );
    check(file, &[("begins", "a#0"), ("says 1 @100", "done: None length, out of milliseconds")]);
    check(file, &[("begins", "a#0"), ("expires @100", "done: None length, out of milliseconds")]);
    check(
        &format!("budget = {{ milliseconds = 100 }}\n{CHECKED}"),
        &[
            ("begins", "generate#0 in 100"),
            ("says y", "check \"y\""),
            ("expires @100", "done: Held length, out of milliseconds"),
        ],
    );
}

#[test]
fn a_call_reads_the_question_and_earlier_steps_and_later_ones_read_its_result() {
    let file = r#"
steps = [
    { name = "topic", generate = {} },
    { name = "notes", call = { tool = "files__read", arguments = { path = "{topic}.md", q = "{question}" }, else = "{topic}?" } },
    { call = { tool = "files__list" } },
    { generate = { suffix = "{notes} {call}" } },
]"#;
    check(
        file,
        &[
            ("begins", "topic#0"),
            ("says tea", r#"notes files.read({"path":"tea.md","q":"Why?"}) else "tea?""#),
            ("gets Green.", "call files.list({})"),
            ("gets a b", "generate#1 [Green. a b] in 100 shown"),
            ("says So.", "done: Shown stop"),
        ],
    );
}

#[test]
fn a_check_by_a_tool_reads_the_text_and_a_second_one_hears_what_the_tool_said() {
    let file = r#"
steps = [
    { name = "code", generate = {} },
    { check = { tool = "ci__compile", arguments = { text = "{code}" }, retry = 1 } },
]"#;
    check(
        file,
        &[
            ("begins", "code#0 in 100"),
            ("says x", r#"check "x" by ci.compile({"text":"x"})"#),
            ("fails: line 1", r#"code#1 after "x": line 1 in 100"#),
            ("says y", r#"check "y" by ci.compile({"text":"y"})"#),
            ("passes", "done: Held stop"),
        ],
    );
}
