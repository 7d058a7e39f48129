//! Rows with low-rank adapters among others: each follows the CPU and has the same bytes in any mixture, and rows
//! without one have those of a backend that knows no adapters.

use super::Test;
use super::batches::{decode_rows, pages_of};
use super::driver::{Gpu, config, cpu_config};
use super::experts::token_of;
use super::follow::synthetic;
use super::support;
use super::support::{Driver, Random, relative_rms};
use chimere_engine::adapter::{AdaptedMatrix, Adapter, LowRank, ResidentAdapter};
use chimere_engine::backend::cuda::{Activations, AdapterRoom, CudaConfig};
use chimere_engine::format::Tensor;
use chimere_engine::ids::{AdapterSlotId, SeqId, SlotId, TokenId};
use chimere_engine::model::{MlpWeights, Model, Op};
use chimere_engine::sampling::SamplingParams;
use chimere_engine::step::{Form, Piece, SampleRow};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tests that want a device.
pub(super) const TESTS: &[Test] = &[
    ("rows_with_adapters_follow_the_cpu_in_any_mixture", rows_with_adapters_follow_the_cpu_in_any_mixture),
    ("prompts_with_adapters_follow_the_cpu_beside_others", prompts_with_adapters_follow_the_cpu_beside_others),
];

/// How far logits may lie from the exact path's where activations have 16 bits.
const RMS: f64 = 5e-3;
const STEPS: u32 = 4;
const ROOM: AdapterRoom = AdapterRoom { slots: 3, rank_max: 32 };

/// A change of a matrix, `share` of it in size.
fn low_rank(matrix: AdaptedMatrix, of: &Tensor, rank: usize, random: &mut Random) -> LowRank {
    let mut values =
        |n: usize, top: f32| -> Vec<f32> { (0..n).map(|_| top * (random.below(2001) as f32 / 1000.0 - 1.0)).collect() };
    let (a, b) = (values(rank * of.cols(), 0.1), values(rank * of.rows(), 0.02));
    LowRank::new(matrix, rank, 1.0, &a, &b)
}

fn of_mlp(w: &MlpWeights) -> Vec<(AdaptedMatrix, &Tensor)> {
    let gate = w.gate.as_ref().map(|gate| (AdaptedMatrix::Gate, gate));
    gate.into_iter().chain([(AdaptedMatrix::Up, &w.up), (AdaptedMatrix::Down, &w.down)]).collect()
}

/// The matrices of an operator that adapters change.
fn matrices(op: &Op) -> Vec<(AdaptedMatrix, &Tensor)> {
    use AdaptedMatrix as M;
    match op {
        Op::Gdn(w) => vec![(M::Qkv, &w.qkv), (M::Z, &w.z), (M::Beta, &w.b), (M::Alpha, &w.a), (M::Out, &w.out)],
        Op::Attention(w) => vec![(M::Query, &w.q), (M::Key, &w.k), (M::Value, &w.v), (M::Out, &w.out)],
        Op::Mlp(w) => of_mlp(w),
        Op::Moe(w) => w.shared.as_ref().map_or_else(Vec::new, |shared| of_mlp(&shared.expert)),
        _ => Vec::new(),
    }
}

/// An adapter of these ranks in turn, which leaves out every matrix whose rank is 0.
pub(super) fn random_adapter(model: &Model, number: u64, ranks: &[usize]) -> Arc<Adapter> {
    let (mut random, mut ranks) = (Random(number), ranks.iter().copied().cycle());
    let mut block = |op: &Op| -> Vec<LowRank> {
        let all = matrices(op).into_iter().map(|(matrix, of)| (matrix, of, ranks.next().unwrap()));
        all.filter(|part| part.2 > 0).map(|(matrix, of, rank)| low_rank(matrix, of, rank, &mut random)).collect()
    };
    let blocks = model.weights.layers.iter().flatten().map(|of| block(&of.op)).collect();
    Arc::new(Adapter { name: format!("a{number}"), number, blocks })
}

/// Who has which adapter: of five sequences in turn one has none, and the last two have one by halves.
struct Mixture([Arc<Adapter>; 2]);

impl Mixture {
    fn of(model: &Model) -> Self {
        Self([random_adapter(model, 1 << 40, &[6, 16, 0]), random_adapter(model, 1 << 41, &[16, 24, 8, 8])])
    }

    fn adapter(&self, seq: u32) -> Option<ResidentAdapter> {
        let of = |number: usize, scale| {
            Some(ResidentAdapter { adapter: self.0[number].clone(), slot: AdapterSlotId(2 - number as u16), scale })
        };
        [None, of(0, 1.0), of(1, 1.0), None, of(0, 0.5)][seq as usize % 5].clone()
    }

    fn decode(&self, seqs: &[u32], position: u32, vocab: usize) -> Vec<Piece> {
        let most = seqs.iter().max().unwrap() + 1;
        let tokens: Vec<TokenId> = (0..most).map(|seq| token_of(seq, position, vocab)).collect();
        let all = decode_rows(position, Some(&tokens), most, &SamplingParams::greedy());
        let wanted = all.into_iter().enumerate().filter(|(seq, _)| seqs.contains(&(*seq as u32)));
        wanted.map(|(seq, piece)| Piece { adapter: self.adapter(seq as u32), ..piece }).collect()
    }

    /// Logits of a sequence on the CPU, whose activations are not rounded.
    fn on_cpu(&self, model: &Model, seq: u32, ids: &[TokenId]) -> Vec<f32> {
        let mut cpu = Driver::recording(model, &cpu_config(true));
        let step = |(at, id): (usize, &TokenId)| {
            let piece = support::piece(Form::Recurrent, at, &[*id]);
            cpu.step(vec![Piece { adapter: self.adapter(seq), ..piece }]);
            cpu.backend.recording().logits.clone()
        };
        ids.iter().enumerate().flat_map(step).collect()
    }
}

