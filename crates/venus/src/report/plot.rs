//! Line figures as SVG: axes with units, each line told apart by colour, stroke and a label at its end.

use super::markup::{Format, Text};
use super::scale::Scale;
use std::fmt::Write;

/// One value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub y: f64,
    /// Half the length of its error bar; 0 for none.
    pub error: f64,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Written at its end when there is more than one line.
    pub label: &'static str,
    /// Drawn thin and pale, behind the others and without a label.
    pub faint: bool,
    pub points: Vec<Point>,
}

/// A figure.
#[derive(Clone, Debug)]
pub(super) struct Plot {
    pub title: &'static str,
    /// What exactly is shown, in a few words.
    pub note: String,
    pub y_label: &'static str,
    pub format: Format,
    /// Values that the axis must reach.
    pub floor: Option<f64>,
    pub ceiling: Option<f64>,
    /// A figure of half the height, for a row of many.
    pub small: bool,
    pub series: Vec<Series>,
}

impl Series {
    /// A line through `(x, y)`; values that are no number leave a gap.
    pub fn new(label: &'static str, points: impl Iterator<Item = (f64, f64)>) -> Self {
        Self { label, faint: false, points: points.map(|(x, y)| Point { x, y, error: 0.0 }).collect() }
    }
}

/// The paper of a figure and the part of it inside the axes.
pub(super) struct Paper {
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl Paper {
    /// `labels`: room for words at the ends of the lines.
    pub fn new(small: bool, labels: bool) -> Self {
        let (width, height) = if small { (320.0, 170.0) } else { (520.0, 270.0) };
        let right = width - if labels { 84.0 } else { 14.0 };
        Self { width, height, left: 60.0, right, top: 14.0, bottom: height - 38.0 }
    }

    /// Opens a figure: caption, SVG, axes.
    pub fn open(&self, out: &mut String, title: &str, note: &str) {
        let (w, h) = (self.width, self.height);
        let _ = write!(out, "<figure><figcaption><b>{}</b> <span>{}</span></figcaption>", Text(title), Text(note));
        let _ =
            write!(out, "<svg viewBox=\"0 0 {w} {h}\" role=\"img\" aria-label=\"{}: {}\">", Text(title), Text(note));
    }

    /// Horizontal grid lines with their values, and the name of the axis.
    pub fn y_axis(&self, out: &mut String, y: &Scale, format: Format, label: &str) {
        let ticks = if format == Format::Count { y.whole_ticks(4) } else { y.ticks(4) };
        for tick in ticks {
            let at = y.at(tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
                self.left, self.right
            );
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                self.left - 7.0,
                at + 4.0,
                format.show(tick)
            );
        }
        let middle = f64::midpoint(self.top, self.bottom);
        let _ = write!(
            out,
            "<text class=\"axis\" transform=\"translate(11 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            Text(label)
        );
    }

    /// The base line with whole steps below it.
    pub fn x_axis(&self, out: &mut String, x: &Scale) {
        let _ = write!(
            out,
            "<line class=\"base\" x1=\"{}\" x2=\"{}\" y1=\"{b:.1}\" y2=\"{b:.1}\"/>",
            self.left,
            self.right,
            b = self.bottom
        );
        for tick in x.whole_ticks(if self.width < 400.0 { 4 } else { 6 }) {
            let _ = write!(
                out,
                "<text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{tick}</text>",
                x.at(tick),
                self.bottom + 16.0
            );
        }
        let middle = f64::midpoint(self.left, self.right);
        let _ = write!(
            out,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">trainer step</text>",
            self.bottom + 31.0
        );
    }
}

