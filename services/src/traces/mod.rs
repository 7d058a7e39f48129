//! Traces: the spans of a request, told to an OpenTelemetry collector over OTLP when the request has ended, if anybody
//! wants them. Where the request's own caller traces, its spans hang from the caller's (W3C Trace Context).

mod collector;

use crate::limits;
use crate::outbound::OperatorsServer;
use chimere_engine::ids::Micros;
use collector::Collector;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long the end of the process waits for the collector.
const LAST_BATCH: Duration = Duration::from_secs(3);

/// Where traces go. Clones share one thread.
#[derive(Clone, Debug, Default)]
pub struct Traces {
    provider: Option<SdkTracerProvider>,
}

/// What the caller says of its own trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remote<'a> {
    /// Value of the header `traceparent`: the ids of the trace and of the caller's span.
    pub parent: Option<&'a str>,
    /// Value of the header `tracestate`, which tracers of other makers add to `traceparent`.
    pub state: Option<&'a str>,
}

impl Extractor for Remote<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        match key {
            "traceparent" => self.parent,
            "tracestate" => self.state,
            _ => None,
        }
    }

    fn keys(&self) -> Vec<&str> {
        vec!["traceparent", "tracestate"]
    }
}

/// What is known of a request when it is taken.
#[derive(Clone, Debug)]
pub struct About {
    /// The path that was asked for.
    pub path: String,
    /// The request's name, `x-request-id`.
    pub name: Arc<str>,
    /// The model that answers.
    pub model: String,
    /// When its head was there.
    pub arrived: Micros,
    /// It is answered in pieces.
    pub stream: bool,
}

/// The moments of a request; `None` for those that it did not come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    /// The scheduler said yes.
    pub taken: Option<Micros>,
    /// Its first step began.
    pub started: Option<Micros>,
    /// When its first token came.
    pub first: Option<Micros>,
    /// When its last token came.
    pub last: Option<Micros>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// The outcome, as the metrics call it, or `rejected`.
    pub outcome: &'static str,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// Tokens of all choices.
    pub output_tokens: u32,
    /// When the request ended.
    pub at: Micros,
}

/// A request that will be told when it has ended.
#[derive(Debug)]
pub struct Trace {
    tracer: SdkTracer,
    parent: Context,
    about: About,
}

impl Traces {
    /// To the collector at `endpoint`, such as `http://127.0.0.1:4318`, for this share of the requests whose caller
    /// does not say. The error says what was wrong.
    pub fn to(endpoint: &str, share: f64) -> Result<Self, String> {
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let server = OperatorsServer::configured(&url).map_err(|e| e.to_string())?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::at(server))
            .with_protocol(Protocol::HttpJson)
            .with_endpoint(url)
            .build()
            .map_err(|e| e.to_string())?;
        let config = BatchConfigBuilder::default().with_max_queue_size(limits::SPANS_WAITING_MAX).build();
        let resource = Resource::builder().with_service_name("chimere");
        let provider = SdkTracerProvider::builder()
            .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(config).build())
            .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(share))))
            .with_resource(resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build())
            .build();
        Ok(Self { provider: Some(provider) })
    }

    /// Of a request, if there is a collector.
    pub fn begin(&self, remote: Remote<'_>, about: impl FnOnce() -> About) -> Option<Trace> {
        let provider = self.provider.as_ref()?;
        let parent = TraceContextPropagator::new().extract_with_context(&Context::new(), &remote);
        Some(Trace { tracer: provider.tracer("chimere"), parent, about: about() })
    }

    /// Sends what is left, if the collector takes it in time.
    pub fn finish(&self) {
        if let Some(Err(error)) = self.provider.as_ref().map(|provider| provider.shutdown_with_timeout(LAST_BATCH)) {
            tracing::warn!(%error, "the last traces are lost");
        }
    }
}

impl Trace {
    /// Tells the request and its parts: admit, queue, prefill, decode, stream, as far as it came.
    pub fn end(self, moments: &Moments, ended: Ended) {
        let (epoch, now) = (SystemTime::now(), ended.at);
        let time = |at: Micros| epoch - Duration::from_micros(now.since(at).0);
        let root = SpanBuilder::from_name(format!("POST {}", self.about.path)).with_kind(SpanKind::Server);
        let root = root.with_start_time(time(self.about.arrived)).with_attributes(self.attributes(ended));
        let all = self.parent.with_span(self.tracer.build_with_context(root, &self.parent));
        for (name, from, to) in parts(moments, self.about.arrived, now, self.about.stream) {
            let part = SpanBuilder::from_name(name).with_start_time(time(from));
            let mut part = self.tracer.build_with_context(part, &all);
            opentelemetry::trace::Span::end_with_timestamp(&mut part, time(to));
        }
        if matches!(ended.outcome, "failed" | "deadline" | "slow_client") {
            all.span().set_status(Status::error(ended.outcome));
        }
        all.span().end_with_timestamp(time(now));
    }

    fn attributes(&self, ended: Ended) -> Vec<KeyValue> {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        vec![
            KeyValue::new("http.request.method", "POST"),
            KeyValue::new("url.path", self.about.path.clone()),
            KeyValue::new("gen_ai.response.model", self.about.model.clone()),
            KeyValue::new("gen_ai.usage.input_tokens", number(ended.prompt_tokens)),
            KeyValue::new("gen_ai.usage.output_tokens", i64::from(ended.output_tokens)),
            KeyValue::new("chimere.request_id", self.about.name.to_string()),
            KeyValue::new("chimere.outcome", ended.outcome),
        ]
    }
}

/// The parts of a request that it came to, the last of them until its end.
fn parts(moments: &Moments, arrived: Micros, end: Micros, stream: bool) -> Vec<(&'static str, Micros, Micros)> {
    let Moments { taken, started, first, last } = *moments;
    let mut parts = vec![("admit", arrived, taken.unwrap_or(end))];
    parts.extend(taken.map(|at| ("queue", at, started.unwrap_or(end))));
    parts.extend(started.map(|at| ("prefill", at, first.unwrap_or(end))));
    parts.extend(first.map(|at| ("decode", at, last.unwrap_or(end))));
    parts.extend(first.filter(|_| stream).map(|at| ("stream", at, end)));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_parts_that_it_came_to_one_after_the_other() {
        let at = |n| Some(Micros(n));
        let all = Moments { taken: at(2), started: at(3), first: at(5), last: at(8) };
        let got = parts(&all, Micros(1), Micros(9), true);
        let want = [("admit", 1, 2), ("queue", 2, 3), ("prefill", 3, 5), ("decode", 5, 8), ("stream", 5, 9)];
        assert_eq!(got, want.map(|(name, from, to)| (name, Micros(from), Micros(to))));
        assert_eq!(parts(&all, Micros(1), Micros(9), false).len(), 4, "a whole answer is not streamed");
        let waited = Moments { taken: at(2), ..Moments::default() };
        assert_eq!(parts(&waited, Micros(1), Micros(9), true)[1], ("queue", Micros(2), Micros(9)), "it left the queue");
        assert_eq!(parts(&Moments::default(), Micros(1), Micros(4), true), [("admit", Micros(1), Micros(4))]);
    }

    #[test]
    fn without_a_collector_nothing_is_made() {
        assert!(Traces::default().begin(Remote::default(), || unreachable!("nobody wants it")).is_none());
    }
}
