//! Which matrix of a model a module's name stands for, and in which order a file has its rows and columns.

use super::targets::{AdapterTargets, TargetBlock, TargetKind};
use super::{AdaptedMatrix, ModuleNames, Pair};
use crate::format::Problem;
use crate::model::families::{ba_rows, qkvz_rows};
use crate::model::load::fuses_projections;
use crate::model::{GdnConfig, HeadOrder};
use std::ops::Range;

/// One matrix that a pair changes.
pub(super) struct MatrixPlace {
    /// The block among all.
    pub(super) block: usize,
    pub(super) matrix: AdaptedMatrix,
    /// Rows and columns of the model's matrix.
    pub(super) size: (usize, usize),
    /// Rows of B, if they are not all of them in their order.
    pub(super) rows: Option<Vec<usize>>,
    /// Columns of A, likewise.
    pub(super) columns: Option<Vec<usize>>,
}

/// A matrix by the names that files have for it.
pub(super) type NamedMatrix = (&'static [&'static str], &'static [AdaptedMatrix]);

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

/// The matrices of an operator by their names.
pub(super) fn names_of(kind: TargetKind) -> &'static [NamedMatrix] {
    match kind {
        TargetKind::DeltaNet(_) => &GDN,
        TargetKind::SelfAttention => &ATTENTION,
        TargetKind::FeedForward => &MLP,
        TargetKind::SharedExpert => &SHARED,
    }
}

impl AdapterTargets {
    /// The matrices that a pair changes: several where the file has as one what the model has as several.
    pub(super) fn find(&self, pair: &Pair) -> Result<Vec<MatrixPlace>, Problem> {
        let layers = self.layers.len();
        let layer = self.layers.get(pair.layer).ok_or_else(|| {
            Problem::tensor(&pair.a.name, format_args!("one of {layers} layers"), format_args!("layer {}", pair.layer))
        })?;
        // Of the projections of gated-delta blocks as two matrices the order of rows is the family's whose directories
        // have them so: other families' adapters with these names would be read wrong.
        let fused = fuses_projections(self.architecture);
        for block in layer {
            let named = names_of(block.kind);
            let at = usize::from(pair.names == ModuleNames::Gguf);
            let mut known = named.iter().filter(|(_, matrices)| fused || matrices.len() == 1);
            if let Some((_, matrices)) = known.find(|(names, _)| names[at] == pair.module) {
                return matrices.iter().map(|matrix| place(pair, block, *matrix, matrices.len() > 1)).collect();
            }
        }
        let unsupported = UNSUPPORTED.iter().find(|(start, _)| pair.module.starts_with(start));
        let got = unsupported.map_or_else(|| format!("`{}`", pair.module), |(_, what)| (*what).to_owned());
        let want = "a matrix of the mixer, or of a feed-forward part that every token takes";
        Err(Problem::tensor(&pair.a.name, want, got))
    }
}

/// Where one matrix of a pair lies. `fused`: the file has several as one.
fn place(pair: &Pair, block: &TargetBlock, matrix: AdaptedMatrix, fused: bool) -> Result<MatrixPlace, Problem> {
    let missing = || Problem::tensor(&pair.a.name, "a matrix that the block has", format_args!("`{}`", pair.module));
    let size @ (target_rows, target_cols) = block.size_of(matrix).ok_or_else(missing)?;
    let (mut rows, mut columns, mut whole) = (None, None, target_rows);
    if let TargetKind::DeltaNet(gdn) = &block.kind {
        rows = gdn_rows(gdn, matrix, pair.order, fused);
        columns = (matrix == AdaptedMatrix::Out).then(|| heads(gdn, pair.order, 0, gdn.value_dim)).flatten();
        whole = if fused { fused_rows(gdn, matrix) } else { target_rows };
    }
    let (out, into) = (rows.as_ref().map_or(pair.b.rows(), Vec::len), pair.a.cols());
    if pair.b.rows() != whole || out != target_rows {
        let want = format!("{whole} rows, as many as the matrix that it changes");
        return Err(Problem::tensor(&pair.b.name, want, pair.b.rows()));
    }
    if into != target_cols {
        let want = format!("{target_cols} columns, as many as the matrix that it changes");
        return Err(Problem::tensor(&pair.a.name, want, into));
    }
    Ok(MatrixPlace { block: block.number, matrix, size, rows, columns })
}

/// Rows of the matrix that a file has in the place of this one and another.
fn fused_rows(gdn: &GdnConfig, matrix: AdaptedMatrix) -> usize {
    match matrix {
        AdaptedMatrix::Qkv | AdaptedMatrix::Z => gdn.channels() + gdn.values(),
        _ => 2 * gdn.value_heads,
    }
}

/// Rows of B in the order of the model's matrix, if that is another than the file's.
fn gdn_rows(c: &GdnConfig, matrix: AdaptedMatrix, order: HeadOrder, fused: bool) -> Option<Vec<usize>> {
    match (matrix, fused) {
        (AdaptedMatrix::Qkv, true) => Some(flat(&qkvz_rows(c).0)),
        (AdaptedMatrix::Z, true) => Some(flat(&qkvz_rows(c).1)),
        (AdaptedMatrix::Beta, true) => Some(flat(&ba_rows(c).0)),
        (AdaptedMatrix::Alpha, true) => Some(flat(&ba_rows(c).1)),
        (AdaptedMatrix::Qkv, false) => heads(c, order, 2 * c.key_heads * c.key_dim, c.value_dim),
        (AdaptedMatrix::Z, false) => heads(c, order, 0, c.value_dim),
        (AdaptedMatrix::Beta | AdaptedMatrix::Alpha, false) => heads(c, order, 0, 1),
        _ => None,
    }
}

/// Where the file has what the model has in each place: `start` places of their own order, then value heads of
/// `width`. None where the orders are one.
fn heads(c: &GdnConfig, order: HeadOrder, start: usize, width: usize) -> Option<Vec<usize>> {
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
