//! Matrices and values that the device gets of a tensor, and what each is made of: known before anything is packed or
//! allocated.

use super::pack::source::ByteSource;
use super::pack::{self, Heads, Home, RowCoding};
use crate::format::{BlockType, NotFinite, Tensor};
use chimere_kernels::cuda::product::layout::{Layout, TILE_ROWS, UNIT};

/// The part of the model that the bytes of a matrix are counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatrixUse {
    /// The output head of the model.
    Head,
    /// Mixers of all layers.
    Mixers,
    /// Routed experts of all layers.
    Experts,
    /// Shared experts and dense feed-forward parts.
    Shared,
}

/// What kernels are chosen by for a matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MatrixForm {
    /// How the matrix lies in memory.
    pub(crate) layout: Layout,
    /// What products are to be multiplied with.
    pub(crate) factor: f32,
    /// How many output features it has.
    pub(crate) rows: usize,
    /// How many input features it has, with those that fill the last tile.
    pub(crate) cols: usize,
    /// Whether a table says where the matrices lie.
    pub(crate) placed: bool,
}

/// A matrix, planned or there.
pub(crate) trait Packed {
    /// What kernels are chosen by.
    fn form(&self) -> MatrixForm;
}

impl Packed for MatrixForm {
    fn form(&self) -> MatrixForm {
        *self
    }
}

/// Rows of one product that lie in one matrix or, where their encodings differ, in several.
#[derive(Clone, Debug)]
pub(crate) struct Segments<M> {
    /// Of all together: values of an output row.
    pub(crate) rows: usize,
    /// In the order of the rows.
    pub(crate) parts: Vec<Segment<M>>,
}

/// Neighbouring rows of one layout.
#[derive(Clone, Debug)]
pub(crate) struct Segment<M> {
    /// Where its outputs begin in an output row.
    pub(crate) first: usize,
    /// The rows of the segment, as planned or on the device.
    pub(crate) matrix: M,
}

impl<M> Segments<M> {
    /// These segments with each matrix mapped by `m`.
    pub(crate) fn map<N>(self, m: &mut impl FnMut(M) -> N) -> Segments<N> {
        let parts = self.parts.into_iter().map(|s| Segment { first: s.first, matrix: m(s.matrix) }).collect();
        Segments { rows: self.rows, parts }
    }
}

/// One or more matrices of a shape, one after another on the device.
#[derive(Clone, Debug)]
pub(crate) struct MatrixPlan<'a> {
    /// The part of the model that these bytes are counted for.
    pub(crate) part: MatrixUse,
    /// How the matrices lie in memory.
    pub(crate) layout: Layout,
    /// What products are to be multiplied with.
    pub(crate) factor: f32,
    /// Output features of a matrix.
    pub(crate) rows: usize,
    /// Input features, padded with zeros to whole units.
    pub(crate) cols: usize,
    /// How many matrices of this shape there are.
    pub(crate) count: usize,
    /// Whether a table will say where they lie: experts that do not all fit into the device's memory.
    pub(crate) placed: bool,
    rows_of: RowOrder<'a>,
}

