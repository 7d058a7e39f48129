//! Which matrix of a model a module's name stands for, and in which order a file has its rows and columns.

use super::{AdaptedMatrix, ModuleNames, Pair};
use crate::format::{Problem, Tensor};
use crate::model::families::{ba_rows, qkvz_rows};
use crate::model::load::fuses_projections;
use crate::model::{AttentionWeights, GdnWeights, HeadOrder, MlpWeights, Model, Op};
use std::ops::Range;

/// Families whose adapters are read: of the others a converter multiplies or reorders matrices.
const FAMILIES: [&str; 5] = ["qwen35moe", "qwen35", "qwen3next", "qwen3moe", "qwen3"];

/// The matrices of a model.
pub(super) struct Places<'a> {
    /// Whether directories of the family have the projections of gated-delta blocks as two matrices. The order of rows
    /// in such a matrix is the family's, so other families' adapters with these names would be read wrong.
    fused: bool,
    layers: Vec<Vec<(usize, &'a Op)>>,
}

/// One matrix that a pair changes.
pub(super) struct MatrixPlace {
    /// The block among all.
    pub(super) block: usize,
    pub(super) matrix: AdaptedMatrix,
    /// Rows of B, if they are not all of them in their order.
    pub(super) rows: Option<Vec<usize>>,
    /// Columns of A, likewise.
    pub(super) columns: Option<Vec<usize>>,
}

/// A matrix by the names that files have for it.
type NamedMatrix = (&'static [&'static str], &'static [AdaptedMatrix]);

/// The matrices of a gated-delta block by their names in a directory and in a GGUF file.
const GDN: [NamedMatrix; 7] = [
    (&["linear_attn.in_proj_qkv", "attn_qkv"], &[AdaptedMatrix::Qkv]),
    (&["linear_attn.in_proj_z", "attn_gate"], &[AdaptedMatrix::Z]),
    (&["linear_attn.in_proj_b", "ssm_beta"], &[AdaptedMatrix::Beta]),
    (&["linear_attn.in_proj_a", "ssm_alpha"], &[AdaptedMatrix::Alpha]),
    (&["linear_attn.in_proj_qkvz", "ssm_in"], &[AdaptedMatrix::Qkv, AdaptedMatrix::Z]),
    (&["linear_attn.in_proj_ba", "ssm_ba"], &[AdaptedMatrix::Beta, AdaptedMatrix::Alpha]),
    (&["linear_attn.out_proj", "ssm_out"], &[AdaptedMatrix::Out]),
];
const ATTENTION: [NamedMatrix; 4] = [
    (&["self_attn.q_proj", "attn_q"], &[AdaptedMatrix::Query]),
    (&["self_attn.k_proj", "attn_k"], &[AdaptedMatrix::Key]),
    (&["self_attn.v_proj", "attn_v"], &[AdaptedMatrix::Value]),
    (&["self_attn.o_proj", "attn_output"], &[AdaptedMatrix::Out]),
];
const MLP: [NamedMatrix; 3] = [
    (&["mlp.gate_proj", "ffn_gate"], &[AdaptedMatrix::Gate]),
    (&["mlp.up_proj", "ffn_up"], &[AdaptedMatrix::Up]),
    (&["mlp.down_proj", "ffn_down"], &[AdaptedMatrix::Down]),
];
const SHARED: [NamedMatrix; 3] = [
    (&["mlp.shared_expert.gate_proj", "ffn_gate_shexp"], &[AdaptedMatrix::Gate]),
    (&["mlp.shared_expert.up_proj", "ffn_up_shexp"], &[AdaptedMatrix::Up]),
    (&["mlp.shared_expert.down_proj", "ffn_down_shexp"], &[AdaptedMatrix::Down]),
];
/// What is not supported, by the beginnings of names.
const UNSUPPORTED: [(&str, &str); 5] = [
    ("mlp.experts", "an adapter of routed experts"),
    ("ffn_gate_exps", "an adapter of routed experts"),
    ("ffn_up_exps", "an adapter of routed experts"),
    ("ffn_down_exps", "an adapter of routed experts"),
    ("mlp.gate", "an adapter of a router"),
];

