//! The embedded env node as the plane sees it: a template a task, shared by the task's sandboxes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use venus_core::message::sandbox::{CreateSandbox, Exec, ExecResult, Limits, SandboxError, SandboxErrorKind};
use venus_plane::sandbox::{Sandbox, SandboxClient, place_environment};
use venus_plane::task::{Task, place};
use venus_sandbox::{EnvNode, Template};

/// An env node in this process. Cheap to clone.
#[derive(Clone)]
pub struct EmbeddedNode(Arc<Shared>);

struct Shared {
    node: EnvNode,
    /// Directory of the templates' layers; goes with the node.
    layers: PathBuf,
    next_layer: AtomicU64,
    placed: Mutex<HashMap<String, Weak<Layer>>>,
    /// For what a task does not limit itself.
    limits: Limits,
    /// Set-up commands of a task may run this long each.
    setup_timeout: Duration,
}

/// The files of one task on disk, for as long as a sandbox uses them.
struct Layer {
    dir: PathBuf,
}

impl Drop for Layer {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.dir) {
            tracing::warn!(dir = %self.dir.display(), %error, "the files of a task could not be removed");
        }
    }
}

impl EmbeddedNode {
    /// Gives out sandboxes of `node`. `limits` hold where a task sets none.
    ///
    /// # Errors
    /// There is no place for the templates' files.
    pub fn new(node: EnvNode, limits: Limits) -> anyhow::Result<Self> {
        let layers = node.scratch().join("templates");
        create_passable(&layers)
            .map_err(|e| anyhow::anyhow!("cannot make {} for the templates: {e}", layers.display()))?;
        let setup_timeout = Duration::from_secs(600);
        let (next_layer, placed) = (AtomicU64::new(0), Mutex::default());
        Ok(Self(Arc::new(Shared { node, layers, next_layer, placed, limits, setup_timeout })))
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &EnvNode {
        &self.0.node
    }

    /// Ends all sandboxes and waits until what was theirs is removed, unless somebody else still holds the node: then the
    /// last one to let go of it does.
    pub async fn shutdown(self) {
        if let Some(shared) = Arc::into_inner(self.0) {
            shared.node.shutdown().await;
        }
    }

    fn layer(&self, task: &Task) -> Result<Arc<Layer>, SandboxError> {
        let mut placed = self.0.placed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layer) = placed.get(&task.name).and_then(Weak::upgrade) {
            return Ok(layer);
        }
        placed.retain(|_, layer| layer.strong_count() > 0);
        let number = self.0.next_layer.fetch_add(1, Ordering::Relaxed);
        let layer = Arc::new(Layer { dir: self.0.layers.join(number.to_string()) });
        place_files(task, &layer.dir).map_err(|e| unplaced(task, &e))?;
        self.0.node.register_template(Template {
            name: task.name.clone(),
            layers: vec![layer.dir.clone()],
            workdir: task.environment.workdir.clone(),
            env: task.environment.env.clone(),
            ..Template::host(&task.name)
        })?;
        placed.insert(task.name.clone(), Arc::downgrade(&layer));
        Ok(layer)
    }

    fn limits(&self, task: Limits) -> Limits {
        let own = &self.0.limits;
        Limits {
            memory: task.memory.or(own.memory),
            pids: task.pids.or(own.pids),
            cpu_millis: task.cpu_millis.or(own.cpu_millis),
            file_size: task.file_size.or(own.file_size),
        }
    }
}

/// The task's files beneath `dir`, readable by whatever user the sandbox runs as.
fn place_files(task: &Task, dir: &Path) -> std::io::Result<()> {
    create_passable(dir)?;
    place(&task.environment.files, dir)?;
    std::fs::create_dir_all(dir.join(task.environment.workdir.trim_start_matches('/')))
}

/// Makes a directory that the user a sandbox runs as can pass through and read.
fn create_passable(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

fn unplaced(task: &Task, error: &std::io::Error) -> SandboxError {
    let message = format!("the files of task {} cannot be placed: {error}; free some disk space", task.name);
    SandboxError { kind: SandboxErrorKind::Internal, message }
}

impl SandboxClient for EmbeddedNode {
    type Sandbox = EmbeddedSandbox;

    async fn create(&self, mut request: CreateSandbox, task: &Task) -> Result<EmbeddedSandbox, SandboxError> {
        let layer = self.layer(task)?;
        request.template.clone_from(&task.name);
        request.limits = self.limits(request.limits);
        let lease = self.0.node.create(request).await?;
        let sandbox = EmbeddedSandbox { lease, _layer: layer };
        if !task.environment.setup.is_empty() {
            place_environment(&sandbox, task, self.0.setup_timeout).await?;
        }
        Ok(sandbox)
    }
}

/// A sandbox of the embedded node.
pub struct EmbeddedSandbox {
    lease: venus_sandbox::Sandbox,
    /// Outlives the lease: fields drop in order.
    _layer: Arc<Layer>,
}

impl Sandbox for EmbeddedSandbox {
    async fn exec(&self, exec: Exec) -> Result<ExecResult, SandboxError> {
        self.lease.exec(exec).await
    }

    async fn write(&self, path: &str, bytes: &[u8], mode: u32) -> Result<(), SandboxError> {
        self.lease.write(path, bytes, mode).await
    }

    async fn read(&self, path: &str, max: u64) -> Result<Vec<u8>, SandboxError> {
        self.lease.read(path, usize::try_from(max).unwrap_or(usize::MAX)).await
    }

    async fn remove(&self, path: &str) -> Result<(), SandboxError> {
        self.lease.remove(path).await
    }

    async fn kill_processes(&self) -> Result<(), SandboxError> {
        self.lease.kill_processes().await
    }

    async fn kill(self) -> Result<(), SandboxError> {
        self.lease.kill().await;
        Ok(())
    }

    fn locate(&self, path: &str) -> String {
        self.lease.locate(path)
    }
}
