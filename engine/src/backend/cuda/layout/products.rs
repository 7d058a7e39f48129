//! Products of matrices before there is a device: which kernels few, some and many rows take.

use super::matrix::{MatrixForm, Packed};
use crate::backend::cuda::error::CudaResult;
use chimere_kernels::cuda::Program;
use chimere_kernels::cuda::experts;
use chimere_kernels::cuda::product::{self, Activated, Residual, halves};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::{self, Chip, Epilogue, WideArithmetic, warpgroup};
use std::mem::discriminant;

/// Row counts up to which a kernel's tiles are chosen: those of the decode graphs, then a few of prompts.
const CLASSES: [usize; 18] = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192];
/// Decode rows up to which int8 products take the kernels made for few.
pub(crate) const FEW_ROWS: usize = product::ROWS_MAX;
/// Outputs from which a plain matrix is worth f16 however few rows there are, on chips that have it.
const HALF_OUTPUTS_MIN: usize = 1 << 13;
/// Tiles decide about the bytes of prompts in int8, so these are those for this many rows, however many there are.
const PROMPT_TILES: usize = 1024;

/// What a kernel's tiles were chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Up to so many decode rows, whose sums have the order of the kernels for few.
    Decode(usize),
    /// Up to so many rows of prompts, which have an arithmetic of their own.
    Prompt(usize),
}

impl Class {
    /// Which of these it takes. More rows than any is for have the largest of their kind: all of a prompt's rows may be
    /// scored, by tiles for decode rows.
    pub(crate) fn among(self, all: impl Iterator<Item = Class> + Clone) -> Option<usize> {
        let largest = || all.clone().enumerate().filter(|c| discriminant(&c.1) == discriminant(&self)).last();
        all.clone().position(|c| c == self).or_else(|| largest().map(|c| c.0))
    }
}

/// What forms are chosen by, beside the product and its rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProductChoice {
    pub(crate) chip: Chip,
    /// Whether few rows take the experts that they are given.
    pub(crate) replayed: bool,
    /// Largest rank of the adapters that there may be; 0 for none.
    pub(crate) adapter_rank: usize,
}

/// How many rows a product's tiles are chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCount {
    pub(crate) count: usize,
    pub(crate) prefill: bool,
}

impl RowCount {
    /// The class whose kernels these rows take.
    pub(crate) fn class(self) -> Class {
        let count = CLASSES.into_iter().find(|c| *c >= self.count).unwrap_or(CLASSES[CLASSES.len() - 1]);
        if self.prefill { Class::Prompt(count) } else { Class::Decode(count) }
    }
}

/// What is known of a product before there is a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProductKind {
    pub(crate) shape: wide::WideShape,
    /// Of experts: rows that one of them gets for each row of the step, as a fraction.
    pub(crate) share: Option<(usize, usize)>,
    /// Whether few rows have it done by the kernels that do all experts of a layer, the shared one too.
    pub(crate) of_experts: bool,
    /// Whether it runs beside others, so that its rows become f16 in a place of their own.
    pub(crate) beside: bool,
    /// Whether adapters may add to it.
    pub(crate) adaptable: bool,
    /// The product that alone reads what it makes, of the same rows, if that is known: then this may be f16 at once.
    feeds: Option<wide::WideShape>,
}

impl ProductKind {
    /// A matrix for all rows.
    pub(crate) fn dense(matrix: &impl Packed, epilogue: Epilogue, norm: Option<usize>) -> CudaResult<Self> {
        let MatrixForm { layout, rows, cols, .. } = matrix.form();
        let shape = wide::WideShape::new(product::MatrixShape::new(layout, rows, cols)?, epilogue, norm, true)?;
        Ok(Self { shape, share: None, of_experts: false, beside: false, adaptable: false, feeds: None })
    }

