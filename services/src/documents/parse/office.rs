//! Word, Excel and PowerPoint: zip archives of XML, read piece by piece, so that an archive that unpacks to a thousand
//! times its size takes time and no memory, and of time it has little.

use super::lines::{HeadingPath, ParseFault, SectionSink};
use super::xml::{XmlElement, XmlEvent, each};
use crate::limits::{DOCUMENT_TEXT_BYTES_MAX, DOCUMENT_UNPACKED_BYTES_MAX};
use std::collections::HashMap;
use std::io::{BufReader, Cursor, Read, Write};
use zip::ZipArchive;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Finds the sections of a file.
pub(super) fn read(bytes: &[u8], sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let archive = ZipArchive::new(Cursor::new(bytes)).map_err(ParseFault::invalid)?;
    let has = |name: &str| archive.index_for_name(name).is_some();
    let (word, sheets, slides) = (has("word/document.xml"), has("xl/workbook.xml"), has("ppt/presentation.xml"));
    let mut parts = ArchiveParts { archive, left: DOCUMENT_UNPACKED_BYTES_MAX };
    match () {
        () if word => document(&mut parts, sink),
        () if sheets => workbook(&mut parts, sink),
        () if slides => presentation(&mut parts, sink),
        () => Err(ParseFault::Unsupported("it is an archive, and none of Word, Excel or PowerPoint".into())),
    }
}

/// The files in the archive.
struct ArchiveParts<'a> {
    archive: Archive<'a>,
    /// Bytes that may still be unpacked.
    left: u64,
}

impl ArchiveParts<'_> {
    /// Hands on what a file of the archive has; false if it is not there.
    fn each(&mut self, name: &str, meet: impl FnMut(XmlEvent) -> Result<(), ParseFault>) -> Result<bool, ParseFault> {
        let Some(at) = self.archive.index_for_name(name) else { return Ok(false) };
        let part = self.archive.by_index(at).map_err(ParseFault::invalid)?;
        let mut bounded = part.take(self.left);
        let read = each(BufReader::new(&mut bounded), meet);
        self.left = bounded.limit();
        // Cut short, it seems damaged; what is wrong with it is its size.
        if self.left == 0 {
            return Err(ParseFault::Invalid(format!("it unpacks to more than {DOCUMENT_UNPACKED_BYTES_MAX} bytes")));
        }
        read.map(|()| true)
    }
}

/// Words before the number of a heading's style, in small letters, in some languages.
const HEADING_STYLES: [&str; 7] = ["heading", "berschrift", "überschrift", "titre", "titolo", "ttulo", "kop"];

/// The level of a heading whose paragraph has this style.
fn heading_level(style: &str) -> Option<u8> {
    let style = style.to_lowercase();
    if style == "title" {
        return Some(1);
    }
    let name = style.trim_end_matches(|c: char| c.is_ascii_digit());
    let level = style[name.len()..].parse().ok().filter(|level| (1..=9).contains(level));
    level.filter(|_| HEADING_STYLES.contains(&name.trim()))
}

/// Reads a Word document.
fn document(parts: &mut ArchiveParts<'_>, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let mut reader = WordReader::default();
    parts.each("word/document.xml", |event| reader.meet(event, sink))?;
    sink.section(None, &reader.path.titles(), &reader.text)
}

#[derive(Default)]
struct WordReader {
    path: HeadingPath,
    /// The section's text until now.
    text: String,
    paragraph: String,
    level: Option<u8>,
    reads: bool,
    /// How many tables the paragraph stands in.
    tables: usize,
}

impl WordReader {
    fn meet(&mut self, event: XmlEvent, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
        match event {
            XmlEvent::Begin(element) => self.begin(&element),
            XmlEvent::Text(text) if self.reads => {
                self.paragraph += &text;
                bounded(&self.paragraph)?;
            }
            XmlEvent::Text(_) => {}
            XmlEvent::End(name) => self.end(&name, sink)?,
        }
        Ok(())
    }

    fn begin(&mut self, element: &XmlElement) {
        match element.name.as_str() {
            "t" => self.reads = true,
            "tab" => self.paragraph.push('\t'),
            "br" | "cr" => self.paragraph.push('\n'),
            "pStyle" => self.level = element.attribute("val").and_then(heading_level).or(self.level),
            "outlineLvl" => {
                let level = element.attribute("val").and_then(|level| level.parse::<u8>().ok());
                self.level = level.filter(|level| *level < 9).map(|level| level + 1).or(self.level);
            }
            "tbl" => self.tables += 1,
            _ => {}
        }
    }

    fn end(&mut self, name: &str, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
        match name {
            "t" => self.reads = false,
            "p" => {
                let (paragraph, level) = (std::mem::take(&mut self.paragraph), self.level.take());
                if let Some(level) = level.filter(|_| !paragraph.trim().is_empty()) {
                    sink.section(None, &self.path.titles(), &std::mem::take(&mut self.text))?;
                    self.path.enter(level, &paragraph);
                }
                self.text += &paragraph;
                self.text += if self.tables > 0 { " " } else { "\n\n" };
                bounded(&self.text)?;
            }
            "tc" => self.text += "| ",
            "tr" => self.text.push('\n'),
            "tbl" => {
                self.tables = self.tables.saturating_sub(1);
                self.text.push('\n');
            }
            _ => {}
        }
        Ok(())
    }
}

