//! Posts batches of spans to a collector, in plain text. It runs on the thread of the spans, which has nothing else to
//! do, so it simply waits.

use crate::metrics;
use crate::outbound::{Destination, Method, OperatorsServer, Outbound, OutboundBounds, OutboundRequest};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A collector says little, and soon.
const BOUNDS: OutboundBounds = OutboundBounds { time: Duration::from_secs(3), bytes: 64 << 10 };

/// The way to a collector.
#[derive(Debug)]
pub(super) struct Collector {
    server: OperatorsServer,
    out: Outbound,
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
            let answer = self.post(request);
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
    pub(super) fn at(server: OperatorsServer) -> Self {
        Self { server, out: Outbound::default(), silent: AtomicBool::default() }
    }

    /// Sends a batch of spans. Its address is the server's own, so that of the request's only the rest counts.
    fn post(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut headers = Vec::new();
        for (name, value) in request.headers() {
            headers.push((name.to_string(), value.to_str()?.to_owned()));
        }
        let destination = Destination::operators(&self.server, "")?;
        let request = OutboundRequest { method: Method::Post, headers, body: request.into_body() };
        let (status, body) = self.out.wait(destination, &request, BOUNDS)?;
        Ok(Response::builder().status(status).body(body)?)
    }

    fn complain(&self, why: &str) {
        ::metrics::counter!(metrics::TRACE_FAILURES).increment(1);
        if !self.silent.swap(true, Ordering::Relaxed) {
            tracing::warn!(why, "the collector of traces takes no spans");
        }
    }
}
