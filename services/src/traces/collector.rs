//! Posts batches of spans to a collector, in plain text. It runs on the thread of the spans, which has nothing else to
//! do, so it simply waits.

use crate::metrics;
use crate::plain_post::{PostBounds, post};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A collector says little, and soon.
const BOUNDS: PostBounds = PostBounds { patience: Duration::from_secs(3), answer_bytes_max: 64 << 10 };

/// The way to a collector.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// The last batch was not taken: said once, not with every batch.
    silent: AtomicBool,
}

impl HttpClient for Collector {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let answer = post(&request, BOUNDS);
            match &answer {
                Ok(answer) if answer.status().is_success() => self.silent.store(false, Ordering::Relaxed),
                Ok(answer) => self.complain(&answer.status().to_string()),
                Err(error) => self.complain(&error.to_string()),
            }
            answer
        })
    }
}

impl Collector {
    fn complain(&self, why: &str) {
        ::metrics::counter!(metrics::TRACE_FAILURES).increment(1);
        if !self.silent.swap(true, Ordering::Relaxed) {
            tracing::warn!(why, "the collector of traces takes no spans");
        }
    }
}
