//! File formats v2 and v3 as bytes: the header, the sections and their checksums. What the sections mean is in
//! `record.rs`; the whole format is described in `docs/using/engram.md`.

use super::error::TableProblem;
use super::record::{OrderImage, u32_at, u64_at};
use crate::engram::checksum::xxh64;
use crate::engram::order::{MATCH_MAX, ORDER_MAX};
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;

/// First four bytes of all versions, little-endian.
pub(super) const MAGIC: u32 = 0x454E_4752;
/// The version of tables without long contexts, and that of those with them.
const DENSE: u32 = 2;
const LONG: u32 = 3;
/// Sections start at multiples of this.
const ALIGN: usize = 64;
const HEADER_BYTES: usize = 72;
const SECTION_BYTES: usize = 40;
/// The header's checksum covers everything after itself, up to the first section.
const CHECKED_FROM: usize = 24;

/// Identifies a tokenizer: two have the same hash if every id stands for the same bytes and purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenizerHash(pub [u8; 32]);

impl fmt::Display for TokenizerHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenizerHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A whole table in the making: everything that a file holds, ready to be written or opened in memory.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) tokenizer: TokenizerHash,
    pub(super) vocab: u32,
    /// Tokens that the table was built from.
    pub(super) tokens: u64,
    /// How often each token stood in them, by id.
    pub(super) prior: Vec<u64>,
    /// Shortest contexts first; orders without a context are left out.
    pub(super) orders: Vec<OrderImage>,
}

impl Image {
    /// Tokens that it was made from.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How many bytes the file will have.
    pub fn bytes(&self) -> u64 {
        let sections = self.orders.iter().flat_map(|o| [o.index.len(), o.records.len()]);
        let head = HEADER_BYTES + SECTION_BYTES * (1 + 2 * self.orders.len());
        [head, 8 * self.prior.len()].into_iter().chain(sections).map(|n| (n + padding(n)) as u64).sum()
    }

    /// Writes the file's bytes.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let prior: Vec<u8> = self.prior.iter().flat_map(|n| n.to_le_bytes()).collect();
        let mut sections = vec![(SectionKind::Prior, 0, &prior[..])];
        for order in &self.orders {
            sections.push((SectionKind::Index, order.order, &order.index));
            sections.push((SectionKind::Records, order.order, &order.records));
        }
        out.write_all(&self.header(&sections))?;
        for (.., bytes) in sections {
            out.write_all(bytes)?;
            out.write_all(&[0; ALIGN][..padding(bytes.len())])?;
        }
        Ok(())
    }

    /// The bytes that a file of it has.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes).expect("writing to memory does not fail");
        bytes
    }

    /// Continuations of all orders.
    pub fn ngrams(&self) -> u64 {
        self.orders.iter().map(|o| o.ngrams).sum()
    }

    fn header(&self, sections: &[(SectionKind, usize, &[u8])]) -> Vec<u8> {
        let table_end = HEADER_BYTES + sections.len() * SECTION_BYTES;
        let mut at = table_end + padding(table_end);
        let first = at;
        let mut entries = Vec::new();
        for (kind, order, bytes) in sections {
            entries.extend((*kind as u32).to_le_bytes());
            entries.extend((*order as u32).to_le_bytes());
            for field in [at as u64, bytes.len() as u64, xxh64(bytes), 0] {
                entries.extend(field.to_le_bytes());
            }
            at += bytes.len() + padding(bytes.len());
        }
        let mut rest = self.tokenizer.0.to_vec();
        rest.extend(self.vocab.to_le_bytes());
        rest.extend((sections.len() as u32).to_le_bytes());
        rest.extend(self.tokens.to_le_bytes());
        rest.extend(entries);
        rest.resize(first - CHECKED_FROM, 0);
        let version = if self.orders.iter().any(|o| o.order > ORDER_MAX) { LONG } else { DENSE };
        let mut head = [MAGIC.to_le_bytes(), version.to_le_bytes()].concat();
        head.extend((at as u64).to_le_bytes());
        head.extend(xxh64(&rest).to_le_bytes());
        head.extend(rest);
        head
    }
}

/// What a section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectionKind {
    /// u64 a token of the vocabulary: how often it stood in the text.
    Prior = 1,
    /// u64 a slot: fingerprint and place of a record.
    Index = 2,
    /// Contexts with their continuations.
    Records = 3,
}

/// A header that agrees with the file's length and checksums.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) tokenizer: TokenizerHash,
    pub(super) vocab: u32,
    pub(super) tokens: u64,
    pub(super) prior: Range<usize>,
    /// (order, index, records), rising.
    pub(super) orders: Vec<(usize, Range<usize>, Range<usize>)>,
}

/// Reads the header and checks every byte of the file against its checksums.
pub(super) fn read(file: &[u8]) -> Result<Header, TableProblem> {
    let longest = check_start(file)?;
    let length = u64_at(file, 8).ok_or_else(|| short(file))?;
    if length != file.len() as u64 {
        return Err(TableProblem::damaged("length", format!("{length} bytes"), format!("{} bytes", file.len())));
    }
    let (count, first) = header_end(file, longest)?;
    check("header", u64_at(file, 16).ok_or_else(|| short(file))?, &file[CHECKED_FROM..first])?;
    let sections = sections(file, count, first)?;
    arrange(file, &sections, longest)
}