fn models() -> Vec<(&'static str, Model)> {
    let presets = ["moe", "dense", "next", "qwen3", "qwen3_moe"].map(|name| (name, support::gguf(name)));
    let synthetic = [("qwen3.5-35b-a3b", 4), ("qwen3-8b", 2)].map(|(shape, layers)| (shape, synthetic(shape, layers)));
    presets.into_iter().chain([("nano", support::nano())]).chain(synthetic).collect()
}

fn backend(model: &Model, activations: Activations, adapters: AdapterRoom) -> Gpu {
    Gpu::new(model, &CudaConfig { activations, adapters, ..config(64, 256) })
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

fn rows_with_adapters_follow_the_cpu_in_any_mixture() {
    let first = |n: u32| (0..n).collect::<Vec<_>>();
    let batches =
        [vec![0], vec![1], vec![2], vec![4], first(3), vec![4, 3, 2], first(8), first(9), first(20), first(64)];
    for (name, model) in models() {
        let (vocab, mixture) = (model.config.vocab, Mixture::of(&model));
        for activations in [Activations::Int8, Activations::Int16] {
            let name = format!("{name}, {}", activations.name());
            let mut alone = BTreeMap::<(u32, u32), Vec<f32>>::new();
            let mut plain = backend(&model, activations, AdapterRoom::default());
            for step in 0..STEPS {
                plain.step(mixture.decode(&[0], step, vocab));
                alone.insert((0, step), plain.backend.logits(1).unwrap());
            }
            drop(plain);
            let mut gpu = backend(&model, activations, ROOM);
            for seqs in &batches {
                for step in 0..STEPS {
                    let pieces = mixture.decode(seqs, step, vocab);
                    let order: Vec<u32> = pieces.iter().map(|piece| piece.slot.0).collect();
                    gpu.step(pieces);
                    let logits = gpu.backend.logits(order.len()).unwrap();
                    for (seq, got) in order.into_iter().zip(logits.chunks(vocab)) {
                        let want = alone.entry((seq, step)).or_insert_with(|| got.to_vec());
                        assert!(bits(want) == bits(got), "{name}: sequence {seq} among {seqs:?}, step {step}");
                    }
                }
            }
            // Activations of 8 bits are rounded too far to tell.
            for seq in (0..5).filter(|_| activations == Activations::Int16) {
                let ids: Vec<TokenId> = (0..STEPS).map(|step| token_of(seq, step, vocab)).collect();
                let want = mixture.on_cpu(&model, seq, &ids);
                let got: Vec<f32> = (0..STEPS).flat_map(|step| alone[&(seq, step)].clone()).collect();
                let error = relative_rms(&got, &want);
                let change = relative_rms(&mixture.on_cpu(&model, 0, &ids), &want);
                println!("{name}, sequence {seq}: RMS {error:.2e}, the adapter changes {change:.2e}");
                assert!(error < RMS, "{name}: sequence {seq} {error:e}");
                assert!(mixture.adapter(seq).is_none() || change > 20.0 * error, "{name}: it changes {change:e}");
            }
        }
    }
}

/// A prompt of a sequence with its adapter, whose first row has number `start`.
fn prompt(mixture: &Mixture, seq: u32, start: usize, ids: &[TokenId]) -> Piece {
    let piece = support::piece(Form::Chunked, start, ids);
    let pages = pages_of(seq, (start + ids.len()) as u32);
    Piece { seq: SeqId(seq.into()), slot: SlotId(seq), pages, adapter: mixture.adapter(seq), ..scored(piece) }
}

/// With logits of the last row.
fn scored(piece: Piece) -> Piece {
    let row = SampleRow::new(piece.seq, piece.slot, Arc::new(SamplingParams::greedy()));
    Piece { samples: vec![row], ..piece }
}

fn prompts_with_adapters_follow_the_cpu_beside_others() {
    for (name, model) in models() {
        let (vocab, mixture) = (model.config.vocab, Mixture::of(&model));
        let ids = |seq: u32| -> Vec<TokenId> { (0..100 + seq).map(|at| token_of(seq, at, vocab)).collect() };
        for activations in [Activations::Int8, Activations::Int16] {
            let name = format!("{name}, {}", activations.name());
            let mut gpu = backend(&model, activations, ROOM);
            let mut run = |seqs: &[u32]| {
                gpu.step(seqs.iter().map(|seq| prompt(&mixture, *seq, 0, &ids(*seq))).collect());
                gpu.backend.logits(seqs.len()).unwrap().chunks(vocab).map(<[f32]>::to_vec).collect::<Vec<_>>()
            };
            let alone: Vec<Vec<f32>> = (0..5).map(|seq| run(&[seq]).remove(0)).collect();
            assert!(run(&[0, 1, 2, 3]) == alone[..4], "{name}: beside one another");
            assert!(run(&[2, 4]) == [alone[2].clone(), alone[4].clone()], "{name}: in two");
            for (seq, got) in alone.iter().enumerate().filter(|_| activations == Activations::Int16) {
                let mut cpu = Driver::recording(&model, &cpu_config(true));
                let piece = support::piece(Form::Chunked, 0, &ids(seq as u32));
                cpu.step(vec![Piece { adapter: mixture.adapter(seq as u32), ..piece }]);
                let logits = &cpu.backend.recording().logits;
                let error = relative_rms(got, &logits[logits.len() - vocab..]);
                println!("{name}, prompt {seq}: RMS {error:.2e}");
                assert!(error < RMS, "{name}: prompt {seq} {error:e}");
            }
        }
    }
}
