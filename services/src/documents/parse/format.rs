//! What a file is, from its first bytes and its name.

use std::path::Path;

/// How the bytes of a file become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DocumentFormat {
    /// Lines of text or of a program.
    #[default]
    Text,
    /// Text whose headings begin with `#`.
    Markdown,
    /// A page of the web.
    Html,
    /// A page of the web without what stands around its text: menus, forms, what is beside and below.
    Page,
    /// Pages on which glyphs are drawn.
    Pdf,
    /// A zip archive of XML: Word, Excel or PowerPoint.
    Office,
}

/// The names of formats on the command line of the child.
const NAMES: [(&str, DocumentFormat); 6] = [
    ("text", DocumentFormat::Text),
    ("markdown", DocumentFormat::Markdown),
    ("html", DocumentFormat::Html),
    ("page", DocumentFormat::Page),
    ("pdf", DocumentFormat::Pdf),
    ("office", DocumentFormat::Office),
];
/// A PDF may begin with other bytes than its own; readers look so far.
const PDF_HEAD_BYTES: usize = 1024;

impl DocumentFormat {
    /// From the first bytes where they tell, else from the end of the name.
    pub fn of(head: &[u8], filename: &str) -> Self {
        if head[..head.len().min(PDF_HEAD_BYTES)].windows(5).any(|bytes| bytes == b"%PDF-") {
            return Self::Pdf;
        }
        if head.starts_with(b"PK\x03\x04") {
            return Self::Office;
        }
        let end = Path::new(filename).extension().and_then(|end| end.to_str()).unwrap_or_default();
        match end.to_ascii_lowercase().as_str() {
            "md" | "markdown" | "mdx" => Self::Markdown,
            "htm" | "html" | "xhtml" => Self::Html,
            _ => Self::Text,
        }
    }

    /// Its name on the command line of the child.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, format)| *format == self).map_or("text", |(name, _)| name)
    }
}

impl std::str::FromStr for DocumentFormat {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, format)| *format);
        found.ok_or_else(|| format!("there is no format {name:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_more_than_a_name() {
        assert_eq!(DocumentFormat::of(b"\0\0%PDF-1.7", "notes.md"), DocumentFormat::Pdf);
        assert_eq!(DocumentFormat::of(b"PK\x03\x04", "notes.txt"), DocumentFormat::Office);
        assert_eq!(DocumentFormat::of(b"# Title", "NOTES.MD"), DocumentFormat::Markdown);
        assert_eq!(DocumentFormat::of(b"<p>", "../../a.html"), DocumentFormat::Html);
        assert_eq!(DocumentFormat::of(b"fn main() {}", "main.rs"), DocumentFormat::Text);
        for (name, format) in NAMES {
            assert_eq!((format.name(), name.parse()), (name, Ok(format)));
        }
    }
}
