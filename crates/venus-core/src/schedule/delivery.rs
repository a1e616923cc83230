//! Batches: what the trainer was given, and when its groups count as consumed.

use crate::ids::{BatchId, GroupId};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Outstanding {
    groups: Vec<GroupId>,
    trained: bool,
    published: bool,
}

/// Batches that are delivered and not consumed. A batch is consumed when the trainer has acknowledged it and
/// the version made from it is in use: only then is a group started in its place on-policy.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    next: BatchId,
    demanded: bool,
    outstanding: BTreeMap<BatchId, Outstanding>,
}

impl Deliveries {
    pub fn starting_at(next: BatchId) -> Self {
        Self { next, ..Self::default() }
    }

    /// The trainer can take a batch. Saying it twice before one is delivered says nothing new.
    pub fn demand(&mut self) {
        self.demanded = true;
    }

    /// The batch to be made now, if the trainer waits for one.
    pub fn wanted(&self) -> Option<BatchId> {
        self.demanded.then_some(self.next)
    }

    /// The wanted batch is made.
    pub fn delivered(&mut self, groups: Vec<GroupId>) {
        self.outstanding.insert(self.next, Outstanding { groups, trained: false, published: false });
        self.next.0 += 1;
        self.demanded = false;
    }

    /// The trainer acknowledged a batch; `None` if it is not outstanding or was acknowledged before, else the
    /// groups consumed by that.
    pub fn trained(&mut self, batch: BatchId) -> Option<Vec<GroupId>> {
        let outstanding = self.outstanding.get_mut(&batch).filter(|outstanding| !outstanding.trained)?;
        outstanding.trained = true;
        Some(self.consume())
    }

    /// A newer version is in use; the groups consumed by that. It was made from the batches acknowledged so
    /// far. If all of those are consumed, its batch's acknowledgement is still on the way, and the oldest
    /// unpublished batch is that batch, for batches are trained in order.
    pub fn published(&mut self) -> Vec<GroupId> {
        let trained = self.outstanding.values().any(|outstanding| outstanding.trained && !outstanding.published);
        if trained {
            self.outstanding.values_mut().filter(|outstanding| outstanding.trained).for_each(|o| o.published = true);
        } else if let Some(oldest) = self.outstanding.values_mut().find(|outstanding| !outstanding.published) {
            oldest.published = true;
        }
        self.consume()
    }

    /// Takes out what is both acknowledged and published.
    fn consume(&mut self) -> Vec<GroupId> {
        let mut consumed = Vec::new();
        self.outstanding.retain(|_, outstanding| {
            let done = outstanding.trained && outstanding.published;
            if done {
                consumed.append(&mut outstanding.groups);
            }
            !done
        });
        consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_batches() -> Deliveries {
        let mut deliveries = Deliveries::default();
        for group in 0..2 {
            deliveries.demand();
            deliveries.delivered(vec![GroupId(group)]);
        }
        deliveries
    }

    #[test]
    fn a_batch_is_consumed_by_its_acknowledgement_and_the_version_after_it() {
        let mut deliveries = two_batches();
        assert_eq!(deliveries.trained(BatchId(0)), Some(vec![]));
        assert_eq!(deliveries.trained(BatchId(0)), None, "acknowledging twice says nothing new");
        assert_eq!(deliveries.published(), [GroupId(0)]);
        assert_eq!(deliveries.trained(BatchId(1)), Some(vec![]), "that version was not made from this batch");
        assert_eq!(deliveries.published(), [GroupId(1)]);
    }

    #[test]
    fn a_version_that_overtakes_its_acknowledgement_is_not_forgotten() {
        let mut deliveries = two_batches();
        assert_eq!(deliveries.published(), []);
        assert_eq!(deliveries.trained(BatchId(0)), Some(vec![GroupId(0)]));
        assert_eq!(deliveries.trained(BatchId(1)), Some(vec![]));
    }
}
