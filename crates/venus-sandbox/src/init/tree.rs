//! Ending a command together with everything it started.
//!
//! The command's first process is marked as reaper of orphans when it starts, so a process that detaches (double fork,
//! `setsid`) still hangs below it, and what hangs below it is exactly what the command started.

use crate::sys;
use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

/// A forking tree is stopped in this many rounds or killed as far as it is seen.
const ROUNDS: u32 = 200;

/// Kills `leader` and all below it.
pub(crate) fn kill(leader: i32) {
    // The leader goes last: as long as it lives its descendants stay below it.
    let _ = sys::kill(leader, libc::SIGSTOP);
    for _ in 0..ROUNDS {
        if !kill_below(leader) {
            break;
        }
        thread::sleep(Duration::from_micros(500));
    }
    let _ = sys::kill(leader, libc::SIGKILL);
}

/// Kills all below `ancestor` that are seen now; whether there were any.
pub(crate) fn kill_below(ancestor: i32) -> bool {
    kill_below_except(ancestor, &[])
}

/// The same, sparing the processes in `keep` and all below them.
pub(crate) fn kill_below_except(ancestor: i32, keep: &[i32]) -> bool {
    let seen = below(ancestor, keep);
    // Stopped first, so that none forks while its siblings are being killed.
    for signal in [libc::SIGSTOP, libc::SIGKILL] {
        for pid in &seen {
            // Gone already is what we want.
            let _ = sys::kill(*pid, signal);
        }
    }
    !seen.is_empty()
}

/// Living descendants of a process.
fn below(ancestor: i32, keep: &[i32]) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // `pid (name) state ppid ...`; the name may contain anything.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let (Some(state), Some(Ok(parent))) = (fields.next(), fields.next().map(str::parse)) else { continue };
        if state != "Z" && state != "X" {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut next = vec![ancestor];
    while let Some(pid) = next.pop() {
        for child in children.remove(&pid).unwrap_or_default().into_iter().filter(|child| !keep.contains(child)) {
            found.push(child);
            next.push(child);
        }
    }
    found
}
