use crate::reference::activations::sigmoid as sigmoid_of;
use crate::reference::exp::exp;

/// How few experts a row may do with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertCut {
    /// At least this many; at least 1 and at most `max`.
    pub min: u32,
    /// At most this many, and no more than the model uses.
    pub max: u32,
    /// Share of the weight of the best `max` experts that those which are kept must reach, 0 to 1.
    pub mass: f32,
}

impl ExpertCut {
    /// How many of a row's experts are kept, the fewest that reach the mass. `weights` are the unnormalised softmax of
    /// the best `max` experts, best first; sums run in that order in `f32`, and a backend must keep exactly as many.
    pub fn kept(&self, weights: &[f32]) -> usize {
        let weights = &weights[..weights.len().min(self.max as usize)];
        let target = self.mass * weights.iter().sum::<f32>();
        let mut sum = 0.0;
        let enough = weights.iter().position(|w| (sum += w, sum >= target).1);
        enough.map_or(weights.len(), |last| last + 1).max((self.min as usize).min(weights.len()))
    }
}

/// The `used` most probable experts of a token in falling order, ties by lower index, and the softmax of their logits
/// alone.
pub fn route(logits: &[f32], used: usize) -> Vec<(usize, f32)> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(used);
    let best = f64::from(logits[order[0]]);
    let weights: Vec<f64> = order.iter().map(|&e| (f64::from(logits[e]) - best).exp()).collect();
    let sum: f64 = weights.iter().sum();
    order.iter().zip(weights).map(|(&e, w)| (e, (w / sum) as f32)).collect()
}

/// The experts of a token that are left after a cut, and the softmax of their logits alone.
pub fn route_cut(logits: &[f32], used: usize, cut: &ExpertCut) -> Vec<(usize, f32)> {
    let all = route(logits, used);
    let weights: Vec<f32> = all.iter().map(|&(e, _)| exp(logits[e] - logits[all[0].0])).collect();
    route(logits, cut.kept(&weights))
}

/// The `used` experts of a token with the largest sum of sigmoid and `bias` in falling order, ties by lower index, each
/// with its sigmoid alone as a share of `scale`.
pub fn route_sigmoid(logits: &[f32], bias: &[f32], used: usize, scale: f32) -> Vec<(usize, f32)> {
    let sigmoid: Vec<f64> = logits.iter().map(|&l| sigmoid_of(f64::from(l))).collect();
    let chosen: Vec<f64> = sigmoid.iter().zip(bias).map(|(s, &b)| s + f64::from(b)).collect();
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| chosen[b].total_cmp(&chosen[a]).then(a.cmp(&b)));
    order.truncate(used);
    let sum: f64 = order.iter().map(|&e| sigmoid[e]).sum();
    order.iter().map(|&e| (e, (sigmoid[e] / sum * f64::from(scale)) as f32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_logits_go_to_the_lower_expert() {
        let picked = route(&[1.0, 2.0, 2.0, 0.0], 3);
        assert_eq!(picked.iter().map(|p| p.0).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(picked[0].1, picked[1].1);
        assert!((picked.iter().map(|p| p.1).sum::<f32>() - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_cut_keeps_the_fewest_experts_that_reach_its_mass_within_its_bounds() {
        let weights = [1.0, 0.5, 0.25, 0.25];
        let kept = |min, max, mass| ExpertCut { min, max, mass }.kept(&weights);
        assert_eq!([0.0, 0.5, 0.51, 0.75, 0.8, 1.0].map(|mass| kept(1, 4, mass)), [1, 1, 2, 2, 3, 4]);
        assert_eq!((kept(3, 4, 0.1), kept(1, 2, 1.0), kept(1, 2, 0.66), kept(4, 4, 0.0)), (3, 2, 1, 4));
        assert_eq!(ExpertCut { min: 1, max: 4, mass: 0.5 }.kept(&[f32::NAN; 4]), 4, "what is no number cuts nothing");
    }

    #[test]
    fn what_a_cut_leaves_is_routed_as_if_the_model_used_no_more() {
        let logits = [1.0, 3.0, 2.5, -1.0, 0.0];
        assert_eq!(route_cut(&logits, 4, &ExpertCut { min: 1, max: 4, mass: 0.8 }), route(&logits, 2));
        assert_eq!(route_cut(&logits, 4, &ExpertCut { min: 1, max: 4, mass: 1.0 }), route(&logits, 4));
    }

    #[test]
    fn a_bias_chooses_an_expert_and_does_not_weigh_it() {
        let routed = route_sigmoid(&[0.0, 9.0, 0.0], &[5.0, 0.0, 0.0], 2, 3.0);
        assert_eq!(routed.iter().map(|r| r.0).collect::<Vec<_>>(), [0, 1]);
        assert!((routed[0].1 - 1.0).abs() < 1e-3 && (routed[1].1 - 2.0).abs() < 1e-3, "{routed:?}");
    }
}
