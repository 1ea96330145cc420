//! The table of keys, the parsers and the JSON Schemas say the same.

use muster_templates::key::{File, Key, Shape};
use muster_templates::library::Library;
use muster_templates::source::{Source, Tree};
use muster_templates::{batch, networks, repos, sets, template};
use serde_json::{Value, json};

use crate::case::cases;

/// Texts for the keys that take no text at all.
const TEXTS: &[(&str, &str)] = &[
    ("user-data", "/seed"),
    ("users", "/roster"),
    ("inherits", "base"),
];

/// Values that a shape takes; `key` is the key's name.
fn good(key: &str, shape: &Shape) -> Vec<Value> {
    let text = TEXTS.iter().find(|(name, _)| *name == key);
    match shape {
        Shape::Text => vec![json!(text.map_or("x1", |(_, text)| text))],
        Shape::Number(from, to) => vec![json!(from), json!(to)],
        Shape::Bool => [json!(true), json!(false), json!("yes"), json!("off")].into(),
        Shape::Words(words) => words.iter().map(|word| json!(word)).collect(),
        Shape::Size => vec![json!("512M"), json!("4G"), json!("1 TiB"), json!(2048)],
        Shape::List(item) => {
            let items = good(key, item).into_iter().map(|value| json!([value]));
            // A command has at least its program.
            let empty = (key != "command").then(|| json!([]));
            items.chain(empty).collect()
        }
        Shape::Keys(keys) => maps(keys),
        Shape::Named(Shape::Either(shapes)) if key == "persistent-drives" => {
            // The other shapes are those of settings beside the path, as pcocc's sample has them.
            let beside = json!({ "/d": null, "mmp": false, "cache": "none" });
            let below = good(key, &shapes[0]).into_iter();
            let below = below.map(|settings| json!({ "/d": settings }));
            below.chain([beside]).collect()
        }
        Shape::Named(value) => {
            let values = good(key, value).into_iter();
            values.map(|value| json!({ "home": value })).collect()
        }
        Shape::Either(shapes) => shapes.iter().flat_map(|shape| good(key, shape)).collect(),
        Shape::Anything => vec![json!({ "packages": ["vim"] })],
    }
}

/// Maps with the required keys and one of the others.
fn maps(keys: &[Key]) -> Vec<Value> {
    let first = |key: &Key| good(key.name, &key.shape).remove(0);
    let required: serde_json::Map<_, _> = keys
        .iter()
        .filter(|key| key.default.is_empty())
        .map(|key| (key.name.to_owned(), first(key)))
        .collect();
    let mut all = Vec::new();
    for key in keys {
        for value in good(key.name, &key.shape) {
            let mut map = required.clone();
            map.insert(key.name.to_owned(), value);
            all.push(Value::Object(map));
        }
    }
    all
}

/// Values that a shape does not take.
fn bad(shape: &Shape) -> Vec<Value> {
    match shape {
        Shape::Text => vec![json!([]), json!({ "a": 1 }), json!(true)],
        Shape::Number(from, to) => {
            let mut all = vec![
                json!(to + 1),
                json!(-1),
                json!("many"),
                json!([1]),
                json!(1.5),
            ];
            all.extend(from.checked_sub(1).map(|below| json!(below)));
            all
        }
        Shape::Bool => vec![json!("maybe"), json!(2), json!([])],
        Shape::Words(_) => vec![json!("zzz"), json!(7), json!([]), json!({ "a": 1 })],
        Shape::Size => vec![
            json!("4K"),
            json!("much"),
            json!(-1),
            json!([]),
            json!(true),
        ],
        Shape::List(item) => {
            let items = bad(item).into_iter().map(|value| json!([value]));
            items.chain([json!({ "a": 1 }), json!(7)]).collect()
        }
        Shape::Keys(_) => vec![json!({ "no-such-key": 1 }), json!(7), json!([])],
        Shape::Named(value) => {
            let values = bad(value).into_iter().map(|value| json!({ "home": value }));
            values.chain([json!(7), json!([1])]).collect()
        }
        // What none of them takes.
        Shape::Either(shapes) => {
            let all = shapes.iter().flat_map(bad);
            all.filter(|v| !shapes.iter().any(|s| accepts(&s.schema(), v)))
                .collect()
        }
        Shape::Anything => Vec::new(),
    }
}

