//! The rows of a result: taken out of its JSON, and written as lines of JSON or as CSV.
//!
//! ```text
//!   {"runs": [{"policy": "2q", "params": {"kin": "0.25"}, "misses": 3}, ...]}     rows at `runs`
//!
//!   ndjson   {"policy":"2q","params":{"kin":"0.25"},"misses":3}
//!   CSV      policy,params.kin,misses
//!            2q,0.25,3
//! ```
//! A command says what its JSON is and where its rows are; both other forms follow, with the names
//! and the digits of the JSON.
//!
//! # Invariants
//! - Keys stay in their order. A column that only some rows have stands behind the one that is
//!   before it there; rows without it have an empty cell.
//! - A list in a row is one cell: its values with blanks between them, or JSON.
//! # Sources
//! RFC 4180, with line feeds alone.

use std::fmt;

use anyhow::{Context as _, Result};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// JSON with its keys in order.
#[derive(Clone, Debug)]
enum Node {
    /// Neither a list nor an object.
    Scalar(Value),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

/// The rows of a result.
#[derive(Debug)]
pub(crate) struct Rows(Vec<Node>);

impl Rows {
    /// The rows of `result` at each of `places`, such as `runs` or `reuse.gaps`; the empty place is
    /// the result itself. Rows of several places begin with that of theirs, as `table`.
    pub(crate) fn of(result: &impl Serialize, places: &[&str]) -> Result<Self> {
        let text = serde_json::to_string(result).context("cannot write JSON")?;
        let whole: Node = serde_json::from_str(&text).context("cannot read the JSON again")?;
        let mut rows = Vec::new();
        for place in places {
            let Some(found) = whole.at(place) else { continue };
            let own = if let Node::List(all) = found {
                all.as_slice()
            } else {
                std::slice::from_ref(found)
            };
            let named = |row: &Node| match row {
                Node::Object(entries) if places.len() > 1 => {
                    let table = ("table".to_owned(), Node::Scalar((*place).into()));
                    Node::Object([std::slice::from_ref(&table), entries].concat())
                }
                other => other.clone(),
            };
            rows.extend(own.iter().map(named));
        }
        Ok(Self(rows))
    }

    /// A line of JSON for each.
    pub(crate) fn ndjson(&self) -> Result<String> {
        let mut text = String::new();
        for row in &self.0 {
            text += &serde_json::to_string(row).context("cannot write JSON")?;
            text.push('\n');
        }
        Ok(text)
    }

    /// A heading and a line for each; nothing where there is no row.
    pub(crate) fn csv(&self) -> Result<String> {
        let rows: Vec<_> = self.0.iter().map(Node::cells).collect::<Result<_>>()?;
        let heading = heading(&rows);
        if heading.is_empty() {
            return Ok(String::new());
        }
        let line =
            |cells: Vec<&str>| cells.into_iter().map(quoted).collect::<Vec<_>>().join(",") + "\n";
        let cell = |row: &Cells, column: &str| {
            row.iter().position(|(key, _)| key == column).map(|at| row[at].1.clone())
        };
        let mut text = line(heading.iter().map(String::as_str).collect());
        for row in &rows {
            let cells: Vec<String> =
                heading.iter().map(|column| cell(row, column).unwrap_or_default()).collect();
            text += &line(cells.iter().map(String::as_str).collect());
        }
        Ok(text)
    }
}

/// The columns of a row, each with its text.
type Cells = Vec<(String, String)>;

/// Every column of `rows` once.
fn heading(rows: &[Cells]) -> Vec<String> {
    let mut heading: Vec<String> = Vec::new();
    for row in rows {
        let mut at = 0;
        for (column, _) in row {
            if let Some(known) = heading.iter().position(|known| known == column) {
                at = known + 1;
            } else {
                heading.insert(at, column.clone());
                at += 1;
            }
        }
    }
    heading
}

/// `cell` as CSV has it.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

impl Node {
    /// What is at `place`: keys with points between them.
    fn at(&self, place: &str) -> Option<&Self> {
        let keys = place.split('.').filter(|key| !key.is_empty());
        keys.into_iter().try_fold(self, |node, key| match node {
            Self::Object(entries) => entries.iter().find(|(own, _)| own == key).map(|it| &it.1),
            Self::Scalar(_) | Self::List(_) => None,
        })
    }

