//! The buffers of one step, and their sizes before they exist.

use super::matmul::{Rows, RowsView};
use super::shared::Shared;
use crate::model::{FfnConfig, ModelConfig};

/// Widths of the feed-forward part; the dense one is a shared expert without any others.
#[derive(Clone, Copy, Debug)]
pub(super) struct FfnShape {
    pub(super) experts: usize,
    pub(super) used: usize,
    pub(super) width: usize,
    pub(super) shared_width: usize,
}

impl FfnShape {
    pub(super) fn of(c: &FfnConfig) -> Self {
        match *c {
            FfnConfig::Dense { width } => Self { experts: 0, used: 0, width: 0, shared_width: width },
            FfnConfig::Moe { experts, used, width, shared_width } => Self { experts, used, width, shared_width },
        }
    }
}

/// `[rows, cols]` of every buffer. Activations that are multiplied also have an int8 form.
struct Sizes {
    x: usize,
    normed: [usize; 2],
    qkv: usize,
    z: usize,
    gates: usize,
    gdn_out: [usize; 2],
    qg: usize,
    kv: usize,
    attention_out: [usize; 2],
    angles: usize,
    router: usize,
    picks: usize,
    routed: usize,
    act: [usize; 2],
    shared: usize,
    shared_act: [usize; 2],
    down: usize,
    last: [usize; 2],
    logits: usize,
}

impl Sizes {
    fn of(c: &ModelConfig, rows: usize, logit_rows: usize) -> Self {
        let (g, a, f) = (&c.gdn, &c.attention, FfnShape::of(&c.ffn));
        let values = g.value_heads * g.value_dim;
        Self {
            x: rows * c.hidden,
            normed: [rows, c.hidden],
            qkv: rows * g.channels(),
            z: rows * values,
            gates: rows * g.value_heads,
            gdn_out: [rows, values],
            qg: rows * a.heads * 2 * a.head_dim,
            kv: rows * a.kv_heads * a.head_dim,
            attention_out: [rows, a.heads * a.head_dim],
            angles: rows * a.rotary_dim / 2,
            router: rows * f.experts,
            picks: rows * f.used,
            routed: rows * f.used * f.width,
            act: [rows * f.used, f.width],
            shared: rows * f.shared_width,
            shared_act: [rows, f.shared_width],
            down: rows * (f.used + 1) * c.hidden,
            last: [logit_rows, c.hidden],
            logits: logit_rows * c.vocab,
        }
    }

    fn bytes(&self) -> u64 {
        let plain = self.x
            + self.qkv
            + self.z
            + 2 * self.gates
            + self.qg
            + 2 * self.kv
            + 2 * self.angles
            + self.router
            + 2 * self.picks
            + 2 * self.routed
            + 2 * self.shared
            + self.down
            + self.normed[0]
            + self.logits;
        let rows = [self.normed, self.gdn_out, self.attention_out, self.act, self.shared_act, self.last];
        // An activation is four bytes, and two in its int8 block.
        let activations: usize = rows.iter().map(|[r, c]| r * c.next_multiple_of(32) * 6).sum();
        (plain * 4 + activations) as u64
    }
}

/// Bytes that [`Workspace::new`] will take.
pub(super) fn workspace_bytes(c: &ModelConfig, rows: usize, logit_rows: usize) -> u64 {
    Sizes::of(c, rows, logit_rows).bytes()
}

/// Buffers for up to `rows` rows.
pub(super) struct Workspace {
    pub(super) plain: Plain,
    normed: Rows,
    gdn_out: Rows,
    attention_out: Rows,
    act: Rows,
    shared_act: Rows,
    last: Rows,
    widths: [usize; 6],
    picks_a_row: usize,
    logit_rows: usize,
}

