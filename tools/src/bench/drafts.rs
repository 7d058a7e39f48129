//! `chimere bench drafts`: the gain or the cost of drafts at a stated acceptance, through the scheduler, the gate and
//! the actors of the service. Two services stand beside each other in one process, one that drafts as it comes and one
//! that drafts nothing, and answer equal requests in turns.

mod side;
mod stated;

use crate::{CliError, find_model};
use chimere::config::{Budget, Device};
use chimere_engine::drafts::DraftKind;
use serde::Serialize;
use side::{DecodeTally, Side};
use std::path::{Path, PathBuf};

/// Measures drafts at a stated acceptance, with those who decide whether to draft.
///
/// The model computes; what sequences say is made up, so that of a source's guesses a stated share is right and the
/// other source's never are. Prompts are made up too.
#[derive(clap::Args, Debug, Clone)]
pub struct BenchDraftsArgs {
    /// Model: a GGUF file, a directory with one, or a Hugging Face directory [default: as for `serve`].
    #[arg(long, value_name = "FILE|DIR")]
    pub model: Option<PathBuf>,
    /// The device to compute on.
    #[arg(long, value_enum, default_value = "auto")]
    pub device: Device,
    /// Threads that compute on the CPU, 0 for every core.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub threads: u32,
    /// Memory for all that one service takes on its device, as for `serve`.
    #[arg(long, value_name = "BYTES", default_value = "auto")]
    pub vram_budget: Budget,
    /// Sequences that decode together, a list.
    #[arg(long, value_name = "N,..", default_value = "1,8", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=256))]
    pub users: Vec<u32>,
    /// Positions before the decoded ones, a list.
    #[arg(long, value_name = "TOKENS,..", default_value = "256", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..))]
    pub context: Vec<u32>,
    /// Shares of the draft head's guesses that are right where those before them are, a list.
    #[arg(long, value_name = "SHARE,..", default_value = "0,0.3,0.5,0.7,0.9", value_delimiter = ',',
        value_parser = parse_share)]
    pub mtp: Vec<f64>,
    /// Shares of its tokens with which a text goes on as its prompt does, so that guesses from what stood before in
    /// prompt and output are right.
    #[arg(long, value_name = "SHARE,..", value_delimiter = ',', value_parser = parse_share)]
    pub ngram: Vec<f64>,
    /// Tokens of each sequence in a turn.
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u32).range(16..=10_000))]
    pub tokens: u32,
    /// Turns of each case, with drafts and without; half of them with services that were started in the other order,
    /// since where weights lie on a device shows in a small model's rate. Before the first case of so many users and
    /// such a context comes one that does not count.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub turns: u32,
    /// Neither service drafts: what is off 1 then is the machine's.
    #[arg(long)]
    pub control: bool,
    /// Fails where drafts bring less than this many times the tokens a second of none.
    #[arg(long, value_name = "RATIO", default_value_t = 0.0)]
    pub least: f64,
    /// Write the figures here as JSON too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(format!("a share is from 0 to 1, not {text}")) }
}

impl BenchDraftsArgs {
    fn shares(&self) -> impl Iterator<Item = (DraftKind, f64)> {
        let of = |kind, shares: &[f64]| shares.iter().map(move |share| (kind, *share)).collect::<Vec<_>>();
        of(DraftKind::Mtp, &self.mtp).into_iter().chain(of(DraftKind::Ngram, &self.ngram))
    }

    /// The cases to measure; those of equal users and context stand one after another.
    fn cases(&self) -> Vec<DraftCase> {
        let places = self.context.iter().flat_map(|context| self.users.iter().map(move |users| (*context, *users)));
        let case =
            |(context, users)| self.shares().map(move |(source, right)| DraftCase { source, context, users, right });
        places.flat_map(case).collect()
    }
}

/// One case: the proposer, the share of its guesses that are right, users, and tokens of context.
#[derive(Clone, Copy, Debug)]
struct DraftCase {
    source: DraftKind,
    context: u32,
    users: u32,
    right: f64,
}

/// The figures of one case.
#[derive(Debug, Serialize)]
struct DraftGain {
    source: &'static str,
    context: u32,
    users: u32,
    right: f64,
    /// Tokens a second over all sequences.
    without: f64,
    with: f64,
    /// The second over the first, and the least and the most of a turn.
    ratio: f64,
    low: f64,
    high: f64,
    /// Drafted tokens a token that came, and the share of them that were accepted.
    drafted: f64,
    accepted: f64,
}

impl DraftGain {
    fn of(case: DraftCase, turns: &[(DecodeTally, DecodeTally)]) -> Self {
        let sum = |of: &dyn Fn(&(DecodeTally, DecodeTally)) -> f64| turns.iter().map(of).sum::<f64>();
        let (off, on) = (sum(&|t| t.0.seconds), sum(&|t| t.1.seconds));
        let (without, with) = (sum(&|t| t.0.tokens as f64) / off, sum(&|t| t.1.tokens as f64) / on);
        let each = turns.iter().map(|(off, on)| on.rate() / off.rate());
        let (drafted, accepted) = (sum(&|t| t.1.drafted as f64), sum(&|t| t.1.accepted as f64));
        Self {
            source: case.source.name(),
            context: case.context,
            users: case.users,
            right: case.right,
            without,
            with,
            ratio: with / without,
            low: each.clone().fold(f64::INFINITY, f64::min),
            high: each.fold(0.0, f64::max),
            drafted: drafted / sum(&|t| t.1.tokens as f64),
            accepted: if drafted > 0.0 { accepted / drafted } else { 0.0 },
        }
    }

