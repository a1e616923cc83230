//! Seeded chaos: failing nodes and graders, dying and repeating engines, kills at any time with part of the unsynced log lost.
//! Whatever happens, each group is trained exactly once and nothing stays behind.

use crate::fakes::{Dice, Disk, EngineFake, SandboxPlan, World, text};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use venus_core::schedule::Policy;
use venus_plane::coordinator::RunError;

fn world(dice: &mut Dice) -> World {
    let mut world = World::new();
    let scheduler = &mut world.options.scheduler;
    scheduler.async_factor = [1.0, 1.5, 2.0][dice.roll(3) as usize];
    scheduler.policy = Policy::ALL[dice.roll(2) as usize];
    scheduler.groups_per_batch = 1 + dice.roll(3) as usize;
    scheduler.group_size = 1 + dice.roll(3) as usize;
    scheduler.version_span_limit = 1 + dice.roll(2) as u32;
    world.options.seed = dice.roll(1000);
    world.options.steps = 2 + dice.roll(4);
    world.options.evaluation.tasks = dice.roll(3) as usize;
    world.options.evaluation.every = dice.roll(3);
    world.options.give_up_after = 1000;
    world.nodes.plan(plan(dice), dice.roll(1 << 40));
    world
}

fn plan(dice: &mut Dice) -> SandboxPlan {
    SandboxPlan {
        create_fails: dice.roll(10),
        create_busy: dice.roll(30),
        exec_fails: dice.roll(6),
        grader_leaves_nothing: dice.roll(8),
        grader_hangs: dice.roll(4),
        silent: false,
    }
}

fn engines(dice: &mut Dice) -> Vec<EngineFake> {
    let engine = |dice: &mut Dice| EngineFake {
        repeats: dice.chance(50),
        breaks_off: dice.roll(2) * 20,
        dies_after: dice.chance(40).then(|| dice.roll(40) as usize),
        ..EngineFake::saying(|request, turn| {
            // By trajectory and turn, so that a turn that was broken off goes on with the same words.
            let mut dice = Dice(request.trajectory.0.wrapping_mul(100) + turn as u64);
            match dice.roll(4) {
                0 => text("done"),
                _ if turn > 4 => text("done"),
                1 => text("nonsense"),
                _ => text(&format!("echo {}", "x".repeat(dice.roll(60) as usize))),
            }
        })
    };
    let mut engines: Vec<_> = (0..dice.roll(3)).map(|_| engine(dice)).collect();
    engines.push(EngineFake { dies_after: None, ..engine(dice) });
    engines
}

/// Kills a run again and again until one gets to its end.
async fn live_through(seed: u64) {
    let mut dice = Dice(seed);
    let mut world = world(&mut dice);
    for life in 0..40 {
        world.engines = engines(&mut dice);
        let patience = if life > 6 { 10_000_000 } else { dice.roll(3000) };
        let ending = timeout(Duration::from_millis(patience), world.run()).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!((world.nodes.alive(), world.nodes.running()), (0, 0), "seed {seed}");
        let summary = match ending {
            Ok(Ok(summary)) => summary,
            Ok(Err(RunError::NoEngine)) => continue,
            Ok(Err(e)) => panic!("seed {seed}: {e}"),
            Err(_) => {
                world.disk = power_loss(&world.disk, &mut dice);
                continue;
            }
        };
        let wanted = world.options.steps * world.options.scheduler.groups_per_batch as u64;
        assert_eq!(summary.groups_trained, wanted, "seed {seed}");
        assert_eq!((summary.groups_lost, summary.groups_doubled), (0, 0), "seed {seed}");
        assert_eq!(world.trainers.trained().len() as u64, wanted, "seed {seed}");
        return;
    }
    panic!("seed {seed}: no life got to its end");
}

/// What was synced survives, and of the rest a part.
fn power_loss(disk: &Disk, dice: &mut Dice) -> Disk {
    let bytes = disk.bytes();
    let unsynced = bytes.len() - disk.synced();
    let kept = disk.synced() + dice.roll(unsynced as u64 + 1) as usize;
    Disk::holding(&bytes[..kept])
}

#[tokio::test(start_paused = true)]
async fn every_group_is_trained_exactly_once_whatever_fails_and_whenever_it_is_killed() {
    for seed in 0..80 {
        live_through(seed).await;
    }
}