/// Buffers that only this crate's loops read.
pub(super) struct Plain {
    /// The residual stream.
    pub(super) x: Shared<f32>,
    pub(super) qkv: Shared<f32>,
    pub(super) z: Shared<f32>,
    pub(super) b: Shared<f32>,
    pub(super) a: Shared<f32>,
    pub(super) qg: Shared<f32>,
    pub(super) k: Shared<f32>,
    pub(super) v: Shared<f32>,
    pub(super) cos: Shared<f32>,
    pub(super) sin: Shared<f32>,
    pub(super) router: Shared<f32>,
    /// Experts of each row in the router's order, and their weights.
    pub(super) picks: Shared<u32>,
    pub(super) pick_weights: Shared<f32>,
    /// How much of the shared expert each row takes.
    pub(super) shared_scale: Shared<f32>,
    pub(super) gate: Shared<f32>,
    pub(super) up: Shared<f32>,
    pub(super) shared_gate: Shared<f32>,
    pub(super) shared_up: Shared<f32>,
    /// Outputs of the routed experts, one row a pick, then those of the shared one; also a mixer's output.
    pub(super) down: Shared<f32>,
    pub(super) logits: Shared<f32>,
}

/// Activations that matrices multiply, shared among the threads of a step.
#[derive(Clone, Copy)]
pub(super) struct Views<'a> {
    pub(super) plain: &'a Plain,
    pub(super) normed: RowsView<'a>,
    pub(super) gdn_out: RowsView<'a>,
    pub(super) attention_out: RowsView<'a>,
    pub(super) act: RowsView<'a>,
    pub(super) shared_act: RowsView<'a>,
    pub(super) last: RowsView<'a>,
}

impl Workspace {
    pub(super) fn new(c: &ModelConfig, rows: usize, logit_rows: usize) -> Self {
        let s = Sizes::of(c, rows, logit_rows);
        let row_buffer = |[rows, cols]: [usize; 2]| Rows::with_capacity(rows, cols);
        Self {
            plain: Plain {
                x: Shared::new(s.x),
                qkv: Shared::new(s.qkv),
                z: Shared::new(s.z),
                b: Shared::new(s.gates),
                a: Shared::new(s.gates),
                qg: Shared::new(s.qg),
                k: Shared::new(s.kv),
                v: Shared::new(s.kv),
                cos: Shared::new(s.angles),
                sin: Shared::new(s.angles),
                router: Shared::new(s.router),
                picks: Shared::new(s.picks),
                pick_weights: Shared::new(s.picks),
                shared_scale: Shared::new(rows),
                gate: Shared::new(s.routed),
                up: Shared::new(s.routed),
                shared_gate: Shared::new(s.shared),
                shared_up: Shared::new(s.shared),
                down: Shared::new(s.down),
                logits: Shared::new(s.logits),
            },
            normed: row_buffer(s.normed),
            gdn_out: row_buffer(s.gdn_out),
            attention_out: row_buffer(s.attention_out),
            act: row_buffer(s.act),
            shared_act: row_buffer(s.shared_act),
            last: row_buffer(s.last),
            widths: [s.normed, s.gdn_out, s.attention_out, s.act, s.shared_act, s.last].map(|[_, cols]| cols),
            picks_a_row: FfnShape::of(&c.ffn).used,
            logit_rows,
        }
    }

    /// Everything for a step of `rows` rows.
    pub(super) fn views(&mut self, rows: usize) -> Views<'_> {
        let [normed, gdn_out, attention_out, act, shared_act, last] = self.widths;
        self.normed.set_len(rows, normed);
        self.gdn_out.set_len(rows, gdn_out);
        self.attention_out.set_len(rows, attention_out);
        self.act.set_len(rows * self.picks_a_row, act);
        self.shared_act.set_len(rows, shared_act);
        self.last.set_len(self.logit_rows, last);
        Views {
            plain: &self.plain,
            normed: self.normed.view(),
            gdn_out: self.gdn_out.view(),
            attention_out: self.attention_out.view(),
            act: self.act.view(),
            shared_act: self.shared_act.view(),
            last: self.last.view(),
        }
    }
}
