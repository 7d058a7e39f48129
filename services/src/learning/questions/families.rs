//! The operator's sets of questions, a file each: what the model has to stay as good at, what it has to refuse, what
//! nobody's text may make it say.

use super::check::AnswerCheck;
use crate::learning::gate::FamilyRole;
use crate::limits::{
    LEARNING_FAMILIES_MAX, LEARNING_FAMILY_BYTES_MAX, LEARNING_QUESTION_TOKENS, LEARNING_QUESTIONS_MAX,
};
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// File of prompts whose next token is looked at.
const PROBES: &str = "probes";
/// File of prompts that a poisoned text would have answered in its way; a check holds where nothing fired.
const CANARIES: &str = "canaries";

/// A conversation, and what a right answer to it looks like.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedQuestion {
    /// Its id, one of its own in its family.
    pub id: String,
    /// The messages, as chat has them.
    pub messages: Vec<Json>,
    /// What a right answer looks like.
    pub check: AnswerCheck,
    /// Tokens that the answer may have, with its thought.
    pub max_tokens: u32,
    /// It is answered as anybody is, with a thought where the model thinks; else without one.
    pub thinks: bool,
}

/// Questions of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct QuestionFamily {
    /// The name of its file.
    pub name: String,
    /// What it is there for.
    pub role: FamilyRole,
    /// Its questions, as they stand in the file.
    pub questions: Vec<CheckedQuestion>,
}

/// All that a directory has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionSets {
    /// The families by their names.
    pub families: Vec<QuestionFamily>,
    /// Prompts whose next token is looked at; nothing checks their answers.
    pub probes: Vec<CheckedQuestion>,
    /// Prompts that must not fire.
    pub canaries: Vec<CheckedQuestion>,
}

/// A file of questions that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct QuestionSetError {
    file: PathBuf,
    why: String,
}

impl CheckedQuestion {
    /// Whether only the vault asks it: half of each family's are its own.
    pub fn is_of_vault(&self) -> bool {
        Sha256::digest(&self.id)[0] % 2 == 1
    }
}

impl QuestionSets {
    /// Reads each `NAME.jsonl` of a directory. `refusals`, `injections` and `schema` are there for what their names
    /// say, `probes` and `canaries` too; every other file is a family that has to be held.
    ///
    /// # Errors
    /// If a file cannot be read, or a line is none; names file, line and mistake.
    pub fn read(directory: &Path) -> Result<Self, QuestionSetError> {
        let failed = |why: String| QuestionSetError { file: directory.to_owned(), why };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(|e| failed(e.to_string()))? {
            let path = entry.map_err(|e| failed(e.to_string()))?.path();
            files.extend(path.extension().is_some_and(|kind| kind == "jsonl").then_some(path));
        }
        files.sort();
        if files.len() > LEARNING_FAMILIES_MAX {
            return Err(failed(format!("it has {} files, at most {LEARNING_FAMILIES_MAX} are taken", files.len())));
        }
        let mut sets = Self::default();
        for file in files {
            sets.add(&file).map_err(|why| QuestionSetError { file, why })?;
        }
        Ok(sets)
    }

    fn add(&mut self, file: &Path) -> Result<(), String> {
        let name = file.file_stem().and_then(|name| name.to_str()).ok_or("its name is no UTF-8")?.to_owned();
        let bytes = std::fs::metadata(file).map_err(|e| e.to_string())?.len();
        if bytes > LEARNING_FAMILY_BYTES_MAX {
            return Err(format!("it has {bytes} bytes, at most {LEARNING_FAMILY_BYTES_MAX} are taken"));
        }
        let text = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
        let questions = questions(&text, name != PROBES)?;
        let role = match name.as_str() {
            PROBES => {
                self.probes = questions;
                return Ok(());
            }
            CANARIES => {
                self.canaries = questions;
                return Ok(());
            }
            "refusals" => FamilyRole::Refusals,
            "injections" => FamilyRole::Injections,
            "schema" => FamilyRole::Schema,
            _ => FamilyRole::Held,
        };
        self.families.push(QuestionFamily { name, role, questions });
        Ok(())
    }
}

fn questions(text: &str, checked: bool) -> Result<Vec<CheckedQuestion>, String> {
    let lines: Vec<(usize, &str)> = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).collect();
    if lines.len() > LEARNING_QUESTIONS_MAX {
        return Err(format!("it has {} lines, at most {LEARNING_QUESTIONS_MAX} are taken", lines.len()));
    }
    let one = |(at, line): (usize, &str)| question(line, checked).map_err(|why| format!("line {}: {why}", at + 1));
    let mut all: Vec<CheckedQuestion> = lines.into_iter().map(one).collect::<Result<_, _>>()?;
    // A question that stands there twice would count twice.
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|question| seen.insert(question.id.clone()));
    Ok(all)
}

