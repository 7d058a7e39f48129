//! Products of a model's matrices, each with the kernels that it wants for few, some and many rows.

use super::weights::Matrix;
use crate::backend::cuda::error::CudaResult;
use crate::backend::cuda::layout::matrix::Segments;
use crate::backend::cuda::layout::products::{Class, FEW_ROWS, ProductChoice, ProductKind, RowCount};
use chimere_kernels::cuda::experts::{self, Experts, ExpertsKernels};
use chimere_kernels::cuda::product::{self, Activated, ActivatedRows, Activations, NextRows, Norm, Residual};
use chimere_kernels::cuda::quantized::Planes;
use chimere_kernels::cuda::wide::halves::HalfRows;
use chimere_kernels::cuda::wide::{self, Columns, Epilogue, HalfPlace, Inputs, Many, Output, Source, WideArithmetic};
use chimere_kernels::cuda::{Device, KernelCache};
use cudarc::driver::CudaViewMut;
use std::collections::HashMap;
use std::rc::Rc;

/// Kernels by what they were made for: layers of equal shapes share them.
pub(crate) struct ProductKernels<'a> {
    pub(crate) device: &'a Device,
    pub(crate) cache: &'a KernelCache,
    pub(crate) classes: Vec<Class>,
    pub(crate) choice: ProductChoice,
    planes: Planes,
    /// Where rows become f16: those of the products that follow one another, and of what runs beside them.
    half_rows: [Rc<HalfPlace>; 2],
    loaded: HashMap<(wide::WideShape, WideArithmetic, bool), Many>,
    few: HashMap<ProductKind, Few>,
    experts: HashMap<Experts, Option<Rc<ExpertsKernels>>>,
}

/// A dense product's kernels for few rows.
#[derive(Clone)]
enum Few {
    Plain(Rc<product::Product>),
    Residual(Rc<Residual>),
    Activated(Rc<Activated>),
}

impl<'a> ProductKernels<'a> {
    pub(crate) fn new(
        device: &'a Device,
        cache: &'a KernelCache,
        classes: Vec<Class>,
        choice: ProductChoice,
        planes: Planes,
        half_rows: [HalfRows; 2],
    ) -> Self {
        Self {
            device,
            cache,
            classes,
            choice,
            planes,
            half_rows: half_rows.map(|rows| Rc::new(HalfPlace::new(rows))),
            loaded: HashMap::new(),
            few: HashMap::new(),
            experts: HashMap::new(),
        }
    }

    /// The kernels of a product, and where adapters may add to it those that know of them.
    pub(crate) fn of(&mut self, kind: ProductKind) -> CudaResult<Product> {
        let kind = kind.with_planes(self.planes);
        let adapted =
            (kind.adaptable && self.choice.adapter_rank > 0).then(|| self.by_class(kind.adapted())).transpose()?;
        Ok(Product { plain: self.by_class(kind)?, adapted })
    }

    /// The kernels of a kind, by class.
    fn by_class(&mut self, kind: ProductKind) -> CudaResult<RowKernels> {
        let mut by_class = Vec::with_capacity(self.classes.len());
        for class in self.classes.clone() {
            by_class.push((class, self.many(kind.chosen(class, self.choice), kind.beside)?));
        }
        // Experts' few rows have an order of their own.
        let few = if kind.of_experts { None } else { Some(self.few(kind)?) };
        Ok(RowKernels { by_class, few })
    }

    fn many(&mut self, (shape, form): (wide::WideShape, WideArithmetic), beside: bool) -> CudaResult<Many> {
        let key = (shape, form, beside);
        if let Some(kernel) = self.loaded.get(&key) {
            return Ok(kernel.clone());
        }
        let kernel = Many::load(self.device, self.cache, shape, form, &self.half_rows[usize::from(beside)])?;
        self.loaded.insert(key, kernel.clone());
        Ok(kernel)
    }

    fn few(&mut self, kind: ProductKind) -> CudaResult<Few> {
        if let Some(few) = self.few.get(&kind) {
            return Ok(few.clone());
        }
        let few = self.load_few(kind)?;
        self.few.insert(kind, few.clone());
        Ok(few)
    }

