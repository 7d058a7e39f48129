//! What a table is called.

use crate::limits::TABLE_NAME_BYTES_MAX;
use std::fmt;

/// A name that is a file's stem too: 1 to 64 letters, digits, `-`, `_` and `.`, not beginning with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName(String);

impl TableName {
    /// A name, if it is one that a file can have; else what is wrong with it.
    pub fn new(name: &str) -> Result<Self, String> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if (1..=TABLE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.') {
            return Ok(Self(name.to_owned()));
        }
        let shown: String = name.chars().take(TABLE_NAME_BYTES_MAX).collect();
        Err(format!(
            "wanted 1 to {TABLE_NAME_BYTES_MAX} letters, digits, '-', '_' and '.', not beginning with a dot, got {shown:?}"
        ))
    }

    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_out_of_its_directory() {
        for good in ["a", "rust-docs_1.85", &"x".repeat(64)] {
            assert_eq!(TableName::new(good).unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", ".a", "a/b", "a\\b", "ä", "a b", &"x".repeat(65)] {
            assert!(TableName::new(bad).unwrap_err().contains("wanted 1 to 64"), "{bad:?}");
        }
    }
}