impl Plot {
    /// The figure as HTML; a figure without values says so.
    pub fn draw(&self) -> String {
        let finite = |p: &&Point| p.x.is_finite() && p.y.is_finite();
        let points = || self.series.iter().flat_map(|s| &s.points).filter(finite);
        let labels = self.series.iter().filter(|s| !s.faint).count() > 1;
        let paper = Paper::new(self.small, labels);
        let mut out = String::new();
        if points().next().is_none() {
            let _ = write!(
                out,
                "<figure><figcaption><b>{}</b></figcaption><p class=\"empty\">nothing was recorded</p></figure>",
                Text(self.title)
            );
            return out;
        }
        let reach = points().flat_map(|p| [p.y - p.error, p.y + p.error]);
        let y = Scale::round(reach, self.floor, self.ceiling).onto(paper.bottom, paper.top);
        let x = Scale::tight(points().map(|p| p.x)).onto(paper.left + 6.0, paper.right - 6.0);
        paper.open(&mut out, self.title, &self.note);
        paper.y_axis(&mut out, &y, self.format, self.y_label);
        paper.x_axis(&mut out, &x);
        let mut ends = Vec::new();
        let mut style = 0;
        for series in &self.series {
            let class = if series.faint { "faint".to_owned() } else { format!("s{style}") };
            self.line(&mut out, series, &class, &x, &y);
            if !series.faint {
                ends.extend(series.points.iter().rfind(finite).map(|p| (y.at(p.y), series.label, style)));
                style += 1;
            }
        }
        if labels {
            label_ends(&mut out, ends, &paper);
        }
        out.push_str("</svg></figure>");
        out
    }

    fn line(&self, out: &mut String, series: &Series, class: &str, x: &Scale, y: &Scale) {
        let mut path = String::new();
        let mut pen_down = false;
        for p in &series.points {
            let drawn = p.x.is_finite() && p.y.is_finite();
            if drawn {
                let _ = write!(path, "{}{:.1} {:.1}", if pen_down { 'L' } else { 'M' }, x.at(p.x), y.at(p.y));
            }
            pen_down = drawn;
        }
        let _ = write!(out, "<path class=\"line {class}\" d=\"{path}\"/>");
        if series.faint {
            return;
        }
        let dots = series.points.len() <= 40;
        for p in series.points.iter().filter(|p| p.x.is_finite() && p.y.is_finite()) {
            let (cx, cy) = (x.at(p.x), y.at(p.y));
            if p.error > 0.0 {
                let (high, low) = (y.at(p.y + p.error), y.at(p.y - p.error));
                let _ = write!(
                    out,
                    "<path class=\"error {class}\" d=\"M{cx:.1} {high:.1}V{low:.1}M{:.1} {high:.1}h6m-6 {:.1}h6\"/>",
                    cx - 3.0,
                    low - high
                );
            }
            if dots {
                let _ = write!(out, "<circle class=\"dot {class}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"/>");
            }
            let value = self.format.show(p.y);
            let error = if p.error > 0.0 { format!(" ± {}", self.format.show(p.error)) } else { String::new() };
            let _ = write!(
                out,
                "<circle class=\"hit\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"8\"><title>step {}: {} {value}{error}</title></circle>",
                p.x,
                Text(series.label)
            );
        }
    }
}

/// Writes each line's label beside its last value, moved apart where they would overlap.
fn label_ends(out: &mut String, mut ends: Vec<(f64, &'static str, usize)>, paper: &Paper) {
    const GAP: f64 = 14.0;
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut above = paper.top - GAP;
    for end in &mut ends {
        end.0 = end.0.max(above + GAP);
        above = end.0;
    }
    let mut below = paper.bottom + GAP;
    for end in ends.iter_mut().rev() {
        end.0 = end.0.min(below - GAP);
        below = end.0;
    }
    for (at, label, style) in ends {
        let (start, end) = (paper.right + 4.0, paper.right + 20.0);
        let _ = write!(out, "<path class=\"line s{style}\" d=\"M{start} {at:.1}H{end}\"/>");
        let _ = write!(out, "<text class=\"label\" x=\"{}\" y=\"{:.1}\">{}</text>", end + 4.0, at + 4.0, Text(label));
    }
}

/// The mean of the last `window` values at each point: the trend behind a noisy line.
pub(super) fn smooth(series: &Series, label: &'static str, window: usize) -> Series {
    let mean = |i: usize| {
        let recent = &series.points[(i + 1).saturating_sub(window)..=i];
        recent.iter().map(|p| p.y).sum::<f64>() / recent.len() as f64
    };
    Series::new(label, series.points.iter().enumerate().map(|(i, p)| (p.x, mean(i))))
}
