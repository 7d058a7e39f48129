//! Linear functions, fitted to what was observed of late.

/// How much of the past each observation keeps: the memory is some fifty steps.
const KEEP: f64 = 0.98;
/// Part of the past that each observation keeps where a slope is sought: the memory is a thousand steps.
const KEEP_FOR_SLOPE: f64 = 0.999;
/// A slope is believed as far as it was seen over a range of its feature: this weighs like observations that say it is
/// none. Steps of the same kind scatter by a twentieth, some fifty of them in the same direction, and a slope of a
/// twentieth of a step a thousand positions is already much.
const NO_SLOPE: f64 = 16.0;
/// Rounds of descent an observation; the estimate goes on from where the last one left it.
const ROUNDS: usize = 12;
/// An observation counts as at most this many times what was predicted, and at least as that part of it, so that a
/// machine that was asleep for a while does not teach that steps are slow. A change that lasts is learned all the same,
/// in a few steps.
const SURPRISE_MAX: f64 = 4.0;
/// Observations before surprises are cut.
pub(super) const SURPRISE_AFTER: u32 = 4;

/// The features of a step, and their coefficients: microseconds each.
pub(super) type Features = [f64; 3];

/// A linear function with non-negative coefficients, fitted to the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LinearFit {
    coefficients: Features,
    /// Weighted sums of products of features, and of features and times.
    products: [[f64; 3]; 3],
    times: [f64; 3],
    observations: u32,
}

impl LinearFit {
    pub(super) fn at(&self, features: &Features) -> f64 {
        self.coefficients.iter().zip(features).map(|(c, x)| c * x).sum()
    }

    pub(super) fn knows(&self) -> bool {
        self.observations > 0
    }

    pub(super) fn observe(&mut self, features: Features, took: f64) {
        self.add(features, took, KEEP);
        self.descend([0.0; 3]);
    }

    fn add(&mut self, features: Features, took: f64, keep: f64) {
        let expected = self.at(&features);
        let cut = self.observations >= SURPRISE_AFTER && expected > 0.0;
        let took = if cut { took.clamp(expected / SURPRISE_MAX, SURPRISE_MAX * expected) } else { took };
        // Relative errors are what matters, so a large step weighs no more than a small one. Not by the times
        // themselves: what happened to be fast would weigh most.
        let weight = features.iter().sum::<f64>().max(1.0).powi(-2);
        for i in 0..3 {
            self.times[i] = keep * self.times[i] + weight * features[i] * took;
            for j in 0..3 {
                self.products[i][j] = keep * self.products[i][j] + weight * features[i] * features[j];
            }
        }
        self.observations = self.observations.saturating_add(1);
    }

    /// Coordinate descent from the last estimate, over the first coefficients: of each, how much speaks for 0. What the
    /// recent past says nothing about stays as it was.
    fn descend<const N: usize>(&mut self, for_none: [f64; N]) {
        for (i, none) in (0..ROUNDS).flat_map(|_| for_none.into_iter().enumerate()) {
            let against = self.products[i][i] + none;
            if against > 0.0 {
                let error = self.times[i] - (0..3).map(|j| self.products[i][j] * self.coefficients[j]).sum::<f64>();
                let change = (error - none * self.coefficients[i]) / against;
                self.coefficients[i] = (self.coefficients[i] + change).max(0.0);
            }
        }
    }
}

/// A fit whose last coefficient comes from a longer past. That of positions attended to: fifty steps of one user lie within
/// fifty positions, so that a machine which became a twentieth slower meanwhile makes a slope of a whole step a thousand
/// positions, and who compares one row with eight at the same position takes it eight times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SlopedFit {
    fit: LinearFit,
    slope: LinearFit,
}

impl SlopedFit {
    /// What the other features make, and what the last one does.
    pub(super) fn parts(&self, features: &Features) -> (f64, f64) {
        let last = self.fit.coefficients[2] * features[2];
        (self.fit.at(features) - last, last)
    }

    pub(super) fn knows(&self) -> bool {
        self.fit.knows()
    }

    pub(super) fn observe(&mut self, features: Features, took: f64) {
        let Self { fit, slope } = self;
        slope.add(features, took, KEEP_FOR_SLOPE);
        slope.descend([0.0, 0.0, NO_SLOPE]);
        fit.add(features, took, KEEP);
        fit.coefficients[2] = slope.coefficients[2];
        fit.descend([0.0; 2]);
    }
}
