//! The part of a Dockerfile that makes sense without building an image.

use super::{files_under, plain_file};
use crate::task::{Environment, Setup};
use std::path::{Component, Path, PathBuf};

/// What can't be honoured, and where.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// The environment that `text` describes, with local files from `context`.
///
/// `FROM`, `USER`, `LABEL`, `EXPOSE`, `CMD` and the like change nothing here and become notices where that matters; `WORKDIR`,
/// `COPY` and `ADD` of local files, `ENV` and `RUN` are honoured. All files are placed before the first `RUN`.
pub(super) fn read(text: &str, context: &Path, notices: &mut Vec<String>) -> Result<Environment, Fault> {
    let mut build =
        Build { context, notices, environment: Environment { workdir: "/".into(), ..Environment::default() } };
    for (line, instruction) in instructions(text) {
        build.apply(line, &instruction).map_err(|problem| Fault { line, problem })?;
    }
    Ok(build.environment)
}

/// Instructions with the number of their first line; comments dropped, continued lines joined.
fn instructions(text: &str) -> Vec<(usize, String)> {
    let mut done = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let (start, mut whole) = open.take().unwrap_or((number + 1, String::new()));
        match line.trim_end().strip_suffix('\\') {
            Some(part) => {
                whole.push_str(part);
                open = Some((start, whole));
            }
            None => done.push((start, whole + line.trim_end())),
        }
    }
    done.extend(open);
    done
}

struct Build<'a> {
    context: &'a Path,
    notices: &'a mut Vec<String>,
    environment: Environment,
}

impl Build<'_> {
    fn apply(&mut self, line: usize, instruction: &str) -> Result<(), String> {
        let (name, rest) = instruction.trim().split_once(char::is_whitespace).unwrap_or((instruction.trim(), ""));
        let rest = rest.trim();
        match name.to_ascii_uppercase().as_str() {
            "FROM" => self
                .notices
                .push(format!("Dockerfile line {line}: `FROM {rest}` is not pulled: the host's userland is used")),
            "WORKDIR" => self.environment.workdir = self.absolute(&unquoted(rest))?,
            "COPY" | "ADD" => self.copy(line, rest)?,
            "ENV" => self.env(rest)?,
            "RUN" => self.run(rest)?,
            "USER" | "VOLUME" | "SHELL" | "ENTRYPOINT" => {
                self.notices.push(format!("Dockerfile line {line}: `{instruction}` is not honoured"));
            }
            "CMD" | "EXPOSE" | "LABEL" | "MAINTAINER" | "STOPSIGNAL" | "HEALTHCHECK" => {}
            other => return Err(format!("`{other}` is not supported: use FROM, WORKDIR, COPY, ADD, ENV and RUN")),
        }
        Ok(())
    }

    fn run(&mut self, rest: &str) -> Result<(), String> {
        if rest.starts_with("--") || rest.contains("<<") {
            return Err("RUN with options or a here-document is not supported: write one plain command".into());
        }
        let command = match serde_json::from_str::<Vec<String>>(rest) {
            Ok(argv) => {
                argv.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
            }
            Err(_) => rest.to_owned(),
        };
        self.environment.setup.push(Setup { command, workdir: self.environment.workdir.clone() });
        Ok(())
    }

    fn env(&mut self, rest: &str) -> Result<(), String> {
        let words = words(rest)?;
        if words.iter().all(|word| word.contains('=')) {
            for word in &words {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                self.environment.env.insert(name.into(), value.into());
            }
            return Ok(());
        }
        // The old form: `ENV NAME all of the rest`.
        let (name, value) = rest.split_once(char::is_whitespace).ok_or("ENV needs NAME=VALUE")?;
        self.environment.env.insert(name.into(), value.trim().into());
        Ok(())
    }

    fn copy(&mut self, line: usize, rest: &str) -> Result<(), String> {
        let mut paths = match serde_json::from_str::<Vec<String>>(rest) {
            Ok(paths) => paths,
            Err(_) => words(rest)?,
        };
        let mut mode = None;
        while paths.first().is_some_and(|word| word.starts_with("--")) {
            let option = paths.remove(0);
            match option.split_once('=') {
                Some(("--chmod", bits)) => {
                    mode =
                        Some(u32::from_str_radix(bits, 8).map_err(|_| format!("--chmod={bits}: write it like 755"))?);
                }
                Some(("--chown", _)) => {
                    self.notices.push(format!("Dockerfile line {line}: `{option}` is not honoured"))
                }
                _ => return Err(format!("`{option}` is not supported: copy from the task's environment folder")),
            }
        }
        let target = paths.pop().filter(|_| !paths.is_empty()).ok_or("needs a source and a target")?;
        if !self.environment.setup.is_empty() {
            self.notices.push(format!(
                "Dockerfile line {line}: files are placed before any RUN, also the ones copied after it"
            ));
        }
        let into_dir = target.ends_with('/') || target == "." || paths.len() > 1;
        let target = self.absolute(&target)?;
        for source in &paths {
            self.copy_one(source, &target, into_dir, mode)?;
        }
        Ok(())
    }

    fn copy_one(&mut self, source: &str, target: &str, into_dir: bool, mode: Option<u32>) -> Result<(), String> {
        if source.contains("://") {
            return Err(format!("`{source}` is not local: put the file into the task's environment folder"));
        }
        let found = self.matching(source)?;
        let into_dir = into_dir || found.len() > 1;
        for path in found {
            let name = Path::new(path.file_name().unwrap_or_default());
            let files = if path.is_dir() { files_under(&path) } else { plain_file(&path, name).map(|file| vec![file]) };
            for mut file in files.map_err(|error| error.to_string())? {
                if path == self.context && file.path == "Dockerfile" {
                    continue;
                }
                if path.is_dir() || into_dir {
                    file.path = format!("{}/{}", target.trim_end_matches('/'), file.path);
                } else {
                    target.clone_into(&mut file.path);
                }
                file.mode = mode.unwrap_or(file.mode);
                self.environment.files.retain(|other| other.path != file.path);
                self.environment.files.push(file);
            }
        }
        Ok(())
    }

    /// The files and directories of the context that `source` names; its last part may hold `*`.
    fn matching(&self, source: &str) -> Result<Vec<PathBuf>, String> {
        let relative = Path::new(source.trim_start_matches('/'));
        if relative.components().any(|part| part == Component::ParentDir) {
            return Err(format!("`{source}` leaves the task's environment folder"));
        }
        let last = relative.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !last.contains('*') {
            let path: PathBuf = self.context.join(relative).components().collect();
            return if path.exists() {
                Ok(vec![path])
            } else {
                Err(format!("`{source}` is not in the environment folder"))
            };
        }
        let dir = self.context.join(relative.parent().unwrap_or(Path::new("")));
        let entries = std::fs::read_dir(&dir).map_err(|_| format!("`{source}` is not in the environment folder"))?;
        let mut found: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        found.retain(|path| path.file_name().is_some_and(|name| glob(&last, &name.to_string_lossy())));
        found.sort();
        if found.is_empty() { Err(format!("`{source}` matches nothing in the environment folder")) } else { Ok(found) }
    }

    fn absolute(&self, path: &str) -> Result<String, String> {
        if path.is_empty() || path.contains('$') || path.split('/').any(|part| part == "..") {
            return Err(format!("`{path}` is not supported as a path: write it out, without variables and `..`"));
        }
        let whole =
            if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", self.environment.workdir) };
        let parts: Vec<&str> = whole.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        Ok(format!("/{}", parts.join("/")))
    }
}

