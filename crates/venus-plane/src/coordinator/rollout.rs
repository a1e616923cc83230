//! Groups and turns: the scheduler's decisions carried out, and the facts that come back.

use super::{Coordinator, Engine, RunError, evaluation};
use crate::agent::{Failure, FinishedTrajectory, News, Report, TurnOrder, Who};
use crate::record::Entry;
use crate::sandbox::SandboxClient;
use crate::stream::{family, members};
use crate::trainer::TrainerClient;
use venus_core::ids::{AttemptId, GroupId, TrajectoryId, WorkerId};
use venus_core::message::engine::{Class, EngineCommand, EngineEvent, TurnRequest, TurnResult};
use venus_core::schedule::{Action, DiscardReason, Event};
use venus_core::units::Tokens;

impl<C: SandboxClient, T: TrainerClient> Coordinator<C, T> {
    /// Tells the scheduler a fact and does what it decides.
    pub(super) fn tell(&mut self, event: Event) -> Result<(), RunError> {
        let mut actions = Vec::new();
        self.scheduler.on(self.now(), event, &mut actions);
        if self.options.check || cfg!(debug_assertions) {
            self.scheduler.check()?;
        }
        actions.into_iter().try_for_each(|action| self.carry_out(action))
    }

    fn carry_out(&mut self, action: Action) -> Result<(), RunError> {
        match action {
            Action::Start { trajectory, restart } => self.start(Who { trajectory, restart }),
            Action::Dispatch { trajectory, attempt, worker, class } => {
                self.dispatch(trajectory, attempt, worker, class)
            }
            Action::Preempt { attempt, worker, .. } => {
                self.command(worker, EngineCommand::Abort(attempt));
                Ok(())
            }
            Action::SetClass { trajectory, worker, class } => {
                self.command(worker, EngineCommand::SetClass(trajectory, class));
                Ok(())
            }
            Action::Discard { trajectory, reason } => {
                self.tally.discard(reason);
                self.remove(trajectory);
                Ok(())
            }
            Action::DropGroup { group, reason } => self.drop_group(group, reason),
            Action::Deliver { batch, groups } => self.deliver(batch, groups),
        }
    }

    /// Offers groups while the window has room and the steps that are left need them.
    pub(super) fn offer(&mut self) -> Result<(), RunError> {
        while self.cycle.offers() && self.scheduler.room() > 0 && self.groups_needed() > 0 {
            if let Some((group, members)) = self.reopen.pop_front() {
                self.tell(Event::GroupOffered { group, members })?;
                continue;
            }
            let group = self.fresh_group();
            let task = self.stream.task(group).clone();
            let members = members(group, self.options.scheduler.group_size);
            self.ledger.open(group, members.clone())?;
            self.note(&Entry::GroupOpened {
                group,
                task: task.name.clone(),
                family: family(&task).to_owned(),
                instruction: task.instruction.clone(),
                members: members.clone(),
            })?;
            self.tasks.insert(group, task);
            self.tell(Event::GroupOffered { group, members })?;
        }
        Ok(())
    }

    /// The first place in the stream of tasks that nobody has taken. Not a counter that is carried over: a resumed run
    /// may know of a later group and not of an earlier one.
    fn fresh_group(&mut self) -> GroupId {
        while self.ledger.state(self.next_group).is_some() {
            self.next_group.0 += 1;
        }
        self.next_group
    }

    /// Groups that the steps left need beyond those on their way.
    fn groups_needed(&self) -> u64 {
        let steps = self.target.0.saturating_sub(self.version.0);
        let counts = self.ledger.counts();
        let on_their_way = counts.open + counts.complete + counts.delivered - self.reopen.len();
        (steps * self.options.scheduler.groups_per_batch as u64).saturating_sub(on_their_way as u64)
    }

    fn start(&mut self, who: Who) -> Result<(), RunError> {
        let group = self.ledger.group_of(who.trajectory);
        let task = group.and_then(|group| self.tasks.get(&group)).cloned();
        let task = task.ok_or_else(|| RunError::Impossible(format!("{} has no task", who.trajectory)))?;
        let live = self.crew.start(who, task, self.training_episodes.clone());
        self.live.insert(who.trajectory, live);
        Ok(())
    }

