//! Examples as lines of JSON: in the shapes that TRL's trainers read, and whole.

use super::example::{Example, ExampleSet, TruthSource};
use super::stored::StoredExample;
use crate::limits::{LEARNING_EXAMPLE_BYTES_MAX, LEARNING_IMPORT_LINES_MAX, LEARNING_LABEL_CHARS_MAX};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

/// The shape of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineShape {
    /// `{"messages"}`: a conversation with the answer that should be given.
    Messages,
    /// `{"prompt", "chosen", "rejected"}`: that answer, and the one that was given.
    Preference,
    /// `{"prompt", "completion", "label"}`: an answer, and whether it is right.
    Label,
    /// `{"example", ...}`: all that is kept of it, also of examples that nobody may learn from.
    Archive,
}

/// The lines of examples in a shape. Only [`LineShape::Archive`] has examples without evidence.
pub fn lines<'a>(stored: &'a [StoredExample], shape: LineShape) -> impl Iterator<Item = String> + 'a {
    let fits = move |stored: &&StoredExample| shape == LineShape::Archive || stored.example.is_evidence();
    stored.iter().filter(fits).flat_map(move |stored| of_example(stored, shape)).map(|line| line.to_string() + "\n")
}

fn of_example(stored: &StoredExample, shape: LineShape) -> Vec<Json> {
    let example = &stored.example;
    let labelled = |answer: &str, label: bool| {
        with_tools(json!({"prompt": example.messages, "completion": [said(answer)], "label": label}), example)
    };
    match (shape, &example.rejected) {
        (LineShape::Archive, _) => vec![json!({"id": stored.id, "example": example})],
        (LineShape::Messages, _) => {
            let messages: Vec<Json> = example.messages.iter().cloned().chain([said(&example.answer)]).collect();
            vec![with_tools(json!({"messages": messages}), example)]
        }
        (LineShape::Preference, Some(rejected)) => {
            let (chosen, rejected) = ([said(&example.answer)], [said(rejected)]);
            vec![with_tools(json!({"prompt": example.messages, "chosen": chosen, "rejected": rejected}), example)]
        }
        (LineShape::Preference, None) => Vec::new(),
        (LineShape::Label, rejected) => {
            let wrong = rejected.iter().map(|rejected| labelled(rejected, false));
            [labelled(&example.answer, true)].into_iter().chain(wrong).collect()
        }
    }
}

fn said(answer: &str) -> Json {
    json!({"role": "assistant", "content": answer})
}

/// With the example's tools, and the set that it belongs to.
fn with_tools(mut line: Json, example: &Example) -> Json {
    if !example.tools.is_empty() {
        line["tools"] = example.tools.clone().into();
    }
    line["set"] = example.set.name().into();
    line
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct LineError {
    /// Its number, from 1.
    pub line: usize,
    /// What was wanted and what came.
    pub why: String,
}

/// Examples that were read, and how many lines were left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadExamples {
    /// The examples, in the order of their lines.
    pub examples: Vec<Example>,
    /// Lines with a wrong answer, where no line has the right one.
    pub left_out: usize,
}

/// What a line says.
enum ReadLine {
    /// An answer that should be given; whether the line says which set it is in.
    Right(Box<Example>, bool),
    /// An answer that should not be given to these messages.
    Wrong { prompt: String, answer: String },
}

/// Reads lines of any shape, of which each becomes an example that the operator vouches for. A line that says of an
/// answer that it is wrong belongs to the line with the same prompt that says which answer is right.
///
/// # Errors
/// If a line has none of these shapes.
pub fn read(text: &str, now: u64) -> Result<ReadExamples, LineError> {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    for (count, (line, text)) in lines.enumerate() {
        let failed = |why: String| LineError { line, why };
        if count >= LEARNING_IMPORT_LINES_MAX {
            return Err(failed(format!("at most {LEARNING_IMPORT_LINES_MAX} lines are taken at once")));
        }
        match of_line(text, now).map_err(failed)? {
            ReadLine::Right(example, in_set) => right.push((example, in_set)),
            ReadLine::Wrong { prompt, answer } => wrong.push((prompt, answer)),
        }
    }
    let left_out = paired(&mut right, wrong);
    let placed = |(mut example, in_set): (Box<Example>, bool)| {
        if !in_set {
            // Only now is all known of which the id is made.
            example.set = ExampleSet::of_id(&example.id());
        }
        *example
    };
    Ok(ReadExamples { examples: right.into_iter().map(placed).collect(), left_out })
}

