//! One text through all layers.

use super::attention::{LayerHeads, ScoreBuffers};
use super::config::EncoderConfig;
use super::kernels::{add_bias, gelu, layer_norm};
use super::weights::{EncoderLayer, EncoderWeights, LayerNorm, Linear};
use crate::backend::cpu::matmul::{ActivationRows, OutView, matmul};
use crate::ids::TokenId;

/// The last layer's rows, `[ids, hidden]`.
pub(super) fn rows(config: &EncoderConfig, weights: &EncoderWeights, ids: &[TokenId]) -> Vec<f32> {
    let mut x = embedded(config, weights, ids);
    let mut pass = TextPass::new(config, ids.len());
    for layer in &weights.layers {
        pass.attention(layer, &mut x);
        pass.feed_forward(layer, &mut x);
    }
    x
}

/// Tokens, positions and the first kind of segment, normed.
fn embedded(config: &EncoderConfig, weights: &EncoderWeights, ids: &[TokenId]) -> Vec<f32> {
    let hidden = config.hidden;
    let mut x = Vec::with_capacity(ids.len() * hidden);
    for (id, position) in ids.iter().zip(weights.positions.chunks_exact(hidden)) {
        let word = &weights.words[*id as usize * hidden..][..hidden];
        x.extend(word.iter().zip(position).map(|(word, position)| word + position));
    }
    norm(config, &weights.norm, &mut x);
    x
}

fn norm(config: &EncoderConfig, norm: &LayerNorm, x: &mut [f32]) {
    layer_norm(x, &norm.weight, &norm.bias, config.eps);
}

/// What one text takes on its way through the layers.
struct TextPass<'a> {
    config: &'a EncoderConfig,
    rows: usize,
    /// All rows, each to the row of its own number.
    pairs: Vec<(u32, u32)>,
    inputs: ActivationRows,
    /// These four are `[rows, hidden]` each.
    query: Vec<f32>,
    key: Vec<f32>,
    value: Vec<f32>,
    found: Vec<f32>,
    /// Between the feed-forward matrices, `[rows, inner]`.
    inner: Vec<f32>,
    scores: ScoreBuffers,
}

impl<'a> TextPass<'a> {
    fn new(config: &'a EncoderConfig, rows: usize) -> Self {
        let row = || vec![0.0; rows * config.hidden];
        Self {
            rows,
            pairs: (0..rows as u32).map(|row| (row, row)).collect(),
            inputs: ActivationRows::with_capacity(rows, config.hidden.max(config.inner)),
            query: row(),
            key: row(),
            value: row(),
            found: row(),
            inner: vec![0.0; rows * config.inner],
            scores: ScoreBuffers::new(rows, config.head_dim()),
            config,
        }
    }

    /// `x = norm(x + output(attention(x)))`.
    fn attention(&mut self, layer: &EncoderLayer, x: &mut [f32]) {
        let (hidden, dim) = (self.config.hidden, self.config.head_dim());
        self.take(x);
        for (linear, out) in
            [(&layer.query, &mut self.query), (&layer.key, &mut self.key), (&layer.value, &mut self.value)]
        {
            product(linear, &mut self.inputs, &self.pairs, out);
        }
        let heads = LayerHeads { rows: self.rows, hidden, dim, query: &self.query, key: &self.key, value: &self.value };
        (0..self.config.heads).for_each(|head| heads.attend(head, &mut self.scores, &mut self.found));
        fill(&mut self.inputs, &self.found, self.rows);
        self.added(&layer.output, &layer.attention_norm, x);
    }

    /// `x = norm(x + down(gelu(up(x))))`.
    fn feed_forward(&mut self, layer: &EncoderLayer, x: &mut [f32]) {
        self.take(x);
        product(&layer.up, &mut self.inputs, &self.pairs, &mut self.inner);
        gelu(&mut self.inner, self.config.gelu);
        fill(&mut self.inputs, &self.inner, self.rows);
        self.added(&layer.down, &layer.norm, x);
    }

    fn take(&mut self, x: &[f32]) {
        fill(&mut self.inputs, x, self.rows);
    }

    /// Adds the product of the inputs to `x`, and norms it.
    fn added(&mut self, linear: &Linear, after: &LayerNorm, x: &mut [f32]) {
        product(linear, &mut self.inputs, &self.pairs, &mut self.found);
        x.iter_mut().zip(&self.found).for_each(|(x, found)| *x += found);
        norm(self.config, after, x);
    }
}

/// Takes these rows as inputs of the next product.
fn fill(inputs: &mut ActivationRows, rows: &[f32], count: usize) {
    let cols = rows.len() / count;
    inputs.set_len(count, cols);
    rows.chunks_exact(cols).enumerate().for_each(|(at, row)| inputs.row_mut(at).copy_from_slice(row));
}

fn product(linear: &Linear, inputs: &mut ActivationRows, pairs: &[(u32, u32)], out: &mut [f32]) {
    let (cols, tiles) = (linear.matrix.rows(), 0..linear.matrix.tiles());
    matmul(&linear.matrix, inputs.view(), pairs, tiles, OutView::of(out, cols));
    add_bias(out, &linear.bias);
}