#[derive(Clone, Debug)]
enum RowOrder<'a> {
    /// The rows of each, one tensor after another.
    Stacked(Vec<TensorRows<'a>>),
    /// Eight rows of one, then the same eight of the other.
    Interleaved([&'a Tensor; 2], RowCoding),
}

/// Rows that one tensor gives, or zeros.
#[derive(Clone, Debug)]
pub(crate) struct TensorRows<'a> {
    home: Home,
    rows: usize,
    of: Option<(&'a Tensor, RowCoding)>,
    heads: Option<Heads>,
}

impl<'a> TensorRows<'a> {
    pub(crate) fn whole(tensor: &'a Tensor) -> Self {
        Self { home: Home::of(tensor), rows: tensor.rows(), of: Some((tensor, RowCoding::Home)), heads: None }
    }

    /// All rows of a tensor, with rows of zeros behind each head's where `heads` asks for them.
    pub(crate) fn in_heads(tensor: &'a Tensor, heads: Option<Heads>) -> Self {
        let whole = Self::whole(tensor);
        Self { rows: heads.map_or(whole.rows, |heads| heads.widened(whole.rows)), heads, ..whole }
    }

    /// Tensor, form and row of row `at`, if it is not zeros.
    fn source(&self, at: usize) -> Option<(&'a Tensor, RowCoding, usize)> {
        let (tensor, form) = self.of?;
        Some((tensor, form, self.heads.map_or(Some(at), |heads| heads.value(at))?))
    }

    /// `tensor` in `home` and what that leaves of it: nothing if it is the tensor's own, else both in Q8_0.
    pub(crate) fn with_rest(tensor: &'a Tensor, home: Home) -> [Self; 2] {
        let rows = tensor.rows();
        if Home::of(tensor) == home {
            return [Self::whole(tensor), Self { home, rows, of: None, heads: None }];
        }
        [RowCoding::First, RowCoding::Rest].map(|form| Self {
            home: Home::of_type(BlockType::Q8_0),
            rows,
            of: Some((tensor, form)),
            heads: None,
        })
    }
}

impl<'a> MatrixPlan<'a> {
    /// All matrices of a stack, each by itself.
    pub(crate) fn whole(part: MatrixUse, t: &'a Tensor) -> Self {
        Self::stacked(part, t.cols(), t.matrices(), vec![TensorRows::whole(t)])
    }

    /// All matrices of a stack that reads heads. Where `heads` puts zeros behind these, the matrices are widened by
    /// columns of zeros and kept in 16 bits.
    pub(crate) fn of_heads(part: MatrixUse, t: &'a Tensor, heads: Option<Heads>) -> Self {
        let Some(heads) = heads else { return Self::whole(part, t) };
        let of = Some((t, RowCoding::Heads(heads)));
        let rows = TensorRows { home: Home::ROUNDED, rows: t.rows(), of, heads: None };
        Self::stacked(part, heads.widened(t.cols()), t.matrices(), vec![rows])
    }

    /// A matrix of zeros that lies in memory as `like` does.
    pub(crate) fn zeros(part: MatrixUse, like: &Tensor, rows: usize, cols: usize) -> Self {
        Self::stacked(part, cols, 1, vec![TensorRows { home: Home::of(like), rows, of: None, heads: None }])
    }

    /// This plan with products multiplied by `factor`.
    pub(crate) fn times(self, factor: f32) -> Self {
        Self { factor: self.factor * factor, ..self }
    }

    /// This plan with rows of zeros up to a multiple of `rows`.
    pub(crate) fn in_rows_of(self, rows: usize) -> Self {
        Self { rows: self.rows.next_multiple_of(rows), ..self }
    }

    /// `runs` have one home.
    fn stacked(part: MatrixUse, cols: usize, count: usize, runs: Vec<TensorRows<'a>>) -> Self {
        let (home, rows) = (runs[0].home, runs.iter().map(|r| r.rows).sum());
        assert!(runs.iter().all(|r| r.home == home));
        Self::new(part, home, rows, cols, count, RowOrder::Stacked(runs))
    }

    /// Gate and up of each expert as one matrix of twice the rows (and zeros, if the width is no multiple of 8).
    pub(crate) fn interleaved(part: MatrixUse, gate: &'a Tensor, up: &'a Tensor) -> Self {
        let home = if Home::of(gate) == Home::of(up) { Home::of(gate) } else { Home::ROUNDED };
        let form = if home == Home::ROUNDED { RowCoding::Rounded } else { RowCoding::Home };
        let rows = 2 * gate.rows().next_multiple_of(TILE_ROWS / 2);
        Self::new(part, home, rows, gate.cols(), gate.matrices(), RowOrder::Interleaved([gate, up], form))
    }

    fn new(part: MatrixUse, home: Home, rows: usize, cols: usize, count: usize, rows_of: RowOrder<'a>) -> Self {
        let cols = cols.next_multiple_of(UNIT);
        Self { part, layout: home.layout, factor: home.factor, rows, cols, count, placed: false, rows_of }
    }

    /// Bytes of one matrix.
    pub(crate) fn matrix_bytes(&self) -> usize {
        self.layout.matrix_bytes(self.rows, self.cols)
    }

    /// Bytes of all its matrices on the device.
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.matrix_bytes()
    }

    /// Tensor, form and row of row `row`, if it is not zeros.
    fn source(&self, row: usize) -> Option<(&'a Tensor, RowCoding, usize)> {
        match &self.rows_of {
            RowOrder::Stacked(runs) => {
                let mut at = row;
                for run in runs {
                    if at < run.rows {
                        return run.source(at);
                    }
                    at -= run.rows;
                }
                None
            }
            RowOrder::Interleaved(tensors, form) => {
                let (tile, r) = (row / TILE_ROWS, row % TILE_ROWS);
                let (tensor, row) = (tensors[r / 8], tile * 8 + r % 8);
                (row < tensor.rows()).then_some((tensor, *form, row))
            }
        }
    }
}

impl Packed for MatrixPlan<'_> {
    fn form(&self) -> MatrixForm {
        let Self { layout, factor, rows, cols, placed, .. } = *self;
        MatrixForm { layout, factor, rows, cols, placed }
    }
}

