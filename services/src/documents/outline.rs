//! The parsed text of a file on the disk: the text itself, and where its sections begin. Both are there or none is.

use super::parse::ParsedLine;
use chimere_engine::files::{open_regular, read_regular};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of an outline: of the most sections with the longest headings.
const OUTLINE_BYTES_MAX: u64 = 1 << 30;
/// Between two sections of a text.
const BETWEEN: &str = "\n\n";

/// A section of a text, by its bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TextSection {
    pub(super) start: usize,
    pub(super) end: usize,
    /// From 1, where the format has pages.
    pub(super) page: Option<u32>,
    /// The outermost comes first.
    pub(super) headings: Vec<String>,
}

/// Where the texts of files lie, by the hashes of the files.
#[derive(Clone, Debug)]
pub(super) struct ParsedTexts {
    directory: PathBuf,
}

impl ParsedTexts {
    pub(super) fn of(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(super) fn text_path(&self, sha256: &str) -> PathBuf {
        self.directory.join(sha256)
    }

    fn outline_path(&self, sha256: &str) -> PathBuf {
        self.directory.join(format!("{sha256}.outline"))
    }

    /// Whether a file was parsed. The outline is written last.
    pub(super) fn has(&self, sha256: &str) -> bool {
        self.outline_path(sha256).exists()
    }

    /// The sections of a text.
    pub(super) fn outline(&self, sha256: &str) -> io::Result<Vec<TextSection>> {
        Ok(serde_json::from_slice(&read_regular(&self.outline_path(sha256), OUTLINE_BYTES_MAX)?)?)
    }

    /// The text, to read pieces of it.
    pub(super) fn open(&self, sha256: &str) -> io::Result<TextFile> {
        open_regular(&self.text_path(sha256)).map(TextFile)
    }

    /// Takes down sections as they come.
    pub(super) fn begin(&self, sha256: &str) -> io::Result<TextWriter> {
        let part = UnfinishedFile::at(self.directory.join(format!("{sha256}.part")));
        let text = BufWriter::new(private(&part.path)?);
        Ok(TextWriter { texts: self.clone(), sha256: sha256.to_owned(), part, text, at: 0, outline: Vec::new() })
    }

    /// Removes the text of a file, and what was begun of it.
    pub(super) fn remove(&self, sha256: &str) {
        let part = self.directory.join(format!("{sha256}.part"));
        for path in [self.outline_path(sha256), self.text_path(sha256), part] {
            remove_file(&path);
        }
    }
}

/// A file that only its owner reads.
pub(super) fn private(path: &Path) -> io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

/// Gives a file its name, so that both are on the disk when this returns.
pub(super) fn publish(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    File::open(to.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Removes a file that may be gone already.
pub(super) fn remove_file(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(path = %path.display(), %error, "a file of a document cannot be removed");
    }
}

/// A file that is removed unless all of it was written: a disk without room for the rest needs its room.
struct UnfinishedFile {
    path: PathBuf,
    stays: bool,
}

impl UnfinishedFile {
    fn at(path: PathBuf) -> Self {
        Self { path, stays: false }
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if !self.stays {
            remove_file(&self.path);
        }
    }
}

/// A text that is being taken down.
pub(super) struct TextWriter {
    texts: ParsedTexts,
    sha256: String,
    part: UnfinishedFile,
    text: BufWriter<File>,
    at: usize,
    outline: Vec<TextSection>,
}

impl TextWriter {
    /// Takes down a section.
    pub(super) fn section(&mut self, page: Option<u32>, headings: Vec<String>, text: &str) -> io::Result<()> {
        if self.at > 0 {
            self.text.write_all(BETWEEN.as_bytes())?;
            self.at += BETWEEN.len();
        }
        self.text.write_all(text.as_bytes())?;
        let start = self.at;
        self.at += text.len();
        self.outline.push(TextSection { start, end: self.at, page, headings });
        Ok(())
    }

    /// The text is there from now on, also after a crash.
    pub(super) fn finish(self) -> io::Result<()> {
        let Self { texts, sha256, part, text, outline, .. } = self;
        text.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        publish(&part.path, &texts.text_path(&sha256))?;
        let mut text = UnfinishedFile::at(texts.text_path(&sha256));
        let mut file = private(&part.path)?;
        file.write_all(&serde_json::to_vec(&outline)?)?;
        file.sync_all()?;
        publish(&part.path, &texts.outline_path(&sha256))?;
        text.stays = true;
        Ok(())
    }
}

/// The text of a file.
pub(super) struct TextFile(File);

impl TextFile {
    /// A piece of the text; an error where it is not made of whole characters.
    pub(super) fn read(&self, start: usize, end: usize) -> io::Result<String> {
        let mut bytes = vec![0; end.saturating_sub(start)];
        self.0.read_exact_at(&mut bytes, start as u64)?;
        String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    /// The whole characters of a piece of the text, and where the first of them begins.
    pub(super) fn read_within(&self, start: usize, end: usize) -> io::Result<(usize, String)> {
        let mut bytes = vec![0; end.saturating_sub(start)];
        self.0.read_exact_at(&mut bytes, start as u64)?;
        let is_inside = |byte: &&u8| **byte & 0xc0 == 0x80;
        let cut = bytes.iter().take_while(is_inside).count();
        let text = &bytes[cut..];
        let whole = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(e) if e.error_len().is_none() => std::str::from_utf8(&text[..e.valid_up_to()]).unwrap_or_default(),
            Err(e) => return Err(io::Error::new(io::ErrorKind::InvalidData, e)),
        };
        Ok((start + cut, whole.to_owned()))
    }
}

/// What a line of the child means to the writer of its text.
pub(super) enum ChildWord {
    /// More lines will come.
    More,
    /// This was the last line.
    End,
    /// The file has no text, for this reason.
    Fault(super::members::MemberFault),
}

impl TextWriter {
    /// Takes down a line of the child.
    pub(super) fn hear(&mut self, line: ParsedLine) -> io::Result<ChildWord> {
        use super::members::{FaultCode, MemberFault};
        let fault = |code, message| ChildWord::Fault(MemberFault { code, message });
        Ok(match line {
            ParsedLine::Section { page, headings, text } => {
                self.section(page, headings, &text)?;
                ChildWord::More
            }
            ParsedLine::End => ChildWord::End,
            ParsedLine::Unsupported(why) => fault(FaultCode::UnsupportedFile, why),
            ParsedLine::Invalid(why) => fault(FaultCode::InvalidFile, why),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_there_with_its_sections_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let texts = ParsedTexts::of(dir.path().to_owned());
        let mut writer = texts.begin("ab").unwrap();
        writer.section(Some(1), vec!["A".into()], "Kelm ä").unwrap();
        writer.section(None, vec![], "Dosh").unwrap();
        assert!(!texts.has("ab"));
        writer.finish().unwrap();
        let outline = texts.outline("ab").unwrap();
        let file = texts.open("ab").unwrap();
        let read: Vec<String> = outline.iter().map(|s| file.read(s.start, s.end).unwrap()).collect();
        assert_eq!((read, outline[0].page), (vec!["Kelm ä".to_owned(), "Dosh".to_owned()], Some(1)));
        assert!(file.read(0, 6).is_err(), "half of a character");
        let within = |start, end| file.read_within(start, end).unwrap();
        assert_eq!((within(0, 6), within(6, 11)), ((0, "Kelm ".into()), (7, "\n\nDo".into())), "cut characters");
        drop(texts.begin("cd").unwrap());
        texts.remove("ab");
        assert!(!texts.has("ab") && std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}