/// A presentation: a page a slide.
fn presentation(parts: &mut ArchiveParts<'_>, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let number = |name: &str| name.strip_prefix("ppt/slides/slide")?.strip_suffix(".xml")?.parse::<u32>().ok();
    let mut slides: Vec<(u32, String)> =
        parts.archive.file_names().filter_map(|name| Some((number(name)?, name.to_owned()))).collect();
    slides.sort();
    for (page, name) in slides {
        let mut slide = SlideReader::default();
        parts.each(&name, |event| slide.meet(event))?;
        let headings: Vec<String> = slide.title.into_iter().collect();
        sink.section(Some(page), &headings, &slide.text)?;
    }
    Ok(())
}

#[derive(Default)]
struct SlideReader {
    text: String,
    title: Option<String>,
    /// Where the shape began in `text`.
    shape: usize,
    is_title: bool,
    reads: bool,
}

impl SlideReader {
    fn meet(&mut self, event: XmlEvent) -> Result<(), ParseFault> {
        match event {
            XmlEvent::Begin(element) => match element.name.as_str() {
                "t" => self.reads = true,
                "br" => self.text.push('\n'),
                "sp" => (self.shape, self.is_title) = (self.text.len(), false),
                "ph" => self.is_title = matches!(element.attribute("type"), Some("title" | "ctrTitle")),
                _ => {}
            },
            XmlEvent::Text(text) if self.reads => self.text += &text,
            XmlEvent::Text(_) => {}
            XmlEvent::End(name) => match name.as_str() {
                "t" => self.reads = false,
                "p" => self.text.push('\n'),
                "tc" => self.text += " | ",
                "sp" if self.is_title && self.title.is_none() => {
                    let title = self.text[self.shape..].split_whitespace().collect::<Vec<_>>().join(" ");
                    self.title = Some(title).filter(|title| !title.is_empty());
                }
                _ => {}
            },
        }
        bounded(&self.text)
    }
}

/// A workbook: a section a sheet, a line a row.
fn workbook(parts: &mut ArchiveParts<'_>, sink: &mut SectionSink<impl Write>) -> Result<(), ParseFault> {
    let (mut sheets, mut files) = (Vec::new(), HashMap::new());
    parts.each("xl/workbook.xml", |event| {
        if let XmlEvent::Begin(sheet) = event
            && sheet.name == "sheet"
            && let (Some(name), Some(id)) = (sheet.attribute("name"), sheet.attribute("id"))
        {
            sheets.push((name.to_owned(), id.to_owned()));
        }
        Ok(())
    })?;
    parts.each("xl/_rels/workbook.xml.rels", |event| {
        if let XmlEvent::Begin(relation) = event
            && let (Some(id), Some(file)) = (relation.attribute("Id"), relation.attribute("Target"))
        {
            let file = file.strip_prefix('/').map_or_else(|| format!("xl/{file}"), str::to_owned);
            files.insert(id.to_owned(), file);
        }
        Ok(())
    })?;
    let strings = shared_strings(parts)?;
    for (name, id) in sheets {
        let Some(file) = files.get(&id) else { continue };
        let mut sheet = SheetReader { strings: &strings, ..SheetReader::default() };
        parts.each(file, |event| sheet.meet(event))?;
        sink.section(None, &[name], &sheet.text)?;
    }
    Ok(())
}

/// The texts that cells name by number.
fn shared_strings(parts: &mut ArchiveParts<'_>) -> Result<Vec<String>, ParseFault> {
    let (mut strings, mut text, mut reads, mut all) = (Vec::new(), String::new(), false, 0);
    parts.each("xl/sharedStrings.xml", |event| {
        match event {
            XmlEvent::Begin(element) if element.name == "t" => reads = true,
            XmlEvent::Text(piece) if reads => {
                all += piece.len();
                text += &piece;
            }
            XmlEvent::End(name) if name == "t" => reads = false,
            XmlEvent::End(name) if name == "si" => strings.push(std::mem::take(&mut text)),
            _ => {}
        }
        if all > DOCUMENT_TEXT_BYTES_MAX { Err(too_long()) } else { Ok(()) }
    })?;
    Ok(strings)
}

#[derive(Default)]
struct SheetReader<'a> {
    strings: &'a [String],
    text: String,
    value: String,
    is_shared: bool,
    reads: bool,
    /// Some cell of the row has a value.
    any: bool,
}

