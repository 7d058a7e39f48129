//! Which of the operator's tools the line of a key allows.

use crate::limits::MCP_SERVER_NAME_CHARS_MAX;
use std::sync::Arc;

/// The word for the web among the names of MCP servers.
const WEB: &str = "web";
/// In the place of names: nothing.
const NONE: &str = "none";

/// What a key may have the service run: it narrows what the operator's files allow, and adds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ToolRights {
    /// All that these files allow.
    #[default]
    All,
    /// The MCP servers of these names, and the web if `web` is one of them.
    Named(Arc<[Box<str>]>),
}

impl ToolRights {
    /// As a line says it: names with commas between them, or `none`.
    ///
    /// # Errors
    /// If a name could be no server's, with the name.
    pub fn parse(value: &str) -> Result<Self, String> {
        if value == NONE {
            return Ok(Self::Named(Arc::new([])));
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let lengths = 1..=MCP_SERVER_NAME_CHARS_MAX;
        let fits = |name: &str| lengths.contains(&name.len()) && name.chars().all(plain) && name != NONE;
        let one = |name: &str| {
            let wanted = format!("names of MCP servers with commas between them, {WEB} among them, or {NONE}");
            fits(name).then(|| name.into()).ok_or_else(|| format!("wants {wanted} for tools, got {name:?}"))
        };
        value.split(',').map(one).collect::<Result<_, _>>().map(Self::Named)
    }

    /// Whether a line means something else by this name than an MCP server.
    pub fn has_word(name: &str) -> bool {
        [WEB, NONE].contains(&name)
    }

    /// Whether the MCP server of this name may be used.
    pub fn allow(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|own| **own == *name),
        }
    }

    /// Whether the web may be searched and read.
    pub fn allow_web(&self) -> bool {
        self.allow(WEB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_use_what_its_line_names_and_without_a_word_everything() {
        let allowed = |value| ToolRights::parse(value).map(|rights| ["files", "wiki", "web"].map(|n| rights.allow(n)));
        assert_eq!(allowed("files,web"), Ok([true, false, true]));
        assert_eq!(allowed("wiki"), Ok([false, true, false]));
        assert_eq!(allowed("none"), Ok([false; 3]));
        assert!(ToolRights::default().allow("files") && ToolRights::default().allow_web());
        for (value, shown) in [("", "\"\""), ("files,", "\"\""), ("files,none", "\"none\""), ("a b", "\"a b\"")] {
            let error = ToolRights::parse(value).unwrap_err();
            assert!(error.contains("for tools") && error.ends_with(shown), "{error}");
        }
        assert!(ToolRights::parse(&"a".repeat(33)).is_err());
    }
}
