//! `docs/metrics.md`, made from the definitions.

use super::{ALL, Kind, Metric, OUTCOMES, REASONS, STEP_KINDS, THINKING_ENDS};
use std::fmt::Write;

const HEAD: &str = "\
# Metrics

What `GET /metrics` says, in Prometheus' text format. This page is made from `services/src/metrics.rs`; after a change there:
`CHIMERE_WRITE_DOCS=1 cargo test -p chimere --test documents`.

";

const OTHERS: &str = "\
## Names that other engines' dashboards read

The same facts under the names, labels and buckets of vLLM, for its dashboards and for the Kubernetes inference gateway. All of them
are there from the start, 0 where the part does not exist. `model_name` is the name that clients ask for, `engine` is always `0`.

";

/// The whole page.
pub fn document() -> String {
    let (others, own): (Vec<&Metric>, Vec<&Metric>) = ALL.iter().partition(|m| m.name.starts_with("vllm:"));
    let mut page = String::from(HEAD);
    page.push_str("## Chimère's own\n\n");
    table(&mut page, &own);
    page.push_str("\nThe `chimere_gpu_` gauges are there where a GPU computes and NVML tells. Values of labels:\n\n");
    for (metric, label, values) in [
        ("chimere_requests_total", "outcome", OUTCOMES),
        ("chimere_thinking_ended_total", "reason", THINKING_ENDS),
        ("chimere_step_seconds", "kind", STEP_KINDS),
        ("chimere_rejected_total", "reason", REASONS),
    ] {
        line(&mut page, format_args!("- `{metric}` `{label}`: {}", values.join(", ")));
    }
    page.push('\n');
    page.push_str(OTHERS);
    table(&mut page, &others);
    page.push_str("\n## Buckets\n\nUpper bounds of the histograms; each has `+Inf` too.\n\n");
    for metric in ALL {
        if let Kind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
            line(&mut page, format_args!("- `{}`: {}", metric.name, bounds.join(" ")));
        }
    }
    page
}

fn table(page: &mut String, metrics: &[&Metric]) {
    page.push_str("| name | type | labels | unit | meaning |\n| --- | --- | --- | --- | --- |\n");
    for m in metrics {
        let kind = match m.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        line(page, format_args!("| `{}` | {kind} | {} | {} | {} |", m.name, m.labels.join(", "), m.unit, m.help));
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(page, "{text}").expect("a string takes every write");
}
