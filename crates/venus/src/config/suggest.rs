//! "Did you mean": the known name nearest to what was written.

/// The name in `known` that is nearest to `written`, if one is near enough to be a typo of it: at most a third of its
/// letters changed, the same last part in another section, or only the beginning left out.
pub fn closest<'k>(written: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let score = |name: &str| {
        let whole = distance(written, name);
        let part = distance(&last(written), &last(name)) + 1;
        let tail = if written.len() > 3 && name.ends_with(written) { 1 } else { usize::MAX };
        whole.min(part).min(tail)
    };
    let limit = last(written).chars().count().max(3) / 3 + 1;
    known
        .map(|name| (score(name), name))
        .filter(|&(score, _)| score <= limit)
        .min_by_key(|&(score, _)| score)
        .map(|(_, n)| n)
}

/// Letters to insert, delete, replace or swap with their neighbour to get from `a` to `b` (restricted Damerau-Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let width = b.len() + 1;
    let mut cost = vec![0; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            cost[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let at = |i: usize, j: usize| cost[i * width + j];
                let replaced = at(i - 1, j - 1) + usize::from(a[i - 1] != b[j - 1]);
                let best = replaced.min(at(i - 1, j) + 1).min(at(i, j - 1) + 1);
                let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
                if swapped { best.min(at(i - 2, j - 2) + 1) } else { best }
            };
        }
    }
    cost[a.len() * width + b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_one_mistake() {
        assert_eq!(distance("stesp", "steps"), 1);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }

    #[test]
    fn a_key_in_the_wrong_section_is_found() {
        let known = ["run.steps", "trainer.lr", "rollout.temperature"];
        assert_eq!(closest("run.temperature", known.into_iter()), Some("rollout.temperature"));
        assert_eq!(closest("trainer.rl", known.into_iter()), Some("trainer.lr"));
        assert_eq!(closest("repair-json", ["venus-repair-json", "repair"].into_iter()), Some("venus-repair-json"));
        assert_eq!(closest("something.else_entirely", known.into_iter()), None);
    }
}
