//! Axes: a range of values, ticks at round numbers, and where on the paper each value lies.

/// Values `low..=high` laid onto `start..=end` of the paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub low: f64,
    pub high: f64,
    pub start: f64,
    pub end: f64,
}

impl Scale {
    /// A scale over `values` (non-finite ones ignored) that ends at round numbers; `floor` and `ceiling` are always
    /// inside. A range without extent is given one.
    pub fn round(values: impl Iterator<Item = f64>, floor: Option<f64>, ceiling: Option<f64>) -> Self {
        let (mut low, mut high) = extent(values.chain(floor).chain(ceiling)).unwrap_or((0.0, 1.0));
        if high - low <= f64::EPSILON * high.abs().max(1e-300) {
            let room = if high == 0.0 { 1.0 } else { high.abs() * 0.5 };
            (low, high) = if floor == Some(low) { (low, high + room) } else { (low - room, high + room) };
        }
        let step = step(high - low, 4);
        let low = if floor == Some(low) { low } else { (low / step).floor() * step };
        let high = if ceiling == Some(high) { high } else { (high / step).ceil() * step };
        Self { low, high, start: 0.0, end: 1.0 }
    }

    /// A scale that ends exactly at the least and the greatest of `values`.
    pub fn tight(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extent(values).unwrap_or((0.0, 1.0));
        let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
        Self { low, high, start: 0.0, end: 1.0 }
    }

    /// The same values on this part of the paper.
    pub fn onto(self, start: f64, end: f64) -> Self {
        Self { start, end, ..self }
    }

    /// Where `value` lies.
    pub fn at(&self, value: f64) -> f64 {
        self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)
    }

    /// About `count` round numbers within the range.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        let step = step(self.high - self.low, count);
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// Ticks at whole numbers only.
    pub fn whole_ticks(&self, count: usize) -> Vec<f64> {
        let step = step(self.high - self.low, count).max(1.0);
        let (first, last) = ((self.low / step).ceil() as i64, (self.high / step).floor() as i64);
        (first..=last).map(|i| i as f64 * step).collect()
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.filter(|v| v.is_finite()).fold(None, |found, v| {
        let (low, high) = found.unwrap_or((v, v));
        Some((f64::min(low, v), f64::max(high, v)))
    })
}

/// 1, 2 or 5 times a power of ten, so that about `count` steps cover `range`.
fn step(range: f64, count: usize) -> f64 {
    let rough = range / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    match rough / power {
        ..1.5 => power,
        ..3.5 => 2.0 * power,
        ..7.5 => 5.0 * power,
        _ => 10.0 * power,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = Scale::round([0.13, 0.87].into_iter(), Some(0.0), None);
        assert_eq!((scale.low, scale.high), (0.0, 1.0));
        assert_eq!(
            scale.ticks(4).iter().map(|t| format!("{t:.1}")).collect::<Vec<_>>(),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(Scale::tight([1.0, 3.0].into_iter()).whole_ticks(6), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn one_value_or_none_still_makes_an_axis() {
        for values in [vec![], vec![5.0], vec![0.0], vec![f64::NAN], vec![1e-9]] {
            let scale = Scale::round(values.iter().copied(), None, None);
            assert!(scale.high > scale.low, "{values:?} {scale:?}");
            assert!(scale.ticks(4).len() >= 2, "{values:?} {scale:?}");
        }
    }
}
