//! Bytes as people write them.

use serde::{Deserialize, Serialize};

/// A number of bytes as people write it: `12GiB`, `900MB`, `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Budget {
    /// What is free, less a margin.
    Auto,
    /// A budget of this many bytes.
    Bytes(u64),
}

impl std::str::FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 8] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("KB", 1_000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
            ("B", 1),
        ];
        let text = text.trim();
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        let wanted = || format!("wanted auto or bytes such as 12GiB, got {text:?}");
        let (number, unit) = UNITS
            .iter()
            .find_map(|(name, bytes)| text.strip_suffix(name).map(|rest| (rest, *bytes)))
            .unwrap_or((text, 1));
        let number: f64 = number.trim().parse().map_err(|_| wanted())?;
        let bytes = number * unit as f64;
        // The upper bound also refuses infinity and NaN; 2^53 keeps every byte exact.
        if bytes >= 0.0 && bytes < (1u64 << 53) as f64 { Ok(Self::Bytes(bytes as u64)) } else { Err(wanted()) }
    }
}

impl TryFrom<String> for Budget {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Budget> for String {
    fn from(budget: Budget) -> String {
        match budget {
            Budget::Auto => "auto".into(),
            Budget::Bytes(n) => format!("{n}B"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_as_people_write_them() {
        for (text, want) in
            [("12GiB", 12 << 30), ("1.5 GiB", 3 << 29), ("900MB", 900_000_000), ("4096", 4096), ("7B", 7), ("0", 0)]
        {
            assert_eq!(text.parse(), Ok(Budget::Bytes(want)), "{text}");
        }
        assert_eq!("auto".parse(), Ok(Budget::Auto));
        for text in ["", "GiB", "-1GiB", "1e400", "NaN", "12 parsecs"] {
            assert!(text.parse::<Budget>().is_err(), "{text}");
        }
    }
}
