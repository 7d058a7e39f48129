//! Documents in the bodies of requests: conditions on files, values of their attributes, and the tool that searches
//! them.

mod file_search;
mod filters;
mod values;

pub(in crate::http) use file_search::FILE_SEARCH;
pub(super) use file_search::{check_answer, check_rounds, is_file_search, the_file_search};
pub(in crate::http) use filters::filter;
pub(in crate::http) use values::{attribute, shorter};
