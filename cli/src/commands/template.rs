//! `muster template`.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context as _;
use muster_templates::key::Key;
use muster_templates::library::{Library, ResolvedTemplate};
use muster_templates::nearest::hint;
use muster_templates::source::Tree;
use muster_templates::template::KEYS;
use muster_types::ids::Mib;
use serde::Serialize;
use serde_json::Value;

use crate::context::Context;
use crate::exit::NoSuch;
use crate::render;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the templates you may use
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a template: what it sets, what it inherits and from where, and the defaults of the rest
    Show {
        /// The template
        name: String,
        /// Print JSON
        #[arg(long, conflicts_with = "yaml")]
        json: bool,
        /// Print it as templates.yaml would hold it without inheritance
        #[arg(long)]
        yaml: bool,
    },
}

#[derive(Serialize)]
struct Templates<'a> {
    templates: Vec<Template<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    template: Template<'a>,
}

/// A template as `--json` shows it.
#[derive(Serialize)]
struct Template<'a> {
    name: &'a str,
    description: &'a str,
    inherits: Option<&'a str>,
    tree: &'static str,
    defined_at: &'a str,
    /// Each key that is set or inherited.
    settings: BTreeMap<&'static str, Setting<'a>>,
}

#[derive(Serialize)]
struct Setting<'a> {
    value: Value,
    /// The template that sets it.
    template: &'a str,
    defined_at: String,
}

pub(crate) fn run(command: &Command, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let library = muster_config::library(&context.trees()).context("read the templates")?;
    match command {
        Command::List { json } => list(*json, &library, out),
        Command::Show { name, json, yaml } => {
            let Some(template) = library.get(name) else {
                let near = match hint(name, library.names()).as_str() {
                    "" => "; 'muster template list' shows all".to_owned(),
                    near => near.to_owned(),
                };
                return Err(NoSuch(format!("no template '{name}'{near}")).into());
            };
            if *yaml {
                Ok(out.write_all(template.to_yaml().as_bytes())?)
            } else if *json {
                let template = described(template);
                super::print_json(out, &One { template })
            } else {
                show(template, out)
            }
        }
    }
}

fn list(json: bool, library: &Library, out: &mut dyn Write) -> anyhow::Result<()> {
    if json {
        let templates = library.iter().map(described).collect();
        return super::print_json(out, &Templates { templates });
    }
    let titles = [
        "NAME",
        "IMAGE",
        "CPUS",
        "MEMORY",
        "RESOURCES",
        "FROM",
        "DESCRIPTION",
    ];
    let text = render::table(&titles, library.iter().map(row).collect());
    Ok(out.write_all(text.as_bytes())?)
}

fn show(template: &ResolvedTemplate, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "template     {}", template.name)?;
    if !template.description.is_empty() {
        writeln!(out, "description  {}", template.description)?;
    }
    let inherits = template.inherits.as_deref().unwrap_or("nothing");
    writeln!(out, "inherits     {inherits}")?;
    writeln!(out, "defined at   {}\n", template.defined_at)?;
    let set: BTreeMap<&str, Value> = template.settings().set().into_iter().collect();
    let of_a_vm = |key: &&Key| !["inherits", "description"].contains(&key.name);
    let rows = KEYS.iter().filter(of_a_vm).map(|key| {
        let (value, from) = match (set.get(key.name), template.origin(key.name)) {
            (Some(value), Some(origin)) => {
                let place = format!("{}:{}", origin.file, origin.at.0);
                let from = match origin.template == template.name && origin.tree == template.tree {
                    true => place,
                    false => format!("'{}', {place}", origin.template),
                };
                (text(value), from)
            }
            _ => (key.default.to_owned(), "default".to_owned()),
        };
        vec![key.name.to_owned(), value, from]
    });
    let mut rows: Vec<_> = rows.collect();
    // What is set stands first.
    rows.sort_by_key(|row| row.last().is_some_and(|from| from == "default"));
    Ok(out.write_all(render::table(&["KEY", "VALUE", "FROM"], rows).as_bytes())?)
}

/// A value on one line.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) if text.contains('\n') => {
            format!("{} lines of text", text.lines().count())
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn tree(template: &ResolvedTemplate) -> &'static str {
    match template.tree {
        Tree::System => "system",
        Tree::User => "user",
    }
}

fn described(template: &ResolvedTemplate) -> Template<'_> {
    let setting = |(key, value): (&'static str, Value)| {
        let origin = template.origin(key)?;
        let setting = Setting {
            value,
            template: &origin.template,
            defined_at: format!("{}:{}", origin.file, origin.at.0),
        };
        Some((key, setting))
    };
    Template {
        name: &template.name,
        description: &template.description,
        inherits: template.inherits.as_deref(),
        tree: tree(template),
        defined_at: &template.defined_at,
        settings: template
            .settings()
            .set()
            .into_iter()
            .filter_map(setting)
            .collect(),
    }
}

fn row(template: &ResolvedTemplate) -> Vec<String> {
    let settings = template.settings();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        template.name.clone(),
        or_dash(settings.image.clone()),
        or_dash(settings.cpus.map(|n| n.to_string())),
        or_dash(settings.memory.map(|m: Mib| m.to_string())),
        or_dash(settings.resource_set.clone()),
        tree(template).to_owned(),
        template.description.clone(),
    ]
}
