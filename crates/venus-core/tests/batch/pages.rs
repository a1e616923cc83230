//! Residency against a model that knows nothing of nodes: a set of cached prefixes, and for each question a look at all
//! of them.

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use venus_core::ids::{TokenId, TrajectoryId, Version};
use venus_core::residency::{FlushPolicy, Holding, Lock, PageId, Residency, Tier};
use venus_core::units::Pages;

/// Tokens a page.
const SIZE: usize = 2;
type Prefix = Vec<TokenId>;

#[derive(Clone, Debug)]
enum Op {
    /// A turn begins: locks what is known of these tokens.
    Acquire(Prefix),
    /// A turn takes pages of its own.
    Take {
        turn: usize,
        pages: u32,
        reach: Tier,
    },
    /// A turn shares its pages, as the KV of these tokens.
    Publish {
        turn: usize,
        trajectory: u64,
        tokens: Prefix,
    },
    /// A turn ends.
    Release(usize),
    Enter {
        trajectory: u64,
        high: bool,
        tokens: Prefix,
    },
    Refer {
        turn: usize,
        trajectory: u64,
        high: bool,
    },
    ReferAs {
        trajectory: u64,
        high: bool,
    },
    Leave(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let tokens = || vec(0u32..2, 0..16);
    let reach = || prop_oneof![Just(Tier::Unused), Just(Tier::LowRef), Just(Tier::HighRef)];
    prop_oneof![
        3 => tokens().prop_map(Op::Acquire),
        3 => (any::<usize>(), 0u32..6, reach()).prop_map(|(turn, pages, reach)| Op::Take { turn, pages, reach }),
        4 => (any::<usize>(), 0u64..5, tokens())
            .prop_map(|(turn, trajectory, tokens)| Op::Publish { turn, trajectory, tokens }),
        3 => any::<usize>().prop_map(Op::Release),
        2 => (0u64..5, any::<bool>(), tokens())
            .prop_map(|(trajectory, high, tokens)| Op::Enter { trajectory, high, tokens }),
        2 => (any::<usize>(), 0u64..5, any::<bool>())
            .prop_map(|(turn, trajectory, high)| Op::Refer { turn, trajectory, high }),
        2 => (0u64..5, any::<bool>()).prop_map(|(trajectory, high)| Op::ReferAs { trajectory, high }),
        1 => (0u64..5).prop_map(Op::Leave),
    ]
}

/// A running turn: what it locks, and its pages, those of its own last.
struct Turn {
    lock: Lock,
    shared: Prefix,
    table: Vec<PageId>,
}

impl Turn {
    fn split(&self) -> (&[PageId], &[PageId]) {
        self.table.split_at(self.shared.len() / SIZE)
    }
}

struct Model {
    residency: Residency,
    turns: Vec<Turn>,
    /// Every cached prefix of whole pages, and when it was used last.
    cached: BTreeMap<Prefix, u64>,
    /// What each trajectory refers to.
    references: BTreeMap<u64, (bool, Prefix)>,
    clock: u64,
}

/// The prefixes of whole pages of some tokens, shortest first.
fn prefixes(tokens: &[TokenId]) -> impl Iterator<Item = &[TokenId]> {
    (1..=tokens.len() / SIZE).map(|pages| &tokens[..pages * SIZE])
}

impl Model {
    fn new(pages: u32) -> Self {
        let residency = Residency::new(Pages(pages), SIZE as u32, FlushPolicy::Keep, Version(0));
        Self { residency, turns: Vec::new(), cached: BTreeMap::new(), references: BTreeMap::new(), clock: 0 }
    }

    fn matched(&self, tokens: &[TokenId]) -> Prefix {
        prefixes(tokens).take_while(|prefix| self.cached.contains_key(*prefix)).last().unwrap_or(&[]).to_vec()
    }

    fn use_now(&mut self, tokens: &[TokenId]) {
        self.clock += 1;
        for prefix in prefixes(tokens) {
            self.cached.insert(prefix.to_vec(), self.clock);
        }
    }

    fn locked(&self, prefix: &[TokenId]) -> bool {
        self.turns.iter().any(|turn| turn.shared.starts_with(prefix))
    }

    fn tier(&self, prefix: &[TokenId]) -> Tier {
        let by = self.references.values().filter(|(_, tokens)| tokens.starts_with(prefix));
        by.map(|(high, _)| if *high { Tier::HighRef } else { Tier::LowRef }).max().unwrap_or(Tier::Unused)
    }

    fn refer(&mut self, trajectory: u64, high: bool, tokens: Prefix) {
        let (high, old) = self.references.get(&trajectory).cloned().unwrap_or((high, Vec::new()));
        let tokens = if old.starts_with(&tokens) { old } else { tokens };
        self.references.insert(trajectory, (high, tokens));
    }

