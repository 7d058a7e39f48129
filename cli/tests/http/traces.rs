//! Spans of requests, as a collector of OpenTelemetry gets them.

use crate::support::*;
use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Takes spans over OTLP, HTTP and JSON, and nothing else.
struct Collector {
    addr: SocketAddr,
    batches: Receiver<Value>,
    server: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let ((tell, batches), (ready, started)) = (channel(), channel());
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let app =
                    move || App::new().app_data(web::Data::new(tell.clone())).route("/v1/traces", web::post().to(take));
                let server = HttpServer::new(app).workers(1).disable_signals().listen(listener).unwrap().run();
                ready.send(server.handle()).unwrap();
                server.await.unwrap();
            });
        });
        Self { addr, batches, server: started.recv().unwrap(), thread: Some(thread) }
    }

    /// All spans that came.
    fn spans(&self) -> Vec<Value> {
        let list = |value: &Value| value.as_array().cloned().unwrap();
        let mut spans = Vec::new();
        for batch in self.batches.try_iter() {
            for resource in list(&batch["resourceSpans"]) {
                assert_eq!(attribute(&resource["resource"], "service.name")["stringValue"], "chimere", "{resource}");
                list(&resource["scopeSpans"]).iter().for_each(|scope| spans.extend(list(&scope["spans"])));
            }
        }
        spans
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        drop(self.server.stop(false));
        self.thread.take().unwrap().join().ok();
    }
}

async fn take(tell: web::Data<Sender<Value>>, body: web::Json<Value>) -> HttpResponse {
    tell.send(body.into_inner()).ok();
    HttpResponse::Ok().json(json!({}))
}

fn attribute(of: &Value, key: &str) -> Value {
    let all = of["attributes"].as_array().unwrap();
    all.iter().find(|a| a["key"] == key).unwrap_or_else(|| panic!("no {key} in {of}"))["value"].clone()
}

fn nanos(span: &Value, field: &str) -> u64 {
    span[field].as_str().unwrap_or_else(|| panic!("{span}")).parse().unwrap()
}

/// The span and the parts that hang from it.
#[track_caller]
fn tree(spans: &[Value], root: impl Fn(&Value) -> bool) -> (Value, Vec<Value>) {
    let root = spans.iter().find(|span| root(span)).unwrap_or_else(|| panic!("no such span in {spans:?}")).clone();
    let parts: Vec<Value> = spans.iter().filter(|span| span["parentSpanId"] == root["spanId"]).cloned().collect();
    assert!(parts.iter().all(|part| part["traceId"] == root["traceId"]));
    (root, parts)
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn ask_as(addr: SocketAddr, traceparent: &str, stream: bool) -> Reply {
    let body =
        json!({"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": true, "stream": stream});
    let headers =
        [("Content-Type", "application/json"), ("traceparent", traceparent), ("x-request-id", "asked-by-a-test")];
    let reply = request(addr, "POST", "/v1/completions", &headers, body.to_string().as_bytes());
    assert_eq!(reply.status, 200);
    reply
}

#[test]
fn a_collector_is_told_each_request_with_its_parts_within_the_caller_s_trace() {
    let collector = Collector::start();
    let program = Program::start(&["--trace-endpoint", &format!("http://{}", collector.addr)]);
    ask_as(program.addr, &format!("00-{TRACE}-00f067aa0ba902b7-01"), true);
    ask_as(program.addr, "this is no traceparent", false);
    ask_as(program.addr, "00-11111111111111111111111111111111-2222222222222222-00", false);
    program.signal("TERM");
    // What is left is sent at the end.
    assert_eq!(program.end().0, Some(0));
    let spans = collector.spans();
    let (root, parts) = tree(&spans, |span| span["traceId"] == TRACE && span["parentSpanId"] == "00f067aa0ba902b7");
    assert_eq!(root["name"], "POST /v1/completions");
    assert_eq!(attribute(&root, "chimere.request_id")["stringValue"], "asked-by-a-test");
    assert_eq!(attribute(&root, "chimere.outcome")["stringValue"], "length");
    assert_eq!(attribute(&root, "gen_ai.usage.output_tokens")["intValue"], "8");
    // Two that begin at one time come in any order.
    let sorted = |parts: &[Value]| {
        let mut names: Vec<_> = parts.iter().map(|p| p["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(sorted(&parts), ["admit", "decode", "prefill", "queue", "stream"]);
    let of = |name: &str| parts.iter().find(|part| part["name"] == name).unwrap();
    for pair in [("admit", "queue"), ("queue", "prefill"), ("prefill", "decode")] {
        let (end, begin) = (nanos(of(pair.0), "endTimeUnixNano"), nanos(of(pair.1), "startTimeUnixNano"));
        assert_eq!(end, begin, "{pair:?} follow each other");
    }
    assert_eq!(nanos(of("admit"), "startTimeUnixNano"), nanos(&root, "startTimeUnixNano"));
    assert_eq!(nanos(of("stream"), "endTimeUnixNano"), nanos(&root, "endTimeUnixNano"));

    let (_, parts) =
        tree(&spans, |span| span["traceId"] != TRACE && span["parentSpanId"].as_str().is_none_or(str::is_empty));
    assert_eq!(sorted(&parts), ["admit", "decode", "prefill", "queue"], "a trace of its own, and a whole answer");
    assert_eq!(spans.len(), 6 + 5, "who is not to be traced is not: {spans:?}");
}

#[test]
fn a_collector_that_is_not_there_holds_nobody_up() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let program = Program::start(&["--trace-endpoint", &format!("http://{nobody}")]);
    ask_as(program.addr, "", false);
    program.signal("TERM");
    let (code, said) = program.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the collector of traces takes no spans"), "{said}");
}
