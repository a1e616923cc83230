//! The generated families, played with real commands.

#![expect(clippy::unwrap_used, reason = "a test that can't go on should stop there")]

mod shell;

use shell::Place;
use std::collections::{BTreeSet, HashSet};
use venus_plane::task::family::{DEFAULT_SKILL, Demonstrator, mixed, vocabulary};
use venus_plane::task::{Family, Split, Task};

const TURNS: usize = 20;

/// One played trajectory.
#[derive(Default)]
struct Played {
    commands: Vec<String>,
    outputs: Vec<String>,
    reward: f64,
}

/// Lets a demonstrator play `task` for at most [`TURNS`] turns.
fn play(task: &Task, skill: f64, seed: u64) -> Played {
    let place = Place::new(task);
    let mut demonstrator = Demonstrator::new(task, skill, seed).unwrap();
    let mut played = Played::default();
    while played.commands.len() < TURNS {
        let command = demonstrator.next(played.outputs.last().map(String::as_str));
        played.commands.push(command.clone());
        if command == "done" {
            break;
        }
        played.outputs.push(place.sh(&command));
    }
    played.reward = place.grade();
    played
}

fn tasks(n: u64) -> impl Iterator<Item = Task> {
    let splits = [Split::Train, Split::Heldout];
    Family::ALL.into_iter().flat_map(move |family| {
        splits.into_iter().flat_map(move |split| (0..n).map(move |index| family.task(split, 7, index)))
    })
}

#[test]
fn a_faultless_demonstrator_solves_every_task_within_the_turns_its_family_states() {
    for task in tasks(10) {
        let family = family_of(&task);
        let played = play(&task, 1.0, 1);
        assert_eq!(
            played.reward, 1.0,
            "{}: {}\n{:#?}\n{:#?}",
            task.name, task.instruction, played.commands, played.outputs
        );
        let (shortest, longest) = family.turns();
        assert!(
            (shortest..=longest).contains(&played.commands.len()),
            "{}: {} turns",
            task.name,
            played.commands.len()
        );
    }
}

#[test]
fn the_default_demonstrator_solves_some_of_each_family_and_fails_at_some() {
    for family in Family::ALL {
        let solved =
            (0..30).filter(|&index| play(&family.task(Split::Train, 3, index), DEFAULT_SKILL, 5).reward == 1.0);
        let share = solved.count() as f64 / 30.0;
        assert!((0.1..=0.7).contains(&share), "{}: {share}", family.name());
    }
}

#[test]
fn an_agent_that_does_nothing_or_writes_a_constant_gets_nothing() {
    let mut lucky = 0;
    let mut played = 0;
    for task in tasks(5) {
        let place = Place::new(&task);
        assert_eq!(place.grade(), 0.0, "{} is solved untouched", task.name);
        for constant in ["3", "stone", ""] {
            place.sh(&format!("for f in answer reply report result; do echo {constant} > $f; done"));
            played += 1;
            lucky += usize::from(place.grade() == 1.0);
        }
    }
    assert!(lucky * 50 <= played, "{lucky} of {played} constants were right");
}

#[test]
fn a_grader_is_not_held_up_by_what_the_agent_leaves_in_place_of_its_answer() {
    let task = Family::Lookup.task(Split::Train, 1, 1);
    for trap in ["mkfifo $f", "ln -s /dev/zero $f", "mkdir $f"] {
        let place = Place::new(&task);
        place.sh(&format!("for f in answer reply report result; do {trap}; done"));
        assert_eq!(place.grade(), 0.0, "{trap}");
    }
}

#[test]
fn a_task_is_a_pure_function_of_its_family_split_seed_and_index() {
    for (one, two) in tasks(5).zip(tasks(5)) {
        assert_eq!(one, two);
    }
    let names: HashSet<String> = tasks(50).map(|task| task.name).collect();
    assert_eq!(names.len(), Family::ALL.len() * 2 * 50);
    assert_ne!(Family::Chain.task(Split::Train, 1, 0).instruction, Family::Chain.task(Split::Train, 2, 0).instruction);
}

/// A held-out lookup must not be answerable by remembering a key and its value from training, whatever the seeds.
#[test]
fn no_combination_of_words_is_in_both_splits() {
    let pairs = |split, seed| -> HashSet<String> {
        let tasks = (0..2000).map(move |index| Family::Lookup.task(split, seed, index));
        tasks.map(|task| oracle_pair(&task)).collect()
    };
    let train = pairs(Split::Train, 1);
    assert!(train.is_disjoint(&pairs(Split::Heldout, 1)));
    assert!(train.is_disjoint(&pairs(Split::Heldout, 2)));
    assert!(!train.is_disjoint(&pairs(Split::Train, 2)), "the test would see an overlap if there were one");
}