    fn dispatch(
        &mut self,
        trajectory: TrajectoryId,
        attempt: AttemptId,
        worker: WorkerId,
        class: Class,
    ) -> Result<(), RunError> {
        let group = self.ledger.group_of(trajectory);
        let group =
            group.ok_or_else(|| RunError::Impossible(format!("{trajectory} was dispatched without a group")))?;
        self.submit(trajectory, group, attempt, worker, class)
    }

    /// Sends the turn an episode wants to an engine.
    pub(super) fn submit(
        &mut self,
        trajectory: TrajectoryId,
        group: GroupId,
        attempt: AttemptId,
        worker: WorkerId,
        class: Class,
    ) -> Result<(), RunError> {
        let live = self.live.get_mut(&trajectory);
        let Some((live, order)) = live.and_then(|live| live.order.clone().map(|order| (live, order))) else {
            return Err(RunError::Impossible(format!("{trajectory} was dispatched without a turn")));
        };
        live.running = Some((attempt, worker));
        if !live.visited.contains(&worker) {
            live.visited.push(worker);
        }
        // An episode that is over has reported its end; that report is on its way.
        let _ = live.news.send(News::Dispatched);
        let TurnOrder { context, sampling } = order;
        self.command(
            worker,
            EngineCommand::Submit(TurnRequest { attempt, trajectory, group, class, context, sampling }),
        );
        Ok(())
    }

    /// Sends a command. An engine that is gone says so by closing its events; nothing is lost by telling it.
    pub(super) fn command(&self, worker: WorkerId, command: EngineCommand) {
        if let Some(Engine { commands, .. }) = self.engines.get(&worker) {
            let _ = commands.send(command);
        }
    }

    /// Takes an episode away, whatever it is doing: its turn is aborted, its pages released, its sandbox freed.
    pub(super) fn remove(&mut self, trajectory: TrajectoryId) {
        let Some(live) = self.live.remove(&trajectory) else { return };
        if let Some((attempt, worker)) = live.running {
            self.command(worker, EngineCommand::Abort(attempt));
        }
        for &worker in &live.visited {
            self.command(worker, EngineCommand::Release(trajectory));
        }
        self.tally.sandboxes -= usize::from(live.ready);
    }

    /// A fact from an episode; dropped unless it is from the current start.
    pub(super) fn report(&mut self, who: Who, report: Report) -> Result<(), RunError> {
        let trajectory = who.trajectory;
        let Some(live) = self.live.get_mut(&trajectory).filter(|live| live.who == who) else { return Ok(()) };
        let evaluated = evaluation::is_evaluation(trajectory);
        match report {
            Report::Ready => {
                live.ready = true;
                self.tally.sandbox_up();
                if evaluated { Ok(()) } else { self.tell(Event::SandboxReady { trajectory }) }
            }
            Report::Queue(order) => {
                let context = Tokens(order.context.len() as u64);
                live.order = Some(order);
                if evaluated {
                    self.evaluate_turn(trajectory)
                } else {
                    self.tell(Event::TurnQueued { trajectory, context })
                }
            }
            Report::Abort => {
                if let Some((attempt, worker)) = live.running {
                    self.command(worker, EngineCommand::Abort(attempt));
                }
                Ok(())
            }
            Report::ToolEnded if evaluated => Ok(()),
            Report::ToolEnded => self.tell(Event::ToolEnded { trajectory }),
            Report::Grading => Ok(()),
            Report::End(result) if evaluated => self.evaluated(trajectory, result),
            Report::End(Ok(finished)) => self.finished(*finished),
            Report::End(Err(failure)) => self.failed(who, failure),
        }
    }

