//! `chimere learn`: has a running service learn from corrections, shows what came of it, serves it, and takes it back.

use crate::CliError;
use crate::client::{Failure, ServiceClient};
use crate::documents::{AccessArgs, client};
use chimere::learning::gate::{FamilyVerdict, Verdict};
use chimere::learning::{RunReport, Version};
use chimere::printable::one_line;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// The commands on what a service learns. All of them need an administrator's key where there are keys.
#[derive(clap::Subcommand, Debug, Clone)]
pub enum LearnCommand {
    /// Learn now, wait for the end, and show what the gate says.
    Run(RunArgs),
    /// Show what was learned, which version is served, and what came of the last run.
    Status(AccessArgs),
    /// Serve a version that has passed the gate.
    Promote {
        /// Its number, as `chimere learn status` shows it
        version: u64,
        /// Where the service is, and the key for it
        #[command(flatten)]
        access: AccessArgs,
    },
    /// Take the served version back: everybody is answered as before it was served.
    Rollback(AccessArgs),
}

/// The way in which it learns.
#[derive(clap::Args, Debug, Clone)]
pub struct RunArgs {
    /// Now, and not at learning.at
    #[arg(long, required = true)]
    now: bool,
    /// Judge what would be learned, and keep and serve nothing of it
    #[arg(long)]
    dry: bool,
    #[command(flatten)]
    access: AccessArgs,
}

const VERSIONS: &str = "/v1/learning/versions";
/// How often it is asked whether a run is over.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Does what was asked.
pub fn run(command: &LearnCommand) -> Result<(), CliError> {
    actix_rt::System::new().block_on(async {
        match command {
            LearnCommand::Run(args) => learn(args).await,
            LearnCommand::Status(access) => status(&client(access)?).await,
            LearnCommand::Promote { version, access } => {
                served(&client(access)?, "promote", &json!({"version": version})).await
            }
            LearnCommand::Rollback(access) => served(&client(access)?, "rollback", &json!({})).await,
        }
    })
}

async fn learn(args: &RunArgs) -> Result<(), CliError> {
    let client = client(&args.access)?;
    client.post("/v1/learning/run", &json!({"dry": args.dry})).await.map_err(failed)?;
    loop {
        // The run has begun before this asks for the first time, or it has begun and ended.
        tokio::time::sleep(ASK_EVERY).await;
        let known = client.get(VERSIONS).await.map_err(failed)?;
        if known["running"] == false {
            let report: RunReport = read(&known["last_run"])?;
            report_lines(&report).iter().for_each(|line| println!("{line}"));
            let why = report.error.map(|why| CliError::Failed(one_line(&why)));
            return why.map_or(Ok(()), Err);
        }
    }
}

async fn status(client: &ServiceClient) -> Result<(), CliError> {
    let known = client.get(VERSIONS).await.map_err(failed)?;
    for lineage in known["data"].as_array().into_iter().flatten() {
        println!("{}", one_line(lineage["id"].as_str().unwrap_or_default()));
        let versions: Vec<Version> = read(&lineage["versions"])?;
        versions.iter().for_each(|version| println!("  {}", version_line(version)));
    }
    if known["data"].as_array().is_none_or(Vec::is_empty) {
        println!("nothing was learned yet");
    }
    if known["running"] == true {
        println!("a run is on its way");
    }
    let last: Option<RunReport> = read(&known["last_run"])?;
    last.iter().flat_map(report_lines).for_each(|line| println!("{line}"));
    Ok(())
}

async fn served(client: &ServiceClient, change: &str, body: &Value) -> Result<(), CliError> {
    let reply = client.post(&format!("/v1/learning/{change}"), body).await.map_err(failed)?;
    let name = one_line(reply["id"].as_str().unwrap_or_default());
    match reply["current"].as_u64() {
        Some(number) => println!("{name}: version {number} is served"),
        None => println!("{name}: no version is served"),
    }
    Ok(())
}

fn version_line(version: &Version) -> String {
    let said = version.verdict.as_ref().map_or("not judged", |verdict| verdict.outcome.name());
    let stale = if version.stale { ", made from what was taken back" } else { "" };
    let why = version.why.as_deref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
    format!("{:>5}  {:<9} {said}, {} bytes{stale}{why}", version.number, version.stage.name(), version.bytes)
}

/// What came of a run, a line each.
fn report_lines(report: &RunReport) -> Vec<String> {
    let dry = if report.dry { " (dry: nothing was kept)" } else { "" };
    let (outcome, seconds) = (one_line(&report.outcome), report.seconds);
    let mut lines = vec![format!("last run: {outcome} after {seconds} s{dry}")];
    let left = &report.left_out;
    lines.push(format!(
        "  {} facts, {} of them new; left out: {} without a name or number, {} said by too few, {} contradicted, {} \
         over an account's share",
        report.facts, report.new_facts, left.unchecked, left.unconfirmed, left.contradicted, left.over_share
    ));
    lines.extend(report.contradictions.iter().map(|ids| format!("  a person has to choose: {}", ids.join(", "))));
    if let Some(verdict) = &report.verdict {
        lines.extend(verdict_lines(verdict));
    }
    lines
}

fn verdict_lines(verdict: &Verdict) -> Vec<String> {
    let mut lines = vec![format!(
        "  {:<20} {:>9} {:>8} {:>8} {:>17}  verdict",
        "family", "questions", "before", "after", "interval, points"
    )];
    lines.extend(verdict.families.iter().map(family_line));
    let (divergence, canaries) = (verdict.divergence, verdict.canaries);
    lines.push(format!(
        "  divergence {:.4} nats, at most {:.3}, on {} probes; {} of {} canary prompts fired; speed {:.2}",
        divergence.mean, divergence.largest, divergence.probes, canaries.fired, canaries.asked, verdict.speed
    ));
    lines.extend(verdict.reasons.iter().map(|reason| format!("  {}", one_line(&reason.to_string()))));
    lines
}

fn family_line(family: &FamilyVerdict) -> String {
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let interval = format!("{:+.2} to {:+.2}", 100.0 * family.lower, 100.0 * family.upper);
    let (before, after) = (percent(family.before), percent(family.after));
    let said = serde_json::to_value(family.outcome).unwrap_or_default();
    let (name, said) = (one_line(&family.name), said.as_str().unwrap_or_default().replace('_', " "));
    format!("  {name:<20} {:>9} {before:>8} {after:>8} {interval:>17}  {said}", family.counts.questions)
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, CliError> {
    serde_json::from_value(value.clone()).map_err(|e| CliError::Failed(format!("the service's answer: {e}")))
}

fn failed(e: Failure) -> CliError {
    CliError::Failed(e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere::learning::gate::{GateRules, Measured, MeasuredFamily, PairedCounts, judge};

    #[test]
    fn a_report_names_each_family_with_its_interval_and_all_that_is_wrong() {
        let counts = PairedCounts { questions: 40, both: 2, gains: 30, losses: 1 };
        let role = chimere::learning::gate::FamilyRole::Target;
        let families = vec![MeasuredFamily { name: "facts".into(), role, counts }];
        let measured = Measured { families, speed: 1.0, ..Measured::default() };
        let verdict = Some(judge(&measured, &[], &GateRules::default()));
        let report =
            RunReport { outcome: "needs_more".into(), facts: 80, new_facts: 80, verdict, ..RunReport::default() };
        let said = report_lines(&report).join("\n");
        for want in
            ["last run: needs_more", "80 facts, 80 of them new", "40    7.5 %   80.0 %", "better", "refusals: 0"]
        {
            assert!(said.contains(want), "{want}: {said}");
        }
    }
}
