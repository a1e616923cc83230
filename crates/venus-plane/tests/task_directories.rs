//! Harbor task directories: the ones in this repository, and ones with a fault.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop there")]

mod shell;

use shell::Place;
use std::fs;
use std::path::{Path, PathBuf};
use venus_plane::task::{Content, File, Oracle, Task, harbor, place};

fn shipped() -> Vec<Task> {
    harbor::load_dir(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tasks")).unwrap()
}

#[test]
fn each_shipped_task_gives_1_for_its_solution_and_0_untouched() {
    let tasks = shipped();
    assert_eq!(tasks.len(), 12);
    for task in tasks {
        let Some(Oracle::Script(solution)) = &task.oracle else { panic!("{} has no solution", task.name) };
        assert_eq!(Place::new(&task).grade(), 0.0, "{} is solved untouched", task.name);
        let solved = Place::new(&task);
        let said = solved.sh(&format!("sh {}", solution.canonicalize().unwrap().display()));
        assert_eq!(solved.grade(), 1.0, "{}: {said}", task.name);
    }
}

/// Repo2RLEnv#144: the oracle was baked into the agent's image.
#[test]
fn neither_solution_nor_tests_are_among_what_the_agent_finds() {
    for task in shipped() {
        for file in task.environment.files.iter().chain(&task.tests) {
            let Content::At(path) = &file.content else { continue };
            assert!(!path.components().any(|part| part.as_os_str() == "solution"), "{}: {}", task.name, path.display());
        }
        for file in &task.environment.files {
            let Content::At(path) = &file.content else { panic!("{} is not from disk", file.path) };
            assert!(!path.components().any(|part| part.as_os_str() == "tests"), "{}: {}", task.name, path.display());
        }
    }
}

/// A well-formed task in a directory of its own.
fn sound() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("sound");
    let files = [
        ("instruction.md", "Do it.\n"),
        ("task.toml", "schema_version = \"1.4\"\n"),
        ("environment/Dockerfile", "FROM x\nWORKDIR /app\n"),
        ("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n"),
        ("solution/solve.sh", "true\n"),
    ];
    place(&files.map(|(path, text)| File::held(path, 0o644, text)), &dir).unwrap();
    (root, dir)
}

#[test]
fn a_directory_is_one_task_or_holds_tasks() {
    let (root, dir) = sound();
    for path in [root.path(), &dir] {
        let tasks = harbor::load_dir(path).unwrap();
        assert_eq!(tasks.len(), 1);
        assert_eq!((tasks[0].name.as_str(), tasks[0].instruction.as_str()), ("sound", "Do it."));
        assert_eq!(tasks[0].environment.workdir, "/app");
        assert_eq!(tasks[0].tests[0].mode & 0o111, 0o111, "the grader can be run");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named_with_its_path_and_what_to_do() {
    type Spoil = fn(&Path);
    let faults: [(Spoil, &str, &str); 9] = [
        (|dir| fs::remove_file(dir.join("instruction.md")).unwrap(), "sound/instruction.md", "is missing"),
        (|dir| fs::write(dir.join("instruction.md"), " \n").unwrap(), "sound/instruction.md", "is empty"),
        (|dir| fs::remove_file(dir.join("task.toml")).unwrap(), "sound/task.toml", "is missing"),
        (|dir| fs::write(dir.join("task.toml"), "a = 1\nb = \n").unwrap(), "sound/task.toml", "line 2, column 5"),
        (|dir| fs::remove_file(dir.join("tests/test.sh")).unwrap(), "sound/tests/test.sh", "is missing"),
        (|dir| fs::remove_file(dir.join("environment/Dockerfile")).unwrap(), "environment/Dockerfile", "is missing"),
        (
            |dir| fs::write(dir.join("environment/Dockerfile"), "FROM x\nCOPY y /\n").unwrap(),
            "Dockerfile",
            "line 2: `y` is not in",
        ),
        (
            |dir| fs::write(dir.join("environment/docker-compose.yaml"), "").unwrap(),
            "docker-compose.yaml",
            "give a Dockerfile",
        ),
        (
            |dir| std::os::unix::fs::symlink("/etc/passwd", dir.join("tests/link")).unwrap(),
            "tests/link",
            "neither a file nor",
        ),
    ];
    for (spoil, path, problem) in faults {
        let (_root, dir) = sound();
        spoil(&dir);
        let message = harbor::load_dir(&dir).unwrap_err().to_string();
        assert!(message.contains(path) && message.contains(problem), "{message}");
    }
}

#[test]
fn a_place_without_tasks_says_what_a_task_is() {
    let empty = tempfile::tempdir().unwrap();
    assert!(
        harbor::load_dir(empty.path()).unwrap_err().to_string().contains("a task is a directory with instruction.md")
    );
    let gone = harbor::load_dir(&empty.path().join("gone")).unwrap_err().to_string();
    assert!(gone.contains("gone") && gone.contains("can't be read"), "{gone}");
}

#[test]
fn two_tasks_of_one_name_are_refused() {
    let (root, dir) = sound();
    fs::write(dir.join("task.toml"), "[task]\nname = \"org/same\"\n").unwrap();
    let files = ["instruction.md", "task.toml", "environment/Dockerfile", "tests/test.sh"];
    let copies = files.map(|path| File { path: path.into(), mode: 0o644, content: Content::At(dir.join(path)) });
    place(&copies, &root.path().join("twin")).unwrap();
    let message = harbor::load_dir(root.path()).unwrap_err().to_string();
    assert!(message.contains("a second task named `org-same`"), "{message}");
}

#[test]
fn nothing_is_placed_outside_the_directory_given() {
    let root = tempfile::tempdir().unwrap();
    let error = place(&[File::held("a/../../b", 0o644, "")], &root.path().join("in")).unwrap_err();
    assert!(error.to_string().contains("leaves its directory"));
    assert!(!root.path().join("b").exists());
}
