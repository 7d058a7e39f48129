//! What Grafana's dashboards ask for: their panels, the queries of each, and the metrics that a query names. Read by
//! the page of metrics and by tests; the service itself shows no panels.

use super::{ALL, Metric};
use serde_json::Value;

/// A panel with queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The title that stands above it.
    pub title: String,
    /// In PromQL, with Grafana's variables.
    pub queries: Vec<String>,
}

/// The panels of a dashboard, in order; rows and panels without a query are left out.
pub fn panels(dashboard: &Value) -> Vec<Panel> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let panel = |panel: &Value| Panel {
        title: panel["title"].as_str().unwrap_or_default().to_owned(),
        queries: list(&panel["targets"]).iter().filter_map(|t| t["expr"].as_str().map(str::to_owned)).collect(),
    };
    list(&dashboard["panels"]).iter().map(panel).filter(|p| !p.queries.is_empty()).collect()
}

/// Names in a query, or in any text, that look like this service's metrics. A histogram's series have its name and an
/// ending.
pub fn named(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|w| w.starts_with("chimere_") || w.starts_with("vllm:"))
}

/// The metric that a series of this name belongs to.
pub fn metric(series: &str) -> Option<&'static Metric> {
    let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| series.strip_suffix(end)).unwrap_or(series);
    ALL.iter().find(|m| m.name == series || m.name == family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn panels_without_a_query_are_left_out() {
        let dashboard = json!({"panels": [
            {"type": "row", "title": "Admit", "panels": []},
            {"type": "timeseries", "title": "Tokens", "targets": [{"expr": "a"}, {"expr": "b"}]},
        ]});
        assert_eq!(panels(&dashboard), [Panel { title: "Tokens".into(), queries: vec!["a".into(), "b".into()] }]);
    }

    #[test]
    fn a_query_names_series_and_a_series_its_metric() {
        let query = "sum(rate(chimere_ttft_seconds_bucket{job=~\"$job\"}[1m])) / vllm:num_requests_running";
        let names: Vec<_> = named(query).collect();
        assert_eq!(names, ["chimere_ttft_seconds_bucket", "vllm:num_requests_running"]);
        let metrics: Vec<_> = names.into_iter().filter_map(metric).map(|m| m.name).collect();
        assert_eq!(metrics, ["chimere_ttft_seconds", "vllm:num_requests_running"]);
        assert!(metric("chimere_no_such_thing").is_none());
    }
}
