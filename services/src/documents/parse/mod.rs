//! From the bytes of a file to its text. The parsers run in a child of the same program (`chimere parse`), which has
//! little memory, little time and nothing else: a file that breaks a parser costs that file and nobody else's.

mod child;
mod format;
mod html;
mod lines;
mod markdown;
mod office;
mod parser;
mod pdf;
mod text;
mod xml;

pub use format::DocumentFormat;
pub use parser::{ParseBounds, run};

pub(super) use child::{ChildBounds, ChildFault, read_with_child};
pub(super) use lines::ParsedLine;
