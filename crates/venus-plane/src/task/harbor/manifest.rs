//! `task.toml`.

use super::LoadError;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use toml::{Table, Value};
use venus_core::message::sandbox::Limits;
use venus_core::units::Bytes;

/// Harbor's default for agent and verifier.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

type Env = BTreeMap<String, String>;

/// What Venus takes from a `task.toml`.
#[derive(Debug)]
pub(super) struct Manifest {
    pub(super) name: Option<String>,
    pub(super) limits: Limits,
    pub(super) workdir: Option<String>,
    pub(super) env: Env,
    pub(super) agent_timeout: Duration,
    pub(super) verifier_timeout: Duration,
    pub(super) verifier_env: Env,
    pub(super) notices: Vec<String>,
}

impl Manifest {
    pub(super) fn read(path: &Path) -> Result<Self, LoadError> {
        if !path.exists() {
            return Err(LoadError::new(path, "is missing: `schema_version = \"1.4\"` is enough to begin with"));
        }
        let text = fs::read_to_string(path).map_err(|error| LoadError::io(path, &error))?;
        Self::parse(&text).map_err(|problem| LoadError::new(path, problem))
    }

    fn parse(text: &str) -> Result<Self, String> {
        // The message of the TOML reader shows line, column and the line itself.
        let mut root = Section::new("", text.parse::<Table>().map_err(|error| format!("is no TOML: {error}"))?);
        let mut notices = Vec::new();
        for key in ["schema_version", "version"] {
            if let Some(version) = root.string(key)?
                && version != "1"
                && !version.starts_with("1.")
            {
                return Err(format!("`{key}` is {version}: only schemas 1.x are known"));
            }
        }
        let name = root.section("task")?.map_or(Ok(None), |mut task| task.string("name"))?;
        for unread in ["metadata", "artifacts", "source", "solution"] {
            root.take(unread);
        }
        let agent = root.section("agent")?.unwrap_or_default();
        let verifier = root.section("verifier")?.unwrap_or_default();
        let environment = root.section("environment")?.unwrap_or_default();
        root.leftover(&mut notices);
        let (limits, workdir, env) = read_environment(environment, &mut notices)?;
        let (agent_timeout, _) = read_party(agent, &mut notices)?;
        let (verifier_timeout, verifier_env) = read_party(verifier, &mut notices)?;
        Ok(Self { name, limits, workdir, env, agent_timeout, verifier_timeout, verifier_env, notices })
    }
}

fn read_environment(mut section: Section, notices: &mut Vec<String>) -> Result<(Limits, Option<String>, Env), String> {
    if section.number("gpus")?.unwrap_or(0.0) > 0.0 {
        return Err("`environment.gpus` asks for GPUs, which sandboxes don't have: leave it out or set 0".into());
    }
    if section.take("mcp_servers").is_some_and(|servers| servers.as_array().is_none_or(|list| !list.is_empty())) {
        return Err("`environment.mcp_servers` is not supported: the agent has a shell only".into());
    }
    match section.string("network_mode")?.as_deref() {
        None | Some("no-network") => {}
        Some("public") => notices.push("network_mode `public`: sandboxes have no network".into()),
        Some(mode) => {
            return Err(format!("`environment.network_mode` is `{mode}`: sandboxes have no network; use `no-network`"));
        }
    }
    if section.boolean("allow_internet")? == Some(true) {
        notices.push("allow_internet: sandboxes have no network".into());
    }
    if let Some(image) = section.string("docker_image")? {
        notices.push(format!("docker_image `{image}` is not pulled: the host's userland is used"));
    }
    for unread in ["build_timeout_sec", "storage_mb", "storage", "allowed_hosts", "healthcheck"] {
        if section.take(unread).is_some() && !unread.starts_with("build") {
            notices.push(format!("environment.{unread} is not honoured"));
        }
    }
    let megabytes = section.number("memory_mb")?;
    let memory = match section.string("memory")? {
        Some(text) => {
            Some(size(&text).ok_or_else(|| format!("`environment.memory` is `{text}`: write it like `512M`"))?)
        }
        None => megabytes.map(|mb| Bytes((mb * 1_048_576.0) as u64)),
    };
    let cpu_millis = section.number("cpus")?.map(|cpus| (cpus * 1000.0) as u32);
    let workdir = section.string("workdir")?;
    if let Some(dir) = &workdir
        && !dir.starts_with('/')
    {
        return Err(format!("`environment.workdir` is `{dir}`: it must be an absolute path"));
    }
    let env = section.strings("env")?;
    section.leftover(notices);
    Ok((Limits { memory, cpu_millis, ..Limits::default() }, workdir, env))
}

/// `[agent]` and `[verifier]`: time-out and environment.
fn read_party(mut section: Section, notices: &mut Vec<String>) -> Result<(Duration, Env), String> {
    let key = section.path("timeout_sec");
    let timeout = match section.number("timeout_sec")? {
        None => DEFAULT_TIMEOUT,
        Some(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) if !timeout.is_zero() => timeout,
            _ => return Err(format!("`{key}` is {seconds}: it must be a positive number of seconds")),
        },
    };
    for unread in ["user", "environment_mode"] {
        if let Some(value) = section.string(unread)? {
            notices.push(format!(
                "{} `{value}` is not honoured: agent and grader share sandbox and user",
                section.path(unread)
            ));
        }
    }
    let env = section.strings("env")?;
    section.leftover(notices);
    Ok((timeout, env))
}

