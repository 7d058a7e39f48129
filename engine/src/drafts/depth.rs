//! How many tokens may be drafted behind one. The largest number is known here alone.

use std::fmt;
use std::str::FromStr;

/// Drafted tokens behind one token at most.
const DRAFTS_MAX: usize = 7;
/// Rows of one piece of a plan at most: that of the sequence's own token and those of its drafts.
pub(crate) const PIECE_ROWS_MAX: usize = DRAFTS_MAX + 1;
/// One value for each place behind a sequence's own token that a draft may have, the nearest first.
pub type ByPlace<T> = [T; DRAFTS_MAX];
/// One value for each number of drafts behind a row, from none on.
pub type ByDraftCount<T> = [T; PIECE_ROWS_MAX];

/// How many tokens are drafted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DraftMode {
    /// No token is drafted.
    #[default]
    Off,
    /// As many as should save time.
    Auto,
    /// So many wherever a source has as many, whether it pays or not.
    Fixed(u32),
}

impl DraftMode {
    /// The most drafts behind one token, for which a backend must have room.
    pub fn drafts_max(self) -> u32 {
        let most = DRAFTS_MAX as u32;
        match self {
            Self::Off => 0,
            Self::Auto => most,
            Self::Fixed(n) => n.min(most),
        }
    }
}

impl FromStr for DraftMode {
    type Err = String;

    /// Reads `auto`, `off` or a number of tokens, as the command line and the configuration have them.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            other => match other.parse() {
                Ok(n) if (1..=DRAFTS_MAX as u32).contains(&n) => Ok(Self::Fixed(n)),
                _ => Err(format!("wanted auto, off or a number from 1 to {DRAFTS_MAX}, got {other:?}")),
            },
        }
    }
}

impl fmt::Display for DraftMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Fixed(n) => write!(f, "{n}"),
        }
    }
}
