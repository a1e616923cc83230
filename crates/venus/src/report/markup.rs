//! Text on its way into HTML: escaped, and numbers as people read them.

use std::fmt;
use venus_plane::report::EvalReport;

/// Any text, safe inside an element or a quoted attribute. Control characters that HTML forbids become U+FFFD.
pub(crate) struct Text<'a>(pub &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => fmt::Write::write_char(f, letter)?,
                control if control.is_control() => f.write_str("\u{fffd}")?,
                other => fmt::Write::write_char(f, other)?,
            }
        }
        Ok(())
    }
}

/// How the numbers of a figure are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// Three significant digits, `k` and `M` for thousands and millions.
    Plain,
    /// The same, of things that are whole.
    Count,
    /// 0 to 1 as percent.
    Percent,
}

impl Format {
    /// `value` in this form.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Plain | Self::Count => plain(value),
            Self::Percent => format!("{}%", trim(format!("{:.1}", value * 100.0))),
        }
    }
}

fn plain(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "–".to_owned(),
        0.0 => "0".to_owned(),
        1e6.. => format!("{}M", trim(format!("{:.2}", value / 1e6))),
        1e4.. => format!("{}k", trim(format!("{:.1}", value / 1e3))),
        100.0.. => format!("{value:.0}"),
        10.0.. => trim(format!("{value:.1}")),
        1.0.. => trim(format!("{value:.2}")),
        0.001.. => trim(format!("{value:.3}")),
        _ => format!("{value:.1e}").replace(".0e", "e"),
    }
}

/// Without zeros at the end of the fraction.
fn trim(text: String) -> String {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Binomial standard error of a measured success; 0 when nothing was measured.
pub(crate) fn standard_error(eval: &EvalReport) -> f64 {
    let p = eval.success;
    if eval.tasks == 0 { 0.0 } else { (p * (1.0 - p) / eval.tasks as f64).max(0.0).sqrt() }
}

/// A time as people say it: `48 s`, `6 min 5 s`, `2 h 10 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{} s", plain(seconds)),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_can_leave_its_element_or_attribute() {
        assert_eq!(Text("<a b='\"'>&\u{1b}[0m\n").to_string(), "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}[0m\n");
    }

    #[test]
    fn numbers_are_short() {
        let shown: Vec<_> =
            [0.0, 3e-5, 1.5e-5, 0.25, 3.0, 12.34, 250.4, 12_345.0, 2e6].map(|v| Format::Plain.show(v)).into();
        assert_eq!(shown, ["0", "3e-5", "1.5e-5", "0.25", "3", "12.3", "250", "12.3k", "2M"]);
        assert_eq!(Format::Percent.show(0.866), "86.6%");
        assert_eq!(["48 s", "6 min 5 s", "2 h 10 min"].map(str::to_owned), [48.0, 365.0, 7800.0].map(duration));
    }
}
