//! Weight versions: what a trajectory was drawn by, and whether it may draw on (paper sections 3.1 and 3.2).

use crate::ids::Version;

/// What drew a trajectory's tokens so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Span {
    /// Nothing, and nothing is under way.
    #[default]
    Empty,
    /// Its first turn runs. The version published when it was dispatched stands in for the first one until
    /// the engine says what was used.
    Dispatched(Version),
    /// The first and the last version that drew a token, as the engine reported them. Never taken from a
    /// counter on this side: what was fed to the engine is not what it ran (verl#7568).
    Drawn { first: Version, last: Version },
}

impl Span {
    /// The version the limit counts from.
    pub fn start(self) -> Option<Version> {
        match self {
            Self::Empty => None,
            Self::Dispatched(version) | Self::Drawn { first: version, .. } => Some(version),
        }
    }

    /// The span once a turn is sent while `published` is in use.
    pub fn dispatched(self, published: Version) -> Self {
        match self {
            Self::Empty => Self::Dispatched(published),
            begun => begun,
        }
    }

    /// The span after a turn whose tokens were drawn by these versions, or that drew none.
    pub fn turned(self, versions: Option<(Version, Version)>) -> Self {
        match (self, versions) {
            (Self::Drawn { first, last }, Some((from, to))) => {
                Self::Drawn { first: first.min(from), last: last.max(to) }
            }
            (Self::Drawn { .. }, None) => self,
            (Self::Empty | Self::Dispatched(_), Some((first, last))) => Self::Drawn { first, last: last.max(first) },
            (Self::Empty | Self::Dispatched(_), None) => Self::Empty,
        }
    }

    /// How many versions drew it.
    pub fn versions(self) -> u64 {
        match self {
            Self::Empty | Self::Dispatched(_) => 0,
            Self::Drawn { first, last } => last.0 - first.0 + 1,
        }
    }
}

/// Whether a trajectory may draw a token under the published version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Yes, and also under the next version.
    Fresh,
    /// Yes, for the last time: the staleness boundary.
    Boundary,
    /// No: it would span more versions than the limit.
    Expired,
}

impl Standing {
    /// The standing of a trajectory with this span.
    pub fn of(span: Span, published: Version, limit: u32) -> Self {
        let Some(start) = span.start() else { return Self::Fresh };
        let age = published.0.saturating_sub(start.0);
        match age.saturating_add(1).cmp(&u64::from(limit)) {
            std::cmp::Ordering::Less => Self::Fresh,
            std::cmp::Ordering::Equal => Self::Boundary,
            std::cmp::Ordering::Greater => Self::Expired,
        }
    }
}

/// The oldest start version that is still fresh under `published`; all older ones are at or past their boundary.
pub(super) fn oldest_fresh(published: Version, limit: u32) -> Version {
    Version((published.0 + 2).saturating_sub(u64::from(limit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_limit_two_a_trajectory_is_fresh_then_at_its_boundary_then_expired() {
        let span = Span::Drawn { first: Version(7), last: Version(7) };
        let standings = [7, 8, 9].map(|published| Standing::of(span, Version(published), 2));
        assert_eq!(standings, [Standing::Fresh, Standing::Boundary, Standing::Expired]);
    }

    #[test]
    fn the_oldest_fresh_version_divides_fresh_from_the_rest() {
        for (published, limit, start) in (0..6).flat_map(|p| (1..5).flat_map(move |l| (0..=p).map(move |s| (p, l, s))))
        {
            let span = Span::Dispatched(Version(start));
            let fresh = Standing::of(span, Version(published), limit) == Standing::Fresh;
            assert_eq!(fresh, Version(start) >= oldest_fresh(Version(published), limit), "{published} {limit} {start}");
        }
    }

    #[test]
    fn the_engine_s_word_replaces_the_version_assumed_at_dispatch() {
        let span = Span::Empty.dispatched(Version(3)).turned(Some((Version(4), Version(4))));
        assert_eq!(span.start(), Some(Version(4)));
        assert_eq!(span.versions(), 1);
    }

    #[test]
    fn a_first_turn_that_drew_nothing_leaves_the_start_open() {
        assert_eq!(Span::Empty.dispatched(Version(3)).turned(None), Span::Empty);
    }

    #[test]
    fn a_span_counts_every_version_between_first_and_last() {
        let span =
            Span::Empty.turned(Some((Version(1), Version(2)))).turned(None).turned(Some((Version(4), Version(4))));
        assert_eq!(span.versions(), 4);
    }
}