impl<'a> Places<'a> {
    pub(super) fn of(model: &'a Model) -> Result<Self, Problem> {
        let family = model.config.architecture;
        if !FAMILIES.contains(&family) {
            let want = format!("a model of {}", FAMILIES.join(", "));
            return Err(Problem::container("adapter's model", want, family));
        }
        let mut block = 0;
        let mut number = |op| {
            block += 1;
            (block - 1, op)
        };
        let layers = model.weights.layers.iter();
        Ok(Self {
            fused: fuses_projections(family),
            layers: layers.map(|layer| layer.iter().map(|block| number(&block.op)).collect()).collect(),
        })
    }

    /// The matrices that a pair changes: several where the file has as one what the model has as several.
    pub(super) fn find(&self, pair: &Pair) -> Result<Vec<MatrixPlace>, Problem> {
        let layers = self.layers.len();
        let layer = self.layers.get(pair.layer).ok_or_else(|| {
            Problem::tensor(&pair.a.name, format_args!("one of {layers} layers"), format_args!("layer {}", pair.layer))
        })?;
        for (block, op) in layer {
            let named = match op {
                Op::Gdn(_) => &GDN[..],
                Op::Attention(_) => &ATTENTION,
                Op::Mlp(_) => &MLP,
                Op::Moe(moe) if moe.shared.is_some() => &SHARED,
                _ => continue,
            };
            let at = usize::from(pair.names == ModuleNames::Gguf);
            let mut known = named.iter().filter(|(_, matrices)| self.fused || matrices.len() == 1);
            if let Some((_, matrices)) = known.find(|(names, _)| names[at] == pair.module) {
                return matrices.iter().map(|matrix| place(pair, *block, op, *matrix, matrices.len() > 1)).collect();
            }
        }
        let unsupported = UNSUPPORTED.iter().find(|(start, _)| pair.module.starts_with(start));
        let got = unsupported.map_or_else(|| format!("`{}`", pair.module), |(_, what)| (*what).to_owned());
        let want = "a matrix of the mixer, or of a feed-forward part that every token takes";
        Err(Problem::tensor(&pair.a.name, want, got))
    }
}

/// Where one matrix of a pair lies. `fused`: the file has several as one.
fn place(pair: &Pair, block: usize, op: &Op, matrix: AdaptedMatrix, fused: bool) -> Result<MatrixPlace, Problem> {
    let target = tensor_of(op, matrix).expect("the operator has the matrices of its names");
    let (mut rows, mut columns) = (None, None);
    if let Op::Gdn(gdn) = op {
        rows = gdn_rows(gdn, matrix, pair.order, fused);
        columns = (matrix == AdaptedMatrix::Out).then(|| heads(gdn, pair.order, 0, gdn.config.value_dim)).flatten();
    }
    let (out, into) = (rows.as_ref().map_or(pair.b.rows(), Vec::len), pair.a.cols());
    let whole = if fused { fused_rows(op, matrix) } else { target.rows() };
    if pair.b.rows() != whole || out != target.rows() {
        let want = format!("{whole} rows, as many as the matrix that it changes");
        return Err(Problem::tensor(&pair.b.name, want, pair.b.rows()));
    }
    if into != target.cols() {
        let want = format!("{} columns, as many as the matrix that it changes", target.cols());
        return Err(Problem::tensor(&pair.a.name, want, into));
    }
    Ok(MatrixPlace { block, matrix, rows, columns })
}

/// Rows of the matrix that a file has in the place of this one and others.
fn fused_rows(op: &Op, matrix: AdaptedMatrix) -> usize {
    let Op::Gdn(gdn) = op else { unreachable!("gated-delta blocks alone are fused") };
    match matrix {
        AdaptedMatrix::Qkv | AdaptedMatrix::Z => gdn.config.channels() + gdn.config.values(),
        _ => 2 * gdn.config.value_heads,
    }
}

