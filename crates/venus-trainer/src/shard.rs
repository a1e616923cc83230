//! Data parallelism: each thread takes a share of the sequences through the model, in micro-batches that fit its memory.

use crate::batch::Sequence;
use std::thread;
use venus_lm::{Model, TrainWorkspace};

/// Which sequences each thread takes, in micro-batches: indices into the list that was planned.
pub(crate) type Plan = Vec<Vec<Vec<usize>>>;

/// Splits sequences of these lengths over threads, the longest first to the thread with the least tokens, and each
/// share into micro-batches of at most `cap` tokens. A longer sequence goes alone. The same input, the same plan.
pub(crate) fn plan(lengths: &[usize], threads: usize, cap: usize) -> Plan {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(lengths[index]), index));
    let mut shares = vec![(0, Vec::new()); threads.clamp(1, lengths.len().max(1))];
    for index in order {
        let least = shares.iter_mut().min_by_key(|(tokens, _)| *tokens).expect("there is at least one thread");
        least.0 += lengths[index];
        least.1.push(index);
    }
    shares.into_iter().map(|(_, share)| micro_batches(&share, lengths, cap)).collect()
}

fn micro_batches(share: &[usize], lengths: &[usize], cap: usize) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for &index in share {
        match batches.last_mut() {
            Some(batch) if lengths[index] <= room => batch.push(index),
            _ => {
                batches.push(vec![index]);
                room = cap.max(lengths[index]);
            }
        }
        room -= lengths[index];
    }
    batches
}

/// The threads' workspaces and gradients, kept from step to step.
pub(crate) struct Shards {
    cap: usize,
    shards: Vec<Shard>,
}

#[derive(Default)]
struct Shard {
    workspace: TrainWorkspace,
    grads: Vec<f32>,
}

/// What one sequence's logits gave, with the sequence's index.
type Indexed<T> = Vec<(usize, T)>;

impl Shards {
    pub(crate) fn new(threads: usize, cap: usize) -> Self {
        Self { cap, shards: (0..threads).map(|_| Shard::default()).collect() }
    }

    /// The summed gradient over `sequences`, and what `loss` returned for each. `loss` gets a sequence's index and its
    /// logits, one row for each of its targets, and replaces them by the loss's derivative.
    ///
    /// Every thread adds up its micro-batches in a fixed order, and the threads' sums are added in a fixed order:
    /// bitwise the same for the same number of threads.
    pub(crate) fn gradient<T: Send>(
        &mut self,
        model: &Model,
        sequences: &[&Sequence],
        loss: &(dyn Fn(usize, &mut [f32]) -> T + Sync),
    ) -> (&mut [f32], Vec<T>) {
        let parameters = model.params().len();
        let results = self.each_share(sequences, &|shard: &mut Shard, share: &[Vec<usize>]| {
            shard.grads.clear();
            shard.grads.resize(parameters, 0.0);
            let Shard { workspace, grads } = shard;
            let mut results = Vec::new();
            for indices in share {
                let (tokens, rows) = inputs(sequences, indices);
                let mut visit = |at: usize, logits: &mut [f32]| {
                    results.push((indices[at], loss(indices[at], logits)));
                };
                venus_lm::gradient(model, workspace, &tokens, &rows, &mut visit, grads);
            }
            results
        });
        let shares = self.shards.len().min(sequences.len()).max(1);
        let (first, others) = self.shards[..shares].split_first_mut().expect("there is at least one thread");
        add_all(&mut first.grads, others);
        (&mut first.grads, results)
    }

    /// What `visit` returned for each sequence's logits. Forward only.
    pub(crate) fn forward<T: Send>(
        &mut self,
        model: &Model,
        sequences: &[&Sequence],
        visit: &(dyn Fn(usize, &[f32]) -> T + Sync),
    ) -> Vec<T> {
        self.each_share(sequences, &|shard: &mut Shard, share: &[Vec<usize>]| {
            let mut results = Vec::new();
            for indices in share {
                let (tokens, rows) = inputs(sequences, indices);
                let mut collect = |at: usize, logits: &[f32]| {
                    results.push((indices[at], visit(indices[at], logits)));
                };
                venus_lm::logits(model, &mut shard.workspace, &tokens, &rows, &mut collect);
            }
            results
        })
    }

    /// Runs `work` on every thread's share and puts the results back into the order of `sequences`.
    fn each_share<T, W>(&mut self, sequences: &[&Sequence], work: &W) -> Vec<T>
    where
        T: Send,
        W: Fn(&mut Shard, &[Vec<usize>]) -> Indexed<T> + Sync,
    {
        let lengths: Vec<usize> = sequences.iter().map(|sequence| sequence.tokens.len()).collect();
        let plan = plan(&lengths, self.shards.len(), self.cap);
        let mut results: Indexed<T> = thread::scope(|scope| {
            let shares = self.shards.iter_mut().zip(&plan);
            let running: Vec<_> = shares.map(|(shard, share)| scope.spawn(move || work(shard, share))).collect();
            running
                .into_iter()
                .flat_map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
                .collect()
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }
}

fn inputs<'a>(sequences: &[&'a Sequence], indices: &[usize]) -> (Vec<&'a [u32]>, Vec<&'a [u32]>) {
    indices.iter().map(|&index| (&sequences[index].tokens[..], &sequences[index].rows[..])).unzip()
}

/// Adds the others' gradients to `sum`, one after the other, each thread a range of parameters.
fn add_all(sum: &mut [f32], others: &[Shard]) {
    let chunk = sum.len().div_ceil(others.len() + 1).max(1);
    thread::scope(|scope| {
        for (index, part) in sum.chunks_mut(chunk).enumerate() {
            scope.spawn(move || {
                for other in others {
                    let from = &other.grads[index * chunk..][..part.len()];
                    part.iter_mut().zip(from).for_each(|(sum, grad)| *sum += grad);
                }
            });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_plan_takes_everything_once_within_the_cap_and_balanced(
            lengths in prop::collection::vec(1usize..300, 0..60), threads in 1usize..5, cap in 1usize..600,
        ) {
            let plan = plan(&lengths, threads, cap);
            let mut taken: Vec<usize> = plan.iter().flatten().flatten().copied().collect();
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..lengths.len()).collect::<Vec<_>>());
            let tokens = |batch: &Vec<usize>| batch.iter().map(|&index| lengths[index]).sum::<usize>();
            prop_assert!(plan.iter().flatten().all(|batch| batch.len() == 1 || tokens(batch) <= cap));
            let loads: Vec<usize> = plan.iter().map(|share| share.iter().map(tokens).sum()).collect();
            let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            prop_assert!(spread <= lengths.iter().copied().max().unwrap_or(0));
        }
    }
}