impl SheetReader<'_> {
    fn meet(&mut self, event: XmlEvent) -> Result<(), ParseFault> {
        match event {
            XmlEvent::Begin(element) => match element.name.as_str() {
                "c" => self.is_shared = element.attribute("t") == Some("s"),
                "v" | "t" => self.reads = true,
                _ => {}
            },
            XmlEvent::Text(text) if self.reads => self.value += &text,
            XmlEvent::Text(_) => {}
            XmlEvent::End(name) => match name.as_str() {
                "v" | "t" => self.reads = false,
                "c" => self.cell(),
                "row" => {
                    self.text.push('\n');
                    self.any = false;
                }
                _ => {}
            },
        }
        bounded(&self.text).and_then(|()| bounded(&self.value))
    }

    fn cell(&mut self) {
        let value = std::mem::take(&mut self.value);
        let shared = value.trim().parse::<usize>().ok().and_then(|at| self.strings.get(at));
        let value = if self.is_shared { shared.map_or("", String::as_str) } else { value.as_str() };
        if value.trim().is_empty() {
            return;
        }
        if self.any {
            self.text += " | ";
        }
        self.text += value.trim();
        self.any = true;
    }
}

/// A text of shared strings may be long although its file is short.
fn bounded(text: &str) -> Result<(), ParseFault> {
    if text.len() > DOCUMENT_TEXT_BYTES_MAX { Err(too_long()) } else { Ok(()) }
}

fn too_long() -> ParseFault {
    ParseFault::Invalid(format!("its text has more than {DOCUMENT_TEXT_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::lines::tests::sections;
    use super::*;
    use zip::write::{SimpleFileOptions, ZipWriter};

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, text) in files {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn read_all(files: &[(&str, &str)]) -> Result<Vec<String>, ParseFault> {
        let bytes = archive(files);
        sections(|sink| read(&bytes, sink))
    }

    #[test]
    fn a_document_has_its_paragraphs_under_its_headings() {
        let document = "<w:document xmlns:w='w'><w:body><w:p><w:pPr><w:pStyle w:val='Heading1'/></w:pPr>\
            <w:r><w:t>Ports &amp; bays</w:t></w:r></w:p>\
            <w:p><w:r><w:t>Kelm is </w:t></w:r><w:r><w:t>old.</w:t></w:r></w:p>\
            <w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc>\
            <w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr></w:tbl>\
            <w:p><w:pPr><w:pStyle w:val='berschrift2'/></w:pPr><w:r><w:t>Dosh</w:t></w:r></w:p></w:body></w:document>";
        assert_eq!(
            read_all(&[("word/document.xml", document)]).unwrap(),
            ["|Ports & bays|Ports & bays\n\nKelm is old.\n\na | b |", "|Ports & bays > Dosh|Dosh"]
        );
    }

    #[test]
    fn a_presentation_has_a_page_a_slide_in_the_order_of_their_numbers() {
        let slide = |title: &str, text: &str| {
            format!(
                "<p:sld><p:sp><p:nvPr><p:ph type='title'/></p:nvPr><a:p><a:r><a:t>{title}</a:t></a:r></a:p></p:sp>\
                 <p:sp><a:p><a:r><a:t>{text}</a:t></a:r></a:p></p:sp></p:sld>"
            )
        };
        let (ten, two) = (slide("Ten", "z"), slide("Two", "a"));
        let files = [
            ("ppt/presentation.xml", "<p/>"),
            ("ppt/slides/slide10.xml", ten.as_str()),
            ("ppt/slides/slide2.xml", two.as_str()),
        ];
        assert_eq!(read_all(&files).unwrap(), ["2|Two|Two\na", "10|Ten|Ten\nz"]);
    }

    #[test]
    fn a_workbook_has_a_section_a_sheet_and_a_line_a_row() {
        let files = [
            ("xl/workbook.xml", "<workbook><sheets><sheet name='Ports' r:id='r1'/></sheets></workbook>"),
            ("xl/_rels/workbook.xml.rels", "<R><Relationship Id='r1' Target='worksheets/sheet1.xml'/></R>"),
            ("xl/sharedStrings.xml", "<sst><si><t>Kelm</t></si><si><r><t>Do</t></r><r><t>sh</t></r></si></sst>"),
            (
                "xl/worksheets/sheet1.xml",
                "<worksheet><sheetData><row><c t='s'><v>1</v></c><c><v>3.5</v></c></row>\
                 <row><c t='inlineStr'><is><t>in</t></is></c><c t='s'><v>99</v></c></row></sheetData>\
                 </worksheet>",
            ),
        ];
        assert_eq!(read_all(&files).unwrap(), ["|Ports|Dosh | 3.5\nin"]);
    }

    #[test]
    fn an_archive_of_something_else_is_unsupported_and_a_damaged_one_is_invalid() {
        assert!(matches!(read_all(&[("a.txt", "a")]), Err(ParseFault::Unsupported(_))));
        assert!(matches!(read_all(&[("word/document.xml", "<a><b></a>")]), Err(ParseFault::Invalid(_))));
        assert!(matches!(sections(|sink| read(b"PK\x03\x04 and no more", sink)), Err(ParseFault::Invalid(_))));
    }
}
