//! Which answers are pages of text, and by which format they are read.

use super::results::WebError;
use crate::documents::parse::DocumentFormat;

/// The format of a page, by its type; an error for what is no text.
pub(super) fn format_of(content_type: Option<&str>) -> Result<DocumentFormat, WebError> {
    let kind = content_type.unwrap_or("text/plain").split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "text/html" | "application/xhtml+xml" => Ok(DocumentFormat::Page),
        "text/markdown" => Ok(DocumentFormat::Markdown),
        "application/json" | "application/xml" => Ok(DocumentFormat::Text),
        text if text.starts_with("text/") => Ok(DocumentFormat::Text),
        other => Err(WebError::Unreadable(format!("the page is {other:?}, and only text is read"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_text_and_nothing_else() {
        assert_eq!(format_of(Some("Text/HTML; charset=utf-8")).unwrap(), DocumentFormat::Page);
        assert_eq!(format_of(Some("text/plain")).unwrap(), DocumentFormat::Text);
        for other in ["application/pdf", "image/png", "application/octet-stream", ""] {
            assert!(format_of(Some(other)).is_err(), "{other}");
        }
    }
}
