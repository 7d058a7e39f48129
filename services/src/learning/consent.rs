//! What an account lets the service keep for learning.

use std::fmt;
use std::str::FromStr;

/// What an account lets the service keep. Nothing unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consent {
    /// Nothing of it is kept.
    #[default]
    Off,
    /// Answers that somebody rates or corrects.
    Feedback,
    /// Those, and answers that a check has proved right.
    All,
}

impl Consent {
    /// Whatever both of them allow.
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

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
        let shown = || word.chars().take(40).collect::<String>();
        found.ok_or_else(|| format!("must be off, feedback or all, got {:?}", shown()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_word_narrows_the_first_and_adds_nothing() {
        let parsed = |word: &str| word.parse::<Consent>();
        assert_eq!(parsed("off").unwrap().and(Consent::All), Consent::Off);
        assert_eq!(Consent::Feedback.and(parsed("all").unwrap()), Consent::Feedback);
        assert!(parsed("yes").unwrap_err().ends_with("got \"yes\""));
        assert_eq!(Consent::default(), Consent::Off);
    }
}
