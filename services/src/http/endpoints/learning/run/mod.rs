//! A run of the learner of facts: corrections become a table, the table is asked about before anybody is answered with
//! it, and the gate says what becomes of it.

mod arms;
mod exam;
mod nightly;
mod probes;

pub use nightly::keep_learning;

use super::version_error;
use crate::clock::unix_seconds;
use crate::engram::TableName;
use crate::holder::Holder;
use crate::http::app::App;
use crate::http::wire::error::ApiError;
use crate::learning::gate::{FamilyRole, Outcome, Verdict};
use crate::learning::questions::QuestionSets;
use crate::learning::{
    ExampleSet, FactBatch, LearnerRun, Learning, RunReport, StageEvent, StoredExample, Version, VersionStage,
    check_own_file, publish_served,
};
use crate::metrics::learning::{
    GATE_ROLES, LearnedChange, count_learned, count_run, tell_difference, tell_lower_bound, tell_withheld,
};
use crate::turn::prompts::work;
use actix_web::http::StatusCode;
use actix_web::web;
use arms::Arms;
use chimere_engine::engram::{BuildOptions, ORDER_MAX, Orders, build};
use chimere_engine::ids::TokenId;
use exam::Exam;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Lengths of the contexts of the table, in tokens, as tables are built where nobody says.
const ORDERS: (usize, usize) = (2, 8);
/// What the candidate's table is called beside the one whose place it is to take.
const CANDIDATE: &str = "-candidate";

/// Who wants a run, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunOccasion {
    /// The time of day: nobody waits for its end.
    Nightly,
    /// An administrator, who wants what was learned served if it passes.
    Asked,
    /// An administrator, who wants to know what would come of it.
    Dry,
}

/// What a run begins with.
struct Snapshot {
    occasion: RunOccasion,
    batch: FactBatch,
    /// Examples that the served version was made from.
    known: BTreeSet<String>,
    /// The last version was made from these very facts, and was judged.
    tried: bool,
    /// Somebody took back what it was made from.
    stale: bool,
    sets: QuestionSets,
}

impl Snapshot {
    /// Facts that the served version was not made from.
    fn new_facts(&self) -> usize {
        self.batch.facts.iter().filter(|fact| !self.known.contains(&fact.stored.id)).count()
    }

    /// Whether there is something to judge. What was judged is not judged again each night until it passes.
    fn is_worth_a_candidate(&self) -> bool {
        !self.tried && !self.batch.facts.is_empty() && (self.new_facts() > 0 || self.stale)
    }
}

/// The right to learn, which one run at a time has.
///
/// # Errors
/// If another run is on its way, or nothing is to be learned here.
pub(super) fn begin(app: &App, learning: &Learning) -> Result<(TableName, LearnerRun), ApiError> {
    let name = learned_table(app, learning)?;
    let running = learning.runs().begin().ok_or_else(|| {
        let message = "a run is on its way: GET /v1/learning/versions says when it is over";
        ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).with_code("run_on_its_way")
    });
    Ok((name, running?))
}

/// Learns, and keeps the report of what came of it. Nothing else is kept or served of a dry run.
pub(super) async fn run(
    app: &web::Data<App>,
    learning: &Arc<Learning>,
    (name, running): (TableName, LearnerRun),
    occasion: RunOccasion,
) {
    let (at, dry) = (unix_seconds(), occasion == RunOccasion::Dry);
    let mut report = RunReport { at, dry, outcome: "nothing".to_owned(), ..RunReport::default() };
    if let Err(error) = learned(app, learning, (name, occasion), &mut report).await {
        let why = error.worded().into_owned();
        tracing::error!(error = why, "a run of the learner failed; what is served stays as it is");
        (report.outcome, report.error) = ("failed".to_owned(), Some(why));
    }
    report.seconds = unix_seconds().saturating_sub(at);
    let (outcome, facts, version) = (report.outcome.as_str(), report.facts, report.version);
    tracing::info!(outcome, facts, version, dry, seconds = report.seconds, "a run of the learner is over");
    count_run(outcome);
    report.verdict.iter().for_each(tell);
    running.end(report);
}

/// Tells the metrics what the gate measured.
fn tell(verdict: &Verdict) {
    for (role, is_target) in GATE_ROLES.into_iter().zip([true, false]) {
        let of_role = verdict.families.iter().filter(|family| (family.role == FamilyRole::Target) == is_target);
        let least = of_role.map(|family| family.lower).min_by(f64::total_cmp);
        least.into_iter().for_each(|lower| tell_lower_bound(role, lower));
    }
    verdict.families.iter().for_each(|family| tell_difference(&family.name, family.counts.difference()));
}

/// The table that facts become, where there is one and a directory for it.
pub(super) fn learned_table(app: &App, learning: &Learning) -> Result<TableName, ApiError> {
    let conflict =
        |message: &str| ApiError::new(StatusCode::CONFLICT, "invalid_request_error", message).with_code("learning_off");
    let name = learning.settings().learner.table.clone();
    let name = name.ok_or_else(|| conflict("nothing is learned here: set learning.table"))?;
    let directory = app.turns.engram.tables.directory();
    directory.map(|_| name).ok_or_else(|| conflict("there is no directory for what is learned: set engram.directory"))
}