/// Gives wrong answers to the examples with their prompts, and says how many found none.
fn paired(right: &mut [(Box<Example>, bool)], wrong: Vec<(String, String)>) -> usize {
    let mut by_prompt: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, (example, _)) in right.iter().enumerate() {
        by_prompt.entry(prompt_of(&example.messages)).or_default().push(at);
    }
    let mut left_out = 0;
    for (prompt, answer) in wrong {
        let mut same = by_prompt.get(&prompt).into_iter().flatten().copied();
        match same.find(|at| right[*at].0.rejected.is_none() && right[*at].0.answer != answer) {
            Some(at) => right[at].0.rejected = Some(answer),
            None => left_out += 1,
        }
    }
    left_out
}

fn prompt_of(messages: &[Json]) -> String {
    Json::from(messages.to_vec()).to_string()
}

fn of_line(text: &str, now: u64) -> Result<ReadLine, String> {
    if text.len() > LEARNING_EXAMPLE_BYTES_MAX {
        return Err(format!("has {} bytes, at most {LEARNING_EXAMPLE_BYTES_MAX} are taken", text.len()));
    }
    let Json::Object(mut line) = serde_json::from_str(text).map_err(|e| format!("is no JSON: {e}"))? else {
        return Err("wants an object".into());
    };
    if let Some(example) = line.remove("example") {
        let example: Example = serde_json::from_value(example).map_err(|e| format!("`example`: {e}"))?;
        return Ok(ReadLine::Right(Box::new(Example { at: now, ..example }), true));
    }
    let tools = list(line.remove("tools"), "tools")?.unwrap_or_default();
    let (messages, answer, rejected) = said_in(&mut line)?;
    if let Some(Json::Bool(false)) = line.get("label") {
        return Ok(ReadLine::Wrong { prompt: prompt_of(&messages), answer });
    }
    let set = line.remove("set").map(serde_json::from_value).transpose().map_err(|e| format!("`set`: {e}"))?;
    Ok(ReadLine::Right(
        Box::new(Example {
            messages,
            tools,
            answer,
            rejected,
            model: String::new(),
            truth: vec![TruthSource::Operator],
            rating: None,
            reason: None,
            labels: Vec::new(),
            family: family(&mut line)?,
            set: set.unwrap_or(ExampleSet::Train),
            at: now,
        }),
        set.is_some(),
    ))
}

/// The messages, the answer, and the answer that it takes the place of.
type SaidInLine = (Vec<Json>, String, Option<String>);

fn said_in(line: &mut Map<String, Json>) -> Result<SaidInLine, String> {
    if let Some(mut messages) = list(line.remove("messages"), "messages")? {
        let last = messages.pop().ok_or("`messages` is empty")?;
        return Ok((checked(messages, "messages")?, answer(last, "messages")?, None));
    }
    let prompt = match line.remove("prompt") {
        Some(Json::String(text)) => vec![json!({"role": "user", "content": text})],
        prompt => list(prompt, "prompt")?.ok_or("wants `messages`, or `prompt` with `chosen` or `completion`")?,
    };
    let prompt = checked(prompt, "prompt")?;
    let mut completion = |name: &str| line.remove(name).map(|value| completion(value, name)).transpose();
    if let Some(chosen) = completion("chosen")? {
        return Ok((prompt, chosen, completion("rejected")?));
    }
    Ok((prompt, completion("completion")?.ok_or("wants `chosen` or `completion` beside `prompt`")?, None))
}

/// Messages that a trainer's template can render.
fn checked(messages: Vec<Json>, name: &str) -> Result<Vec<Json>, String> {
    let is_message = |message: &Json| message["role"].is_string();
    match messages.iter().position(|message| !is_message(message)) {
        Some(at) => Err(format!("`{name}[{at}]` wants a message with a `role`")),
        None if messages.is_empty() => Err(format!("`{name}` wants a message before the answer")),
        None => Ok(messages),
    }
}