/// The key a lookup asks for and the value its files give.
fn oracle_pair(task: &Task) -> String {
    let mut demonstrator = Demonstrator::new(task, 1.0, 0).unwrap();
    let search = demonstrator.next(None);
    let key = search.split(' ').nth(2).unwrap().to_owned();
    let files = task.environment.files.iter().map(|file| String::from_utf8(file.bytes().unwrap()).unwrap());
    let lines: Vec<String> = files.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    lines.into_iter().find(|line| line.starts_with(&format!("{key} "))).unwrap()
}

#[test]
fn everything_an_agent_reads_or_writes_is_in_the_vocabulary() {
    let known: HashSet<&str> = vocabulary().into_iter().collect();
    assert_eq!(known.len(), vocabulary().len(), "a word is listed twice");
    let mut unknown = BTreeSet::new();
    for (index, task) in tasks(8).enumerate() {
        let played = play(&task, 0.3, index as u64);
        for text in [&task.instruction].into_iter().chain(&played.commands).chain(&played.outputs) {
            let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| word.len() > 1);
            unknown.extend(words.filter(|word| !known.contains(word)).map(str::to_owned));
        }
    }
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn grep_for_a_name_never_finds_another_word() {
    let words = vocabulary();
    let names: Vec<&str> = words.iter().copied().take_while(|&word| word != "all").collect();
    for name in &names {
        let held: Vec<_> = words.iter().filter(|word| word.contains(name) && *word != name).collect();
        assert!(held.is_empty(), "{name} is part of {held:?}");
    }
}

#[test]
fn a_mixed_set_takes_each_family_equally_often_and_no_task_twice() {
    let tasks: Vec<Task> = (0..21).map(|index| mixed(&Family::ALL, Split::Train, 1, index)).collect();
    let names: HashSet<&str> = tasks.iter().map(|task| task.name.as_str()).collect();
    assert_eq!(names.len(), 21);
    for family in Family::ALL {
        assert_eq!(tasks.iter().filter(|&task| family_of(task) == family).count(), 3);
    }
}

fn family_of(task: &Task) -> Family {
    task.name.split('-').next().unwrap().parse().unwrap()
}

/// `cargo test -p venus-plane --test task_families -- --ignored --nocapture measured`
#[test]
#[ignore = "prints figures"]
fn measured_success_and_sizes() {
    println!(
        "family    skill  success  turns mean p50 p95 max   tokens mean p50 p95 max   instruction command output (characters)"
    );
    for skill in [DEFAULT_SKILL, 1.0] {
        let mut all = Vec::new();
        for family in Family::ALL {
            let played: Vec<_> = (0..200)
                .map(|i| family.task(Split::Train, 11, i))
                .map(|t| (t.instruction.clone(), play(&t, skill, 13)))
                .collect();
            figures(family.name(), skill, &played);
            all.extend(played);
        }
        figures("all", skill, &all);
    }
}

fn figures(name: &str, skill: f64, played: &[(String, Played)]) {
    let n = played.len() as f64;
    let success = played.iter().map(|(_, p)| p.reward).sum::<f64>() / n;
    let spread = |mut v: Vec<usize>| {
        v.sort_unstable();
        let mean = v.iter().sum::<usize>() as f64 / v.len() as f64;
        format!("{mean:6.1} {:3} {:3} {:3}", v[v.len() / 2], v[v.len() * 95 / 100], v[v.len() - 1])
    };
    let turns = spread(played.iter().map(|(_, p)| p.commands.len()).collect());
    let tokens = spread(played.iter().map(|(i, p)| tokens(i, p)).collect());
    let mean = |sizes: Vec<usize>| sizes.iter().sum::<usize>() as f64 / sizes.len() as f64;
    println!(
        "{name:9} {skill:.2}   {success:.3}   {turns}   {tokens}   {:.0} {:.0} {:.0}",
        mean(played.iter().map(|(i, _)| i.len()).collect()),
        mean(played.iter().flat_map(|(_, p)| p.commands.iter().map(String::len)).collect()),
        mean(played.iter().flat_map(|(_, p)| p.outputs.iter().map(String::len)).collect()),
    );
}

/// Words, single digits, punctuation, spaces and line ends one token each; eight a turn and seven a prompt for the protocol.
fn tokens(instruction: &str, played: &Played) -> usize {
    let count = |text: &str| {
        let letters = text.chars().filter(char::is_ascii_alphabetic).count();
        let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty()).count();
        text.chars().count() - letters + words
    };
    let turns = played.commands.iter().chain(&played.outputs).map(|text| count(text) + 6);
    count(instruction) + 8 + turns.sum::<usize>()
}
