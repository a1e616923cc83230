//! The plain policy, least recently used, decides what it always did: baselines are measured with it.

use crate::fake::{Engine, options};
use venus_core::batch::{BatchOptions, Drawn};
use venus_core::ids::{AttemptId, TrajectoryId};
use venus_core::message::engine::Class::{Boundary, High, Low};
use venus_core::units::Tokens;

/// Numbers that look random.
struct Mix(u64);

impl Mix {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// A digest of every decision of a history: works, block tables, counters.
fn digest(seed: u64) -> u64 {
    let mut mix = Mix(seed);
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    let mut note = |value: u64| digest = (digest ^ value).wrapping_mul(0x0100_0000_01b3);
    let limits = BatchOptions { max_running: 5, prefill_budget: Tokens(11), max_context: Tokens(70), ..options(24, 3) };
    let mut engine = Engine::new(limits);
    for attempt in 0..60 {
        let context: Vec<u32> = (0..mix.below(40)).map(|_| mix.below(2) as u32).collect();
        engine.submit(attempt, [Low, High, Boundary][mix.below(3) as usize], &context, mix.below(20) as u32);
        let other = mix.below(60);
        match mix.below(6) {
            0 => engine.batch.abort(AttemptId(other)),
            1 => engine.batch.set_class(TrajectoryId(other), [Low, High][mix.below(2) as usize]),
            2 if mix.below(4) == 0 => engine.activate(mix.below(3)),
            _ => {}
        }
        for _ in 0..mix.below(6) {
            engine.batch.plan(&mut Vec::new());
            for work in engine.batch.work() {
                [work.attempt.0, work.start as u64, work.end as u64].into_iter().for_each(&mut note);
                engine.batch.block_table(work).iter().for_each(|&page| note(page.into()));
            }
            let draws = engine.batch.work().iter().filter(|work| work.draws).count();
            let drawn: Vec<_> = (0..draws).map(|_| Drawn::Token(mix.below(2) as u32)).collect();
            engine.batch.commit(&drawn, &mut Vec::new());
        }
    }
    let counters = engine.batch.counters();
    [counters.cached.0, counters.recomputed.0, counters.retractions, counters.preemptions]
        .into_iter()
        .for_each(&mut note);
    assert!(counters.retractions > 0 && counters.preemptions > 0, "{counters:?}");
    digest
}

#[test]
fn the_plain_policy_decides_what_it_did_before_there_were_others() {
    let before = [15_993_901_818_789_085_664, 3_304_044_504_493_363_224, 17_118_941_169_109_599_420];
    assert_eq!([1, 2, 3].map(digest), before);
}
