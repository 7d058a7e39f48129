//! Whether tokens are drafted, and by whom, as the command line and the configuration name it.

use chimere_engine::drafts::{DraftKind, DraftKinds, DraftMode};
use serde::{Deserialize, Serialize};

/// How many tokens are drafted behind one: `auto`, `off`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Drafts(pub DraftMode);

impl std::str::FromStr for Drafts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(text.parse()?))
    }
}

impl TryFrom<String> for Drafts {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Drafts> for String {
    fn from(drafts: Drafts) -> String {
        drafts.0.to_string()
    }
}

/// Sources of drafts, with commas between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DraftSources(pub DraftKinds);

impl std::str::FromStr for DraftSources {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || DraftKind::ALL.map(DraftKind::name).join(", ");
        let kind = |name: &str| {
            let kind = DraftKind::ALL.into_iter().find(|kind| kind.name() == name);
            kind.ok_or_else(|| format!("wanted some of {}, got {name:?}", known()))
        };
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(kind).collect::<Result<_, _>>()?))
    }
}

impl TryFrom<String> for DraftSources {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DraftSources> for String {
    fn from(sources: DraftSources) -> String {
        let names = DraftKind::ALL.into_iter().filter(|kind| sources.0.contains(*kind)).map(DraftKind::name);
        names.collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_drafts_read_as_they_are_written() {
        for text in ["auto", "off", "1", "7"] {
            assert_eq!(text.parse::<Drafts>().map(String::from).as_deref(), Ok(text));
        }
        for text in ["", "0", "8", "-1", "on", "3.5"] {
            let error = text.parse::<Drafts>().unwrap_err();
            assert_eq!(error, format!("wanted auto, off or a number from 1 to 7, got {text:?}"));
        }
        let room = |text: &str| text.parse::<Drafts>().unwrap().0.drafts_max();
        assert_eq!(["off", "auto", "3"].map(room), [0, 7, 3]);
    }

    #[test]
    fn sources_read_as_they_are_written() {
        let all: DraftSources = " prediction, grammar,mtp,ngram ,".parse().unwrap();
        assert_eq!((all.0, String::from(all)), (DraftKinds::all(), "ngram,prediction,grammar,mtp".into()));
        assert_eq!(String::from("".parse::<DraftSources>().unwrap()), "");
        let error = "medusa".parse::<DraftSources>().unwrap_err();
        assert_eq!(error, "wanted some of ngram, prediction, grammar, mtp, got \"medusa\"");
    }
}