/// The keywords that Muster's schemas use, of draft 2020-12. Others are refused.
fn accepts(schema: &Value, value: &Value) -> bool {
    let rules = schema.as_object().unwrap();
    rules.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "title" | "description" => true,
        "type" => match rule {
            Value::String(one) => is(one, value),
            _ => rule
                .as_array()
                .unwrap()
                .iter()
                .any(|one| is(one.as_str().unwrap(), value)),
        },
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value.as_i64().is_none_or(|n| n >= rule.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|n| n <= rule.as_i64().unwrap()),
        "anyOf" => rule
            .as_array()
            .unwrap()
            .iter()
            .any(|one| accepts(one, value)),
        "items" => value
            .as_array()
            .is_none_or(|items| items.iter().all(|item| accepts(rule, item))),
        "pattern" => value.as_str().is_none_or(|text| {
            assert_eq!(rule, &Shape::Size.schema()["pattern"]);
            text.parse::<muster_types::ids::Mib>().is_ok()
        }),
        "required" => value.as_object().is_none_or(|map| {
            let mut keys = rule.as_array().unwrap().iter();
            keys.all(|key| map.contains_key(key.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|map| {
            let mut known = map.iter().filter_map(|(key, v)| Some((rule.get(key)?, v)));
            known.all(|(rule, value)| accepts(rule, value))
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = schema.get("properties").and_then(Value::as_object);
            let mut others = map
                .iter()
                .filter(|(key, _)| known.is_none_or(|known| !known.contains_key(*key)));
            match rule {
                Value::Bool(allowed) => *allowed || others.next().is_none(),
                _ => others.all(|(_, value)| accepts(rule, value)),
            }
        }),
        other => unreachable!("the schema has '{other}'"),
    })
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "object" => value.is_object(),
        "array" => value.is_array(),
        "null" => value.is_null(),
        other => unreachable!("the schema has the type '{other}'"),
    }
}

/// A library with a template that holds a key.
fn read(key: &str, value: &Value) -> Result<(), String> {
    // What goes together with the key.
    let other = match key {
        "initrd" | "kernel-args" => ", kernel: /k",
        _ => "",
    };
    let source = Source {
        path: "templates.yaml".into(),
        text: format!("base: {{}}\nt: {{{key}: {value}{other}}}\n"),
        tree: Tree::System,
    };
    let library = Library::parse(&[source]).map(drop);
    library.map_err(|e| e.to_string())
}

#[test]
fn parsers_and_schema_take_what_the_table_says() {
    let schema = template::FILE.schema();
    for key in template::KEYS {
        let (name, good, bad) = (key.name, good(key.name, &key.shape), bad(&key.shape));
        assert!(
            !good.is_empty() && !bad.is_empty() || name == "user-data",
            "{name}"
        );
        for value in good {
            assert_eq!(read(name, &value), Ok(()), "{name}: {value}");
            let file = json!({ "t": { name: value } });
            assert!(accepts(&schema, &file), "the schema refuses {file}");
        }
        for value in bad {
            let told = read(name, &value);
            let told = told.expect_err(&format!("{name}: {value} is taken"));
            assert!(told.contains(&format!(" t.{name}")), "{told}");
            let file = json!({ "t": { name: value } });
            assert!(!accepts(&schema, &file), "the schema takes {file}");
        }
    }
}

#[test]
fn a_key_of_the_settings_is_a_key_of_the_table() {
    let table: Vec<_> = template::KEYS.iter().map(|key| key.name).collect();
    for key in template::KEYS {
        let first = &good(key.name, &key.shape)[0];
        assert_eq!(read(key.name, first), Ok(()), "{}", key.name);
        assert_eq!(table.iter().filter(|name| **name == key.name).count(), 1);
        assert!(!key.about.is_empty() && !key.about.ends_with('.'));
    }
    let told = read("no-such-key", &json!(1)).unwrap_err();
    let mut names = table.clone();
    names.sort_unstable();
    assert!(
        told.ends_with(&format!("; allowed are {}", names.join(", "))),
        "{told}"
    );
}

#[test]
fn schemas_take_the_samples_of_pcocc() {
    let files: [(&str, File); 6] = [
        ("templates.yaml", template::FILE),
        ("user.yaml", template::FILE),
        ("networks.yaml", networks::FILE),
        ("resources.yaml", sets::FILE),
        ("repos.yaml", repos::FILE),
        ("batch.yaml", batch::FILE),
    ];
    let mut seen = [0; 6];
    for case in cases("pcocc", "") {
        for ((name, file), seen) in files.iter().zip(&mut seen) {
            let Some(text) = case.text(name) else {
                continue;
            };
            let Ok(value) = serde_saphyr::from_str::<Value>(&text) else {
                assert_eq!(case.name(), "templates-mount-home-unquoted");
                continue;
            };
            *seen += 1;
            let taken = accepts(&file.schema(), &value);
            assert_eq!(
                taken,
                case.name() != "networks-syntax",
                "{}/{name}",
                case.name()
            );
        }
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
}
