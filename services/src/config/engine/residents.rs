//! How many routed experts lie in the memory of a GPU, as people write it.

use super::budget::Budget;
use serde::{Deserialize, Serialize};

/// Which routed experts a GPU keeps in its own memory; kernels read the others in the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Residents {
    /// All where they fit beside everything else, else as many as do.
    Auto,
    /// So many of each layer.
    Each(u32),
    /// As many as have room in so many bytes.
    Bytes(u64),
}

impl std::str::FromStr for Residents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Ok(each) = text.parse() {
            return Ok(Self::Each(each));
        }
        match text.parse() {
            Ok(Budget::Auto) => Ok(Self::Auto),
            Ok(Budget::Bytes(bytes)) => Ok(Self::Bytes(bytes)),
            Err(_) => Err(format!("wanted auto, a number of experts a layer, or bytes such as 9GiB, got {text:?}")),
        }
    }
}

impl TryFrom<String> for Residents {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Residents> for String {
    fn from(residents: Residents) -> String {
        match residents {
            Residents::Auto => "auto".into(),
            Residents::Each(n) => n.to_string(),
            Residents::Bytes(n) => format!("{n}B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_counts_experts_and_one_with_a_unit_bytes() {
        for (text, want) in [
            ("auto", Residents::Auto),
            ("160", Residents::Each(160)),
            ("0", Residents::Each(0)),
            ("9GiB", Residents::Bytes(9 << 30)),
            ("4096B", Residents::Bytes(4096)),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
            assert_eq!(String::from(want).parse(), Ok(want), "{text} there and back");
        }
        for text in ["", "-1", "all", "99999999999", "1.5"] {
            let read = text.parse::<Residents>();
            assert!(read.is_err() || matches!(read, Ok(Residents::Bytes(_))), "{text}: {read:?}");
        }
        assert!("all".parse::<Residents>().unwrap_err().contains("number of experts a layer"));
    }
}