async fn learned(
    app: &web::Data<App>,
    learning: &Arc<Learning>,
    (name, occasion): (TableName, RunOccasion),
    report: &mut RunReport,
) -> Result<(), ApiError> {
    let snapshot = snapshot(app, learning, name.clone(), occasion).await?;
    report.facts = snapshot.batch.facts.len();
    report.new_facts = snapshot.new_facts();
    report.left_out = snapshot.batch.left_out;
    report.contradictions = snapshot.batch.contradictions.clone();
    if snapshot.is_worth_a_candidate() {
        let bytes = table(app, &snapshot.batch).await?;
        let (candidate, file) = (candidate(&name)?, bytes.clone());
        let own = candidate.clone();
        aside(app, move |app| app.turns.engram.tables.place(&own, Some(&file)).map_err(internal)).await?;
        let judged = judge(app, learning, (&snapshot, &candidate), bytes, report).await;
        aside(app, move |app| app.turns.engram.tables.place(&candidate, None).map_err(internal)).await?;
        judged?;
    }
    if report.dry { Ok(()) } else { withdraw_stale(app, learning, name).await }
}

/// The table of a candidate, beside the one whose place it is to take.
pub(super) fn candidate(name: &TableName) -> Result<TableName, ApiError> {
    TableName::new(&format!("{name}{CANDIDATE}")).map_err(|e| ApiError::invalid("learning.table", e))
}

/// Does what waits for the disk, or takes long, on a thread of texts.
pub(super) async fn aside<T: Send + 'static>(
    app: &web::Data<App>,
    job: impl FnOnce(&App) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let own = app.clone();
    work(&app.turns.lanes, Holder::Many, usize::MAX, false, move || job(&own)).await?
}

/// What there is to learn, what is known of it, and the questions that judge it.
async fn snapshot(
    app: &web::Data<App>,
    learning: &Arc<Learning>,
    name: TableName,
    occasion: RunOccasion,
) -> Result<Snapshot, ApiError> {
    let learning = learning.clone();
    aside(app, move |app| {
        let (learner, versions, base) = (&learning.settings().learner, learning.versions(), base(app));
        let examples = learning.of_sets(&[ExampleSet::Train]).map_err(internal)?;
        let batch = FactBatch::of(examples, &learner.rules.batch);
        let lineage = versions.lineage(name.as_str()).map_err(internal)?;
        let made_from = |version: Option<&Version>| match version {
            Some(version) => versions.made_from(name.as_str(), version.number).map_err(internal),
            None => Ok(BTreeSet::new()),
        };
        // What is withheld because the model is another one is learned anew for this one.
        let known = made_from(lineage.served(&base))?;
        let last = lineage.versions().last();
        let last = last.filter(|last| last.stage != VersionStage::Candidate && last.base == base);
        let ids: BTreeSet<String> = batch.facts.iter().map(|fact| fact.stored.id.clone()).collect();
        let tried = last.is_some() && made_from(last)? == ids;
        let families = learner.families.as_deref();
        let sets = families.map_or_else(|| Ok(QuestionSets::default()), QuestionSets::read).map_err(internal)?;
        let stale = lineage.current().is_some_and(|current| current.stale);
        Ok(Snapshot { occasion, batch, known, tried, stale, sets })
    })
    .await
}

/// The table of a batch's texts, as its file has it.
async fn table(app: &web::Data<App>, batch: &FactBatch) -> Result<Vec<u8>, ApiError> {
    let texts: Vec<String> = batch.facts.iter().map(|fact| fact.text().to_owned()).collect();
    aside(app, move |app| {
        let (tokenizer, ids) = (app.turns.text.tokenizer(), app.turns.engram.ids);
        // What looks like a control token is text: nobody's correction ends a turn.
        let texts: Vec<Vec<TokenId>> = texts.iter().map(|text| tokenizer.encode_plain(text)).collect();
        let texts: Vec<&[TokenId]> = texts.iter().map(Vec::as_slice).collect();
        let orders = Orders::new(ORDERS.0, ORDERS.1).expect("constants within range");
        let time = u32::try_from(unix_seconds()).unwrap_or(u32::MAX);
        let (vocab, tokenizer) = (ids.vocab, ids.hash);
        let options = BuildOptions { orders, longest: ORDER_MAX, min_count: 1, vocab, tokenizer, time };
        build(&texts, &options).map(|image| image.to_bytes()).map_err(internal)
    })
    .await
}

