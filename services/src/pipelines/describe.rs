//! What a pipeline does, in a line a step, for an operator who has written one.

use super::form::{CheckRule, CheckStep, GenerateStep, PipelineStep, RetrieveFrom, StepKind, Test};
use super::pipeline::NamedPipeline;
use crate::printable::first_line;

/// Its name and what its steps do, in lines.
pub fn described(pipeline: &NamedPipeline) -> String {
    let mut lines = vec![format!("{}: {}", pipeline.name, first_line(&pipeline.description))];
    let budget = pipeline.budget;
    let tokens = budget.tokens.map(|tokens| format!("{tokens} tokens"));
    let time = budget.time.map(|time| format!("{} ms", time.as_millis()));
    let bounds: Vec<String> = tokens.into_iter().chain(time).collect();
    if !bounds.is_empty() {
        lines.push(format!("  budget {}", bounds.join(", ")));
    }
    row(&pipeline.steps, 1, &mut lines);
    lines.join("\n")
}

fn row(steps: &[PipelineStep], depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    for PipelineStep { name, kind } in steps {
        let called = if **name == *kind.name() { String::new() } else { format!(" ({name})") };
        let mut line = |text: String| lines.push(format!("{indent}{}{called}: {text}", kind.name()));
        match kind {
            StepKind::When { test, then, otherwise } => {
                line(question(test));
                row(then, depth + 1, lines);
                if !otherwise.is_empty() {
                    lines.push(format!("{indent}else"));
                    row(otherwise, depth + 1, lines);
                }
            }
            StepKind::Retrieve(step) => {
                let ranked = step.rerank.map(|n| format!(", ranked by the model from {n}")).unwrap_or_default();
                let from = match &step.from {
                    RetrieveFrom::Store(store) => format!("the store {store}"),
                    RetrieveFrom::Web => "the web".to_owned(),
                };
                line(format!("{} passages of {from}{ranked}", step.k));
            }
            StepKind::Enough(min) => line(format!("says what is missing below {min}")),
            StepKind::Call(step) => {
                let otherwise = if step.otherwise.is_some() { ", else another text" } else { "" };
                line(format!("{}{otherwise}", step.tool.shown()));
            }
            StepKind::Generate(step) => line(generation(step)),
            StepKind::Parallel(steps) => {
                line(steps.iter().map(|s| format!("{} ({})", s.name, generation(s))).collect::<Vec<_>>().join("; "));
            }
            StepKind::Check(step) => line(rule(step)),
        }
    }
}

fn question(test: &Test) -> String {
    match test {
        Test::Regex(regex) => format!("the last text fits {regex}"),
        Test::FileType(endings) => format!("a file is one of {}", endings.join(", ")),
        Test::Decision { statement, min } => format!("at least {min} likely: {}", first_line(statement)),
    }
}

fn generation(step: &GenerateStep) -> String {
    let GenerateStep { system, suffix, thinking, temperature, tokens, form, best_of, .. } = step;
    let parts = [
        (*best_of > 1).then(|| format!("the most certain of {best_of}")),
        thinking.map(|thinks| if thinks { "thinks" } else { "does not think" }.to_owned()),
        temperature.map(|t| format!("temperature {t}")),
        tokens.map(|n| format!("at most {n} tokens")),
        form.as_ref().map(|_| "in a form".to_owned()),
        system.as_ref().map(|_| "with a system text".to_owned()),
        suffix.as_ref().map(|_| "with a suffix".to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "as the request says".to_owned() } else { parts.join(", ") }
}

fn rule(step: &CheckStep) -> String {
    let what = match &step.rule {
        CheckRule::Schema(_) => "is JSON of the schema".to_owned(),
        CheckRule::Regex(regex) => format!("fits {regex}"),
        CheckRule::Cited(n) => format!("cites passages in {n} places"),
        CheckRule::Tool(tool) => format!("{} does not fail", tool.shown()),
        CheckRule::Decision { statement, min } => format!("at least {min} likely: {}", first_line(statement)),
    };
    let retry = if step.retry { ", else once more" } else { "" };
    let otherwise = if step.otherwise.is_some() { ", else another text" } else { "" };
    format!("{what}{retry}{otherwise}")
}