    /// The cells of this row.
    fn cells(&self) -> Result<Cells> {
        let mut cells = Cells::new();
        self.add("", &mut cells)?;
        Ok(cells)
    }

    fn add(&self, name: &str, cells: &mut Cells) -> Result<()> {
        let text = match self {
            Self::Object(entries) => {
                for (key, value) in entries {
                    let below = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                    value.add(&below, cells)?;
                }
                return Ok(());
            }
            Self::Scalar(value) => plain(value),
            Self::List(all) => {
                let plain = all.iter().map(|one| match one {
                    Self::Scalar(value) => Some(plain(value)),
                    Self::List(_) | Self::Object(_) => None,
                });
                match plain.collect::<Option<Vec<_>>>() {
                    Some(values) => values.join(" "),
                    None => serde_json::to_string(self).context("cannot write JSON")?,
                }
            }
        };
        let name = if name.is_empty() { "value" } else { name };
        cells.push((name.to_owned(), text));
        Ok(())
    }
}

/// The text of a value that is neither list nor object.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Scalar(value) => value.serialize(serializer),
            Self::List(all) => all.serialize(serializer),
            Self::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = all.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = all.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Object(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object;

    #[test]
    fn rows_are_lines_of_json_and_of_csv() {
        let run = |name: &str, size: Option<u32>| {
            let device = object! { mb: 1.25 };
            object! { name: name.to_owned(), size: size, shares: vec![0.5, 1.0], device: device }
        };
        let all = object! { kind: "x", runs: vec![run("a,\"b\"", Some(1)), run("c\nd", None)] };
        let rows = Rows::of(&all, &["runs"]).unwrap();
        let lines = "{\"name\":\"a,\\\"b\\\"\",\"size\":1,\"shares\":[0.5,1.0],\
                     \"device\":{\"mb\":1.25}}\n\
                     {\"name\":\"c\\nd\",\"size\":null,\"shares\":[0.5,1.0],\
                     \"device\":{\"mb\":1.25}}\n";
        assert_eq!(rows.ndjson().unwrap(), lines);
        let csv = "name,size,shares,device.mb\n\"a,\"\"b\"\"\",1,0.5 1.0,1.25\n\
                   \"c\nd\",,0.5 1.0,1.25\n";
        assert_eq!(rows.csv().unwrap(), csv);
    }

    #[test]
    fn a_column_of_some_rows_stands_behind_the_one_before_it() {
        let json: Value = serde_json::from_str(
            r#"[{"a":1,"c":3},{"a":1,"b":{"y":[{"z":0}]},"c":3,"d":4},{"e":5,"a":1}]"#,
        )
        .unwrap();
        let csv = Rows::of(&json, &[""]).unwrap().csv().unwrap();
        let expected = "a,e,b.y,c,d\n1,,,3,\n1,,\"[{\"\"z\"\":0}]\",3,4\n1,5,,,\n";
        assert_eq!(csv, expected);
    }

    #[test]
    fn rows_of_several_places_name_theirs_and_a_result_may_be_its_only_row() {
        let all = object! {
            passed: 2,
            reuse: object! { gaps: vec![object! { from: 1 }], none: Vec::<u8>::new() },
            sizes: vec![object! { to: 8 }],
        };
        let csv = |places: &[&str]| Rows::of(&all, places).unwrap().csv().unwrap();
        assert_eq!(
            csv(&["reuse.gaps", "sizes", "absent"]),
            "table,to,from\nreuse.gaps,,1\nsizes,8,\n"
        );
        assert_eq!(csv(&["reuse.none"]), "");
        assert_eq!(csv(&["reuse.gaps"]), "from\n1\n");
        let flat = object! { passed: 2, failed: 0 };
        assert_eq!(Rows::of(&flat, &[""]).unwrap().csv().unwrap(), "passed,failed\n2,0\n");
    }
}