/// `2G`, `512M`, `1024` (bytes).
fn size(text: &str) -> Option<Bytes> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return None,
    };
    let bytes = digits.trim().parse::<f64>().ok()? * f64::from(1u32 << shift);
    (bytes >= 0.0).then_some(Bytes(bytes as u64))
}

/// A table whose keys are taken out as they are read, so that what stays is what nobody knows.
#[derive(Default)]
struct Section {
    name: &'static str,
    table: Table,
}

impl Section {
    fn new(name: &'static str, table: Table) -> Self {
        Self { name, table }
    }

    fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.into() } else { format!("{}.{key}", self.name) }
    }

    fn take(&mut self, key: &str) -> Option<Value> {
        self.table.remove(key)
    }

    fn typed<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.take(key) else { return Ok(None) };
        let wrong = || format!("`{}` is a TOML {}: it must be {expected}", self.path(key), value.type_str());
        read(&value).map(Some).ok_or_else(wrong)
    }

    fn string(&mut self, key: &str) -> Result<Option<String>, String> {
        self.typed(key, "a string", |value| value.as_str().map(str::to_owned))
    }

    fn boolean(&mut self, key: &str) -> Result<Option<bool>, String> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A finite number that is not negative.
    fn number(&mut self, key: &str) -> Result<Option<f64>, String> {
        let number = self.typed(key, "a number", |value| value.as_float().or(value.as_integer().map(|n| n as f64)))?;
        match number {
            Some(n) if !(n.is_finite() && n >= 0.0) => {
                Err(format!("`{}` is {n}: it must be a number of at least 0", self.path(key)))
            }
            number => Ok(number),
        }
    }

    fn strings(&mut self, key: &str) -> Result<Env, String> {
        let pairs = |value: &Value| {
            let pairs = value.as_table()?.iter().map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
            pairs.collect::<Option<_>>()
        };
        Ok(self.typed(key, "a table of strings", pairs)?.unwrap_or_default())
    }

    fn section(&mut self, key: &'static str) -> Result<Option<Self>, String> {
        Ok(self.typed(key, "a table", |value| value.as_table().cloned())?.map(|table| Self::new(key, table)))
    }

    fn leftover(&self, notices: &mut Vec<String>) {
        notices.extend(self.table.keys().map(|key| format!("task.toml: `{}` is not known", self.path(key))));
    }
}

#[cfg(test)]
mod tests {
    use super::Manifest;
    use std::time::Duration;
    use venus_core::units::Bytes;

    #[test]
    fn limits_timeouts_and_environment_are_read_and_the_unknown_is_noticed() {
        let manifest = Manifest::parse(
            "schema_version = \"1.4\"\nextra = 1\n[task]\nname = \"org/x\"\n[metadata]\nany = \"thing\"\n\
             [environment]\ncpus = 2\nmemory_mb = 512\nstorage_mb = 9\nworkdir = \"/app\"\nenv = { A = \"b\" }\nfrob = true\n\
             [agent]\ntimeout_sec = 90.5\n[verifier]\ntimeout_sec = 30\nenv = { C = \"d\" }\n",
        )
        .unwrap();
        assert_eq!(manifest.limits.memory, Some(Bytes(512 << 20)));
        assert_eq!(manifest.limits.cpu_millis, Some(2000));
        assert_eq!(manifest.agent_timeout, Duration::from_millis(90_500));
        assert_eq!(manifest.verifier_env["C"], "d");
        assert_eq!(manifest.env["A"], "b");
        assert_eq!(manifest.workdir.as_deref(), Some("/app"));
        let notices = manifest.notices.join("\n");
        for key in ["`extra`", "`environment.frob`", "storage_mb"] {
            assert!(notices.contains(key), "{key} in {notices}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_key_or_by_line() {
        for (text, expected) in [
            ("schema_version = \"2.0\"", "only schemas 1.x"),
            ("schema_version = 1.4", "`schema_version` is a TOML float: it must be a string"),
            ("[agent]\ntimeout_sec = \"90\"", "`agent.timeout_sec` is a TOML string: it must be a number"),
            ("[agent]\ntimeout_sec = 0", "`agent.timeout_sec` is 0"),
            ("[verifier]\ntimeout_sec = nan", "`verifier.timeout_sec` is NaN"),
            ("[environment]\nmemory_mb = -1", "`environment.memory_mb` is -1"),
            ("[environment]\ngpus = 1", "`environment.gpus` asks for GPUs"),
            ("[environment]\nnetwork_mode = \"allowlist\"", "`environment.network_mode` is `allowlist`"),
            ("[environment]\nenv = { A = 1 }", "`environment.env` is a TOML table: it must be a table of strings"),
            ("[environment]\nworkdir = \"app\"", "`environment.workdir` is `app`"),
            ("environment = 3", "`environment` is a TOML integer: it must be a table"),
            ("[agent\ntimeout_sec = 3", "line 1, column 7"),
        ] {
            let problem = Manifest::parse(text).unwrap_err();
            assert!(problem.contains(expected), "{text:?} said {problem}");
        }
    }
}
