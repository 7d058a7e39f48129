//! A picture of divergence over size, as SVG: what the best mix of each size is expected to cost, what files of one
//! type would, and where the file that was written stands.

use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 460.0;
/// Left, top, right and bottom of what lies within the axes.
const FRAME: [f64; 4] = [80.0, 30.0, 730.0, 410.0];
/// How points are drawn, as the legend says.
const EXPECTED: &str = "fill=\"#2563eb\"";
const MEASURED: &str = "fill=\"none\" stroke=\"#dc2626\" stroke-width=\"2\"";
const UNIFORM: &str = "fill=\"#9ca3af\"";

/// Bits a weight over all matrices, and mean divergence.
pub(super) type Point = (f64, f64);

/// What is drawn.
#[derive(Debug, Default)]
pub(super) struct Plot {
    pub(super) title: String,
    /// Of the best mixes, in ascending order of bits.
    pub(super) curve: Vec<Point>,
    /// Of one type for all, by its name.
    pub(super) uniform: Vec<(String, Point)>,
    /// The written file as expected.
    pub(super) expected: Option<Point>,
    /// The same as measured.
    pub(super) measured: Option<Point>,
}

/// Bits to the right, divergence upwards in its logarithm.
struct Axes {
    bits: [f64; 2],
    /// Decades.
    decades: [i32; 2],
}

impl Axes {
    /// Around all points that a logarithm knows; `None` if there are none.
    fn around(points: impl Iterator<Item = Point>) -> Option<Self> {
        let (mut bits, mut decades) = ([f64::INFINITY, f64::NEG_INFINITY], [i32::MAX, i32::MIN]);
        for (x, y) in points.filter(|p| drawable(*p)) {
            bits = [bits[0].min(x.floor()), bits[1].max(x.ceil())];
            decades = [decades[0].min(y.log10().floor() as i32), decades[1].max(y.log10().ceil() as i32)];
        }
        // What lies on one line still has a picture.
        let (right, top) = (bits[1].max(bits[0] + 1.0), decades[1].max(decades[0].saturating_add(1)));
        bits[0].is_finite().then_some(Self { bits: [bits[0], right], decades: [decades[0], top] })
    }

    fn x(&self, bits: f64) -> f64 {
        FRAME[0] + (bits - self.bits[0]) / (self.bits[1] - self.bits[0]) * (FRAME[2] - FRAME[0])
    }

    fn y(&self, kl: f64) -> f64 {
        let [low, high] = self.decades.map(f64::from);
        FRAME[3] - (kl.log10() - low) / (high - low) * (FRAME[3] - FRAME[1])
    }
}

fn drawable((bits, kl): Point) -> bool {
    bits.is_finite() && kl.is_finite() && kl > 0.0
}

impl Plot {
    /// The picture; `None` if there is nothing to show.
    pub(super) fn svg(&self) -> Option<String> {
        let marks = [self.expected, self.measured];
        let points = self.curve.iter().copied().chain(self.uniform.iter().map(|u| u.1));
        let axes = Axes::around(points.chain(marks.into_iter().flatten()))?;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
        );
        text(&mut out, (FRAME[0], 18.0), "start", &self.title);
        grid(&mut out, &axes);
        let line: Vec<String> = self
            .curve
            .iter()
            .filter(|p| drawable(**p))
            .map(|p| format!("{:.1},{:.1}", axes.x(p.0), axes.y(p.1)))
            .collect();
        put(
            &mut out,
            format_args!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"#2563eb\" stroke-width=\"2\"/>",
                line.join(" ")
            ),
        );
        for (name, point) in self.uniform.iter().filter(|u| drawable(u.1)) {
            circle(&mut out, &axes, *point, UNIFORM);
            text(&mut out, (axes.x(point.0) + 7.0, axes.y(point.1) - 5.0), "start", name);
        }
        for (point, style) in [(self.expected, EXPECTED), (self.measured, MEASURED)] {
            if let Some(point) = point.filter(|p| drawable(*p)) {
                circle(&mut out, &axes, point, style);
            }
        }
        legend(&mut out);
        out.push_str("</svg>\n");
        Some(out)
    }
}

fn put(out: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(out, "{element}").expect("a string takes everything");
}

fn text(out: &mut String, (x, y): Point, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    put(out, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"));
}

fn circle(out: &mut String, axes: &Axes, (bits, kl): Point, style: &str) {
    put(out, format_args!("<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\" {style}/>", axes.x(bits), axes.y(kl)));
}

fn line(out: &mut String, from: Point, to: Point) {
    let ((x1, y1), (x2, y2)) = (from, to);
    put(out, format_args!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#e5e7eb\"/>"));
}

fn grid(out: &mut String, axes: &Axes) {
    let [left, top, right, bottom] = FRAME;
    for bits in axes.bits[0] as i32..=axes.bits[1] as i32 {
        let x = axes.x(bits.into());
        line(out, (x, top), (x, bottom));
        text(out, (x, bottom + 18.0), "middle", &bits.to_string());
    }
    for decade in axes.decades[0]..=axes.decades[1] {
        let y = axes.y(10f64.powi(decade));
        line(out, (left, y), (right, y));
        text(out, (left - 8.0, y + 4.0), "end", &format!("{}", 10f64.powi(decade)));
    }
    text(out, ((left + right) / 2.0, HEIGHT - 10.0), "middle", "bits a weight over all matrices");
    let y = (top + bottom) / 2.0;
    put(
        out,
        format_args!(
            "<text transform=\"translate(18 {y}) rotate(-90)\" text-anchor=\"middle\">mean divergence, nats</text>"
        ),
    );
}

fn legend(out: &mut String) {
    let rows = [
        (EXPECTED, "best mix of each size, and this file: expected"),
        (MEASURED, "this file, measured on calibration text"),
        (UNIFORM, "one type for all: expected"),
    ];
    for (i, (style, words)) in rows.into_iter().enumerate() {
        let (x, y) = (FRAME[2] - 290.0, FRAME[1] + 14.0 + 18.0 * i as f64);
        put(out, format_args!("<circle cx=\"{x:.1}\" cy=\"{:.1}\" r=\"5\" {style}/>", y - 4.0));
        text(out, (x + 12.0, y), "start", words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_where_the_axes_say_and_names_are_escaped() {
        let plot = Plot {
            title: "a<b".into(),
            curve: vec![(3.0, 0.1), (8.0, 0.001), (8.0, 0.0)],
            uniform: vec![("Q4_K".into(), (4.5, 0.01))],
            expected: Some((5.5, 0.01)),
            measured: None,
        };
        let svg = plot.svg().unwrap();
        assert!(svg.contains("points=\"80.0,30.0 730.0,410.0\""), "{svg}");
        assert!(
            svg.contains("<circle cx=\"405.0\" cy=\"220.0\" r=\"5\" fill=\"#2563eb\"/>"),
            "half the bits and decades"
        );
        assert!(svg.contains("a&lt;b") && svg.contains(">Q4_K</text>") && svg.contains(">0.001</text>"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        let on_a_line = Plot { curve: vec![(4.0, 0.0)], ..plot }.svg().unwrap();
        assert!(on_a_line.contains("<circle cx=\"567.5\" cy=\"410.0\" r=\"5\" fill=\"#2563eb\"/>"), "{on_a_line}");
        assert!(Plot::default().svg().is_none());
    }
}