/// An answer: a text, or a list with one message of the assistant.
fn completion(value: Json, name: &str) -> Result<String, String> {
    match value {
        Json::String(text) if !text.is_empty() => Ok(text),
        Json::Array(mut messages) if messages.len() == 1 => answer(messages.remove(0), name),
        _ => Err(format!("`{name}` wants a text, or a list with one message of the assistant")),
    }
}

fn answer(message: Json, name: &str) -> Result<String, String> {
    let text = message["content"].as_str().filter(|text| !text.is_empty() && message["role"] == "assistant");
    text.map(str::to_owned).ok_or_else(|| format!("`{name}` wants the assistant's answer last, with a text"))
}

fn list(value: Option<Json>, name: &str) -> Result<Option<Vec<Json>>, String> {
    match value {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Array(list)) => Ok(Some(list)),
        Some(_) => Err(format!("`{name}` wants a list")),
    }
}

fn family(line: &mut Map<String, Json>) -> Result<Option<String>, String> {
    match line.remove("family") {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(family)) if family.chars().count() <= LEARNING_LABEL_CHARS_MAX => Ok(Some(family)),
        Some(_) => Err(format!("`family` wants a text of at most {LEARNING_LABEL_CHARS_MAX} characters")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learning::example::tests::example;

    fn stored(example: Example) -> StoredExample {
        StoredExample { id: example.id(), example, accounts: vec![1] }
    }

    fn written(stored: &[StoredExample], shape: LineShape) -> String {
        lines(stored, shape).collect()
    }

    #[test]
    fn lines_have_the_keys_that_trl_reads_and_come_back_as_they_went() {
        let corrected = stored(Example { rejected: Some("no".into()), ..example("why?", "so") });
        let plain = stored(Example { set: ExampleSet::Gate, ..example("how?", "thus") });
        let thumb = stored(Example { truth: Vec::new(), rating: Some(1), ..example("who?", "me") });
        let all = [corrected, plain, thumb];
        let prompt = json!([{"role": "user", "content": "why?"}]);
        let said = |text: &str| json!([{"role": "assistant", "content": text}]);
        let first = |shape| serde_json::from_str::<Json>(written(&all, shape).lines().next().unwrap()).unwrap();
        assert_eq!(
            first(LineShape::Preference),
            json!({"prompt": prompt, "chosen": said("so"), "rejected": said("no"), "set": "train"})
        );
        assert_eq!(
            first(LineShape::Label),
            json!({"prompt": prompt, "completion": said("so"), "label": true, "set": "train"})
        );
        assert_eq!(first(LineShape::Messages)["messages"][1], said("so")[0]);
        for (shape, count) in
            [(LineShape::Messages, 2), (LineShape::Preference, 1), (LineShape::Label, 3), (LineShape::Archive, 3)]
        {
            let text = written(&all, shape);
            assert_eq!(text.lines().count(), count, "{shape:?}");
            let back = read(&text, 5).unwrap();
            assert_eq!(back.left_out, 0);
            let again: Vec<StoredExample> = back.examples.into_iter().map(stored).collect();
            assert_eq!(written(&again, shape), text.replace("\"at\":0", "\"at\":5"), "{shape:?}");
        }
    }

    #[test]
    fn a_line_of_no_shape_is_told_with_its_number_and_a_wrong_answer_alone_is_left_out() {
        let good = r#"{"prompt": "a", "completion": "b", "label": true}"#;
        for (bad, why) in [
            ("[]", "object"),
            ("{", "no JSON"),
            (r#"{"prompt": "a"}"#, "`completion`"),
            (r#"{"messages": []}"#, "empty"),
            (r#"{"messages": [{"role": "assistant", "content": "b"}]}"#, "before the answer"),
            (r#"{"prompt": [1], "completion": "b"}"#, "`prompt[0]`"),
            (r#"{"messages": [{"role": "user", "content": "b"}]}"#, "before the answer"),
            (r#"{"prompt": "a", "completion": "b", "set": "all"}"#, "`set`"),
        ] {
            let error = read(&format!("{good}\n\n{bad}"), 0).unwrap_err();
            assert!(error.line == 3 && error.why.contains(why), "{bad}: {error}");
        }
        let alone = read(r#"{"prompt": "a", "completion": "b", "label": false}"#, 0).unwrap();
        assert_eq!((alone.examples.len(), alone.left_out), (0, 1));
    }
}
