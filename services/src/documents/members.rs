//! What is known of files, of stores, and of the files in stores.

use super::filter::Attributes;
use crate::limits::CHUNK_OVERLAP_TOKENS;
use crate::semantic::SelfTest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a file was uploaded for. Nothing depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilePurpose {
    /// It is to be searched.
    #[default]
    Assistants,
    /// It is to be read.
    UserData,
}

/// A file of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileInfo {
    /// It begins with `file-`.
    pub id: String,
    /// Files are listed in the order of these.
    pub number: u64,
    /// In seconds since 1970.
    pub created: u64,
    /// As it was called where it came from; only ever a label.
    pub filename: String,
    /// What it was uploaded for.
    pub purpose: FilePurpose,
    /// How many it has.
    pub bytes: u64,
    /// Hash of its bytes, by which they are kept.
    pub(super) sha256: String,
}

/// A store of an account, without its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StoreRow {
    pub(super) id: String,
    pub(super) number: u64,
    pub(super) created: u64,
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) metadata: BTreeMap<String, String>,
}

/// A store of an account.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreInfo {
    /// It begins with `vs_`.
    pub id: String,
    /// Stores are listed in the order of these.
    pub number: u64,
    /// In seconds since 1970.
    pub created: u64,
    /// As people call it; need not be unique.
    pub name: String,
    /// More words about it.
    pub description: Option<String>,
    /// Pairs that clients keep with it.
    pub metadata: BTreeMap<String, String>,
    /// When it was last changed or searched, in seconds since 1970.
    pub active: u64,
    /// Bytes of the texts of its files.
    pub bytes: u64,
    /// Its files by their states.
    pub counts: FileCounts,
    /// Its vectors, where an encoder makes some.
    pub vectors: Option<StoreVectors>,
    /// It belongs to another account than whoever asks.
    pub read_only: bool,
}

/// How far the vectors of a store are, and what they are worth.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreVectors {
    /// The encoder that makes them: name, width and digest.
    pub maker: String,
    /// Passages of all its files.
    pub passages: usize,
    /// Passages that wait for their vectors.
    pub waiting: usize,
    /// Result of the last self-test with this encoder.
    pub test: Option<SelfTest>,
    /// More than a tenth has changed since then, so another test follows.
    pub test_due: bool,
}

impl StoreVectors {
    /// How much vectors count in a search. Nothing, until a test of this store has found otherwise.
    pub fn weight(&self) -> f64 {
        self.test.as_ref().map_or(0.0, |test| test.weight)
    }
}

/// Files of a store or of a batch by their states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// These are not searchable yet.
    pub in_progress: usize,
    /// These can be searched.
    pub completed: usize,
    /// These were given up.
    pub failed: usize,
    /// Given up because a client said so.
    pub cancelled: usize,
}

impl FileCounts {
    /// Files in these states.
    pub(super) fn of<'a>(states: impl Iterator<Item = &'a MemberState>) -> Self {
        states.fold(Self::default(), |mut counts, state| {
            match state {
                MemberState::InProgress => counts.in_progress += 1,
                MemberState::Completed => counts.completed += 1,
                MemberState::Failed(_) => counts.failed += 1,
                MemberState::Cancelled => counts.cancelled += 1,
            }
            counts
        })
    }

    /// Files in any state.
    pub fn total(&self) -> usize {
        self.in_progress + self.completed + self.failed + self.cancelled
    }
}

/// How a file is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chunking {
    /// As the configuration says.
    #[default]
    Auto,
    /// As the request says.
    Static {
        /// The most tokens of a passage.
        tokens: u32,
        /// Tokens that two pieces of one long paragraph have in common.
        overlap: u32,
    },
}

impl Chunking {
    /// Tokens of a passage, and those that it has in common with the one before it. `auto`: what the configuration says
    /// of passages.
    pub fn sizes(self, auto: u32) -> (u32, u32) {
        match self {
            Self::Auto => (auto, Self::usual_overlap(auto)),
            Self::Static { tokens, overlap } => (tokens, overlap),
        }
    }

    /// The overlap of passages of so many tokens where nobody says.
    pub fn usual_overlap(tokens: u32) -> u32 {
        CHUNK_OVERLAP_TOKENS.min(tokens / 2)
    }
}

/// Where a file of a store stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// It is not searchable yet.
    InProgress,
    /// It can be searched.
    Completed,
    /// Given up because a client said so.
    Cancelled,
    /// Given up for this reason.
    Failed(MemberFault),
}

impl MemberState {
    /// All names of states, as clients know them.
    pub const NAMES: [&'static str; 4] = ["in_progress", "completed", "cancelled", "failed"];

    /// As clients know it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::InProgress => Self::NAMES[0],
            Self::Completed => Self::NAMES[1],
            Self::Cancelled => Self::NAMES[2],
            Self::Failed(_) => Self::NAMES[3],
        }
    }
}

/// Why a file of a store was given up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberFault {
    /// The one at fault for it.
    pub code: FaultCode,
    /// What is wrong with it.
    pub message: String,
}

/// Who is at fault where a file has no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    /// The service's: the same file may do another time.
    ServerError,
    /// The file is of a kind that cannot be read.
    UnsupportedFile,
    /// The file is damaged or too large.
    InvalidFile,
}

impl FaultCode {
    /// As clients know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerError => "server_error",
            Self::UnsupportedFile => "unsupported_file",
            Self::InvalidFile => "invalid_file",
        }
    }
}

/// A file of a store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberInfo {
    /// Its id in the account.
    pub file_id: String,
    /// Files of a store are listed in the order of these.
    pub number: u64,
    /// When it was put into the store, in seconds since 1970.
    pub created: u64,
    /// How far it has come.
    pub state: MemberState,
    /// What filters look at.
    pub attributes: Attributes,
    /// How it is cut.
    pub chunking: Chunking,
    /// Bytes of its text.
    pub bytes: u64,
    /// Passages that it was cut into.
    pub chunks: usize,
}

/// A file that is to be put into a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewMember {
    /// Its id in the account.
    pub file_id: String,
    /// What filters look at.
    pub attributes: Attributes,
    /// How it is to be cut.
    pub chunking: Chunking,
}

/// Files that were put into a store together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchInfo {
    /// It begins with `vsfb_`.
    pub id: String,
    /// Batches are older with smaller ones.
    pub number: u64,
    /// In seconds since 1970.
    pub created: u64,
    /// Ids of its files.
    pub files: Vec<String>,
    /// A client gave it up.
    pub cancelled: bool,
}
