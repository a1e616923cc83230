//! Seeds: a pure function of what is drawn, so that a run repeats and a resumed run goes on as it would have.

use venus_core::ids::TrajectoryId;

/// The seed with which a trajectory draws on from `drawn` tokens. It depends neither on time nor on how often the turn had to
/// be dispatched; a restarted trajectory draws anew.
#[must_use]
pub fn draw_seed(run: u64, trajectory: TrajectoryId, restart: u32, drawn: usize) -> u64 {
    [trajectory.0, u64::from(restart), drawn as u64].iter().fold(mix(run), |state, &part| mix(state ^ mix(part)))
}

/// SplitMix64's output function.
pub(crate) fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
