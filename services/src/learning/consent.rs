//! What an account lets the service keep for learning.

use std::fmt;
use std::str::FromStr;

/// What an account lets the service keep. Nothing unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consent {
    /// Nothing.
    #[default]
    Off,
    /// Answers that somebody rates or corrects.
    Feedback,
    /// Those, and answers that a check has proved right.
    All,
}

impl Consent {
    /// The word in files and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Feedback => "feedback",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Consent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Consent {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let all = [Self::Off, Self::Feedback, Self::All];
        let found = all.into_iter().find(|consent| consent.name() == word);
        found
            .ok_or_else(|| format!("must be off, feedback or all, got {:?}", word.chars().take(40).collect::<String>()))
    }
}
