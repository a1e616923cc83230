use super::*;

fn load(file: Option<&str>, env: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> Result<Resolved, Failure> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("venus.toml");
    std::fs::write(&path, file.unwrap_or_default()).unwrap();
    let result = Resolved::load(&Sources {
        resumed: None,
        file: file.is_some().then_some(path.as_path()),
        env: env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        flags: flags.iter().map(|(f, k, v)| ((*f).to_owned(), (*k).to_owned(), (*v).to_owned())).collect(),
    });
    result.map_err(|failure| {
        let short = |text: &str| text.replace(&path.display().to_string(), "venus.toml");
        Failure::usage(short(&failure.to_string()), short(failure.next()))
    })
}

fn refusal(file: Option<&str>, env: &[(&str, &str)], flags: &[(&str, &str, &str)]) -> String {
    let failure = load(file, env, flags).expect_err("must be refused");
    format!("{failure}\n{}", failure.next())
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = "[run]\nsteps = 2\nseed = 2\neval_tasks = 2\n";
    let env = [("VENUS_RUN__STEPS", "3"), ("VENUS_RUN__SEED", "3")];
    let resolved = load(Some(file), &env, &[("--steps", "run.steps", "4")]).unwrap();
    let run = &resolved.config.run;
    assert_eq!((run.steps, run.seed, run.eval_tasks, run.eval_every), (4, 3, 2, Config::default().run.eval_every));
    assert_eq!(resolved.origin("run.steps").to_string(), "flag --steps");
    assert_eq!(resolved.origin("run.seed").to_string(), "env VENUS_RUN__SEED");
    assert!(matches!(resolved.origin("run.eval_tasks"), Origin::File { line: 4, .. }));
    assert_eq!(resolved.origin("run.eval_every"), &Origin::Default);
}

#[test]
fn what_is_printed_reads_back_as_itself() {
    let env = [
        ("VENUS_DATA__FAMILIES", "count, chain"),
        ("VENUS_TRAINER__OPTIMIZER__LEARNING_RATE", "3e-5"),
        ("VENUS_TRAINER__LOSS__CLIP__LOW", "0.1"),
        ("VENUS_TRAINER__LOSS__CLIP__HIGH", "0.3"),
    ];
    let first = load(None, &env, &[("--out", "run.out", "a \"b\" # c")]).unwrap();
    assert_eq!(first.config.data.families, ["count", "chain"]);
    let again = load(Some(&first.print()), &[], &[]).unwrap();
    assert_eq!(again.config, first.config);
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_its_nearest_neighbour() {
    insta::assert_snapshot!(refusal(Some("[run]\nsteps = 2\n\n[rollout]\ngroup_sise = 8\n"), &[], &[]), @r"
    there is no configuration key rollout.group_sise (file venus.toml:5)
    did you mean rollout.group_size?
    ");
    insta::assert_snapshot!(refusal(Some("run = 3\n"), &[], &[]), @r"
    there is no configuration key run (file venus.toml:1)
    run is a section: write [run] and its keys below
    ");
    insta::assert_snapshot!(refusal(None, &[("VENUS_RUN__TEMPERATURE", "1")], &[]), @r"
    there is no configuration key run.temperature (env VENUS_RUN__TEMPERATURE)
    did you mean rollout.temperature?
    ");
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_what_is_allowed() {
    insta::assert_snapshot!(refusal(Some("[run]\nsteps = \"many\"\n"), &[], &[]), @r#"
    run.steps (file venus.toml:2): invalid type: string "many", expected u64
    give run.steps a value of the right kind, such as 150
    "#);
    insta::assert_snapshot!(refusal(None, &[], &[("--policy", "rollout.policy", "fifo")]), @r#"
    rollout.policy (flag --policy): unknown variant `fifo`, expected one of `trajectory-level`, `action-level`, `priority`, `group-fcfs`, `longest-first`, `group-probe`
    give rollout.policy a value of the right kind, such as "action-level"
    "#);
    insta::assert_snapshot!(refusal(None, &[("VENUS_RUN__STEPS", "-1")], &[]), @r"
    run.steps (env VENUS_RUN__STEPS): invalid value: integer `-1`, expected u64
    give run.steps a value of the right kind, such as 150
    ");
}

#[test]
fn a_value_out_of_range_is_named_with_its_range_and_origin() {
    insta::assert_snapshot!(refusal(Some("[rollout]\ngroup_size = 1\n"), &[], &[]), @r"
    rollout.group_size is 1 (file venus.toml:2), but must be between 2 and 1024
    give rollout.group_size another value
    ");
    insta::assert_snapshot!(refusal(None, &[("VENUS_DATA__FAMILIES", "count,lokup")], &[]), @r#"
    data.families is [.. "lokup" ..] (env VENUS_DATA__FAMILIES), but must be names from lookup, collect, chain, count, extreme, repair, restore
    give data.families another value
    "#);
    let nan = refusal(Some("[rollout]\ntemperature = nan\n"), &[], &[]);
    assert!(nan.starts_with("rollout.temperature is NaN"), "{nan}");
}

#[test]
fn a_broken_file_is_named_with_its_line() {
    let message = refusal(Some("[run]\nsteps = \n"), &[], &[]);
    assert!(message.starts_with("venus.toml:2: "), "{message}");
}

#[test]
fn an_environment_variable_of_somebody_else_is_left_alone_and_a_near_miss_is_refused() {
    load(None, &[("VENUS_PORT", "tcp://10.0.0.1:80"), ("VENUS_SERVICE_HOST", "10.0.0.1")], &[]).unwrap();
    insta::assert_snapshot!(refusal(None, &[("VENUS_TRAINER_EPOCHS", "2")], &[]), @r"
    the environment variable VENUS_TRAINER_EPOCHS sets nothing
    for trainer.epochs, write VENUS_TRAINER__EPOCHS (two underscores for the dot)
    ");
}

#[test]
fn every_default_is_within_its_range() {
    load(None, &[], &[]).unwrap();
}

#[test]
fn a_choice_with_settings_of_its_own_is_one_value() {
    let file = "[trainer.optimizer]\ndecay = { linear = { updates = 50, end = 0.1 } }\n";
    let from_file = load(Some(file), &[], &[]).unwrap();
    let text = "{ linear = { updates = 50, end = 0.1 } }";
    let from_env = load(None, &[("VENUS_TRAINER__OPTIMIZER__DECAY", text)], &[]).unwrap();
    assert_eq!(from_file.config, from_env.config);
    assert_eq!(load(Some(&from_file.print()), &[], &[]).unwrap().config, from_file.config);
    insta::assert_snapshot!(refusal(Some("[trainer.optimizer.decay.linear]\nupdates = 50\n"), &[], &[]), @r#"
    trainer.optimizer.decay (file venus.toml:1): missing field `end`
    give trainer.optimizer.decay a value of the right kind, such as "constant"
    "#);
}

#[test]
fn options_that_cannot_work_together_are_refused_by_their_owner() {
    insta::assert_snapshot!(refusal(None, &[("VENUS_TRAINER__LOSS__KL_COEFFICIENT", "0.1")], &[]), @r"
    trainer.loss.reference (default): a KL needs a reference model: give its directory, or set loss.kl_coefficient to 0
    set trainer.loss.reference, or what it depends on
    ");
}