    fn load_few(&self, kind: ProductKind) -> CudaResult<Few> {
        let (matrix, norm) = (kind.shape.matrix(), kind.shape.norm());
        Ok(match kind.shape.epilogue() {
            Epilogue::Plain => {
                let halves = kind.half_segments(kind.shape, self.choice.chip).is_some();
                let load = if halves { product::Product::in_halves } else { product::Product::load };
                Few::Plain(Rc::new(load(self.device, self.cache, matrix, norm)?))
            }
            Epilogue::Residual => Few::Residual(Rc::new(Residual::load(self.device, self.cache, matrix)?)),
            epilogue => Few::Activated(Rc::new(Activated::load(self.device, self.cache, matrix, epilogue, norm)?)),
        })
    }

    /// The kernels of a layer's experts for few rows, if the chip has the memory for them: without adapters, and with
    /// some where there may be.
    pub(crate) fn experts(&mut self, experts: Experts) -> CudaResult<[Option<Rc<ExpertsKernels>>; 2]> {
        let experts = experts.with_planes(self.planes).with_replay(self.choice.replayed);
        let adapted = match self.choice.adapter_rank {
            0 => None,
            rank => self.experts_of(experts.with_adapters(rank))?,
        };
        Ok([self.experts_of(experts)?, adapted])
    }

    fn experts_of(&mut self, experts: Experts) -> CudaResult<Option<Rc<ExpertsKernels>>> {
        if let Some(kernels) = self.experts.get(&experts) {
            return Ok(kernels.clone());
        }
        let kernels = match experts::tiling(experts, self.choice.chip) {
            Some(tiling) => Some(Rc::new(ExpertsKernels::load(self.device, self.cache, experts, tiling)?)),
            None => None,
        };
        self.experts.insert(experts, kernels.clone());
        Ok(kernels)
    }

    /// Decode rows that can be told which experts they take: those of the launch of all experts, which alone replays;
    /// none where the chip's memory or the model's factors leave no such launch.
    pub(crate) fn replayed_rows_max(&self) -> usize {
        let rows = |kernels: &Option<Rc<ExpertsKernels>>| kernels.as_ref().map_or(0, |k| k.rows_max());
        self.experts.values().map(rows).min().unwrap_or(0)
    }
}

/// A product with its kernels.
pub(crate) struct Product {
    plain: RowKernels,
    /// Those that add what adapters make of the rows.
    adapted: Option<RowKernels>,
}

/// Kernels for any number of rows.
struct RowKernels {
    by_class: Vec<(Class, Many)>,
    few: Option<Few>,
}

impl RowKernels {
    fn kernel(&self, rows: RowCount) -> &Many {
        let class = rows.class();
        let place = class.among(self.by_class.iter().map(|k| k.0));
        &self.by_class[place.expect("there is a class for every kind of rows that the backend takes")].1
    }

    /// The kernels for few rows, if there are and these are few.
    fn few_for(&self, rows: RowCount) -> Option<&Few> {
        self.few.as_ref().filter(|few| !rows.prefill && rows.count <= few.rows_max())
    }
}

impl Product {
    /// Whether so many rows become f16 for it.
    pub(crate) fn takes_halves(&self, rows: RowCount) -> bool {
        self.half_place(rows).is_some()
    }

    /// Whether what it makes of so many rows is f16 at once.
    pub(crate) fn makes_half_rows(&self, rows: RowCount) -> bool {
        self.plain.kernel(rows).makes_half_rows()
    }

    /// Where these become f16 for it, if they do before it reads them.
    pub(crate) fn half_place(&self, rows: RowCount) -> Option<&HalfPlace> {
        match self.plain.kernel(rows) {
            Many::F16(_, _, place) if self.plain.few_for(rows).is_none() => Some(place),
            _ => None,
        }
    }

