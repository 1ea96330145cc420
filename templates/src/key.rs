//! The keys of the configuration files as tables: what a file may hold, for messages, JSON Schemas
//! and the manual. The parsers read by them; a test holds both together.

use serde_json::{Map, Value, json};

/// A key of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub shape: Shape,
    /// What holds without it, in words; empty: it is required.
    pub default: &'static str,
    /// What it means, one sentence without a full stop.
    pub about: &'static str,
}

/// What a key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Text; a number is taken as written.
    Text,
    /// A whole number in a range.
    Number(u64, u64),
    /// `true` or `false`, also `yes`, `no`, `on`, `off`.
    Bool,
    /// One of some words.
    Words(&'static [&'static str]),
    /// An amount such as `512M` or `4G`, binary units.
    Size,
    /// A list.
    List(&'static Shape),
    /// A map with these keys.
    Keys(&'static [Key]),
    /// A map from names of the admin's choice.
    Named(&'static Shape),
    /// Any of several.
    Either(&'static [Shape]),
    /// Whatever YAML can say.
    Anything,
}

/// The names of a table, in its order.
#[must_use]
pub fn names(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| key.name).collect()
}

/// The keys as a table of Markdown, for the manual.
#[must_use]
pub fn table(keys: &[Key]) -> String {
    let mut table = String::from("| key | default | takes | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = match key.default {
            "" => "required",
            default => default,
        };
        let (name, takes, about) = (key.name, key.shape.takes(), key.about);
        table.push_str(&format!("| `{name}` | {default} | {takes} | {about} |\n"));
    }
    table
}

impl Shape {
    /// What a key of this shape takes, in words.
    #[must_use]
    pub fn takes(&self) -> String {
        let quoted = |words: &[&str]| -> String {
            let words: Vec<_> = words.iter().map(|w| format!("`{w}`")).collect();
            words.join(", ")
        };
        match self {
            Self::Text => "text".into(),
            Self::Number(from, to) => format!("{from} to {to}"),
            Self::Bool => quoted(&["true", "false"]),
            Self::Words(words) => quoted(words),
            Self::Size => "size such as `512M`, `4G`".into(),
            Self::List(Self::Text) => "list of texts".into(),
            Self::List(Self::Keys(keys)) => format!("list of maps of {}", quoted(&names(keys))),
            Self::List(item) => format!("list of {}", item.takes()),
            Self::Keys(keys) => format!("map of {}", quoted(&names(keys))),
            Self::Named(value) => format!("map from names to {}", value.takes()),
            Self::Either(shapes) => {
                let all: Vec<_> = shapes.iter().map(Self::takes).collect();
                all.join("; or ")
            }
            Self::Anything => "anything".into(),
        }
    }

    /// Its JSON Schema (draft 2020-12).
    #[must_use]
    pub fn schema(&self) -> Value {
        match self {
            Self::Text => json!({ "type": ["string", "integer"] }),
            Self::Number(from, to) => {
                json!({ "type": "integer", "minimum": from, "maximum": to })
            }
            // An editor reads YAML 1.2, where yes and no are texts.
            Self::Bool => json!({ "enum": [true, false, "yes", "no", "on", "off"] }),
            Self::Words(words) => {
                let mut all: Vec<Value> = words.iter().map(|w| json!(w)).collect();
                // Unquoted words that YAML 1.1 reads as booleans.
                all.extend(words.contains(&"yes").then_some(json!(true)));
                all.extend(words.contains(&"no").then_some(json!(false)));
                json!({ "enum": all })
            }
            Self::Size => json!({
                "type": ["string", "integer"],
                "minimum": 1,
                "pattern": "^ *[0-9]+ *([MGTmgt](i?B)?|B|iB)? *$",
            }),
            Self::List(item) => json!({ "type": "array", "items": item.schema() }),
            Self::Keys(keys) => {
                let mut properties = Map::new();
                for key in *keys {
                    let mut schema = key.shape.schema();
                    if let Value::Object(map) = &mut schema {
                        let about = match key.default {
                            "" => key.about.to_owned(),
                            default => format!("{} (default: {default})", key.about),
                        };
                        map.insert("description".into(), about.into());
                    }
                    properties.insert(key.name.into(), schema);
                }
                let required: Vec<_> = keys.iter().filter(|k| k.default.is_empty()).collect();
                let mut schema = json!({
                    "type": ["object", "null"],
                    "properties": properties,
                    "additionalProperties": false,
                });
                if let Value::Object(map) = &mut schema
                    && !required.is_empty()
                {
                    let required: Vec<_> = required.iter().map(|k| k.name).collect();
                    map.insert("required".into(), json!(required));
                }
                schema
            }
            Self::Named(value) => json!({
                "type": ["object", "null"],
                "additionalProperties": value.schema(),
            }),
            Self::Either(shapes) => {
                let any: Vec<Value> = shapes.iter().map(Self::schema).collect();
                json!({ "anyOf": any })
            }
            Self::Anything => json!({}),
        }
    }
}

/// A configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its name without `.yaml`.
    pub name: &'static str,
    /// What it is for, one sentence without a full stop.
    pub about: &'static str,
    /// What it holds.
    pub shape: Shape,
}

impl File {
    /// Its JSON Schema, for editors.
    #[must_use]
    pub fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        if let Value::Object(map) = &mut schema {
            map.insert(
                "$schema".into(),
                "https://json-schema.org/draft/2020-12/schema".into(),
            );
            map.insert("title".into(), format!("Muster: {}.yaml", self.name).into());
            map.insert("description".into(), self.about.into());
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_schemas() {
        const KEYS: &[Key] = &[
            Key {
                name: "a",
                shape: Shape::Number(1, 4),
                default: "",
                about: "how many",
            },
            Key {
                name: "b",
                shape: Shape::Words(&["yes", "maybe"]),
                default: "maybe",
                about: "whether",
            },
        ];
        let file = File {
            name: "x",
            about: "for tests",
            shape: Shape::Named(&Shape::Keys(KEYS)),
        };
        let schema = file.schema();
        assert_eq!(schema["title"], "Muster: x.yaml");
        let inner = &schema["additionalProperties"];
        assert_eq!(inner["required"], json!(["a"]));
        assert_eq!(inner["properties"]["a"]["maximum"], 4);
        assert_eq!(
            inner["properties"]["b"]["enum"],
            json!(["yes", "maybe", true])
        );
        assert_eq!(
            inner["properties"]["b"]["description"],
            "whether (default: maybe)"
        );
        assert_eq!(names(KEYS), ["a", "b"]);
        let rows =
            "| `a` | required | 1 to 4 | how many |\n| `b` | maybe | `yes`, `maybe` | whether |\n";
        assert!(table(KEYS).ends_with(rows), "{}", table(KEYS));
        let shape = Shape::Either(&[Shape::Text, Shape::List(&Shape::Keys(KEYS))]);
        assert_eq!(shape.takes(), "text; or list of maps of `a`, `b`");
    }
}
