//! Traces with a given reuse distance.
//!
//! The reuse distance of a use is how many tokens ago the layer used the expert last, in the same sequence: 1 is the
//! token before. A share `s` of the uses, the strays, take any expert alike. The distances of the others are drawn so
//! that `P(distance <= d) = d / (d + m)`, with `m` so that of all together half are within the distance that was asked
//! for. The defaults are near a published trace of a trained mixture (128 experts, 8 used): half of the uses within 2
//! tokens, four fifths within 8, and 74, 89 and 96 % found with room for 19, 38 and 64 % of the experts. A third repeat
//! at once, where 45 % do there.

use super::file::{EXPERTS_MAX, ExpertTrace, TraceHead};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::path::PathBuf;

/// Draws a trace; the defaults are the 35B's shape.
#[derive(clap::Args, Debug)]
pub struct DrawArgs {
    /// File to write the trace to.
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,
    /// Half of the uses repeat one that is at most this many tokens ago.
    #[arg(long, value_name = "TOKENS", default_value_t = 2.0, value_parser = distance)]
    distance: f64,
    /// The share of uses that take any expert alike, below a half.
    #[arg(long, value_name = "SHARE", default_value_t = 0.06, value_parser = stray)]
    stray: f64,
    /// Sequences, each with experts of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=256))]
    sequences: u32,
    /// Tokens of each sequence.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    tokens: u32,
    /// Layers that choose experts.
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1024))]
    layers: u32,
    /// Experts of a layer.
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=EXPERTS_MAX as i64))]
    experts: u32,
    /// Of them, those that a token uses; no more than there are.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    used: u32,
    /// Seed of the draws; equal seeds draw equal traces.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn distance(text: &str) -> Result<f64, String> {
    let wanted = || format!("wanted tokens above 0, got `{text}`");
    text.parse::<f64>().ok().filter(|d| d.is_finite() && *d > 0.0).ok_or_else(wanted)
}

fn stray(text: &str) -> Result<f64, String> {
    let wanted = || format!("wanted a share from 0 to less than a half, got `{text}`");
    text.parse::<f64>().ok().filter(|s| (0.0..0.5).contains(s)).ok_or_else(wanted)
}

pub(super) fn run(args: &DrawArgs) -> ExpertTrace {
    let (experts, used) = (args.experts as usize, args.used.min(args.experts) as usize);
    let DrawArgs { distance, stray, seed, .. } = *args;
    let made = format!("drawn, half of the uses within {distance} tokens, {stray} astray, seed {seed}");
    // (1 - stray) distance / (distance + half) = 1 / 2; strays that happen to be near are few.
    let near = DistanceLaw { half: distance * (1.0 - 2.0 * stray), stray };
    let head = TraceHead::new(args.layers as usize, experts, used, made);
    let mut rng = StdRng::seed_from_u64(seed);
    let sequence = |_| {
        let mut layers: Vec<DrawnLayer> = (0..args.layers).map(|_| DrawnLayer::new(experts, &mut rng)).collect();
        let mut all = Vec::with_capacity(args.tokens as usize * head.choices());
        for token in 1..=u64::from(args.tokens) {
            for layer in &mut layers {
                all.extend(layer.token(token, used, near, &mut rng));
            }
        }
        all
    };
    let sequences = (0..args.sequences).map(sequence).collect();
    ExpertTrace { head, sequences }
}

/// The distribution of reuse distances.
#[derive(Clone, Copy)]
struct DistanceLaw {
    /// Half of those that do not stray repeat within so many tokens.
    half: f64,
    stray: f64,
}

/// A layer's experts, the last used first, with the token of that use; 0 for never.
struct DrawnLayer(Vec<(u16, u64)>);

impl DrawnLayer {
    fn new(experts: usize, rng: &mut StdRng) -> Self {
        let mut all: Vec<(u16, u64)> = (0..experts).map(|e| (e as u16, 0)).collect();
        all.shuffle(rng);
        Self(all)
    }

    /// Experts that the next token uses; `now` is its number, from 1 on.
    fn token(&mut self, now: u64, used: usize, near: DistanceLaw, rng: &mut StdRng) -> Vec<u16> {
        let mut picked = Vec::with_capacity(used);
        for _ in 0..used {
            let (strays, u): (bool, f64) = (rng.random_bool(near.stray), rng.random_range(0.0..1.0));
            let distance = (near.half * u / (1.0 - u)).ceil().max(1.0);
            let at = if strays { rng.random_range(0..self.0.len()) } else { self.nearest(now, distance) };
            picked.push(self.0.remove(at).0);
        }
        self.0.splice(0..0, picked.iter().map(|e| (*e, now)));
        picked
    }

    /// Where the expert stands whose last use is nearest to so many tokens ago, of equals the earlier; what was never
    /// used is as far away as can be.
    fn nearest(&self, now: u64, distance: f64) -> usize {
        let age = |i: usize| if self.0[i].1 == 0 { f64::INFINITY } else { (now - self.0[i].1) as f64 };
        let at = (0..self.0.len()).collect::<Vec<_>>().partition_point(|i| age(*i) < distance);
        match at.checked_sub(1) {
            None => 0,
            Some(before) if at == self.0.len() => before,
            // Beyond all that were used a new one comes.
            Some(_) if age(at).is_infinite() => at,
            Some(before) if distance - age(before) <= age(at) - distance => before,
            Some(_) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reuse::{Reuse, hits};
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: DrawArgs,
    }

    fn drawn(flags: &[&str]) -> ExpertTrace {
        run(&Cli::parse_from([&["x", "--out", "-", "--layers", "3", "--tokens", "1500"], flags].concat()).args)
    }

    #[test]
    fn half_of_the_uses_are_as_near_as_was_asked_and_the_tail_is_long() {
        for (distance, far) in [("2", 8), ("4", 16), ("16", 64)] {
            let trace = drawn(&["--distance", distance]);
            let reuse = Reuse::of(&trace);
            let within = reuse.within(distance.parse().unwrap());
            assert!((0.47..0.53).contains(&within), "{distance}: {within}");
            assert!((0.72..0.82).contains(&reuse.within(far)), "{distance}: {}", reuse.within(far));
        }
    }

    #[test]
    fn a_trained_mixtures_published_hit_rates_are_near() {
        let trace = drawn(&["--experts", "128"]);
        for (room, published) in [(0.19, 0.74), (0.38, 0.89), (0.64, 0.96)] {
            let found = hits(&trace, 1, room);
            assert!((found - published).abs() < 0.05, "{room}: {found}, not {published}");
        }
    }

    #[test]
    fn a_token_has_different_experts_and_a_seed_one_trace() {
        let trace = drawn(&["--experts", "16", "--used", "8", "--seed", "7"]);
        for layer in trace.sequences[0].chunks_exact(8) {
            assert_eq!(layer.iter().collect::<std::collections::HashSet<_>>().len(), 8, "{layer:?}");
        }
        assert_eq!(trace, drawn(&["--experts", "16", "--used", "8", "--seed", "7"]));
        assert_ne!(trace, drawn(&["--experts", "16", "--used", "8", "--seed", "8"]));
    }

    #[test]
    fn nearer_uses_are_found_on_a_card_more_often_and_more_room_finds_more() {
        let (near, far) = (drawn(&["--distance", "2"]), drawn(&["--distance", "64"]));
        assert!(hits(&near, 1, 0.7) > 0.9 && hits(&far, 1, 0.7) < hits(&near, 1, 0.7));
        assert!(hits(&near, 4, 0.2) < hits(&near, 1, 0.2) && hits(&near, 1, 0.2) < hits(&near, 1, 0.7));
    }
}
