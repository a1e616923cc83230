//! Random histories against the fake model.

use crate::fake::Engine;
use proptest::collection::vec;
use proptest::prelude::*;
use venus_core::batch::{BatchOptions, Drawn};
use venus_core::ids::{AttemptId, TrajectoryId, Version};
use venus_core::message::engine::Class;
use venus_core::residency::{FlushPolicy, ResidencyPolicy};
use venus_core::units::{Pages, Tokens};

#[derive(Clone, Debug)]
enum Op {
    /// A context of its own, of few different tokens, so that prefixes coincide.
    Fresh {
        class: Class,
        context: Vec<u32>,
        max_tokens: u32,
    },
    /// Siblings: the same prompt several times at once.
    Siblings {
        class: Class,
        context: Vec<u32>,
        count: usize,
        max_tokens: u32,
    },
    /// A further turn of a trajectory: what its earlier turn had, what it drew, and a tool's answer.
    Continue {
        which: usize,
        class: Class,
        tool: Vec<u32>,
        max_tokens: u32,
    },
    Abort(usize),
    /// A trajectory ends. As a rule, what it runs is aborted first.
    Release {
        which: usize,
        abort: bool,
    },
    SetClass(usize, Class),
    Activate(u64),
    Step(usize),
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![4 => Just(Class::Low), 2 => Just(Class::High), 1 => Just(Class::Boundary)]
}

fn op() -> impl Strategy<Value = Op> {
    let tokens = || vec(0u32..2, 0..24);
    prop_oneof![
        3 => (class(), tokens(), 0u32..12).prop_map(|(class, context, max_tokens)| Op::Fresh { class, context, max_tokens }),
        2 => (class(), tokens(), 1usize..5, 1u32..8)
            .prop_map(|(class, context, count, max_tokens)| Op::Siblings { class, context, count, max_tokens }),
        3 => (any::<usize>(), class(), vec(0u32..2, 1..6), 1u32..12)
            .prop_map(|(which, class, tool, max_tokens)| Op::Continue { which, class, tool, max_tokens }),
        2 => any::<usize>().prop_map(Op::Abort),
        2 => (any::<usize>(), prop::bool::weighted(0.8)).prop_map(|(which, abort)| Op::Release { which, abort }),
        2 => (any::<usize>(), class()).prop_map(|(which, class)| Op::SetClass(which, class)),
        1 => (0u64..4).prop_map(Op::Activate),
        8 => (1usize..6).prop_map(Op::Step),
    ]
}

fn residency() -> impl Strategy<Value = ResidencyPolicy> {
    prop_oneof![
        2 => Just(ResidencyPolicy::Lru),
        1 => Just(ResidencyPolicy::SessionReferenced),
        2 => Just(ResidencyPolicy::Tiered { demotion: false }),
        5 => Just(ResidencyPolicy::Tiered { demotion: true }),
    ]
}

fn sizes() -> impl Strategy<Value = BatchOptions> {
    (1u32..40, 1u32..5, 1u32..7, 1u64..16, 4u64..60, any::<bool>(), residency()).prop_map(
        |(pages, page_size, max_running, budget, max_context, flush, residency)| BatchOptions {
            pages: Pages(pages),
            page_size,
            max_running,
            prefill_budget: Tokens(budget),
            max_context: Tokens(max_context),
            flush: if flush { FlushPolicy::Flush } else { FlushPolicy::Keep },
            residency,
            version: Version(0),
        },
    )
}

struct History {
    engine: Engine,
    /// Of each attempt: whose, and from what.
    turns: Vec<(u64, Vec<u32>)>,
}

impl History {
    fn submit(&mut self, class: Class, context: Vec<u32>, max_tokens: u32) {
        self.submit_turn(self.turns.len() as u64, class, context, max_tokens);
    }

    fn submit_turn(&mut self, trajectory: u64, class: Class, context: Vec<u32>, max_tokens: u32) {
        self.engine.submit_turn(trajectory, self.turns.len() as u64, class, &context, max_tokens);
        self.turns.push((trajectory, context));
    }

    /// Some attempt.
    fn some(&self, which: usize) -> Option<u64> {
        (!self.turns.is_empty()).then(|| (which % self.turns.len()) as u64)
    }

    fn some_trajectory(&self, which: usize) -> Option<u64> {
        self.some(which).map(|attempt| self.turns[attempt as usize].0)
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Fresh { class, context, max_tokens } => self.submit(class, context, max_tokens),
            Op::Siblings { class, context, count, max_tokens } => {
                (0..count).for_each(|_| self.submit(class, context.clone(), max_tokens));
            }
            Op::Continue { which, class, tool, max_tokens } => {
                let Some(attempt) = self.some(which) else { return };
                let (trajectory, mut context) = self.turns[attempt as usize].clone();
                if let Some(ended) = self.engine.ended.get(&AttemptId(attempt)) {
                    context.extend(&ended.tokens);
                }
                context.extend(tool);
                self.submit_turn(trajectory, class, context, max_tokens);
            }
            Op::Abort(which) => {
                if let Some(attempt) = self.some(which) {
                    self.engine.batch.abort(AttemptId(attempt));
                }
            }
            Op::Release { which, abort } => {
                let Some(trajectory) = self.some_trajectory(which) else { return };
                let turns = (0..).zip(&self.turns).filter(|(_, (owner, _))| *owner == trajectory);
                turns.filter(|_| abort).for_each(|(attempt, _)| self.engine.batch.abort(AttemptId(attempt)));
                self.engine.batch.release(TrajectoryId(trajectory));
            }
            Op::SetClass(which, class) => {
                if let Some(trajectory) = self.some_trajectory(which) {
                    self.engine.set_class(trajectory, class);
                }
            }
            Op::Activate(version) => self.engine.activate(version),
            Op::Step(count) => (0..count).for_each(|_| self.step()),
        }
    }

    fn step(&mut self) {
        // Siblings draw the same at first, then apart; one in sixteen tokens stops.
        self.engine.step(|attempt, length| {
            let mix = (attempt.0 / 2 + length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
            let token = (mix & 1) as u32;
            if mix == 7 { Drawn::Stop(token) } else { Drawn::Token(token) }
        });
    }

    fn finish(mut self) {
        for _ in 0..20_000 {
            if self.engine.batch.is_idle() {
                self.engine.assert_empty();
                return self.engine.end();
            }
            if self.engine.batch.is_stalled() {
                // What low turns wait for is given up only by those that will come back for it.
                return self.engine.end();
            }
            self.step();
        }
        panic!("not idle after 20,000 iterations: livelock");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8000, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_holds_the_prefix_its_turn_needs_and_all_come_back(options in sizes(), ops in vec(op(), 1..40)) {
        let mut history = History { engine: Engine::new(options), turns: Vec::new() };
        for op in ops {
            history.apply(op);
        }
        history.finish();
    }
}