fn tensor_of(op: &Op, matrix: AdaptedMatrix) -> Option<&Tensor> {
    match (op, matrix) {
        (Op::Gdn(GdnWeights { qkv, .. }), AdaptedMatrix::Qkv) => Some(qkv),
        (Op::Gdn(GdnWeights { z, .. }), AdaptedMatrix::Z) => Some(z),
        (Op::Gdn(GdnWeights { b, .. }), AdaptedMatrix::Beta) => Some(b),
        (Op::Gdn(GdnWeights { a, .. }), AdaptedMatrix::Alpha) => Some(a),
        (Op::Gdn(GdnWeights { out, .. }) | Op::Attention(AttentionWeights { out, .. }), AdaptedMatrix::Out) => {
            Some(out)
        }
        (Op::Attention(AttentionWeights { q, .. }), AdaptedMatrix::Query) => Some(q),
        (Op::Attention(AttentionWeights { k, .. }), AdaptedMatrix::Key) => Some(k),
        (Op::Attention(AttentionWeights { v, .. }), AdaptedMatrix::Value) => Some(v),
        (Op::Mlp(w), matrix) => part_of(w, matrix),
        (Op::Moe(moe), matrix) => part_of(&moe.shared.as_ref()?.expert, matrix),
        _ => None,
    }
}

fn part_of(w: &MlpWeights, matrix: AdaptedMatrix) -> Option<&Tensor> {
    match matrix {
        AdaptedMatrix::Gate => w.gate.as_ref(),
        AdaptedMatrix::Up => Some(&w.up),
        AdaptedMatrix::Down => Some(&w.down),
        _ => None,
    }
}

/// Rows of B in the order of the model's matrix, if that is another than the file's.
fn gdn_rows(gdn: &GdnWeights, matrix: AdaptedMatrix, order: HeadOrder, fused: bool) -> Option<Vec<usize>> {
    let c = &gdn.config;
    match (matrix, fused) {
        (AdaptedMatrix::Qkv, true) => Some(flat(&qkvz_rows(c).0)),
        (AdaptedMatrix::Z, true) => Some(flat(&qkvz_rows(c).1)),
        (AdaptedMatrix::Beta, true) => Some(flat(&ba_rows(c).0)),
        (AdaptedMatrix::Alpha, true) => Some(flat(&ba_rows(c).1)),
        (AdaptedMatrix::Qkv, false) => heads(gdn, order, 2 * c.key_heads * c.key_dim, c.value_dim),
        (AdaptedMatrix::Z, false) => heads(gdn, order, 0, c.value_dim),
        (AdaptedMatrix::Beta | AdaptedMatrix::Alpha, false) => heads(gdn, order, 0, 1),
        _ => None,
    }
}

/// Where the file has what the model has in each place: `start` places of their own order, then value heads of
/// `width`. None where the orders are one.
fn heads(gdn: &GdnWeights, order: HeadOrder, start: usize, width: usize) -> Option<Vec<usize>> {
    let c = &gdn.config;
    if order == c.head_order {
        return None;
    }
    // Where in grouped order the heads of the tiled one stand.
    let grouped = flat(&c.heads_in(HeadOrder::Tiled, start, width));
    let mut all: Vec<usize> = (0..start).collect();
    match order {
        HeadOrder::Grouped => all.extend(grouped),
        HeadOrder::Tiled => {
            let mut tiled = vec![0; grouped.len()];
            grouped.iter().enumerate().for_each(|(at, of)| tiled[of - start] = start + at);
            all.extend(tiled);
        }
    }
    Some(all)
}

fn flat(ranges: &[Range<usize>]) -> Vec<usize> {
    ranges.iter().cloned().flatten().collect()
}
