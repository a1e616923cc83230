//! How far long work has come.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Time between two lines where nothing can be drawn over.
const LINE_EVERY: Duration = Duration::from_secs(15);

/// Counts on standard error: a live line on a terminal, elsewhere a plain line now and then.
#[derive(Debug)]
pub struct Counter {
    what: &'static str,
    live: Option<ProgressBar>,
    last_line: Instant,
}

impl Counter {
    /// Counts `what`.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        let live = std::io::stderr().is_terminal().then(|| bar(what));
        Self { what, live, last_line: Instant::now() }
    }

    /// So many of `all` are done; `state` is whatever else is worth knowing.
    pub fn tell(&mut self, done: u64, all: u64, state: &str) {
        if let Some(bar) = &self.live {
            bar.set_length(all);
            bar.set_position(done);
            bar.set_message(state.to_owned());
        } else if done == all || self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let gap = if state.is_empty() { "" } else { ": " };
            eprintln!("{done} of {all} {}{gap}{state}", self.what);
        }
    }
}

fn bar(what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(4));
    // The template is fixed and known to parse; the default style would do as well.
    let style = ProgressStyle::with_template("{pos} of {len} {prefix} {msg} ({elapsed}, {eta} left)");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(what);
    bar
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(bar) = &self.live {
            bar.finish();
        }
    }
}
