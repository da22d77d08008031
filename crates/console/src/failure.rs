//! The end of a failed command: the line on stderr, the exit status.
//!
//! ```text
//!   usage error          2      the command line, or what it names, is not there
//!   any other error      1
//!   stdout is closed     0      the reader has closed the pipe
//! ```
//! # Invariants
//! - One line, whatever an error says; nothing in it moves a cursor.

use std::fmt;
use std::io::{self, Write as _};

/// The exit status of a successful command.
pub const DONE: u8 = 0;
/// The exit status of a failed command.
pub const FAILED: u8 = 1;
/// The exit status of a usage error.
pub const USAGE: u8 = 2;

/// A command line that cannot be carried out.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The error of a command line that cannot be carried out; `what` names the valid choice.
pub fn usage(what: impl fmt::Display) -> anyhow::Error {
    Usage(what.to_string()).into()
}

/// The end of a command on `count` things: an error of each of the `failed` is printed, by name,
/// and how many they are is the command's own. Of a single thing its error is that.
///
/// # Errors
/// Something failed.
pub fn all_done(mut failed: Vec<(String, anyhow::Error)>, count: usize) -> anyhow::Result<()> {
    if failed.is_empty() {
        return Ok(());
    }
    if count == 1 {
        return Err(failed.remove(0).1);
    }
    for (name, error) in &failed {
        let text = message(error);
        note(&if text.contains(name.as_str()) { text } else { format!("{name}: {text}") });
    }
    anyhow::bail!(
        "{} of {count} failed: their errors are above, the others' results are kept",
        failed.len()
    )
}

/// Prints the error, and returns the exit status.
#[must_use]
pub fn tell(error: &anyhow::Error) -> u8 {
    if is_closed(error) {
        return 0;
    }
    note(&message(error));
    if is_usage(error) { USAGE } else { FAILED }
}

/// Whether the reader of what was printed has gone, which is no failure.
#[must_use]
pub fn is_closed(error: &anyhow::Error) -> bool {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(closed)
}

/// Whether the error is of the command line.
#[must_use]
pub fn is_usage(error: &anyhow::Error) -> bool {
    error.chain().any(<dyn std::error::Error>::is::<Usage>)
}

/// The error and its causes; a cause that the text before it contains is left out.
#[must_use]
pub fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A line on stderr.
pub fn note(text: &str) {
    // Without stderr the line is lost.
    let _ = writeln!(io::stderr(), "{}", plain(&format!("forerun: {text}")));
}

/// `text` as one line that obeys nothing in it.
#[must_use]
pub fn plain(text: &str) -> String {
    forerun_report::plain::text(&text.trim_end().replace("\r\n", " ").replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn the_status_follows_the_cause() {
        let closed = io::Error::from(io::ErrorKind::BrokenPipe);
        let missing = io::Error::from(io::ErrorKind::NotFound);
        assert_eq!(tell(&usage("x")), 2);
        assert_eq!(tell(&Err::<(), _>(usage("x")).context("y").unwrap_err()), 2);
        assert_eq!(tell(&anyhow::Error::from(missing)), 1);
        assert_eq!(tell(&Err::<(), _>(closed).context("cannot print").unwrap_err()), 0);
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow::anyhow!("the disk is full").context("cannot write: the disk is full");
        assert_eq!(message(&error.context("no page")), "no page: cannot write: the disk is full");
    }

    #[test]
    fn a_message_is_one_harmless_line() {
        assert_eq!(plain("a\nb\r\nc\x1b[2J\n"), "a b c?[2J");
        assert_eq!(plain("gpj.\u{202e}exe"), "gpj.?exe");
    }
}
