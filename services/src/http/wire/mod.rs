//! What every answer has in common, whoever asks and whatever is asked for: the error and how it becomes a response,
//! the name of a request, JSON, and paths with their methods.

pub(in crate::http) mod error;
pub(in crate::http) mod json;
pub(in crate::http) mod refusals;
pub(in crate::http) mod reply;
pub(in crate::http) mod routing;