impl ByteSource for MatrixPlan<'_> {
    /// A piece is one tile of rows.
    fn piece_bytes(&self) -> usize {
        self.layout.tile_bytes(self.cols)
    }

    fn pieces(&self) -> usize {
        self.count * self.rows.div_ceil(TILE_ROWS)
    }

    fn write(&self, piece: usize, out: &mut [u8]) -> Result<(), NotFinite> {
        out.fill(0);
        let tiles = self.rows.div_ceil(TILE_ROWS);
        let (matrix, tile, units) = (piece / tiles, piece % tiles, self.cols / UNIT);
        for r in 0..TILE_ROWS {
            if let Some((tensor, form, row)) = self.source(tile * TILE_ROWS + r) {
                pack::pack_row(tensor, form, matrix, row, r, units, out)?;
            }
        }
        Ok(())
    }
}

/// Bytes that one matrix of `rows` by `cols` weights of an encoding takes on the device, where it lies alone.
pub fn matrix_bytes(ty: BlockType, rows: usize, cols: usize) -> u64 {
    Home::of_type(ty).layout.matrix_bytes(rows, cols.next_multiple_of(UNIT)) as u64
}

/// Values that stay f32.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VectorPlan<'a> {
    /// As the model has them.
    Values(&'a [f32]),
    /// A tensor that is decoded when it is uploaded.
    Encoded(&'a Tensor),
    /// So many zeros, for what a model may leave out.
    Zeros(usize),
}

impl VectorPlan<'_> {
    /// How many values it has.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Values(x) => x.len(),
            Self::Encoded(t) => t.shape.iter().product(),
            Self::Zeros(len) => *len,
        }
    }

    /// The values. Those of the model were looked at when it was read; what is decoded now is looked at now.
    pub(crate) fn finite_values(&self) -> Result<Vec<f32>, NotFinite> {
        let values = self.values();
        match self {
            Self::Encoded(t) => match values.iter().position(|x| !x.is_finite()) {
                Some(at) => Err(NotFinite { tensor: t.name.clone(), row: at / t.cols() }),
                None => Ok(values),
            },
            Self::Values(_) | Self::Zeros(_) => Ok(values),
        }
    }

    /// The values, decoded where they have to be.
    pub(crate) fn values(&self) -> Vec<f32> {
        match self {
            Self::Values(x) => x.to_vec(),
            Self::Encoded(t) => t.decode(),
            Self::Zeros(len) => vec![0.0; *len],
        }
    }
}

/// The embedding as the device looks rows up in it: encoded, one row after another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EmbeddingPlan<'a> {
    /// Encoding on the device.
    pub(crate) ty: BlockType,
    tensor: &'a Tensor,
}

impl<'a> EmbeddingPlan<'a> {
    /// As in the file where the device reads that, else in f16.
    pub(crate) fn of(tensor: &'a Tensor) -> Self {
        use BlockType as B;
        let read = matches!(tensor.ty, B::F32 | B::F16 | B::Bf16 | B::Q8_0 | B::Q4_0 | B::Q4K | B::Q5K | B::Q6K);
        Self { ty: if read && tensor.scale.is_none() { tensor.ty } else { B::F16 }, tensor }
    }

    /// Bytes of all its rows on the device.
    pub(crate) fn bytes(&self) -> usize {
        self.pieces() * self.piece_bytes()
    }
}

impl ByteSource for EmbeddingPlan<'_> {
    /// A piece is one row.
    fn piece_bytes(&self) -> usize {
        self.ty.row_bytes(self.tensor.cols()).expect("rows are whole blocks of their own encoding and of f16")
    }

    fn pieces(&self) -> usize {
        self.tensor.rows()
    }

    fn write(&self, piece: usize, out: &mut [u8]) -> Result<(), NotFinite> {
        let (t, bytes) = (self.tensor, self.tensor.finite_row(0, piece)?);
        if self.ty == t.ty && t.scale.is_none() {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let scale = t.row_scale(0, piece);
        let mut values = vec![0.0; t.cols()];
        pack::decode(t.ty, bytes, &mut values);
        values.iter_mut().for_each(|x| *x *= scale);
        crate::format::blocks::encode_row(self.ty, &values, out);
        Ok(())
    }
}

