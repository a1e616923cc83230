//! An engine on a thread of its own.

use crate::engine::Engine;
use crate::options::{EngineError, EngineOptions};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use venus_core::message::engine::{EngineCommand, EngineEvent};

/// The engine's thread has ended: it was shut down, or it panicked (its message is on standard error).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the engine has ended; start another and submit its turns again")]
pub struct EngineGone;

/// The sending end of an engine's thread. Dropping it ends the iteration that runs and joins the thread; turns in flight
/// are not answered.
#[derive(Debug)]
pub struct EngineHandle {
    commands: Sender<EngineCommand>,
    thread: Option<JoinHandle<()>>,
}

impl EngineHandle {
    /// Loads the model in `dir` and starts an engine of it. The receiver yields what happens; it ends with the engine.
    ///
    /// # Errors
    /// The engine cannot start; see [`EngineError`].
    pub fn spawn(options: EngineOptions, dir: &Path) -> Result<(Self, Receiver<EngineEvent>), EngineError> {
        let name = format!("venus-engine-{}", options.worker);
        let engine = Engine::load(options, dir)?;
        let (commands, received) = mpsc::channel();
        let (events, happened) = mpsc::channel();
        let thread = thread::Builder::new().name(name).spawn(move || drive(engine, &received, &events))?;
        Ok((Self { commands, thread: Some(thread) }, happened))
    }

    /// Gives the engine a command; commands take effect in order, between two iterations.
    ///
    /// # Errors
    /// The engine has ended.
    pub fn send(&self, command: EngineCommand) -> Result<(), EngineGone> {
        self.commands.send(command).map_err(|_| EngineGone)
    }
}

impl Drop for EngineHandle {
    fn drop(&mut self) {
        // Both fail only if the engine has ended already, and then there is nothing to wait for.
        let _ = self.commands.send(EngineCommand::Shutdown);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Steps while there is work, sleeps on the channel while there is none, ends when either side is gone.
fn drive(mut engine: Engine, commands: &Receiver<EngineCommand>, events: &Sender<EngineEvent>) {
    loop {
        if !engine.has_work() {
            let Ok(command) = commands.recv() else { return };
            if !engine.command(command) {
                return;
            }
        }
        while let Ok(command) = commands.try_recv() {
            if !engine.command(command) {
                return;
            }
        }
        for event in engine.step() {
            if events.send(event).is_err() {
                return;
            }
        }
    }
}
