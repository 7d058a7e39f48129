//! Dashboards and alert rules as they lie in the repository; whether their queries return what they promise is in
//! `panels.rs`.

use crate::support::{Program, get};
use chimere::metrics::panels::{named, panels};
use serde_json::Value;
use std::collections::HashSet;
use std::path::PathBuf;

/// All of them, by file name without its ending.
pub(crate) const NAMES: [&str; 3] = ["service", "gpu", "loadtest"];

/// A file of the folder with dashboards and rules.
pub(crate) fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../dashboards").join(file)
}

pub(crate) fn read(file: &str) -> String {
    std::fs::read_to_string(path(file)).unwrap_or_else(|e| panic!("dashboards/{file}: {e}"))
}

pub(crate) fn dashboard(name: &str) -> Value {
    read(&format!("{name}.json")).parse().unwrap()
}

#[test]
fn what_a_panel_or_a_rule_asks_for_is_exported() {
    let exported = get(Program::start(&[]).addr, "/metrics");
    let series: HashSet<&str> = exported.text().lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let queries: Vec<String> = NAMES.iter().flat_map(|name| panels(&dashboard(name))).flat_map(|p| p.queries).collect();
    assert!(queries.len() > 60, "{queries:?}");
    for name in queries.iter().flat_map(|q| named(q)).chain(named(&read("alerts.yml"))) {
        // Nothing of a GPU is exported where there is none.
        assert!(series.contains(name) || name.starts_with("chimere_gpu_"), "{name} is asked for and not exported");
    }
}

#[test]
fn no_panel_makes_up_a_value_where_there_is_none() {
    for name in NAMES {
        for panel in panels(&dashboard(name)) {
            assert!(panel.queries.iter().all(|q| !q.contains("vector(")), "{name}: {panel:?}");
        }
    }
}

#[test]
fn panels_have_places_and_numbers_of_their_own() {
    for name in NAMES {
        let dashboard = dashboard(name);
        let panels = dashboard["panels"].as_array().unwrap();
        let ids: HashSet<u64> = panels.iter().map(|p| p["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len());
        let mut taken = HashSet::new();
        for panel in panels {
            let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
            for cell in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
                assert!(taken.insert(cell), "{name}: {} lies over another panel", panel["title"]);
            }
        }
    }
}

/// One rule, as the test of rules names it, and whether each of its cases expects it to fire.
fn cases(alert: &str) -> Vec<bool> {
    let text = read("alerts_test.yml");
    let parts = text.split("alertname: ").skip(1).filter_map(|part| part.strip_prefix(alert)?.strip_prefix('\n'));
    parts.map(|rest| !rest.trim_start().starts_with("exp_alerts: []")).collect()
}

#[test]
fn every_rule_has_a_case_that_fires_one_that_stays_silent_and_a_line_of_what_to_do() {
    let rules = read("alerts.yml");
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 5, "{alerts:?}");
    let runbook = read("../docs/operating/watching.md");
    for alert in alerts {
        let cases = cases(alert);
        assert!(cases.contains(&true) && cases.contains(&false), "{alert}: {cases:?}");
        let has = runbook.contains(&format!("| {alert} |"));
        assert!(has, "docs/operating/watching.md does not say what to do about {alert}");
    }
}
