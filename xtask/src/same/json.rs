//! Two JSON values: what may differ taken out, and the first difference of the rest.
//!
//! # Invariants
//! - Numbers are equal when they print the same, so a last digit counts.
//! - The order of keys does not count; the order of a list does.

use serde_json::Value;

use super::renames;

/// `value` by today's names, without clocks, dates, machines and command lines.
pub(super) fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::String(text) => Value::String(renames::word(&text)),
        Value::Object(fields) => {
            // The simulator's own speed; beside a device `seconds` is virtual time.
            let is_timed = fields.contains_key("accesses_per_second");
            let kept = fields.into_iter().filter(|(key, _)| {
                !(CHANGING.contains(&key.as_str()) || is_timed && key == "seconds")
            });
            kept.map(|(key, value)| (renames::word(&key), plain(value))).collect()
        }
        other => other,
    }
}

/// Where `old` and `new` differ first, and both values there.
pub(super) fn first_difference(old: &Value, new: &Value) -> Option<String> {
    match (old, new) {
        (Value::Array(olds), Value::Array(news)) if olds.len() == news.len() => {
            let mut pairs = olds.iter().zip(news).enumerate();
            pairs.find_map(|(at, (old, new))| {
                first_difference(old, new).map(|difference| format!("/{at}{difference}"))
            })
        }
        (Value::Object(olds), Value::Object(news)) => {
            let keys = olds.keys().chain(news.keys().filter(|key| !olds.contains_key(*key)));
            keys.into_iter().find_map(|key| {
                let (old, new) = (&old[key], &new[key]);
                first_difference(old, new).map(|difference| format!("/{key}{difference}"))
            })
        }
        (Value::String(old), Value::String(new)) => {
            let line = old.lines().zip(new.lines()).find(|(old, new)| old != new);
            let (old, new) = line.or((old != new).then_some((old, new)))?;
            Some(format!(": {} -> {}", short(old), short(new)))
        }
        _ if old == new => None,
        _ => Some(format!(": {} -> {}", short(&old.to_string()), short(&new.to_string()))),
    }
}

fn short(text: &str) -> String {
    let start: String = text.chars().take(SHOWN_MAX).collect();
    if start.len() < text.len() { start + "..." } else { start }
}

/// Keys whose values tell of a run's time and place.
const CHANGING: &[&str] = &["accesses_per_second", "command", "commit", "date", "machine"];
const SHOWN_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{first_difference, plain};

    #[test]
    fn the_first_difference_has_its_place() {
        #[rustfmt::skip]
        let rows = [ // why         old, new                                        difference
            ("equal",               json!({"a": [1, 2.5]}), json!({"a": [1, 2.5]}), None),
            ("a value",             json!({"a": [1, 2.5]}), json!({"a": [1, 2.6]}),
             Some("/a/1: 2.5 -> 2.6")),
            ("a length",            json!([1]),             json!([1, 2]), Some(": [1] -> [1,2]")),
            ("a key that went",     json!({"a": 1}),        json!({}),     Some("/a: 1 -> null")),
            ("a key that came",     json!({}),              json!({"a": 1}), Some("/a: null -> 1")),
            ("a kind of number",    json!(1),               json!(1.0),    Some(": 1 -> 1.0")),
            ("a line of a text",    json!("a\nb"),          json!("a\nc"), Some(": b -> c")),
            ("a line more",         json!("a"),             json!("a\nb"), Some(": a -> a\nb")),
        ];
        for (why, old, new, difference) in rows {
            assert_eq!(first_difference(&old, &new).as_deref(), difference, "{why}");
        }
    }

    #[test]
    fn speeds_go_and_virtual_time_stays() {
        let run = json!({ "seconds": 0.1, "accesses_per_second": 5, "date": 1, "prefetch": "ours",
            "device": { "seconds": 2.5 } });
        assert_eq!(plain(run), json!({ "device": { "seconds": 2.5 }, "prefetch": "adaptive" }));
    }
}
