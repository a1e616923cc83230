//! Stacked bars as SVG: parts of a whole, step by step, told apart by colour, pattern and the order of the legend.

use super::markup::{Format, Text};
use super::plot::Paper;
use super::scale::Scale;
use std::fmt::Write;

/// Most bars drawn; more steps share a bar, which then shows their mean.
const MOST_BARS: usize = 60;

/// A figure.
pub(super) struct Stack {
    pub title: &'static str,
    pub note: &'static str,
    pub y_label: &'static str,
    pub format: Format,
    /// Names of the parts, from the bottom up.
    pub parts: Vec<&'static str>,
    /// Step and the size of each part.
    pub bars: Vec<(f64, Vec<f64>)>,
}

impl Stack {
    /// The figure as HTML; a figure without values says so.
    pub fn draw(&self) -> String {
        let mut out = String::new();
        if self.bars.is_empty() {
            let _ = write!(
                out,
                "<figure><figcaption><b>{}</b></figcaption><p class=\"empty\">nothing was recorded</p></figure>",
                Text(self.title)
            );
            return out;
        }
        let bars = self.merged();
        let paper = Paper::new(false, true);
        let total = |bar: &(f64, Vec<f64>)| bar.1.iter().sum::<f64>();
        let y = Scale::round(bars.iter().map(total), Some(0.0), None).onto(paper.bottom, paper.top);
        let width = (paper.right - paper.left) / bars.len() as f64;
        let x = Scale::tight(bars.iter().map(|bar| bar.0)).onto(paper.left + width / 2.0, paper.right - width / 2.0);
        paper.open(&mut out, self.title, self.note);
        paper.y_axis(&mut out, &y, self.format, self.y_label);
        for bar in &bars {
            self.bar(&mut out, bar, x.at(bar.0), (width * 0.84).min(36.0), &y);
        }
        paper.x_axis(&mut out, &x);
        self.legend(&mut out, &paper);
        out.push_str("</svg></figure>");
        out
    }

    fn bar(&self, out: &mut String, (step, parts): &(f64, Vec<f64>), middle: f64, width: f64, y: &Scale) {
        let mut below = 0.0;
        for (index, (&size, name)) in parts.iter().zip(&self.parts).enumerate() {
            let (top, bottom) = (y.at(below + size), y.at(below));
            below += size;
            let _ = write!(
                out,
                "<rect class=\"p{index}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\"><title>step {step}: {} {}</title></rect>",
                middle - width / 2.0,
                (bottom - top).max(0.0),
                Text(name),
                self.format.show(size)
            );
        }
    }

    /// Beside the bars, from the top part down.
    fn legend(&self, out: &mut String, paper: &Paper) {
        for (row, (index, name)) in self.parts.iter().enumerate().rev().enumerate() {
            let (x, y) = (paper.right + 4.0, paper.top + 4.0 + row as f64 * 18.0);
            let _ = write!(out, "<rect class=\"p{index}\" x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\"/>");
            let _ = write!(out, "<text class=\"label\" x=\"{}\" y=\"{}\">{}</text>", x + 14.0, y + 9.0, Text(name));
        }
    }

    fn merged(&self) -> Vec<(f64, Vec<f64>)> {
        let together = self.bars.len().div_ceil(MOST_BARS);
        let mean = |chunk: &[(f64, Vec<f64>)]| {
            let count = chunk.len() as f64;
            let part = |i: usize| chunk.iter().filter_map(|bar| bar.1.get(i)).sum::<f64>() / count;
            (chunk.iter().map(|bar| bar.0).sum::<f64>() / count, (0..self.parts.len()).map(part).collect())
        };
        self.bars.chunks(together).map(mean).collect()
    }
}
