//! An account's documents: files as they were uploaded, their texts, and stores that are searched for passages. HTTP is
//! not here, and neither is the model that may make vectors.

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

pub use error::DocumentError;
pub use files::{Upload, label};
pub use filter::{Attribute, AttributeFilter, Attributes, Comparison};
pub use index::{FileSegment, PassageHit, StoreIndex};
pub use library::DocumentSettings;
pub use members::{
    BatchInfo, Chunking, FaultCode, FileCounts, FileInfo, FilePurpose, MemberFault, MemberInfo, MemberState, NewMember,
    StoreInfo,
};
pub use passage::{Excerpt, Passage};
pub use search::{WholeStore, WholeText};
pub use service::Documents;
pub use stores::{NewStore, StoreChange};
