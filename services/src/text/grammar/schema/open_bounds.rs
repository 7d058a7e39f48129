//! Bounds that leave out their own number. The library allows a whole number that a bound leaves out if the other bound
//! has the same whole part: above 2 and up to 2.5 it allows 2 (`rx_float_range` of llguidance 1.9.1).

use super::{Json, Map, for_each_inside};

/// How far such a bound is drawn in: numbers between are doubles that hardly any text of a number means.
const STEP: f64 = 1e-15;

/// Draws in those bounds, in a schema and in all that stand in it.
pub(super) fn draw_in(schema: &mut Json) {
    match schema {
        Json::Object(map) => {
            draw_in_own(map);
            for_each_inside(map, &mut draw_in);
        }
        Json::Array(items) => items.iter_mut().for_each(draw_in),
        _ => {}
    }
}

fn draw_in_own(schema: &mut Map<String, Json>) {
    let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
    let low = bound("minimum").into_iter().chain(bound("exclusiveMinimum")).reduce(f64::max);
    let high = bound("maximum").into_iter().chain(bound("exclusiveMaximum")).reduce(f64::min);
    let (Some(low), Some(high)) = (low, high) else { return };
    if low.trunc() != high.trunc() || low >= high || schema.get("type").is_some_and(|kind| kind == "integer") {
        return;
    }
    if low >= 0.0 && low.fract() == 0.0 && bound("exclusiveMinimum") == Some(low) {
        let above = (low + STEP).max(low.next_up());
        schema.shift_remove("exclusiveMinimum");
        schema.insert("minimum".into(), above.into());
    } else if high <= 0.0 && high.fract() == 0.0 && bound("exclusiveMaximum") == Some(high) {
        let below = (high - STEP).min(high.next_down());
        schema.shift_remove("exclusiveMaximum");
        schema.insert("maximum".into(), below.into());
    }
}
