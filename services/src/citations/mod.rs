//! Citations that are true: an answer names its sources by number, `[2]`, and code looks for the place in the source
//! that says so. A mark whose source does not say so gets no citation. Knows texts, and nothing of requests.

mod marks;
mod prompt;
mod reader;
mod sentence_index;
mod source;

pub use marks::named as named_sources;
pub use prompt::{CITE, MISSING, NOTHING_FOUND, QUOTE, numbered};
pub use reader::{Citation, CitationReader, MarkCounts};
pub use source::{NumberedSource, NumberedSources, SourcePlace};