/// `*` matches any run of characters; nothing else is special.
fn glob(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|name| {
            (0..=name.len()).filter(|&at| name.is_char_boundary(at)).any(|at| glob(rest, &name[at..]))
        }),
    }
}

/// Splits at spaces outside quotes and drops the quotes.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".into());
    }
    words.extend(word);
    Ok(words)
}

fn unquoted(text: &str) -> String {
    text.trim_matches(|c| c == '"' || c == '\'').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{glob, read};
    use std::fs;

    fn context() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        for name in ["Dockerfile", "a.sh", "b.sh", "data/c.txt"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        dir
    }

    #[test]
    fn the_subset_is_honoured_in_order() {
        let dir = context();
        let mut notices = Vec::new();
        let text = "FROM debian:12\n# comment\nENV A=1 B=\"two words\"\nWORKDIR /app\nCOPY --chmod=755 *.sh bin/\n\
                    COPY data ./data\nADD a.sh /etc/x\nWORKDIR sub\nRUN mkdir x && \\\n    touch y\nUSER agent\nCMD [\"sh\"]\n";
        let environment = read(text, dir.path(), &mut notices).unwrap();
        let files: Vec<_> = environment.files.iter().map(|file| (file.path.as_str(), file.mode & 0o111 != 0)).collect();
        assert_eq!(
            files,
            [("/app/bin/a.sh", true), ("/app/bin/b.sh", true), ("/app/data/c.txt", false), ("/etc/x", false)]
        );
        assert_eq!(environment.env["B"], "two words");
        assert_eq!(environment.workdir, "/app/sub");
        assert_eq!(environment.setup[0].command, "mkdir x &&     touch y");
        assert_eq!(environment.setup[0].workdir, "/app/sub");
        assert!(notices.iter().any(|notice| notice.contains("FROM debian:12")), "{notices:?}");
        assert!(notices.iter().any(|notice| notice.contains("line 11") && notice.contains("USER")), "{notices:?}");
    }

    #[test]
    fn the_whole_context_is_copied_without_the_dockerfile() {
        let dir = context();
        let environment = read("FROM x\nWORKDIR /w\nCOPY . .\n", dir.path(), &mut Vec::new()).unwrap();
        let files: Vec<_> = environment.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(files, ["/w/a.sh", "/w/b.sh", "/w/data/c.txt"]);
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_line() {
        let dir = context();
        for (text, line, expected) in [
            ("FROM x\n\nARG V=1\n", 3, "`ARG` is not supported"),
            ("FROM x\nCOPY --from=build /a /b\n", 2, "--from=build"),
            ("COPY missing /b\n", 1, "`missing` is not in"),
            ("COPY ../../etc/passwd /b\n", 1, "leaves the task's environment folder"),
            ("ADD https://example.org/x /b\n", 1, "not local"),
            ("COPY a.sh\n", 1, "needs a source and a target"),
            ("RUN --mount=type=cache true\n", 1, "RUN with options"),
            ("WORKDIR $HOME\n", 1, "without variables"),
            ("ENV A=\"x\n", 1, "quote is not closed"),
        ] {
            let fault = read(text, dir.path(), &mut Vec::new()).unwrap_err();
            assert_eq!(fault.line, line, "{text:?}");
            assert!(fault.problem.contains(expected), "{text:?} said {}", fault.problem);
        }
    }

    #[test]
    fn a_star_matches_any_run_of_characters() {
        assert!(glob("*.sh", "a.sh") && glob("a*b*c", "aXbYbc") && glob("*", "") && glob("é*", "éa"));
        assert!(!glob("*.sh", "a.shx") && !glob("a*b", "ab c"));
    }
}
