//! What packages and people ask of the command itself: completions, manual pages, the version, and
//! what this machine lets it do.

use std::fs;
use std::process::{Command, Output};

use forerun_testkit::Scratch;
use serde_json::Value;

fn forerun(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forerun")).args(words).output().unwrap()
}

fn said(words: &[&str]) -> String {
    let output = forerun(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn each_shell_completes_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let text = said(&["completions", shell]);
        for word in ["explain", "budget", "observe"] {
            assert!(text.contains(word), "{shell} knows no {word}");
        }
    }
    let refused = forerun(&["completions", "bsh"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("the nearest is `bash`"));
}

#[test]
fn each_command_has_a_manual_page() {
    let scratch = Scratch::new("man");
    let folder = scratch.join("new/man1");
    said(&["man", folder.to_str().unwrap()]);
    for (page, word) in [
        ("forerun", "explain"),
        ("forerun-run", "stats"),
        ("forerun-warm", "budget"),
        ("forerun-compare", "runs"),
    ] {
        let text = fs::read_to_string(folder.join(format!("{page}.1"))).unwrap();
        assert!(text.starts_with(".ie") && text.contains(word), "{page}: {text}");
    }
    let file = scratch.join("file");
    fs::write(&file, "").unwrap();
    let refused = forerun(&["man", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot make"));
}

#[test]
fn the_version_is_text_or_an_object() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(said(&["--version"]), format!("forerun {version}\n"));
    let object: Value = serde_json::from_str(&said(&["--version", "--json"])).unwrap();
    assert_eq!(object["version"], version);
    assert_eq!(object["processor"], std::env::consts::ARCH);
    // In a clone a commit that git finds; in any other place the version.
    let commit = object["commit"].as_str().unwrap();
    let is_commit = |name: &str| {
        let mut git = Command::new("git");
        let git = git.args(["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]);
        git.output().is_ok_and(|output| output.status.success())
    };
    assert!(commit == format!("v{version}") || is_commit(commit), "{object}");
    assert_eq!(is_commit(commit), is_commit("HEAD"), "{object}");
}

#[test]
fn the_doctor_names_what_it_tried_and_what_to_do() {
    let object: Value = serde_json::from_str(&said(&["doctor", "--json"])).unwrap();
    let findings = object["findings"].as_array().unwrap();
    let text = said(&["doctor"]);
    for finding in findings {
        let [what, here, remedy] =
            ["what", "here", "remedy"].map(|key| finding[key].as_str().unwrap());
        assert!(text.contains(what) && text.contains(here), "{text}");
        let is_good = finding["is_good"].as_bool().unwrap();
        assert_eq!(text.contains(remedy), !is_good, "{what}: {text}");
    }
    let learning = findings.iter().find(|it| it["what"] == "learned lists").unwrap();
    assert_eq!(learning["is_good"], false, "tests run with FORERUN_LEARN=off");
}
