//! The machine that a run has: processor, memory, disk, kernel.

use serde::Serialize;
use std::fmt;
use std::fs;
use std::path::Path;

/// What this machine has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The processor's name, as it says itself.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// Whether the vector instructions that the kernels are written for are there (AVX2 and FMA, or Neon).
    pub simd: bool,
    /// Memory that can be had without swapping, bytes; 0 if the system doesn't say.
    pub memory_available: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// This machine.
    #[must_use]
    pub fn here() -> Self {
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let kib = field("/proc/meminfo", "MemAvailable").split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            simd: simd(),
            memory_available: kib.unwrap_or(0) * 1024,
            kernel: kernel.trim().to_owned(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = if self.cpu.is_empty() { std::env::consts::ARCH } else { &self.cpu };
        let cores = if self.cores == 1 { "1 core".to_owned() } else { format!("{} cores", self.cores) };
        let memory = gib(self.memory_available);
        write!(f, "{cpu}, {cores}, {memory} of memory available, Linux {}", self.kernel)
    }
}

/// Bytes that can be written below `path`, or below its nearest parent that exists; none if the system doesn't say.
#[must_use]
pub fn disk_available(path: &Path) -> Option<u64> {
    let path = std::path::absolute(path).ok()?;
    let existing = path.ancestors().find(|ancestor| ancestor.exists())?;
    let disk = rustix::fs::statvfs(existing).ok()?;
    Some(disk.f_bavail * disk.f_frsize)
}

/// Bytes as GiB, for people.
#[must_use]
pub fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(target_arch = "x86_64")]
fn simd() -> bool {
    std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("fma")
}

#[cfg(not(target_arch = "x86_64"))]
fn simd() -> bool {
    cfg!(target_arch = "aarch64")
}
