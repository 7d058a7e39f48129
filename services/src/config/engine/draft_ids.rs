//! What the draft head guesses among, as the command line and the configuration name it.

use crate::limits;
use chimere_engine::model::{self, Model};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The ids that the model's draft head guesses among: `auto`, `all`, a number or a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DraftIds {
    /// The first [`limits::DRAFT_IDS`] of a vocabulary of twice as many or more, else all.
    Auto,
    /// The draft head guesses among all ids of the vocabulary.
    All,
    /// Those below this one.
    First(u32),
    /// Those in a file, one a line.
    File(PathBuf),
}

impl DraftIds {
    /// Has a model's draft head, if it has one, guess among these.
    ///
    /// # Errors
    /// If the file cannot be read, or names what is no id of the model.
    pub fn limit(&self, model: &mut Model) -> Result<(), String> {
        let vocab = model.config.vocab;
        let ids = match self {
            Self::Auto if vocab >= 2 * limits::DRAFT_IDS as usize => model::DraftIds::First(limits::DRAFT_IDS),
            Self::Auto | Self::All => model::DraftIds::All,
            Self::First(n) => model::DraftIds::First(*n),
            Self::File(path) => model::DraftIds::Listed(read(path)?),
        };
        model.limit_draft_ids(&ids).map_err(|why| format!("draft ids {}: {why}", String::from(self.clone())))
    }
}

/// The ids in a file: one a line, blank lines left out.
fn read(path: &Path) -> Result<Vec<u32>, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("draft ids {}: {e}", path.display()))?;
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.trim())).filter(|(_, line)| !line.is_empty());
    let id = |(line, text): (usize, &str)| {
        text.parse().map_err(|_| format!("draft ids {}: line {line} wants an id, got {text:?}", path.display()))
    };
    lines.map(id).collect()
}

impl std::str::FromStr for DraftIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            "" => Err("wanted auto, all, a number or a file of ids, got \"\"".into()),
            other if other.bytes().all(|b| b.is_ascii_digit()) => match other.parse() {
                Ok(n) if n > 0 => Ok(Self::First(n)),
                _ => Err(format!("wanted a number of ids from 1 to {}, got {other}", u32::MAX)),
            },
            other => Ok(Self::File(other.into())),
        }
    }
}

impl TryFrom<String> for DraftIds {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DraftIds> for String {
    fn from(ids: DraftIds) -> String {
        match ids {
            DraftIds::Auto => "auto".into(),
            DraftIds::All => "all".into(),
            DraftIds::First(n) => n.to_string(),
            DraftIds::File(path) => path.to_string_lossy().into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_a_word_a_number_or_a_file() {
        for text in ["auto", "all", "65536", "ids.txt", "./7"] {
            assert_eq!(text.parse::<DraftIds>().map(String::from).as_deref(), Ok(text));
        }
        assert_eq!("7".parse(), Ok(DraftIds::First(7)));
        assert_eq!("0".parse::<DraftIds>().unwrap_err(), "wanted a number of ids from 1 to 4294967295, got 0");
        assert!(" ".parse::<DraftIds>().unwrap_err().starts_with("wanted auto, all,"));
    }

    #[test]
    fn a_draft_head_is_limited_to_ids_of_its_model_and_what_is_none_is_refused_by_line() {
        let nano = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/nano/nano-q8_0.gguf");
        let mut model = model::load(Path::new(nano)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids");
        let mut limited = |ids: &DraftIds| {
            ids.limit(&mut model)?;
            Ok::<_, String>(model.weights.draft_head.as_ref().unwrap().shortlist.as_ref().map(model::Shortlist::len))
        };
        assert_eq!(limited(&DraftIds::Auto), Ok(None), "the shipped model has few ids");
        assert_eq!(limited(&DraftIds::First(1000)), Ok(Some(1024)));
        fs::write(&file, "12\n\n 8000\n").unwrap();
        assert_eq!(limited(&DraftIds::File(file.clone())), Ok(Some(64)));
        assert_eq!(limited(&DraftIds::All), Ok(None));
        for (text, why) in [("12\nx\n", "line 2 wants an id, got \"x\""), ("70000\n", "id 70000"), ("", "no id")] {
            fs::write(&file, text).unwrap();
            let error = limited(&DraftIds::File(file.clone())).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(limited(&DraftIds::File(dir.path().join("none"))).unwrap_err().starts_with("draft ids "));
    }
}
