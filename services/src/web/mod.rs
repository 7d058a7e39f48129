//! The web, for answers: searches by the operator's SearXNG and pages that are read, both by `outbound` alone. What a
//! search finds are numbered sources; HTTP's words for them are not here.

mod hosts;
mod keys;
mod named;
mod page;
mod results;
mod search;

pub use hosts::WebHosts;
pub use keys::{WebFetch, WebKeys};
pub use named::addresses_in;
pub use results::{WebError, WebFinding, WebPage};
pub use search::{Web, WebOffer, WebSettings, WebVisitor};