    fn finished(&mut self, finished: FinishedTrajectory) -> Result<(), RunError> {
        let trajectory = finished.train.trajectory;
        self.remove(trajectory);
        let entry = Entry::TrajectoryFinished(Box::new(finished));
        self.note(&entry)?;
        let Entry::TrajectoryFinished(finished) = entry else { return Ok(()) };
        if let Some(group) = self.ledger.finish(*finished)? {
            self.note(&Entry::GroupComplete { group })?;
            self.record.sync()?;
            self.tasks.remove(&group);
            self.drops = 0;
        }
        self.tell(Event::TrajectoryFinished { trajectory })
    }

    fn failed(&mut self, who: Who, failure: Failure) -> Result<(), RunError> {
        if self.tally.failure(&failure) {
            self.notice(format!("{}, start {}: {failure}", who.trajectory, who.restart + 1));
        }
        self.last_failure = Some(failure);
        self.remove(who.trajectory);
        self.tell(Event::TrajectoryFailed { trajectory: who.trajectory })
    }

    fn drop_group(&mut self, group: GroupId, reason: DiscardReason) -> Result<(), RunError> {
        self.ledger.drop_group(group)?;
        self.note(&Entry::GroupDropped { group, reason })?;
        let task = self.tasks.remove(&group).map(|task| task.name.clone()).unwrap_or_default();
        let why = self.last_failure.as_ref().map(ToString::to_string).unwrap_or_default();
        self.notice(format!("group {group} (task {task}) is given up: {why}"));
        self.drops += 1;
        match &self.last_failure {
            Some(last) if self.drops >= self.options.give_up_after => {
                Err(RunError::GaveUp { groups: self.drops, last: last.clone() })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn engine_event(&mut self, worker: WorkerId, event: EngineEvent) -> Result<(), RunError> {
        match event {
            EngineEvent::Turn(result) => self.turn_ended(worker, result),
            EngineEvent::Loaded(version) => self.loaded(worker, version),
            EngineEvent::LoadFailed { version, reason } => self.load_failed(worker, version, reason),
            EngineEvent::Stats(stats) => {
                self.tell(Event::WorkerReport { worker, free: stats.pages_free, pages: stats.pages })
            }
        }
    }

    fn turn_ended(&mut self, worker: WorkerId, result: TurnResult) -> Result<(), RunError> {
        let trajectory = result.trajectory;
        let current = Some((result.attempt, worker));
        let Some(live) = self.live.get_mut(&trajectory).filter(|live| live.running == current) else {
            self.tally.late(&result);
            return Ok(());
        };
        live.running = None;
        let context = live.order.take().map_or(0, |order| order.context.len());
        let who = live.who;
        if evaluation::is_evaluation(trajectory) {
            self.tally.evaluation_turn(&result);
        } else {
            self.tally.turn(context, &result);
            let versions = result.spans.first().zip(result.spans.last()).map(|(a, b)| (a.version, b.version));
            let (attempt, generated) = (result.attempt, Tokens(result.tokens.len() as u64));
            // The scheduler may throw the trajectory away at this: then its episode must not start a tool.
            self.tell(Event::TurnEnded { trajectory, attempt, generated, versions })?;
        }
        if let Some(live) = self.live.get(&trajectory).filter(|live| live.who == who) {
            let _ = live.news.send(News::Ended(result));
        }
        Ok(())
    }

    /// An engine is gone: its turns are queued again and go to another one.
    pub(super) fn engine_lost(&mut self, worker: WorkerId) -> Result<(), RunError> {
        if self.engines.remove(&worker).is_none() {
            return Ok(());
        }
        self.notice(format!("engine {worker} is gone; its turns go to another one"));
        if self.engines.is_empty() {
            return Err(RunError::NoEngine);
        }
        let mut homeless = Vec::new();
        for (&trajectory, live) in &mut self.live {
            live.visited.retain(|&visited| visited != worker);
            if live.running.take_if(|(_, at)| *at == worker).is_some() {
                let _ = live.news.send(News::Requeued);
                homeless.push(trajectory);
            }
        }
        self.tell(Event::WorkerLost { worker })?;
        homeless.retain(|&trajectory| evaluation::is_evaluation(trajectory));
        homeless.into_iter().try_for_each(|trajectory| self.evaluate_turn(trajectory))?;
        self.not_loading(worker)
    }
}