    /// One of `experts` matrices, of which a row uses `used`.
    pub(crate) fn routed(
        matrix: &impl Packed,
        epilogue: Epilogue,
        norm: Option<usize>,
        (used, experts): (usize, usize),
    ) -> CudaResult<Self> {
        let MatrixForm { layout, rows, cols, placed, .. } = matrix.form();
        let shape = wide::WideShape::new(product::MatrixShape::new(layout, rows, cols)?, epilogue, norm, false)?;
        let shape = shape.with_places(placed);
        let share = Some((used, experts));
        Ok(Self { shape, share, of_experts: true, beside: false, adaptable: false, feeds: None })
    }

    /// This kind for activations of so many planes.
    pub(crate) fn with_planes(self, planes: Planes) -> Self {
        let feeds = self.feeds.map(|shape| shape.with_planes(planes));
        Self { shape: self.shape.with_planes(planes), feeds, ..self }
    }

    /// This kind where adapters may add to the product.
    pub(crate) fn adaptable(self) -> Self {
        Self { adaptable: true, ..self }
    }

    /// This kind where adapters do.
    pub(crate) fn adapted(self) -> Self {
        Self { shape: self.shape.with_adapters(true), ..self }
    }

    /// This kind where the product `next` reads the output.
    pub(crate) fn feeding(self, next: &Self) -> Self {
        Self { feeds: Some(next.shape), ..self }
    }

    /// This kind for the shared expert; `few` says whether few rows have it computed with the routed experts.
    pub(crate) fn beside_experts(self, few: bool) -> Self {
        Self { of_experts: few, beside: true, ..self }
    }

    /// Of a matrix whose decode rows all have one arithmetic in f16, in how many segments of the inputs sums are taken.
    pub(crate) fn half_segments(&self, shape: wide::WideShape, chip: Chip) -> Option<usize> {
        // Few rows have a shared expert done with the others, in their arithmetic.
        let (matrix, plain) = (shape.matrix(), !self.of_experts && shape.epilogue() == Epilogue::Plain);
        let large = plain && shape.dense() && chip.warpgroups && matrix.size().0 >= HALF_OUTPUTS_MIN;
        if large { halves::tilings(matrix, chip.multiprocessors).first().map(|t| t.1.warps_k) } else { None }
    }

    /// What such rows take: the shape says whether what is made of them is f16 at once.
    pub(crate) fn chosen(&self, class: Class, choice: ProductChoice) -> (wide::WideShape, WideArithmetic) {
        let form = self.form_of(self.shape, class, choice);
        let f16 = |form| matches!(form, WideArithmetic::F16(_));
        let read = self.feeds.is_some_and(|next| f16(self.form_of(next, class, choice)) && self.shape.fills(next));
        if !(read && f16(form) && self.shape.may_make_half_rows()) {
            return (self.shape, form);
        }
        let made = self.shape.with_half_rows(true);
        (made, self.form_of(made, class, choice))
    }

    /// Of this shape with the rest of the kind.
    fn form_of(
        &self,
        shape: wide::WideShape,
        class: Class,
        ProductChoice { chip, .. }: ProductChoice,
    ) -> WideArithmetic {
        match (class, self.half_segments(shape, chip)) {
            (Class::Decode(rows), Some(segments)) => {
                let of_any = warpgroup::tiling_in(segments, shape, rows, chip);
                WideArithmetic::F16(of_any.expect("large plain matrices have tiles for any number of rows"))
            }
            (Class::Decode(rows), None) => {
                let order = experts::order_of_few(shape, self.of_experts, chip.multiprocessors);
                WideArithmetic::Int8(wide::tiling_in(order, shape, self.columns(rows), chip))
            }
            (Class::Prompt(rows), _) => warpgroup::tiling(shape, self.columns(rows), chip).map_or_else(
                || WideArithmetic::Int8(wide::tiling(shape, self.columns(PROMPT_TILES), chip)),
                WideArithmetic::F16,
            ),
        }
    }