    fn heading() -> &'static str {
        "| source | context | users | right | without, tokens/s | with | over it | turns | drafted a token | \
         accepted |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    }

    fn line(&self) -> String {
        let Self { source, context, users, right, without, with, ratio, low, high, drafted, accepted } = self;
        format!(
            "| {source} | {context} | {users} | {right} | {without:.0} | {with:.0} | {ratio:.3} | \
             {low:.3} to {high:.3} | {drafted:.2} | {accepted:.2} |"
        )
    }
}

/// Measures, prints a line a case as soon as it is known.
pub fn run(args: &BenchDraftsArgs) -> Result<(), CliError> {
    let path = find_model(args.model.as_deref())?;
    let rows = actix_rt::System::new().block_on(measure(args, &path))?;
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&rows).expect("numbers and strings");
        std::fs::write(file, text + "\n")
            .map_err(|e| CliError::Failed(format!("cannot write {}: {e}", file.display())))?;
    }
    let least = rows.iter().map(|row| row.ratio).fold(f64::INFINITY, f64::min);
    println!("the least of {} cases: {least:.3}", rows.len());
    match least < args.least {
        true => {
            Err(CliError::Failed(format!("drafts brought {least:.3} of the tokens of none, {} wanted", args.least)))
        }
        false => Ok(()),
    }
}

async fn measure(args: &BenchDraftsArgs, path: &Path) -> Result<Vec<DraftGain>, CliError> {
    println!("{}", DraftGain::heading());
    let cases = args.cases();
    let (mut turns, mut rows) = (vec![Vec::new(); cases.len()], Vec::new());
    for (on_first, count) in [(false, args.turns.div_ceil(2)), (true, args.turns / 2)] {
        if count == 0 {
            continue;
        }
        let (mut off, mut on) = start(args, path, on_first).await?;
        for (i, case) in cases.iter().enumerate() {
            if i == 0 || (case.context, case.users) != (cases[i - 1].context, cases[i - 1].users) {
                // Kernels are loaded, and what so many rows take is learned.
                turn(args, *case, &mut off, &mut on, false).await?;
            }
            for n in 0..count {
                turns[i].push(turn(args, *case, &mut off, &mut on, n.is_multiple_of(2)).await?);
            }
            if turns[i].len() == args.turns as usize {
                let row = DraftGain::of(*case, &turns[i]);
                println!("{}", row.line());
                rows.push(row);
            }
        }
        off.end();
        on.end();
    }
    Ok(rows)
}

/// The service without drafts and the one with them, which may be started first.
async fn start(args: &BenchDraftsArgs, path: &Path, on_first: bool) -> Result<(Side, Side), CliError> {
    let drafts = !args.control;
    if on_first {
        let on = Side::start(args, path, drafts).await?;
        return Ok((Side::start(args, path, false).await?, on));
    }
    Ok((Side::start(args, path, false).await?, Side::start(args, path, drafts).await?))
}

/// Measures a case without drafts and with them, in the order that is asked for.
async fn turn(
    args: &BenchDraftsArgs,
    case: DraftCase,
    off: &mut Side,
    on: &mut Side,
    drafts_first: bool,
) -> Result<(DecodeTally, DecodeTally), CliError> {
    if drafts_first {
        let with = on.answer(case, args.tokens).await?;
        return Ok((off.answer(case, args.tokens).await?, with));
    }
    let without = off.answer(case, args.tokens).await?;
    Ok((without, on.answer(case, args.tokens).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: BenchDraftsArgs,
    }

    fn shipped(flags: &[&str]) -> BenchDraftsArgs {
        let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/nano/nano-q8_0.gguf");
        Cli::parse_from([&["x", "--model", model, "--device", "cpu", "--threads", "1"], flags].concat()).args
    }

    #[test]
    fn both_services_answer_each_case_and_no_draft_counts_where_none_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("out.json");
        let few = ["--users", "2", "--context", "70", "--mtp", "0", "--ngram", "1", "--tokens", "200"];
        run(&shipped(&[&few[..], &["--turns", "2", "--json", json.to_str().unwrap()]].concat())).unwrap();
        let rows: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let (wrong, right) = (&rows[0], &rows[1]);
        assert_eq!((&right["source"], &right["users"], &right["right"]), (&"ngram".into(), &2.into(), &1.0.into()));
        assert_eq!(wrong["accepted"].as_f64(), Some(0.0), "a text that repeats nothing: {wrong}");
        assert!(rows.as_array().unwrap().iter().all(|row| row["with"].as_f64().unwrap() > 0.0));
    }

    #[test]
    fn less_than_what_was_asked_for_fails() {
        let few = ["--users", "1", "--mtp", "0", "--tokens", "16", "--turns", "1"];
        let why = run(&shipped(&[&few[..], &["--least", "100"]].concat())).unwrap_err().to_string();
        assert!(why.ends_with("of the tokens of none, 100 wanted"), "{why}");
    }

    #[test]
    fn shares_are_from_0_to_1() {
        let why = |share| Cli::try_parse_from(["x", "--mtp", share]).map(|_| ()).unwrap_err().to_string();
        assert!(why("1.5").contains("a share is from 0 to 1, not 1.5"));
        assert!(why("much").contains("\"much\" is no number"));
    }
}
