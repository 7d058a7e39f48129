//! How far a match is believed: lambda as a function of what is known about the match before anybody looks at the
//! model.
//!
//! A match falls into a cell by its [`Evidence`]; a cell's lambda is fitted on held-out text by deleted interpolation
//! (`calibration.rs`). Everything is computed beside the forward, on the host, so it is the same on every backend.

use crate::engram::matching::{COMMON_IDS, WordStarts};
use crate::ids::TokenId;
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

/// Most that one match can weigh: what the model says keeps a fiftieth.
pub const SHARE_MAX: f32 = 0.98;

/// Lower ends of the buckets. Each has one more below the first, but those that begin with what is least.
const WORDS: [u32; 7] = [0, 1, 2, 3, 4, 5, 8];
const OCCURRENCES: [u32; 4] = [1, 2, 4, 16];
const CONTINUATIONS: [u32; 3] = [1, 2, 4];
const RARENESS: [f32; 4] = [0.0, 16.0, 28.0, 40.0];
const JOINTS: [Joint; 3] = [Joint::Inside, Joint::AfterCommon, Joint::AfterOther];

const CELLS: usize = WORDS.len() * OCCURRENCES.len() * CONTINUATIONS.len() * JOINTS.len() * RARENESS.len();
/// Cells of matches in documents and in tables, and those of what is recalled by words.
pub const CELLS_ALL: usize = 2 * CELLS + RECALLED;
const RECALLED: usize = 2;
/// Lambda of openings. It is not fitted, for no text says how answers about unknown things should begin; and a model that
/// is sure of knowing nothing must yield at each of a dozen tokens, whatever the temperature.
const OPENING: f32 = 0.998;
/// The values that come with the program; `chimere engram calibrate` wrote them.
static SHIPPED: LazyLock<Arc<Strengths>> = LazyLock::new(|| {
    let read = include_str!("../data/strengths.txt").parse::<Strengths>();
    Arc::new(read.expect("a test reads the file that comes with the program"))
});

/// Where a match was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Witness {
    /// A request's own documents.
    Documents,
    /// A table, shared or of one request.
    Tables,
}

/// How what is expected joins the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// It goes on with a word or a number that has begun.
    Inside,
    /// It begins a word after one of those that join others, such as "is": there a statement says what it states.
    AfterCommon,
    /// It begins a word after one that means something. How a sentence goes on there is mostly its own affair.
    AfterOther,
}

impl Joint {
    /// Between the last id of a context and what is expected most after it.
    pub fn between(last: TokenId, next: TokenId, words: &WordStarts) -> Self {
        match (words.begins(next), last < COMMON_IDS) {
            (false, _) => Self::Inside,
            (true, true) => Self::AfterCommon,
            (true, false) => Self::AfterOther,
        }
    }
}

/// What is known about a context that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// Where the context was found.
    pub witness: Witness,
    /// Words that begin in the context.
    pub words: u32,
    /// How often the context was found: N.
    pub occurrences: u64,
    /// How many different tokens followed.
    pub continuations: u32,
    /// How the most frequent of them joins the context.
    pub joint: Joint,
    /// Of the context, by [`rareness`].
    pub rareness: f32,
}

/// One lambda a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Strengths(Box<[f32; CELLS_ALL]>);

/// A cell of [`Strengths`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell(u16);

/// What is wrong with a file of strengths.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: wanted {wanted}, got {got:?}")]
pub struct StrengthsError {
    /// Number of the line, from 1.
    line: usize,
    wanted: String,
    got: String,
}

/// How rare a context is, in nats up to a constant for each token: a vocabulary's ids rise about as tokens get rarer,
/// because the pieces that are most frequent are merged first, and by Zipf's law a rank stands for a frequency. So it
/// says something of a text of three sentences, whose own counts say nothing.
///
/// From the newest id back, so that each end of what was said begins as the longer ones do.
pub fn rareness(context: &[TokenId]) -> f32 {
    context.iter().rev().map(|&id| rareness_of(id)).sum()
}

/// The share of one token in [`rareness`].
pub(super) fn rareness_of(id: TokenId) -> f32 {
    (id as f32 + 1.0).ln()
}