    /// Enqueues it over a matrix, with what adapters add if the rows say so.
    ///
    /// # Safety
    /// As [`Many::launch`].
    pub(crate) unsafe fn launch(
        &self,
        device: &Device,
        rows: RowCount,
        matrix: &Matrix,
        x: &Source<'_>,
        columns: Columns<'_>,
        out: Output<'_, '_>,
    ) -> CudaResult<()> {
        // Kernels that know no adapters refuse rows that have some.
        let adapted = self.adapted.as_ref().filter(|_| x.inputs().lora.is_some());
        let (kernels, factor) = (adapted.unwrap_or(&self.plain), x.inputs().factor * matrix.factor);
        if let Some(few) = kernels.few_for(rows) {
            return few.launch(device, rows.count, matrix, Inputs { factor, ..x.inputs() }, out);
        }
        // SAFETY: the caller's promise.
        Ok(unsafe { kernels.kernel(rows).launch(device, matrix.stack(), (x, factor), columns, out) }?)
    }
}

impl Few {
    /// How many rows it is for.
    fn rows_max(&self) -> usize {
        match self {
            Self::Plain(product) => product.rows_max(),
            _ => FEW_ROWS,
        }
    }

    /// Enqueues it for rows `0..rows`.
    fn launch(
        &self,
        device: &Device,
        rows: usize,
        matrix: &Matrix,
        x: Inputs<'_>,
        out: Output<'_, '_>,
    ) -> CudaResult<()> {
        let (weights, y) = (matrix.bytes(), Activations { codes: x.codes, meta: x.meta, lora: x.lora });
        let norm = x.squares.map(|squares| Norm { squares, eps: x.eps });
        match (self, out) {
            (Self::Plain(product), Output::Plain { values, stride }) => {
                let out = product::Output { values, stride, factor: x.factor };
                Ok(product.launch(device, &weights, y, norm, rows, out)?)
            }
            (Self::Residual(product), Output::Residual { x: stream, weight, codes, meta, squares, .. }) => {
                let next = NextRows { weight, codes, meta, squares };
                Ok(product.launch(device, &weights, y, x.factor, rows, stream, next)?)
            }
            (Self::Activated(product), Output::Activated { codes, meta, stride }) => {
                let out = ActivatedRows { codes, meta, stride, factor: x.factor };
                Ok(product.launch(device, &weights, y, norm, rows, out)?)
            }
            _ => unreachable!("a product's kernels have one epilogue"),
        }
    }
}

/// Rows of one product in one or more matrices.
pub(crate) struct Stacked {
    segments: Segments<Matrix>,
    products: Vec<Product>,
}

impl Stacked {
    pub(crate) fn new(kernels: &mut ProductKernels<'_>, segments: Segments<Matrix>, norm: usize) -> CudaResult<Self> {
        let kinds = segments
            .parts
            .iter()
            .map(|s| ProductKind::dense(&s.matrix, Epilogue::Plain, Some(norm)).map(ProductKind::adaptable));
        let products = kinds.map(|kind| kernels.of(kind?)).collect::<Result<_, _>>()?;
        Ok(Self { segments, products })
    }

    /// The matrix that is read first.
    pub(crate) fn first(&self) -> &Matrix {
        &self.segments.parts[0].matrix
    }

    /// Where such rows become f16 for the product that comes first, if they do.
    pub(crate) fn half_place(&self, rows: RowCount) -> Option<&HalfPlace> {
        self.products.first()?.half_place(rows)
    }

    /// Values of an output row.
    pub(crate) fn width(&self) -> usize {
        self.segments.rows
    }

    /// Enqueues it for rows `0..count`; `halves`: as f16, two in the place of an f32.
    pub(crate) fn launch(
        &self,
        device: &Device,
        rows: RowCount,
        mut x: Source<'_>,
        (out, halves): (&mut CudaViewMut<'_, f32>, bool),
    ) -> CudaResult<()> {
        let stride = self.width();
        for (segment, product) in self.segments.parts.iter().zip(&self.products) {
            assert!(segment.first.is_multiple_of(2), "parts before another are whole heads");
            let mut values = out.slice_mut(if halves { segment.first / 2 } else { segment.first }..);
            let out = match halves {
                true => Output::Halves { values: &mut values, stride },
                false => Output::Plain { values: &mut values, stride },
            };
            x = x.at_output(segment.first);
            // SAFETY: the columns are not listed.
            unsafe { product.launch(device, rows, &segment.matrix, &x, Columns::First(rows.count), out) }?;
        }
        Ok(())
    }
}
