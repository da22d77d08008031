//! What the command line takes, what its help shows, what it says of unknown names.

use super::*;

#[test]
fn the_definitions_are_sound_and_every_command_has_an_example() {
    fn walk(command: &clap::Command) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("forerun "), "{} has no example", command.get_name());
        command.get_subcommands().for_each(walk);
    }
    Cli::command().debug_assert();
    walk(&Cli::command());
}

#[test]
fn run_is_parsed_alone_where_its_words_are_sound() {
    #[rustfmt::skip]
    let rows: &[(&str, &[&str], bool)] = &[ // why, the words, whether it is
        ("a program",          &["run", "true"],                             true),
        ("flags",              &["run", "--limit", "1M", "--", "ls", "--x"], true),
        ("its own end of flags", &["run", "grep", "-e", "--", "-x", "--"],    true),
        ("two ends of flags",  &["run", "--", "grep", "--", "--stats"],      true),
        ("an end of flags",    &["run", "--"],                               false),
        ("help",               &["run", "--help"],                           false),
        ("no program",         &["run"],                                     false),
        ("an unknown flag",    &["run", "--statss", "true"],                 false),
        ("an unsound value",   &["run", "--limit", "much", "true"],          false),
        ("another command",    &["explain", "true"],                         false),
        ("no command",         &[],                                          false),
    ];
    for (why, words, is_parsed) in rows {
        let words = ["forerun"].iter().chain(*words).map(OsString::from).collect::<Vec<_>>();
        let alone = run_alone(&mut words.clone());
        assert_eq!(alone.is_some(), *is_parsed, "{why}");
        let whole = definitions().try_get_matches_from(&words);
        let whole = whole.and_then(|matches| Cli::from_arg_matches(&matches));
        let whole = match whole.map(|cli| cli.command) {
            Ok(Command::Run(args)) => Some(args),
            _ => None,
        };
        let program = |args: program::Args| args.words;
        assert_eq!(alone.map(program), whole.map(program), "{why}: by all definitions");
    }
}

#[test]
fn help_has_the_product_first_and_each_command_once() {
    let help = definitions().render_help().to_string();
    let at = |word: &str| {
        let line = format!("\n  {word} ");
        assert_eq!(help.matches(&line).count(), 1, "{word}:\n{help}");
        help.find(&line).expect("counted above")
    };
    let mut order = PRODUCT_NAMES.to_vec();
    if cfg!(feature = "lab") {
        order.extend(["vectors", "sim", "trace", "demo", "bench", "replay", "reproduce"]);
        order.push("replay-journal");
    }
    order.extend(["report", "completions", "man"]);
    assert!(order.iter().map(|word| at(word)).is_sorted(), "{help}");
    assert!(!help.contains("soak"), "{help}");
}

#[test]
fn unknown_names_are_answered_with_the_nearest_and_its_list() {
    #[rustfmt::skip]
    let rows = [ // arguments                nearest     where they are listed
        ("rnu",                          "run",      "--help"),
        ("warn x",                       "warm",     "--help"),
        ("warm --bugdet 1",              "--budget", "warm --help"),
        ("run --observe prok -- true",   "proc",     "run --help"),
    ];
    for (line, name, lister) in rows {
        let words = ["forerun"].into_iter().chain(line.split(' '));
        let words: Vec<OsString> = words.map(OsString::from).collect();
        let error = definitions().try_get_matches_from(&words).expect_err(line);
        let hint = nearest(&error, &words).expect(line);
        let says = format!("; the nearest is `{name}`; `forerun {lister}` lists them");
        assert_eq!(hint, says, "{line}");
    }
}