impl Evidence {
    /// The cell that it falls into.
    pub fn cell(&self) -> Cell {
        let place = |at: usize, len: usize, cell: usize| cell * len + at;
        let bucket = |value: u64, ends: &[u32]| ends.partition_point(|&end| u64::from(end) <= value).max(1) - 1;
        let rareness = RARENESS.partition_point(|&end| end <= self.rareness).max(1) - 1;
        let cell =
            place(bucket(u64::from(self.words), &WORDS), WORDS.len(), usize::from(self.witness == Witness::Tables));
        let cell = place(bucket(self.occurrences, &OCCURRENCES), OCCURRENCES.len(), cell);
        let cell = place(bucket(u64::from(self.continuations), &CONTINUATIONS), CONTINUATIONS.len(), cell);
        let cell = place(self.joint as usize, JOINTS.len(), cell);
        Cell(place(rareness, RARENESS.len(), cell) as u16)
    }
}

impl Cell {
    /// Of the first token of what is recalled by its words, and of the others.
    pub fn recalled(first: bool) -> Self {
        Self((2 * CELLS + usize::from(!first)) as u16)
    }

    /// Of a sentence that an answer may begin with. It is not among [`CELLS_ALL`].
    pub fn opening() -> Self {
        Self(CELLS_ALL as u16)
    }

    /// Fewer than two words begin in its context: such matches are believed less than half together, as a rule, and
    /// make no other token of one that the model is sure of.
    pub fn is_of_fragments(self) -> bool {
        let each = CELLS / WORDS.len();
        self.index() < 2 * CELLS && WORDS[self.index() / each % WORDS.len()] < 2
    }

    /// Of matches in tables; the others are of a request's own documents.
    pub fn is_of_tables(self) -> bool {
        (CELLS..2 * CELLS).contains(&self.index())
    }

    /// Its place among [`CELLS_ALL`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Those that may be asked when this one has seen too little: all rarenesses of the same context counts.
    pub fn siblings(self) -> std::ops::Range<usize> {
        let at = self.index();
        if at >= 2 * CELLS {
            at..at + 1
        } else {
            at / RARENESS.len() * RARENESS.len()..(at / RARENESS.len() + 1) * RARENESS.len()
        }
    }

    /// All of them, by their places.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..CELLS_ALL).map(|i| Self(i as u16))
    }
}

impl Strengths {
    /// Those that come with the program.
    pub fn shipped() -> Arc<Self> {
        SHIPPED.clone()
    }

    /// From one for each cell; what is out of range becomes what is next to it.
    pub fn new(of: impl Fn(Cell) -> f32) -> Self {
        let at = |i: usize| of(Cell(i as u16)).clamp(0.0, SHARE_MAX);
        Self(Box::new(std::array::from_fn(at)))
    }

    /// Lambda of a cell, 0 to [`SHARE_MAX`]; more for openings.
    pub fn of(&self, cell: Cell) -> f32 {
        self.0.get(cell.index()).copied().unwrap_or(OPENING)
    }

    /// The file: a line for each witness, number of words, of occurrences and of continuations, with one lambda for
    /// each rareness; then what is recalled.
    pub fn to_text(&self) -> String {
        let mut text = String::from(HEAD);
        for (i, row) in self.0[..2 * CELLS].chunks(RARENESS.len()).enumerate() {
            let name = row_name(i).join(" ");
            let values: Vec<_> = row.iter().map(|lambda| format!("{lambda:.4}")).collect();
            writeln!(text, "{name} {}", values.join(" ")).expect("a string takes everything");
        }
        writeln!(text, "recalled {:.4} {:.4}", self.0[2 * CELLS], self.0[2 * CELLS + 1])
            .expect("a string takes everything");
        text
    }
}

const HEAD: &str =
    "# Shares of what Engram says, by what is known about a match. Written by `chimere engram calibrate`.
# witness, words, occurrences and continuations from, joint; lambda for rareness from 0, 16, 28 and 40 nats
";

fn row_name(i: usize) -> [String; 5] {
    let joint = match JOINTS[i % JOINTS.len()] {
        Joint::Inside => "inside",
        Joint::AfterCommon => "common",
        Joint::AfterOther => "other",
    };
    let i = i / JOINTS.len();
    let (i, continuations) = (i / CONTINUATIONS.len(), CONTINUATIONS[i % CONTINUATIONS.len()]);
    let (i, occurrences) = (i / OCCURRENCES.len(), OCCURRENCES[i % OCCURRENCES.len()]);
    let witness = if i < WORDS.len() { "documents" } else { "tables" };
    let words = WORDS[i % WORDS.len()];
    [witness.into(), words.to_string(), occurrences.to_string(), continuations.to_string(), joint.into()]
}

impl FromStr for Strengths {
    type Err = StrengthsError;

