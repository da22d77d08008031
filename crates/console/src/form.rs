//! The forms of a result: text, one JSON object, a line of JSON for each row, CSV; on stdout and in
//! a file.
//!
//! ```text
//!   result --> text | --json | --ndjson | --csv  --> stdout
//!          \-> -o NAME.txt | .json | .ndjson | .csv
//! ```
//! Every command prints its tables here, so that each of them has all forms.
//!
//! # Invariants
//! - Two forms at a time are refused. The file has the form of its name, whatever stdout has.
//! - A file that cannot be written does not lose what stdout gets.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::failure::usage;
use crate::output;
use crate::rows::Rows;

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Form {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print a line of JSON for each row
    #[arg(long, conflicts_with = "json")]
    pub ndjson: bool,
    /// Print the rows as CSV, under a heading
    #[arg(long, conflicts_with_all = ["json", "ndjson"])]
    pub csv: bool,
}

/// The form of what is printed, and a file for it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Output {
    /// Also write this file: .json, .ndjson, .csv or .txt by its name
    #[arg(id = "output", short, long, value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// The form of stdout.
    #[command(flatten)]
    pub form: Form,
}

/// One of the forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// For reading.
    Text,
    /// One object with all that is known.
    Json,
    /// A line of JSON for each row.
    Ndjson,
    /// Comma-separated values.
    Csv,
}

impl Kind {
    /// The form that the name of a file asks for.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "txt" => Some(Self::Text),
            "json" => Some(Self::Json),
            "ndjson" | "jsonl" => Some(Self::Ndjson),
            "csv" => Some(Self::Csv),
            _ => None,
        }
    }

    /// Whether this is one line a row.
    #[must_use]
    pub fn is_of_rows(self) -> bool {
        matches!(self, Self::Ndjson | Self::Csv)
    }

    /// `result` in this form; its rows are at `places` of the JSON.
    pub fn show(
        self,
        result: &impl Serialize,
        places: &[&str],
        text: impl FnOnce() -> String,
    ) -> Result<String> {
        match self {
            Self::Text => Ok(text()),
            Self::Json => {
                let text = serde_json::to_string_pretty(result).context("cannot write JSON")?;
                Ok(text + "\n")
            }
            Self::Ndjson => Rows::of(result, places)?.ndjson(),
            Self::Csv => Rows::of(result, places)?.csv(),
        }
    }
}

impl Form {
    /// The form that was asked for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (self.json, self.ndjson, self.csv) {
            (true, _, _) => Kind::Json,
            (_, true, _) => Kind::Ndjson,
            (_, _, true) => Kind::Csv,
            (false, false, false) => Kind::Text,
        }
    }

    /// Whether text is printed.
    #[must_use]
    pub fn is_text(&self) -> bool {
        self.kind() == Kind::Text
    }

    /// Prints `result`; its rows are at `places` of the JSON.
    pub fn print(
        &self,
        result: &impl Serialize,
        places: &[&str],
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        output::print(&self.kind().show(result, places, text)?)
    }
}

impl Output {
    /// Refuses a file that cannot be written, or whose name says no form.
    pub fn check(&self) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        self.file_kind(path)?;
        output::require_place(path)
    }

    /// Prints `result` and writes the file; its rows are at `places` of the JSON.
    pub fn print(
        &self,
        result: &impl Serialize,
        places: &[&str],
        text: impl Fn() -> String,
    ) -> Result<()> {
        let written = self.write(result, places, &text);
        self.form.print(result, places, text).and(written)
    }

    /// Writes the file, where there is one.
    pub fn write(
        &self,
        result: &impl Serialize,
        places: &[&str],
        text: impl Fn() -> String,
    ) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let shown = self.file_kind(path)?.show(result, places, text)?;
        output::file(path, shown.as_bytes())
    }

    /// The form of the file; that of stdout where it is a pipe or a device.
    fn file_kind(&self, path: &Path) -> Result<Kind> {
        let own = output::is_written_in_place(path).then(|| self.form.kind());
        Kind::of(path).or(own).ok_or_else(|| {
            let name = path.display();
            usage(format!("-o {name}: name a file that ends with .json, .ndjson, .csv or .txt"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object;

    #[test]
    fn a_result_has_four_forms_of_which_a_files_name_says_one() {
        let result = object! { runs: vec![object! { n: 1 }] };
        #[rustfmt::skip]
        let rows = [ // file  its contents
            ("a.txt",    Some("text")),
            ("a.json",   Some("{\n  \"runs\": [\n    {\n      \"n\": 1\n    }\n  ]\n}\n")),
            ("a.ndjson", Some("{\"n\":1}\n")),
            ("a.jsonl",  Some("{\"n\":1}\n")),
            ("a.b.csv",  Some("n\n1\n")),
            ("a.html",   None),
            ("csv",      None),
        ];
        for (name, contents) in rows {
            let shown = Kind::of(Path::new(name))
                .map(|kind| kind.show(&result, &["runs"], || "text".to_owned()).unwrap());
            assert_eq!(shown.as_deref(), contents, "{name}");
        }
    }
}
