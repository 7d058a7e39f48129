//! The child: reads the bytes of a file from its standard input and writes its sections to its standard output, within
//! bounds that the system keeps for it.

use super::format::DocumentFormat;
use super::lines::{ParseFault, ParsedLine, SectionSink};
use super::{html, markdown, office, pdf, text};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io::{BufWriter, Read, Write, stdin, stdout};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What the child may take.
#[derive(Clone, Copy, Debug)]
pub struct ParseBounds {
    /// Bytes of its addresses.
    pub memory_bytes: u64,
    /// Seconds of a processor.
    pub cpu_seconds: u64,
}

impl ParseBounds {
    /// From here on an allocation beyond the bound ends the process, and so does a second more than it has. It makes no
    /// file larger than its pipe.
    fn take_effect(self) {
        let limit = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
        setrlimit(Resource::As, limit(self.memory_bytes)).ok();
        setrlimit(Resource::Cpu, limit(self.cpu_seconds)).ok();
        setrlimit(Resource::Fsize, limit(0)).ok();
        setrlimit(Resource::Core, limit(0)).ok();
    }
}

/// Reads standard input as a file of this format, and writes what is in it. What is wrong with the file is a line too.
pub fn run(format: DocumentFormat, bounds: ParseBounds) -> Result<(), String> {
    bounds.take_effect();
    // What a library has to say of a damaged file is of no use to anybody.
    std::panic::set_hook(Box::new(|_| {}));
    let mut sink = SectionSink::new(BufWriter::new(stdout().lock()));
    let mut bytes = Vec::new();
    stdin().lock().read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    let read = catch_unwind(AssertUnwindSafe(|| sections(format, &bytes, &mut sink)));
    let read = read.unwrap_or_else(|_| Err(ParseFault::Invalid("it breaks the parser".into())));
    let last = read.map_or_else(ParsedLine::from, |()| ParsedLine::End);
    sink.line(&last).map_err(|_| "nobody reads".to_owned())
}

/// Finds the sections of a file.
pub(super) fn sections(
    format: DocumentFormat,
    bytes: &[u8],
    sink: &mut SectionSink<impl Write>,
) -> Result<(), ParseFault> {
    match format {
        DocumentFormat::Pdf => pdf::read(bytes, sink)?,
        DocumentFormat::Office => office::read(bytes, sink)?,
        DocumentFormat::Text => sink.section(None, &[], &text::decoded(bytes)?)?,
        DocumentFormat::Markdown => markdown::read(&text::decoded(bytes)?, sink)?,
        DocumentFormat::Html => html::read(&text::decoded(bytes)?, &[], sink)?,
        DocumentFormat::Page => html::read(&text::decoded(bytes)?, &html::AROUND, sink)?,
    }
    if sink.is_empty() { Err(ParseFault::Unsupported("it has no text".into())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::sections as shown;
    use super::*;

    /// A file of pages with these words, one line each; the last object first where `page` says nothing.
    fn pdf(pages: &[&str]) -> Vec<u8> {
        let kids: Vec<String> = (0..pages.len()).map(|i| format!("{} 0 R", 4 + 2 * i)).collect();
        let mut objects = vec![
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            format!("<< /Type /Pages /Count {} /Kids [{}] >>", pages.len(), kids.join(" ")),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
        ];
        for (i, words) in pages.iter().enumerate() {
            let draw = if words.is_empty() { String::new() } else { format!("BT /F1 12 Tf 72 700 Td ({words}) Tj ET") };
            objects.push(format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {} 0 R \
                 /Resources << /Font << /F1 3 0 R >> >> >>",
                5 + 2 * i
            ));
            objects.push(format!("<< /Length {} >>\nstream\n{draw}\nendstream", draw.len()));
        }
        let (mut out, mut places) = (b"%PDF-1.4\n".to_vec(), Vec::new());
        for (i, object) in objects.iter().enumerate() {
            places.push(out.len());
            out.extend(format!("{} 0 obj\n{object}\nendobj\n", i + 1).bytes());
        }
        let start = out.len();
        out.extend(format!("xref\n0 {}\n0000000000 65535 f \n", places.len() + 1).bytes());
        places.iter().for_each(|place| out.extend(format!("{place:010} 00000 n \n").bytes()));
        out.extend(format!("trailer << /Size {} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF", places.len() + 1).bytes());
        out
    }

    #[test]
    fn a_pdf_has_its_pages_and_one_without_text_is_unsupported() {
        let read = |bytes: &[u8]| shown(|sink| sections(DocumentFormat::of(bytes, "a"), bytes, sink));
        let found = read(&pdf(&["The port of Kelm", "", "A song of Dosh"])).unwrap();
        assert_eq!(found, ["1||The port of Kelm", "3||A song of Dosh"]);
        assert!(matches!(read(&pdf(&["", ""])), Err(ParseFault::Unsupported(why)) if why.contains("no text")));
        assert!(matches!(read(b"%PDF-1.4 and no more"), Err(ParseFault::Invalid(_))));
    }

    #[test]
    fn a_file_without_a_word_is_unsupported() {
        for format in [DocumentFormat::Text, DocumentFormat::Markdown, DocumentFormat::Html] {
            assert!(matches!(shown(|sink| sections(format, b" \n", sink)), Err(ParseFault::Unsupported(_))));
        }
        assert_eq!(shown(|sink| sections(DocumentFormat::Text, b"a\n\nb\n", sink)).unwrap(), ["||a\n\nb"]);
    }
}