    fn apply(&mut self, op: Op) {
        let some = |turn: usize| (!self.turns.is_empty()).then(|| turn % self.turns.len());
        match op {
            Op::Acquire(tokens) => {
                let (shared, mut table) = (self.matched(&tokens), Vec::new());
                assert_eq!(self.residency.lookup(&tokens).pages as usize, shared.len() / SIZE);
                let lock = self.residency.acquire(&tokens, &mut table);
                assert_eq!(table.len(), shared.len() / SIZE);
                self.use_now(&shared);
                self.turns.push(Turn { lock, shared, table });
            }
            Op::Take { turn, pages, reach } => {
                if let Some(turn) = some(turn) {
                    self.take(turn, pages, reach);
                }
            }
            Op::Publish { turn, trajectory, tokens } => {
                if let Some(turn) = some(turn) {
                    self.publish(turn, trajectory, &tokens);
                }
            }
            Op::Release(turn) => {
                if let Some(turn) = some(turn) {
                    let turn = self.turns.swap_remove(turn);
                    let private = turn.split().1.to_vec();
                    self.residency.release(turn.lock, &private);
                    self.use_now(&turn.shared);
                }
            }
            Op::Enter { trajectory, high, tokens } => {
                self.residency.enter(TrajectoryId(trajectory), high, &tokens);
                self.refer(trajectory, high, self.matched(&tokens));
            }
            Op::Refer { turn, trajectory, high } => {
                if let Some(turn) = some(turn) {
                    self.residency.refer(TrajectoryId(trajectory), high, &self.turns[turn].lock);
                    self.refer(trajectory, high, self.turns[turn].shared.clone());
                }
            }
            Op::ReferAs { trajectory, high } => {
                self.residency.refer_as(TrajectoryId(trajectory), high);
                if let Some(reference) = self.references.get_mut(&trajectory) {
                    reference.0 = high;
                }
            }
            Op::Leave(trajectory) => {
                let left = self.residency.leave(TrajectoryId(trajectory));
                assert_eq!(left, self.references.remove(&trajectory).is_some(), "a reference is released once");
            }
        }
    }

    fn take(&mut self, turn: usize, pages: u32, reach: Tier) {
        let free = self.residency.free().0;
        let within = self.cached.keys().filter(|prefix| !self.locked(prefix) && self.tier(prefix) <= reach).count();
        assert_eq!(self.residency.available(reach).0, free + within as u32);
        let given = self.residency.allocate(pages, reach, &mut self.turns[turn].table);
        assert_eq!(given, pages <= free + within as u32, "what is available is given");
        self.evicted(if given { pages.saturating_sub(free) } else { 0 } as usize, reach);
    }

    /// Takes over what was evicted, and checks that it was the right pages.
    fn evicted(&mut self, pages: usize, reach: Tier) {
        let stays = |prefix: &Prefix| self.residency.lookup(prefix).pages as usize == prefix.len() / SIZE;
        let gone: Vec<Prefix> = self.cached.keys().filter(|prefix| !stays(prefix)).cloned().collect();
        assert_eq!(gone.len(), pages, "no more are evicted than needed");
        assert!(gone.iter().all(|prefix| !self.locked(prefix)), "what is locked stays");
        let left: BTreeSet<&Prefix> = self.cached.keys().filter(|prefix| stays(prefix)).collect();
        let is_leaf =
            |prefix: &Prefix| !left.iter().any(|other| other.len() > prefix.len() && other.starts_with(prefix));
        for gone in &gone {
            let tier = self.tier(gone);
            assert!(tier <= reach, "nothing is taken out of reach");
            for other in left.iter().filter(|prefix| !self.locked(prefix)) {
                assert!(self.tier(other) >= tier, "lesser tiers go first");
                let later = self.cached[*other] >= self.cached[gone];
                assert!(self.tier(other) > tier || !is_leaf(other) || later, "inside a tier, the least recently used");
            }
        }
        self.cached.retain(|prefix, _| !gone.contains(prefix));
        for trajectory in self.references.keys().copied().collect::<Vec<_>>() {
            let (high, tokens) = self.references[&trajectory].clone();
            self.references.insert(trajectory, (high, self.matched(&tokens)));
        }
    }

    fn publish(&mut self, turn: usize, trajectory: u64, tokens: &[TokenId]) {
        let Turn { lock, shared, mut table } = self.turns.swap_remove(turn);
        let held = shared.len() / SIZE;
        let pages = (tokens.len() / SIZE).min(table.len() - held);
        let all = [&shared[..], &tokens[..pages * SIZE]].concat();
        let shared_table = &mut table[..held + pages];
        let lock = self.residency.publish(TrajectoryId(trajectory), lock, held, &all, shared_table);
        self.use_now(&all);
        if self.references.contains_key(&trajectory) {
            self.refer(trajectory, false, all.clone());
        }
        self.turns.push(Turn { lock, shared: all, table });
    }

    fn compare(&self) {
        let holdings = self.turns.iter().map(|turn| {
            let (shared, private) = turn.split();
            Holding { lock: &turn.lock, shared, private }
        });
        self.residency.check(holdings).expect("the invariants hold");
        let count = |tier| self.cached.keys().filter(|p| !self.locked(p) && self.tier(p) == tier).count() as u32;
        let tiers = self.residency.tiers();
        for tier in [Tier::Unused, Tier::LowRef, Tier::HighRef] {
            assert_eq!(tiers[tier], count(tier), "{tier:?}");
        }
        assert_eq!(self.residency.references(), self.references.len());
        let high = |prefix: &Prefix| {
            self.references.values().filter(|(high, tokens)| *high && tokens.starts_with(prefix)).count() as u64
        };
        let shared: u64 = self.cached.keys().map(|prefix| high(prefix).saturating_sub(1)).sum();
        assert_eq!(self.residency.shared_by_high(), shared);
        for (&trajectory, (_, tokens)) in &self.references {
            let referred = self.residency.referred(TrajectoryId(trajectory)).expect("it has a reference");
            assert_eq!(referred.pages.0 as usize, tokens.len() / SIZE);
        }
    }

    fn end(mut self) {
        for trajectory in 0..5 {
            self.apply(Op::Leave(trajectory));
        }
        for _ in 0..self.turns.len() {
            self.apply(Op::Release(0));
        }
        self.compare();
        assert_eq!(self.residency.references(), 0);
        assert_eq!(self.residency.free() + Pages(self.residency.tiers()[Tier::Unused]), self.residency.capacity());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tiers_and_evictions_are_those_of_the_model(pages in 1u32..24, ops in vec(op(), 1..70)) {
        let mut model = Model::new(pages);
        for op in ops {
            model.apply(op);
            model.compare();
        }
        model.end();
    }
}
