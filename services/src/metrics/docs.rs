//! `docs/reference/metrics.md`, made from the definitions.

use super::panels::{metric, named, panels};
use super::{
    ALL, BUDGETS, IGNORED, Metric, MetricKind, OUTCOMES, REASONS, RESPONSE_DROPS, ROW_FORMS, STEP_KINDS, THINKING_ENDS,
    TRANSFERS,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Why a metric under another engine's name needs no panel of ours.
const FOR_OTHERS: &str = "other engines' dashboards";

/// The panels of each metric, by name, as `dashboard: panel`.
type Shown = BTreeMap<&'static str, Vec<String>>;

const HEAD: &str = "\
# Metrics

What `GET /metrics` says, in Prometheus' text format, and where `dashboards/` shows it. This page is made from `services/src/metrics.rs` and the
dashboards; after a change there: `CHIMERE_WRITE_DOCS=1 cargo test -p chimere --test suite documents`.

";

const OTHERS: &str = "\
## Names that other engines' dashboards read

The same facts under the names, labels and buckets of vLLM, for its dashboards and for the Kubernetes inference gateway. All of them
are there from the start, 0 where the part does not exist. `model_name` is the name that clients ask for, `engine` is always `0`.

";

/// The whole page, given the dashboards by name. The error names the metrics that no panel shows and that need one.
pub fn document(dashboards: &[(&str, Value)]) -> Result<String, String> {
    let shown = shown(dashboards);
    let hidden: Vec<_> =
        ALL.iter().map(|m| m.name).filter(|n| !n.starts_with("vllm:") && !shown.contains_key(n)).collect();
    if !hidden.is_empty() {
        return Err(format!("on no panel: {}", hidden.join(", ")));
    }
    let (others, own): (Vec<&Metric>, Vec<&Metric>) = ALL.iter().partition(|m| m.name.starts_with("vllm:"));
    let mut page = String::from(HEAD);
    page.push_str("## Chimère's own\n\n");
    table(&mut page, &own, &shown);
    page.push_str("\nThe `chimere_gpu_` gauges are there where a GPU computes and NVML tells. Values of labels:\n\n");
    for (metric, label, values) in [
        ("chimere_requests_total", "outcome", OUTCOMES),
        ("chimere_thinking_ended_total", "reason", THINKING_ENDS),
        ("chimere_step_seconds", "kind", STEP_KINDS),
        ("chimere_step_budget_ratio", "of", BUDGETS),
        ("chimere_prefix_transfer_seconds", "direction", TRANSFERS),
        ("chimere_step_rows_total", "form", ROW_FORMS),
        ("chimere_responses_dropped_total", "reason", RESPONSE_DROPS),
        ("chimere_rejected_total", "reason", REASONS),
        ("chimere_ignored_fields_total", "field", IGNORED),
    ] {
        line(&mut page, format_args!("- `{metric}` `{label}`: {}", values.join(", ")));
    }
    page.push('\n');
    page.push_str(OTHERS);
    table(&mut page, &others, &shown);
    page.push_str("\n## Buckets\n\nUpper bounds of the histograms; each has `+Inf` too.\n\n");
    for metric in ALL {
        if let MetricKind::Histogram(bounds) = metric.kind {
            let bounds: Vec<String> = bounds.iter().map(f64::to_string).collect();
            line(&mut page, format_args!("- `{}`: {}", metric.name, bounds.join(" ")));
        }
    }
    Ok(page)
}

fn shown(dashboards: &[(&str, Value)]) -> Shown {
    let mut shown = Shown::new();
    for (dashboard, json) in dashboards {
        for panel in panels(json) {
            for metric in panel.queries.iter().flat_map(|q| named(q)).filter_map(metric) {
                let places = shown.entry(metric.name).or_default();
                let place = format!("{dashboard}: {}", panel.title);
                if !places.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    shown
}

fn table(page: &mut String, metrics: &[&Metric], shown: &Shown) {
    page.push_str("| name | type | labels | unit | meaning | panel |\n| --- | --- | --- | --- | --- | --- |\n");
    for m in metrics {
        let kind = match m.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram(_) => "histogram",
        };
        let panels = shown.get(m.name).map_or(FOR_OTHERS.to_owned(), |places| places.join("; "));
        line(
            page,
            format_args!("| `{}` | {kind} | {} | {} | {} | {panels} |", m.name, m.labels.join(", "), m.unit, m.help),
        );
    }
}

fn line(page: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(page, "{text}").expect("a string takes every write");
}