    fn from_str(text: &str) -> Result<Self, StrengthsError> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.trim().is_empty());
        let mut values = Vec::with_capacity(CELLS_ALL);
        for row in 0..=2 * CELLS / RARENESS.len() {
            let (name, count) = match row {
                row if row < 2 * CELLS / RARENESS.len() => (row_name(row).to_vec(), RARENESS.len()),
                _ => (vec!["recalled".to_owned()], RECALLED),
            };
            let (line, got) = lines.next().unwrap_or((text.lines().count(), ""));
            let wanted = || format!("{:?} and {count} numbers from 0 to {SHARE_MAX}", name.join(" "));
            let error = || StrengthsError { line: line + 1, wanted: wanted(), got: got.to_owned() };
            let mut fields = got.split_whitespace();
            if !name.iter().all(|part| fields.next() == Some(part)) {
                return Err(error());
            }
            let row: Option<Vec<f32>> = fields.map(|field| field.parse().ok()).collect();
            let row = row.filter(|row| row.len() == count && row.iter().all(|x| (0.0..=SHARE_MAX).contains(x)));
            values.extend(row.ok_or_else(error)?);
        }
        match lines.next() {
            None => Ok(Self(values.into_boxed_slice().try_into().expect("a line for each row was read"))),
            Some((line, got)) => Err(StrengthsError { line: line + 1, wanted: "the end".into(), got: got.to_owned() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(words: u32, occurrences: u64, continuations: u32, rareness: f32) -> Evidence {
        let joint = Joint::AfterCommon;
        Evidence { witness: Witness::Documents, words, occurrences, continuations, joint, rareness }
    }

    #[test]
    fn every_cell_has_one_place_and_numbers_beyond_the_last_bucket_are_in_it() {
        let mut seen = std::collections::BTreeSet::new();
        for witness in [Witness::Documents, Witness::Tables] {
            for (words, n) in WORDS.into_iter().flat_map(|w| OCCURRENCES.map(|n| (w, n))) {
                for (continuations, rareness) in CONTINUATIONS.into_iter().flat_map(|d| RARENESS.map(|r| (d, r))) {
                    for joint in JOINTS {
                        let e = Evidence { witness, joint, ..evidence(words, u64::from(n), continuations, rareness) };
                        assert!(seen.insert(e.cell().index()));
                        assert_eq!(e.cell().is_of_tables(), witness == Witness::Tables);
                        assert_eq!(e.cell().is_of_fragments(), words < 2);
                        assert!(e.cell().siblings().contains(&e.cell().index()));
                    }
                }
            }
        }
        seen.extend([Cell::recalled(true).index(), Cell::recalled(false).index()]);
        assert!(seen.into_iter().eq(0..CELLS_ALL));
        assert_eq!(evidence(32, u64::MAX, u32::MAX, 1e9).cell(), evidence(8, 16, 4, 40.0).cell());
        assert_eq!(evidence(3, 15, 3, 39.9).cell(), evidence(3, 4, 2, 28.0).cell());
        assert_eq!(evidence(0, 0, 0, 0.0).cell(), evidence(0, 1, 1, 0.0).cell());
    }

    #[test]
    fn what_is_written_reads_back_and_mistakes_are_told_with_their_line() {
        let strengths = Strengths::new(|cell| (cell.index() % 97) as f32 / 100.0);
        let text = strengths.to_text();
        assert_eq!(text.parse(), Ok(strengths));
        for (wrong, line) in [
            ("0.0100", "0.01x"),
            ("documents 0 1 1 inside", "documents 0 1 1 outside"),
            ("0.0200", "1.04"),
            ("0.0300", "nan"),
        ] {
            let error = text.replacen(wrong, line, 1).parse::<Strengths>().unwrap_err();
            assert!(
                error.to_string().starts_with("line 3: wanted \"documents 0 1 1 inside\" and 4 numbers"),
                "{error}"
            );
        }
        assert!(format!("{text}more\n").parse::<Strengths>().unwrap_err().to_string().contains("wanted the end"));
        assert!("".parse::<Strengths>().is_err());
    }

    #[test]
    fn the_shipped_values_can_be_read() {
        let shipped = Strengths::shipped();
        let believed = |words, rareness| shipped.of(evidence(words, 1, 1, rareness).cell());
        assert!(believed(3, 36.0) > 0.6, "a name and what is asked of it: {}", believed(3, 36.0));
        assert!(believed(2, 15.0) < 0.5, "two words that stand everywhere: {}", believed(2, 15.0));
    }
}
