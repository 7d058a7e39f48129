//! An account's documents: files as they were uploaded, their texts, and stores that are searched for passages. HTTP is
//! not here, and neither is the encoder that makes vectors.

mod access;
mod cut;
mod error;
mod files;
mod filter;
mod index;
mod ingest;
mod library;
mod members;
mod outline;
pub mod parse;
mod passage;
mod search;
mod service;
mod stores;
mod tables;
mod vectors;

pub use error::DocumentError;
pub use files::{Upload, label};
pub use filter::{Attribute, AttributeFilter, Attributes, Comparison};
pub use index::{FileSegment, PagePassage, PageReader, PassageHit, PassageQuery, ReadPage, StoreIndex, coded};
pub use library::DocumentSettings;
pub use members::{
    BatchInfo, Chunking, FaultCode, FileCounts, FileInfo, FilePurpose, MemberFault, MemberInfo, MemberState, NewMember,
    StoreInfo, StoreVectors,
};
pub use passage::{Excerpt, LegScores, Passage, after_own_title};
pub use search::{StoreSearch, WholeStore, WholeText};
pub use service::Documents;
pub use stores::{NewStore, StoreChange};
pub use vectors::{DueStoreTest, StoreProbe, TestTurn, VectorJob};