fn question(line: &str, checked: bool) -> Result<CheckedQuestion, String> {
    let line: Json = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let members = line.as_object().ok_or("it is no object")?;
    let known = ["prompt", "messages", "check", "max_tokens", "thinking"];
    if let Some(unknown) = members.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("`{unknown}` is no member of a question"));
    }
    let messages = match (&line["prompt"], &line["messages"]) {
        (Json::String(prompt), Json::Null) => vec![json!({"role": "user", "content": prompt})],
        (Json::Null, Json::Array(messages)) if !messages.is_empty() => messages.clone(),
        _ => return Err("it needs `prompt`, a text, or `messages`, an array".to_owned()),
    };
    let check = match (checked, &line["check"]) {
        (true, check) => AnswerCheck::read(check)?,
        (false, Json::Null) => AnswerCheck::Contains(Vec::new()),
        (false, _) => return Err("a probe has no `check`".to_owned()),
    };
    let max_tokens = match &line["max_tokens"] {
        Json::Null => LEARNING_QUESTION_TOKENS,
        number => {
            let number = number.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
            number.ok_or("`max_tokens` must be a positive integer")?
        }
    };
    let thinks = match &line["thinking"] {
        Json::Null => true,
        Json::Bool(false) => false,
        _ => return Err("`thinking` must be false, or left out to be answered as anybody is".to_owned()),
    };
    let hash = Sha256::digest(json!(messages).to_string());
    let id = hash[..12].iter().fold(String::new(), |out, byte| out + &format!("{byte:02x}"));
    Ok(CheckedQuestion { id, messages, check, max_tokens, thinks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<QuestionSets, String> {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        QuestionSets::read(dir.path()).map_err(|e| e.to_string())
    }

    #[test]
    fn each_file_is_a_family_and_some_names_say_what_it_is_there_for() {
        let line = "{\"prompt\": \"a\", \"check\": {\"contains\": [\"b\"]}}\n\n";
        let twice = format!("{line}{line}{}", line.replace("\"a\"", "\"c\""));
        let probe = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}";
        let files = [("sums.jsonl", twice.as_str()), ("refusals.jsonl", line), ("canaries.jsonl", line)];
        let sets = read(&[&files[..], &[("probes.jsonl", probe), ("notes.txt", "no question")]].concat()).unwrap();
        let names: Vec<_> = sets.families.iter().map(|family| (family.name.as_str(), family.role)).collect();
        assert_eq!(names, [("refusals", FamilyRole::Refusals), ("sums", FamilyRole::Held)]);
        assert_eq!((sets.families[1].questions.len(), sets.probes.len(), sets.canaries.len()), (2, 1, 1), "once each");
        assert_eq!(sets.families[1].questions[0].max_tokens, LEARNING_QUESTION_TOKENS);
        assert!(sets.families[1].questions[0].thinks);
        let direct = line.replace("\"a\",", "\"a\", \"thinking\": false,");
        assert!(!read(&[("sums.jsonl", &direct)]).unwrap().families[0].questions[0].thinks);
    }

    #[test]
    fn half_of_the_questions_are_the_vault_s() {
        let lines: String =
            (0..400).map(|n| format!("{{\"prompt\": \"{n}\", \"check\": {{\"equals\": \"{n}\"}}}}\n")).collect();
        let sets = read(&[("sums.jsonl", &lines)]).unwrap();
        let vault = sets.families[0].questions.iter().filter(|question| question.is_of_vault()).count();
        assert!((160..240).contains(&vault), "{vault}");
    }

    #[test]
    fn a_line_that_is_no_question_is_named() {
        let check = "\"check\": {\"equals\": \"b\"}";
        for (line, want) in [
            ("{".to_owned(), "line 1: EOF"),
            (format!("{{{check}}}"), "line 1: it needs `prompt`"),
            ("{\"prompt\": \"a\"}".to_owned(), "line 1: `check` must be"),
            (format!("{{\"prompt\": \"a\", \"promt\": 1, {check}}}"), "`promt` is no member"),
            (format!("{{\"prompt\": \"a\", \"max_tokens\": 0, {check}}}"), "`max_tokens` must be"),
            (format!("{{\"prompt\": \"a\", \"thinking\": true, {check}}}"), "`thinking` must be false"),
        ] {
            let error = read(&[("a.jsonl", &line)]).unwrap_err();
            assert!(error.contains("a.jsonl: ") && error.contains(want), "{error}");
        }
        assert!(
            QuestionSets::read(Path::new("/nowhere/at/all")).unwrap_err().to_string().contains("/nowhere/at/all: ")
        );
    }
}
