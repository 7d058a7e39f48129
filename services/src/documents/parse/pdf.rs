//! PDF: the text of each page in the order in which the page draws it. Pictures of text are not read.

use super::lines::{ParseFault, SectionSink};
use crate::limits::DOCUMENT_PAGES_MAX;
use pdf_extract::{Document, MediaBox, OutputDev, OutputError, Transform, output_doc, output_doc_page};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Finds the pages of a file.
pub(super) fn read(bytes: &[u8], sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let mut document = Document::load_mem(bytes).map_err(ParseFault::invalid)?;
    if document.is_encrypted() && document.decrypt("").is_err() {
        return Err(ParseFault::Unsupported("it is encrypted".into()));
    }
    let pages = document.get_pages().len();
    if pages > DOCUMENT_PAGES_MAX {
        return Err(ParseFault::Invalid(format!("it has {pages} pages, at most {DOCUMENT_PAGES_MAX} are read")));
    }
    let mut output = PageText { sink, text: String::new(), done: 0, height: 0.0, last: None, fault: None, broken: 0 };
    // All in one go, since each page by itself looks for all of them first. A page that breaks the library ends that.
    if output.attempt(|output| output_doc(&document, output)) {
        return output.end(pages);
    }
    for page in output.done + 1..=u32::try_from(pages).unwrap_or(u32::MAX) {
        output.text.clear();
        if output.fault.is_none() && !output.attempt(|output| output_doc_page(&document, output, page)) {
            output.broken += 1;
        }
    }
    output.end(pages)
}

/// Where the last character ended, and the height of its line.
#[derive(Clone, Copy)]
struct LastCharacter {
    end: f64,
    y: f64,
}

/// Puts characters that have places on a page into lines and words.
struct PageText<'a, W> {
    sink: &'a mut SectionSink<W>,
    text: String,
    /// The last page that was read to its end.
    done: u32,
    height: f64,
    /// `None` within a word that is drawn as one.
    last: Option<LastCharacter>,
    fault: Option<ParseFault>,
    /// How many pages could not be read.
    broken: usize,
}

impl<W: Write> PageText<'_, W> {
    /// Whether this could be read to its end; the library panics where a file is not as it should be.
    fn attempt(&mut self, read: impl FnOnce(&mut Self) -> Result<(), OutputError>) -> bool {
        matches!(catch_unwind(AssertUnwindSafe(|| read(self))), Ok(Ok(())))
    }

    fn end(self, pages: usize) -> Result<(), ParseFault> {
        match self.fault {
            Some(fault) => Err(fault),
            None if self.broken > 0 && self.broken == pages => {
                Err(ParseFault::Invalid("none of its pages can be read".into()))
            }
            None if self.sink.is_empty() => {
                Err(ParseFault::Unsupported("it has no text: pictures of pages are not read".into()))
            }
            None => Ok(()),
        }
    }
}

impl<W: Write> OutputDev for PageText<'_, W> {
    fn begin_page(
        &mut self,
        page: u32,
        media: &MediaBox,
        _art: Option<(f64, f64, f64, f64)>,
    ) -> Result<(), OutputError> {
        self.text.clear();
        self.height = media.ury - media.lly;
        self.done = page - 1;
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), OutputError> {
        self.done += 1;
        let written = self.sink.section(Some(self.done), &[], &self.text);
        self.text.clear();
        written.map_err(|fault| {
            self.fault = Some(fault);
            OutputError::FormatError(std::fmt::Error)
        })
    }

    fn output_character(
        &mut self,
        at: &Transform,
        width: f64,
        _spacing: f64,
        font_size: f64,
        character: &str,
    ) -> Result<(), OutputError> {
        // The side of a square as large as the rectangle that the font's square becomes on the page.
        let size = ((at.m11 + at.m21) * (at.m12 + at.m22)).abs().sqrt() * font_size;
        let (x, y) = (at.m31, self.height - at.m32);
        if let Some(last) = self.last.filter(|_| !self.text.is_empty()) {
            let down = (y - last.y).abs();
            if down > size * 1.5 {
                self.text.push('\n');
            }
            if x < last.end && down > size * 0.5 {
                self.text.push('\n');
            } else if x > last.end + size * 0.1 {
                self.text.push(' ');
            }
        }
        self.text += character;
        self.last = Some(LastCharacter { end: x + width * size, y });
        Ok(())
    }

    fn begin_word(&mut self) -> Result<(), OutputError> {
        Ok(())
    }

    fn end_word(&mut self) -> Result<(), OutputError> {
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), OutputError> {
        Ok(())
    }
}