    /// Columns that are expected beside one another of so many rows. They spread unevenly over experts; those that are
    /// chosen get about this many.
    fn columns(&self, rows: usize) -> usize {
        self.share.map_or(rows, |(used, experts)| (rows * used).div_ceil(experts).max(1))
    }

    /// Everything that some number of rows takes.
    fn forms(&self, classes: &[Class], choice: ProductChoice) -> Vec<(wide::WideShape, WideArithmetic)> {
        let mut all = Vec::new();
        for chosen in classes.iter().map(|c| self.chosen(*c, choice)) {
            if !all.contains(&chosen) {
                all.push(chosen);
            }
        }
        all
    }

    /// Programs for those classes, and for few rows, without adapters and with some where there may be.
    pub(crate) fn programs(&self, classes: &[Class], choice: ProductChoice) -> CudaResult<Vec<Program>> {
        let mut all = self.own_programs(classes, choice)?;
        if self.adaptable && choice.adapter_rank > 0 {
            all.extend(self.adapted().own_programs(classes, choice)?);
        }
        Ok(all)
    }

    fn own_programs(&self, classes: &[Class], choice: ProductChoice) -> CudaResult<Vec<Program>> {
        let mut all = Vec::new();
        for (shape, form) in self.forms(classes, choice) {
            all.extend(form.programs(shape)?);
        }
        let (matrix, chip) = (self.shape.matrix(), choice.chip);
        match self.shape.epilogue() {
            _ if self.of_experts => {}
            Epilogue::Plain => {
                let halves = self.half_segments(self.shape, chip).is_some();
                let programs = if halves { halves::programs } else { product::programs };
                all.extend(programs(matrix, self.shape.norm(), chip.multiprocessors));
            }
            Epilogue::Residual => all.extend(Residual::programs(matrix, chip.multiprocessors)),
            epilogue => all.extend(Activated::programs(matrix, epilogue, self.shape.norm(), chip.multiprocessors)),
        }
        Ok(all)
    }
}