/// Whether the first 8 bytes are those of a table that is read here, and the longest context that it may have.
pub(super) fn check_start(file: &[u8]) -> Result<usize, TableProblem> {
    let magic = u32_at(file, 0).ok_or_else(|| short(file))?;
    if magic != MAGIC {
        return Err(TableProblem::Magic(magic));
    }
    let version = u32_at(file, 4).ok_or_else(|| short(file))?;
    match version {
        DENSE => Ok(ORDER_MAX),
        LONG => Ok(MATCH_MAX),
        got => Err(TableProblem::Version { want: "2 or 3", got }),
    }
}

/// Number of sections, and where the first one starts.
fn header_end(file: &[u8], longest: usize) -> Result<(usize, usize), TableProblem> {
    // The prior, and an index and records for each order.
    let max = 1 + 2 * longest;
    let count = u32_at(file, 60).ok_or_else(|| short(file))? as usize;
    if !(1..=max).contains(&count) {
        return Err(TableProblem::damaged("header: number of sections", format!("1 to {max}"), count));
    }
    let end = HEADER_BYTES + count * SECTION_BYTES;
    let first = end + padding(end);
    if first > file.len() { Err(short(file)) } else { Ok((count, first)) }
}

struct Section {
    kind: u32,
    order: usize,
    range: Range<usize>,
}

/// Sections lie one after the other without a gap, so a file has no byte that nothing checks.
fn sections(file: &[u8], count: usize, first: usize) -> Result<Vec<Section>, TableProblem> {
    let mut at = first;
    let mut sections = Vec::with_capacity(count);
    for i in 0..count {
        let entry = HEADER_BYTES + i * SECTION_BYTES;
        let u32 = |field| u32_at(file, entry + field).ok_or_else(|| short(file));
        let u64 = |field| u64_at(file, entry + field).ok_or_else(|| short(file));
        let name = format!("section {i}");
        if u64(8)? != at as u64 {
            return Err(TableProblem::damaged(format!("{name}: offset"), at, u64(8)?));
        }
        let left = file.len() - at;
        let length = usize::try_from(u64(16)?).ok().filter(|&n| n <= left && padding(n) <= left - n);
        let length = length.ok_or_else(|| {
            TableProblem::damaged(format!("{name}: length"), format!("at most {left}"), u64(16).unwrap_or(0))
        })?;
        let range = at..at + length;
        at = range.end + padding(length);
        check(&name, u64(24)?, &file[range.clone()])?;
        if file[range.end..at].iter().any(|&b| b != 0) || u64(32)? != 0 {
            return Err(TableProblem::damaged(format!("{name}: padding"), "zeros", "something else"));
        }
        sections.push(Section { kind: u32(0)?, order: u32(4)? as usize, range });
    }
    if at != file.len() {
        return Err(TableProblem::damaged("end of the last section", file.len(), at));
    }
    Ok(sections)
}

/// Puts the sections into their places: the prior, then index and records of each order, orders rising.
fn arrange(file: &[u8], sections: &[Section], longest: usize) -> Result<Header, TableProblem> {
    let wrong = |i: usize, s: &Section, want: &str| {
        TableProblem::damaged(
            format!("section {i}: kind and order"),
            want,
            format!("kind {} of order {}", s.kind, s.order),
        )
    };
    let Some((prior, rest)) =
        sections.split_first().filter(|(s, _)| s.kind == SectionKind::Prior as u32 && s.order == 0)
    else {
        return Err(wrong(0, &sections[0], "the prior, kind 1 of order 0"));
    };
    let mut orders: Vec<(usize, Range<usize>, Range<usize>)> = Vec::new();
    for (i, pair) in rest.chunks(2).enumerate() {
        let low = orders.last().map_or(1, |o| o.0 + 1);
        match pair {
            [index, records]
                if (index.kind, records.kind) == (SectionKind::Index as u32, SectionKind::Records as u32)
                    && index.order == records.order
                    && (low..=longest).contains(&index.order) =>
            {
                orders.push((index.order, index.range.clone(), records.range.clone()));
            }
            _ => {
                let want = format!("index and records of one order, orders rising up to {longest}");
                return Err(wrong(1 + 2 * i, &pair[0], &want));
            }
        }
    }
    let (dense, long) = (orders.iter().any(|o| o.0 == ORDER_MAX), orders.iter().any(|o| o.0 > ORDER_MAX));
    if longest > ORDER_MAX && !(dense && long) {
        let want = format!("order {ORDER_MAX} and longer ones");
        return Err(TableProblem::damaged(
            "orders of version 3",
            want,
            format!("{:?}", orders.iter().map(|o| o.0).collect::<Vec<_>>()),
        ));
    }
    let vocab = u32_at(file, 56).ok_or_else(|| short(file))?;
    if prior.range.len() as u64 != 8 * u64::from(vocab) || vocab == 0 {
        return Err(TableProblem::damaged(
            "prior",
            format!("8 bytes for each of {vocab} tokens, at least one"),
            prior.range.len(),
        ));
    }
    let mut tokenizer = [0; 32];
    tokenizer.copy_from_slice(&file[24..56]);
    let tokens = u64_at(file, 64).ok_or_else(|| short(file))?;
    Ok(Header { tokenizer: TokenizerHash(tokenizer), vocab, tokens, prior: prior.range.clone(), orders })
}

fn check(part: &str, want: u64, bytes: &[u8]) -> Result<(), TableProblem> {
    match xxh64(bytes) {
        got if got == want => Ok(()),
        got => Err(TableProblem::damaged(format!("{part}: checksum"), format!("{want:#018x}"), format!("{got:#018x}"))),
    }
}

fn short(file: &[u8]) -> TableProblem {
    TableProblem::damaged("header", "a whole header", format!("a file of {} bytes", file.len()))
}

/// Bytes from a section's end to the next one's start.
fn padding(len: usize) -> usize {
    len.wrapping_neg() % ALIGN
}