/// One matrix for each stretch of runs with the same home.
pub(crate) fn segments(cols: usize, runs: Vec<TensorRows<'_>>) -> Segments<MatrixPlan<'_>> {
    let rows = runs.iter().map(|r| r.rows).sum();
    let (mut parts, mut first) = (Vec::new(), 0);
    for run in runs.chunk_by(|a, b| a.home == b.home) {
        let matrix = MatrixPlan::stacked(MatrixUse::Mixers, cols, 1, run.to_vec());
        first += matrix.rows;
        parts.push(Segment { first: first - matrix.rows, matrix });
    }
    Segments { rows, parts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cuda::layout::config::Placement;
    use crate::backend::cuda::layout::operators::Op;
    use crate::backend::cuda::layout::operators::mlp::ExpertMatrices;
    use crate::backend::cuda::layout::operators::operator::OperatorPlan;
    use crate::backend::cuda::layout::pack::source::fill;
    use crate::backend::cuda::layout::pack::unpack;
    use crate::backend::cuda::layout::weights::{WeightsPlan, planned_bytes};
    use crate::format::blocks::{SplitMix, decode_row, encode_row};
    use crate::model::{self, Activation, GdnConfig, GdnWeights, HeadOrder, MlpConfig, MlpWeights, MoeConfig, Router};

    type Planned<'a, C> = <C as OperatorPlan>::Weights<MatrixPlan<'a>, VectorPlan<'a>>;

    const TYPES: [BlockType; 27] = {
        use BlockType::*;
        [
            F32, F16, Bf16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2K, Q3K, Q4K, Q5K, Q6K, Iq1S, Iq1M, Iq2Xxs, Iq2Xs, Iq2S,
            Iq3Xxs, Iq3S, Iq4Nl, Iq4Xs, Mxfp4, Nvfp4, F8E4m3, F8E4m3B128, U4G128,
        ]
    };

    /// Any bits that stand for numbers.
    fn random(ty: BlockType, shape: &[usize], seed: u64) -> Tensor {
        let mut rng = SplitMix::new(seed, ty as u64);
        let blocks = shape.iter().product::<usize>() / ty.elements();
        let (mut bytes, mut values) = (vec![0; blocks * ty.bytes()], vec![0.0; ty.elements()]);
        for block in bytes.chunks_exact_mut(ty.bytes()) {
            values[0] = f32::NAN;
            // Sums of products with a scale stay numbers.
            while !values.iter().all(|x| x.abs() < 1e30) {
                rng.fill(block);
                decode_row(ty, block, &mut values);
            }
        }
        Tensor::owned(ty.name().into(), ty, shape.to_vec(), bytes).unwrap()
    }

    fn packed(plan: &MatrixPlan<'_>) -> Vec<u8> {
        let mut bytes = vec![0xa5; plan.bytes()];
        fill(plan, &mut bytes).unwrap();
        bytes
    }

    /// Row `row` of matrix `matrix`, all padded inputs.
    fn unpacked(plan: &MatrixPlan<'_>, bytes: &[u8], matrix: usize, row: usize) -> Vec<f32> {
        let tile = &bytes[matrix * plan.matrix_bytes() + row / TILE_ROWS * plan.piece_bytes()..][..plan.piece_bytes()];
        unpack::row(plan.layout, plan.factor, plan.cols, tile, row % TILE_ROWS)
    }

    /// `got` has the values of `want` and zeros after them: the very same, or each 32 to 2^-15 of their largest.
    fn check_row(layout: Layout, got: &[f32], want: &[f32], what: &str) {
        let (values, padding) = got.split_at(want.len());
        assert!(padding.iter().all(|x| *x == 0.0), "{what}: padded with {padding:?}");
        for (got, want) in values.chunks(32).zip(want.chunks(32)) {
            let top = want.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            let off = if layout == Layout::W16 && top >= 1e-30 {
                top / 32768.0
            } else if layout == Layout::W16 {
                1e-30
            } else {
                0.0
            };
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= off), "{what}: {got:?} for {want:?}");
        }
    }

    #[test]
    fn weights_that_are_no_finite_numbers_are_named_whatever_becomes_of_them() {
        for ty in TYPES.into_iter().filter(|ty| *ty != BlockType::Nvfp4) {
            let whole = random(ty, &[2, 21, 512], 3);
            let (mut bytes, row) = (whole.bytes().to_vec(), ty.row_bytes(512).unwrap());
            bytes[(21 + 18) * row - ty.bytes()..][..ty.bytes()].fill(0xff);
            let bad = Tensor::owned("bad".into(), ty, whole.shape.clone(), bytes).unwrap();
            let wanted = Err(NotFinite { tensor: "bad".into(), row: 21 + 17 });
            let plan = MatrixPlan::whole(MatrixUse::Head, &bad);
            assert_eq!(fill(&plan, &mut vec![0; plan.bytes()]), wanted, "{}", ty.name());
            let plan = MatrixPlan::interleaved(MatrixUse::Experts, &whole, &bad);
            assert_eq!(fill(&plan, &mut vec![0; plan.bytes()]), wanted, "{}", ty.name());
            let table = Tensor::owned("bad".into(), ty, vec![42, 512], bad.bytes().to_vec()).unwrap();
            let plan = EmbeddingPlan::of(&table);
            assert_eq!(fill(&plan, &mut vec![0; plan.bytes()]), wanted, "{}", ty.name());
            assert_eq!(VectorPlan::Encoded(&table).finite_values().map(drop), wanted, "{}", ty.name());
        }
    }

    fn check_whole(plan: &MatrixPlan<'_>, t: &Tensor) {
        let (bytes, values) = (packed(plan), Tensor::decode(t));
        assert_eq!((plan.rows, plan.cols, plan.count), (t.rows(), t.cols().next_multiple_of(128), t.matrices()));
        for (i, want) in values.chunks(t.cols()).enumerate() {
            let (matrix, row) = (i / t.rows(), i % t.rows());
            check_row(
                plan.layout,
                &unpacked(plan, &bytes, matrix, row),
                want,
                &format!("{t:?} matrix {matrix} row {row}"),
            );
        }
    }

    #[test]
    fn every_encoding_is_unpacked_as_it_decodes() {
        for ty in TYPES {
            let cols = ty.elements().max(32) * 3;
            let t = random(ty, &[2, 21, cols], 1);
            check_whole(&MatrixPlan::whole(MatrixUse::Experts, &t), &t);
            let mut scaled = random(ty, &[2, 3, cols], 2);
            scaled.scale = Some([0.5, 3.0].into());
            let plan = MatrixPlan::whole(MatrixUse::Experts, &scaled);
            let own = matches!(ty, BlockType::Nvfp4 | BlockType::F8E4m3 | BlockType::U4G128);
            assert_eq!(plan.layout.row_factors, own, "{}", ty.name());
            assert!(own || plan.layout == Layout::W16);
            check_whole(&plan, &scaled);
            scaled.scale = Some((0..6).map(|i| 1.0 + i as f32 / 7.0).collect());
            check_whole(&MatrixPlan::whole(MatrixUse::Experts, &scaled), &scaled);
        }
    }

    #[test]
    fn floats_of_any_width_fill_up_their_last_block_with_zeros() {
        let t = random(BlockType::Bf16, &[3, 300], 3);
        check_whole(&MatrixPlan::whole(MatrixUse::Mixers, &t), &t);
    }

    fn check_interleaved(plan: &MatrixPlan<'_>, gate: &Tensor, up: &Tensor) {
        let (bytes, values, width) = (packed(plan), [Tensor::decode(gate), Tensor::decode(up)], gate.rows());
        for matrix in 0..plan.count {
            for row in 0..plan.rows {
                let (which, source) = (row % 16 / 8, row / 16 * 8 + row % 8);
                let got = unpacked(plan, &bytes, matrix, row);
                let what = format!("{gate:?} matrix {matrix} row {row}");
                let want = values[which].chunks(gate.cols()).nth(matrix * width + source).filter(|_| source < width);
                check_row(plan.layout, &got, want.unwrap_or(&[]), &what);
            }
        }
    }

    #[test]
    fn gate_and_up_take_turns_of_eight_rows_and_share_a_layout() {
        for (gate, up, layout) in [
            (BlockType::Q4K, BlockType::Q4K, Layout::Q4_K),
            (BlockType::Q5_0, BlockType::Q5_0, Layout::Q5_0),
            (BlockType::Q5_0, BlockType::Q8_0, Layout::W16),
            (BlockType::Q4K, BlockType::Q6K, Layout::W16),
            (BlockType::Iq4Nl, BlockType::Bf16, Layout::W16),
        ] {
            let [gate, up] = [(gate, 4), (up, 5)].map(|(ty, seed)| random(ty, &[2, 12, 256], seed));
            let plan = MatrixPlan::interleaved(MatrixUse::Experts, &gate, &up);
            assert_eq!((plan.layout, plan.rows), (layout, 32));
            check_interleaved(&plan, &gate, &up);
        }
    }

    /// Rows of all segments as one matrix.
    fn check_segments(segments: &Segments<MatrixPlan<'_>>, tensors: &[&Tensor]) -> Vec<Vec<f32>> {
        let rows: Vec<Vec<f32>> = segments
            .parts
            .iter()
            .flat_map(|s| {
                let bytes = packed(&s.matrix);
                (0..s.matrix.rows).map(|r| unpacked(&s.matrix, &bytes, 0, r)).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(rows.len(), segments.rows);
        let mut first = 0;
        for s in &segments.parts {
            assert_eq!(s.first, first);
            first += s.matrix.rows;
        }
        let mut at = 0;
        for t in tensors {
            for (r, want) in Tensor::decode(t).chunks(t.cols()).enumerate() {
                check_row(Home::of(t).layout, &rows[at + r], want, &format!("{t:?} row {r}"));
            }
            at += t.rows();
        }
        rows[at..].to_vec()
    }

    fn check_gdn(plan: &Planned<'_, GdnConfig>, w: &GdnWeights) {
        let heads = w.b.rows();
        let rest = check_segments(&plan.projections.inputs, &[&w.qkv, &w.z]);
        assert_eq!(rest.len(), 4 * heads);
        for (i, want) in [&w.b, &w.a]
            .into_iter()
            .flat_map(|t| Tensor::decode(t).chunks(t.cols()).map(<[f32]>::to_vec).collect::<Vec<_>>())
            .enumerate()
        {
            let got: Vec<f32> = rest[i].iter().zip(&rest[2 * heads + i]).map(|(a, b)| a + b).collect();
            // Q8_0 of what Q8_0 left.
            check_row(Layout::W16, &got, &want, &format!("b and a, row {i}"));
        }
        check_whole(&plan.projections.out, &w.out);
    }

    #[test]
    fn rows_of_several_encodings_become_segments_and_b_and_a_keep_15_bits() {
        use BlockType as B;
        let cases: [(&str, [BlockType; 4], &[Layout]); 6] = [
            ("all the same", [B::Q8_0; 4], &[Layout::Q8_0]),
            ("gates in f32", [B::Q8_0, B::Q5_0, B::F32, B::F32], &[Layout::Q8_0, Layout::Q5_0, Layout::Q8_0]),
            ("all k-quants", [B::Q6K; 4], &[Layout::Q6_K]),
            ("z apart", [B::Q4K, B::Q6K, B::F32, B::F32], &[Layout::Q4_K, Layout::Q6_K, Layout::Q8_0]),
            ("all bf16", [B::Bf16; 4], &[Layout::W16]),
            ("one gate f32", [B::Q4K, B::Q4K, B::Q8_0, B::F32], &[Layout::Q4_K, Layout::Q8_0]),
        ];
        for (what, types, layouts) in cases {
            let tame = |ty: BlockType, rows: usize| {
                let mut rng = SplitMix::new(6, 0);
                let values: Vec<f32> = (0..rows * 256).map(|_| 0.05 * rng.signed_unit()).collect();
                let floats: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                if ty == B::F32 {
                    Tensor::owned("f32".into(), ty, vec![rows, 256], floats).unwrap()
                } else {
                    random(ty, &[rows, 256], 7)
                }
            };
            let w = GdnWeights {
                config: GdnConfig {
                    key_heads: 1,
                    value_heads: 6,
                    key_dim: 1,
                    value_dim: 1,
                    conv_taps: 4,
                    head_order: HeadOrder::Grouped,
                },
                qkv: tame(types[0], 40),
                z: tame(types[1], 20),
                b: tame(types[2], 6),
                a: tame(types[3], 6),
                conv: vec![],
                a_neg: vec![],
                dt_bias: vec![],
                norm: vec![],
                out: tame(B::Q8_0, 3),
            };
            let plan = GdnConfig::plan(&w, 1.0);
            assert_eq!(
                plan.projections.inputs.parts.iter().map(|s| s.matrix.layout).collect::<Vec<_>>(),
                layouts,
                "{what}"
            );
            check_gdn(&plan, &w);
        }
    }

    fn check_expert(plan: &ExpertMatrices<MatrixPlan<'_>>, w: &MlpWeights) {
        match &w.gate {
            Some(gate) => check_interleaved(&plan.gate_up, gate, &w.up),
            None => check_up(&plan.gate_up, &w.up),
        }
        check_whole(&plan.down, &w.down);
    }

    /// All rows, then zeros.
    fn check_up(plan: &MatrixPlan<'_>, up: &Tensor) {
        let (bytes, values) = (packed(plan), Tensor::decode(up));
        assert_eq!((plan.rows, plan.count), (up.rows().next_multiple_of(64), up.matrices()));
        for (matrix, row) in (0..plan.count).flat_map(|matrix| (0..plan.rows).map(move |row| (matrix, row))) {
            let want = values.chunks(up.cols()).nth(matrix * up.rows() + row).filter(|_| row < up.rows());
            let got = unpacked(plan, &bytes, matrix, row);
            check_row(plan.layout, &got, want.unwrap_or(&[]), &format!("{up:?} matrix {matrix} row {row}"));
        }
    }

    fn check_zeros(plan: &MatrixPlan<'_>) {
        let bytes = packed(plan);
        (0..plan.rows).for_each(|row| check_row(plan.layout, &unpacked(plan, &bytes, 0, row), &[], "zeros"));
    }

    fn check_block(plan: &Op<MatrixPlan<'_>, VectorPlan<'_>>, w: &model::Op) {
        match (plan, w) {
            (Op::Gdn(_, plan), model::Op::Gdn(w)) => check_gdn(plan, w),
            (Op::Attention(_, plan), model::Op::Attention(w)) => {
                assert!(check_segments(&plan.projections.inputs, &[&w.q, &w.k, &w.v]).is_empty());
                check_whole(&plan.projections.out, &w.out);
            }
            (Op::Moe(_, plan), model::Op::Moe(w)) => {
                check_expert(&plan.experts, &w.experts);
                match &w.shared {
                    Some(shared) => check_expert(&plan.shared, &shared.expert),
                    None => [&plan.shared.gate_up, &plan.shared.down].into_iter().for_each(check_zeros),
                }
                assert_eq!(plan.router.values(), Tensor::decode(&w.router));
            }
            (Op::Mlp(_, plan), model::Op::Mlp(w)) => check_expert(plan, w),
            _ => panic!("an operator of another kind"),
        }
    }

    #[test]
    fn heads_that_kernels_take_for_wider_ones_end_with_zeros() {
        let heads = Heads { own: 96, padded: 128 };
        for ty in [BlockType::F32, BlockType::Q8_0, BlockType::Q6K] {
            let t = random(ty, &[192, 768], 11);
            let rows = &segments(768, vec![TensorRows::in_heads(&t, Some(heads))]).parts[0].matrix;
            let cols = MatrixPlan::of_heads(MatrixUse::Mixers, &t, Some(heads));
            assert_eq!((rows.rows, rows.cols, cols.rows, cols.cols), (256, 768, 192, 1024));
            let (of_rows, of_cols, values) = (packed(rows), packed(&cols), Tensor::decode(&t));
            for r in 0..256 {
                let want = if r % 128 < 96 { &values[(r / 128 * 96 + r % 128) * 768..][..768] } else { &[] };
                check_row(rows.layout, &unpacked(rows, &of_rows, 0, r), want, &format!("{ty:?} row {r}"));
            }
            for r in 0..192 {
                let got = unpacked(&cols, &of_cols, 0, r);
                for (head, (got, want)) in got.chunks(128).zip(values[r * 768..][..768].chunks(96)).enumerate() {
                    check_row(cols.layout, got, want, &format!("{ty:?} row {r}, head {head}"));
                }
            }
        }
    }

    #[test]
    fn up_without_a_gate_has_rows_of_zeros_up_to_a_multiple_of_64() {
        let config = MlpConfig { width: 96, activation: Activation::Relu2 };
        let [up, down] = [[2, 96, 64], [2, 21, 96]].map(|shape| random(BlockType::Q5_0, &shape, 10));
        let w = MlpWeights { config, gate: None, up, down };
        let plan = MlpConfig::plan(&w, 1.0);
        assert_eq!((plan.gate_up.rows, plan.gate_up.layout, plan.down.layout), (128, Layout::Q5_0, Layout::Q5_0));
        check_expert(&plan, &w);
    }

    #[test]
    fn what_weights_of_experts_add_up_to_is_a_factor_of_their_matrices() {
        let path = format!("{}/tests/golden/nemotron_h/model.gguf", env!("CARGO_MANIFEST_DIR"));
        let model = model::load(path.as_ref()).unwrap();
        let moe = model.weights.layers.iter().flatten().find_map(|block| match &block.op {
            model::Op::Moe(w) => Some(w),
            _ => None,
        });
        let (w, plan) = moe.map(|w| (w, MoeConfig::plan(w, 3.0))).unwrap();
        let Router::SigmoidBias { scale } = w.config.router else { panic!("another router") };
        // The shared expert has no gate: one of zeros is open by half.
        assert_eq!((plan.experts.down.factor, plan.shared.down.factor), (3.0 * scale, 6.0));
        assert_eq!(Some(plan.bias.values()), w.bias);
    }

    #[test]
    fn whole_models_are_unpacked_as_they_decode_and_take_what_was_planned() {
        let presets = ["moe", "dense", "next", "quant", "qwen3_moe"].map(|p| format!("tests/golden/{p}/model.gguf"));
        for path in presets.into_iter().chain(["../models/nano/nano-q8_0.gguf".into()]) {
            let model = model::load(format!("{}/{path}", env!("CARGO_MANIFEST_DIR")).as_ref()).unwrap();
            let plan = WeightsPlan::of(&model, Placement::default());
            for (plan, w) in plan.blocks.iter().zip(model.weights.layers.iter().flatten()) {
                check_block(&plan.op, &w.op);
            }
            check_whole(&plan.head, model.weights.head.as_ref().unwrap_or(&model.weights.embed));
            let planned = planned_bytes(&model, Placement::default());
            let (tree, matrices, vectors) = plan.take_apart();
            let values: usize = vectors.iter().map(|v| 4 * v.values().len()).sum();
            let all: usize = matrices.iter().map(|m| packed(m).len()).sum::<usize>() + tree.embed.bytes() + values;
            assert_eq!(planned.device(), all as u64, "{path}");
            let hosted = planned_bytes(&model, Placement { host_embedding: true, ..Placement::default() });
            assert_eq!((hosted.device() + hosted.host_embedding, hosted.embedding), (all as u64, 0), "{path}");
        }
    }

    #[test]
    fn an_embedding_stays_encoded_where_the_device_reads_that_and_is_f16_elsewhere() {
        for ty in TYPES {
            let t = random(ty, &[3, 256], 8);
            let plan = EmbeddingPlan::of(&t);
            let mut bytes = vec![1; plan.bytes()];
            fill(&plan, &mut bytes).unwrap();
            if plan.ty == ty {
                assert_eq!(bytes, t.bytes());
                continue;
            }
            let mut want = vec![0; bytes.len()];
            encode_row(BlockType::F16, &t.decode(), &mut want);
            assert_eq!((plan.ty, bytes), (BlockType::F16, want), "{}", ty.name());
        }
    }

    /// That this thread has run: the machine may be busy with other things.
    fn cpu_seconds() -> f64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap() * 1e-9
    }

    /// Prints what one core packs, by encoding: bytes of the file a second.
    #[test]
    #[ignore = "a measurement"]
    fn rates_of_packing() {
        for ty in TYPES {
            let t = random(ty, &[512, 2048], 9);
            let plan = MatrixPlan::whole(MatrixUse::Experts, &t);
            let mut tile = vec![0; plan.piece_bytes()];
            let (begin, mut rounds) = (cpu_seconds(), 0);
            while cpu_seconds() - begin < 0.3 {
                (0..plan.pieces()).for_each(|i| plan.write(i, std::hint::black_box(&mut tile)).unwrap());
                rounds += 1;
            }
            let rate = (rounds * t.bytes().len()) as f64 / (cpu_seconds() - begin) / 1e6;
            println!("{:8} {:6.0} MB/s, to {:6.2} bits", ty.name(), rate, plan.bytes() as f64 * 8.0 / (512.0 * 2048.0));
        }
    }
}