/// Which classes a backend uses.
pub(crate) fn classes(decode_rows: usize, prefill_rows: usize) -> Vec<Class> {
    let last = |rows: usize| CLASSES.into_iter().take_while(move |c| *c < rows).count();
    let up_to = |rows| CLASSES[..=last(rows).min(CLASSES.len() - 1)].iter().copied();
    up_to(decode_rows).map(Class::Decode).chain(up_to(prefill_rows).map(Class::Prompt)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimere_kernels::cuda::product::layout::Layout;

    #[test]
    fn rows_take_the_class_above_them() {
        let class = |count, prefill| RowCount { count, prefill }.class();
        assert_eq!([1, 3, 17, 300, 9999].map(|n| class(n, true)), [1, 4, 24, 512, 8192].map(Class::Prompt));
        assert_eq!([1, 16, 200].map(|n| class(n, false)), [1, 16, 256].map(Class::Decode));
        let prompts = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128].map(Class::Prompt);
        assert_eq!(classes(4, 100), [&[1, 2, 4].map(Class::Decode)[..], &prompts].concat());
        assert_eq!(classes(9999, 1).len(), CLASSES.len() + 1);
        let all = classes(20, 100);
        let place = |class: Class| class.among(all.iter().copied()).map(|i| all[i]);
        assert_eq!(place(Class::Decode(8)), Some(Class::Decode(8)));
        assert_eq!(place(Class::Decode(4096)), Some(Class::Decode(24)), "never in another order");
        assert_eq!(place(Class::Prompt(128)), Some(Class::Prompt(128)));
    }

    #[test]
    fn prompts_of_any_length_have_one_arithmetic() {
        let chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
        let matrix = product::MatrixShape::new(Layout::Q4_K, 1024, 2048).unwrap();
        let shape = wide::WideShape::new(matrix, Epilogue::Gated, Some(2048), false).unwrap();
        let kind = ProductKind {
            shape,
            share: Some((8, 256)),
            of_experts: true,
            beside: false,
            adaptable: false,
            feeds: None,
        };
        for chip in [chip, Chip { warpgroups: false, ..chip }] {
            let form =
                |rows| kind.chosen(Class::Prompt(rows), ProductChoice { chip, replayed: false, adapter_rank: 0 }).1;
            let halves = CLASSES.map(|rows| matches!(form(rows), WideArithmetic::F16(_)));
            assert_eq!(halves, [chip.warpgroups; CLASSES.len()]);
            if !chip.warpgroups {
                assert!(CLASSES.iter().all(|rows| form(*rows) == form(1)), "int8's tiles decide about its bytes");
            }
        }
    }

    #[test]
    fn a_large_plain_matrix_has_one_arithmetic_for_all_decode_rows() {
        let chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
        let segments = |(rows, cols), layout, of_experts, chip| {
            let matrix = product::MatrixShape::new(layout, rows, cols).unwrap();
            let shape = wide::WideShape::new(matrix, Epilogue::Plain, None, true).unwrap();
            let kind = ProductKind { shape, share: None, of_experts, beside: false, adaptable: false, feeds: None };
            let of = |class| match kind.chosen(class, ProductChoice { chip, replayed: false, adapter_rank: 0 }).1 {
                WideArithmetic::F16(tiling) => Some(tiling.segments),
                WideArithmetic::Int8(_) => None,
            };
            let all = CLASSES.map(|rows| of(Class::Decode(rows)));
            assert!(all.iter().all(|s| *s == all[0]), "{rows} x {cols}: {all:?}");
            all[0]
        };
        assert_eq!(segments((12_416, 2048), Layout::Q8_0, false, chip), Some(4), "an in-projection");
        assert_eq!(segments((248_320, 2048), Layout::Q6_K, false, chip), Some(1), "a head");
        assert_eq!(segments((8192, 2048), Layout::Q8_0, true, chip), None, "of a shared expert");
        assert_eq!(segments((2048, 2048), Layout::Q8_0, false, chip), None, "a small one");
        assert_eq!(segments((248_320, 2048), Layout::W16, false, chip), Some(1), "weights of 16 bits");
        assert_eq!(segments((12_416, 2048), Layout::Q8_0, false, Chip { warpgroups: false, ..chip }), None);
    }

    #[test]
    fn what_experts_hide_is_f16_where_it_is_made_and_read_in_f16() {
        let chip = Chip { multiprocessors: 132, clusters: true, shared_bytes: 227 << 10, warpgroups: true };
        let kind = |(rows, cols), epilogue| {
            let matrix = product::MatrixShape::new(Layout::Q4_K, rows, cols).unwrap();
            let shape = wide::WideShape::new(matrix, epilogue, None, false).unwrap();
            ProductKind { shape, share: Some((8, 256)), of_experts: true, beside: false, adaptable: false, feeds: None }
        };
        let made = |gate_up: ProductKind, rows, chip| {
            let (shape, form) =
                gate_up.chosen(Class::Prompt(rows), ProductChoice { chip, replayed: false, adapter_rank: 0 });
            form.programs(shape).unwrap();
            shape.makes_half_rows()
        };
        let (gate_up, down) = (kind((1024, 2048), Epilogue::Gated), kind((2048, 512), Epilogue::Plain));
        assert!(!made(gate_up, 8192, chip), "nobody is known to read it");
        let gate_up = gate_up.feeding(&down);
        assert_eq!([8192, 64].map(|rows| made(gate_up, rows, chip)), [true; 2], "whatever their number");
        assert!(!made(gate_up, 8192, Chip { warpgroups: false, ..chip }));
        assert!(!made(gate_up.with_planes(Planes::Two), 8192, chip));
        let padded = kind((1152, 2048), Epilogue::Gated).feeding(&kind((2048, 640), Epilogue::Plain));
        assert!(!made(padded, 8192, chip), "what lies behind the values would have to be zeros");
    }
}