/// Asks about a candidate, keeps what is said of it, and serves what passed where nobody has to accept it.
async fn judge(
    app: &web::Data<App>,
    learning: &Arc<Learning>,
    (snapshot, candidate): (&Snapshot, &TableName),
    bytes: Vec<u8>,
    report: &mut RunReport,
) -> Result<(), ApiError> {
    if !report.dry {
        let examples = snapshot.batch.facts.iter().map(|fact| fact.stored.clone()).collect();
        let number = propose(app, learning, bytes, examples).await?;
        (report.version, report.stage) = (Some(number), Some(VersionStage::Candidate));
    }
    let arms = arms(app, learned_table(app, learning)?.as_str(), candidate).for_run(snapshot.occasion);
    let exam = Exam { app, arms: &arms, snapshot, rules: &learning.settings().learner.rules };
    let mut verdict = exam.judge(report.at).await?;
    report.changed = arms.changed();
    if verdict.outcome == Outcome::Passed && !report.dry {
        let own = learning.clone();
        aside(app, move |_| own.versions().spend_vault(unix_seconds()).map_err(internal)).await?;
        let vault = exam.vault().await?;
        verdict = verdict.with_vault(&vault);
        report.vault = Some(vault);
    }
    report.outcome = verdict.outcome.name().to_owned();
    report.verdict = Some(verdict.clone());
    if let Some(number) = report.version {
        report.stage = Some(keep(app, learning, number, verdict).await?);
    }
    Ok(())
}

/// What is served, and that with the candidate in the place of what was learned before.
fn arms<'a>(app: &'a App, name: &str, candidate: &TableName) -> Arms<'a> {
    let set = app.turns.engram.tables.snapshot();
    let served = app.turns.engram.tables.defaults(&set, None).tables;
    let mut tables: Vec<String> = served.iter().filter(|table| *table != name).cloned().collect();
    tables.push(candidate.to_string());
    Arms::new(app, served, tables)
}

async fn propose(
    app: &web::Data<App>,
    learning: &Arc<Learning>,
    bytes: Vec<u8>,
    examples: Vec<StoredExample>,
) -> Result<u64, ApiError> {
    let learning = learning.clone();
    aside(app, move |app| {
        let (name, base) = (learned_table(app, &learning)?, base(app));
        let proposed = learning.versions().propose(name.as_str(), (&bytes, &base), &examples, unix_seconds());
        proposed.map_err(internal)
    })
    .await
}

/// Keeps a verdict, and serves what passed where nobody has to accept it.
async fn keep(
    app: &web::Data<App>,
    learning: &Arc<Learning>,
    number: u64,
    verdict: Verdict,
) -> Result<VersionStage, ApiError> {
    let learning = learning.clone();
    aside(app, move |app| {
        let name = learned_table(app, &learning)?;
        let stage = learning.versions().judged(name.as_str(), number, verdict).map_err(internal)?;
        let is_served = stage == VersionStage::Shadow && learning.settings().learner.accept;
        if is_served { promote(app, &learning, number) } else { Ok(stage) }
    })
    .await
}

/// Serves a version that has passed the gate.
pub(super) fn promote(app: &App, learning: &Learning, number: u64) -> Result<VersionStage, ApiError> {
    let name = learned_table(app, learning)?;
    check_own_file(learning.versions(), &app.turns.engram.tables, &name).map_err(internal)?;
    let advanced = learning.versions().advance(name.as_str(), number, StageEvent::Accepted, None);
    let stage = advanced.map_err(version_error)?;
    serve(app, learning, &name)?;
    count_learned(LearnedChange::Promoted);
    Ok(stage)
}

/// Takes the version back that is served, for this reason.
pub(super) fn take_back(app: &App, learning: &Learning, change: LearnedChange) -> Result<(), ApiError> {
    let name = learned_table(app, learning)?;
    learning.versions().roll_back(name.as_str()).map_err(version_error)?;
    serve(app, learning, &name)?;
    count_learned(change);
    Ok(())
}

/// Offers what the database says is served.
pub(super) fn serve(app: &App, learning: &Learning, name: &TableName) -> Result<(), ApiError> {
    let (versions, base) = (learning.versions(), base(app));
    publish_served(versions, &app.turns.engram.tables, name, &base).map_err(internal)?;
    let lineage = versions.lineage(name.as_str()).map_err(internal)?;
    tell_withheld(lineage.current().is_some() && lineage.served(&base).is_none());
    Ok(())
}

/// What was made from an example that somebody took back is served no longer than until here.
async fn withdraw_stale(app: &web::Data<App>, learning: &Arc<Learning>, name: TableName) -> Result<(), ApiError> {
    let learning = learning.clone();
    aside(app, move |app| {
        let lineage = learning.versions().lineage(name.as_str()).map_err(internal)?;
        let is_stale = lineage.current().is_some_and(|current| current.stale);
        if is_stale { take_back(app, &learning, LearnedChange::Withdrawn) } else { Ok(()) }
    })
    .await
}

/// What a version is made for: the model by its name, and the meaning of its ids.
fn base(app: &App) -> String {
    format!("{} {}", app.limits.name, app.turns.engram.ids.hash)
}

pub(super) fn internal(error: impl std::fmt::Display) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", error.to_string())
}
