//! `chimere trace`: which routed experts tokens use one after another. Recorded while a model writes, or drawn with a
//! given reuse distance; `chimere bench step --expert-trace` replays one at full size.

mod card;
mod draw;
mod file;
mod record;
mod reuse;

pub(crate) use file::ExpertTrace;

use super::CliError;
use reuse::Reuse;
use std::path::{Path, PathBuf};

/// The commands on traces of experts.
#[derive(clap::Subcommand, Debug)]
pub enum TraceCommand {
    /// Record which experts a model's answers use.
    Experts(record::RecordArgs),
    /// Draw a trace whose uses of experts repeat within a given number of tokens.
    Draw(draw::DrawArgs),
    /// How soon uses repeat in a trace, and how often they would find their expert on a card with room for a part.
    Show {
        /// File that holds the trace.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

/// Does what was asked, and prints what is in the trace.
pub fn run(trace: &TraceCommand) -> Result<(), CliError> {
    match trace {
        TraceCommand::Experts(args) => written(&args.out, &record::run(args)?),
        TraceCommand::Draw(args) => written(&args.out, &draw::run(args)),
        TraceCommand::Show { file } => {
            print!("{}", shown(&ExpertTrace::open(file)?));
            Ok(())
        }
    }
}

fn written(path: &Path, trace: &ExpertTrace) -> Result<(), CliError> {
    trace.save(path).map_err(|e| CliError::Failed(format!("{}: {e}", path.display())))?;
    print!("{}: {}", path.display(), shown(trace));
    Ok(())
}

/// Shares of the experts that published hit rates are of, and what 15.5 GiB hold of the 35B in four bits.
const RESIDENT: [f64; 4] = [0.19, 0.38, 0.64, 0.70];

/// An expert of the 35B in Q4_K and in Q8_0, and what a bus brings of them in place (x16, PCIe 5).
const EXPERT_BYTES: [f64; 2] = [1.769e6, 3.342e6];
const BUS_BYTES_S: f64 = 44e9;

fn shown(trace: &ExpertTrace) -> String {
    let reuse = Reuse::of(trace);
    let head = &trace.head;
    let mut out = format!(
        "{} sequences of {} tokens at least, {} layers, {} of {} experts; {}\n",
        trace.sequences.len(),
        trace.tokens(trace.sequences.len()),
        head.layers,
        head.used,
        head.experts,
        head.made
    );
    let within = |d| 100.0 * reuse.within(d);
    out += &format!(
        "uses that repeat one of the token before {:.1} %, within 2 {:.1} %, within 8 {:.1} %, first ones {:.2} %\n",
        within(1),
        within(2),
        within(8),
        100.0 * reuse.first()
    );
    let median = reuse.median().map_or("none: most are first uses".to_owned(), |d| format!("{d} tokens"));
    out += &format!("median reuse distance: {median}\n");
    for (name, sequences) in [("alone", 1), ("together", trace.sequences.len())] {
        let hits = RESIDENT.map(|share| format!("{:.1} %", 100.0 * reuse::hits(trace, sequences, share)));
        let shares = RESIDENT.map(|share| format!("{:.0} %", 100.0 * share));
        let (hits, shares) = (hits.join(", "), shares.join(", "));
        out += &format!("found of {sequences} {name}, least recently used leaves, with room for {shares}: {hits}\n");
        out += &on_a_card(trace, sequences);
    }
    out
}

/// Lines on the share of experts that the engine's rule finds, and on the time that misses cost.
fn on_a_card(trace: &ExpertTrace, sequences: usize) -> String {
    let line = |resident: f64| {
        let found = card::found(trace, sequences, resident);
        let (share, room, card::CardHits { misses, came, .. }) = (100.0 * found.share(), 100.0 * resident, found);
        let [q4, q8] = [EXPERT_BYTES[0], EXPERT_BYTES[1]].map(|bytes| misses * bytes / BUS_BYTES_S * 1e3);
        format!(
            "  on a card with room for {room:.0} %: {share:.1} %, {misses:.1} a step missed, of which {came:.1} stay; \
             {q4:.2} ms of the bus for the 35B in four bits, {q8:.2} in eight\n"
        )
    };
    [0.36, 0.70].map(line).concat()
}
