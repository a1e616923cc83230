//! Seeded choices: every generated task is a pure function of its seed.

use super::words::WORDS;

/// SplitMix64 (Steele, Lea, Flood 2014): small, stable across releases and platforms, and good enough to draw words.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// Different for every different list of `parts`.
    pub(super) fn new(parts: &[u64]) -> Self {
        let mut draw = Self(0x5eed);
        for &part in parts {
            draw.0 = draw.next() ^ part;
        }
        draw.next();
        draw
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`; the bias for the small `n` used here is under 2^-50.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in `low..=high`.
    pub(super) fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// True with probability `p`.
    pub(super) fn chance(&mut self, p: f64) -> bool {
        ((self.next() >> 11) as f64) < p * (1u64 << 53) as f64
    }

    /// One of `items`, each as likely.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// At least `low`, one more with probability `p` each time, at most `high`: the long tail of lengths.
    pub(super) fn tail(&mut self, low: usize, high: usize, p: f64) -> usize {
        let mut n = low;
        while n < high && self.chance(p) {
            n += 1;
        }
        n
    }

    /// Puts `items` in a random order.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// All of [`WORDS`] in a random order: a family takes the distinct words it needs from the front.
    pub(super) fn deck(&mut self) -> impl Iterator<Item = &'static str> + use<> {
        let mut words: Vec<&'static str> = WORDS.split_whitespace().collect();
        self.shuffle(&mut words);
        words.into_iter().cycle()
    }
}

/// FNV-1a over the words, each closed by a zero byte.
pub(super) fn hash(words: &[&str]) -> u64 {
    let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
    let fnv = bytes.fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    Draw(fnv).next()
}
