//! `muster template`.

use std::io::Write;

use anyhow::Context as _;
use muster_templates::library::ResolvedTemplate;
use muster_templates::source::Tree;
use muster_types::ids::Mib;
use serde::Serialize;

use crate::context::Context;
use crate::render;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the templates you may use
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Templates<'a> {
    templates: Vec<Template<'a>>,
}

/// A template as `--json` shows it.
#[derive(Serialize)]
struct Template<'a> {
    name: &'a str,
    description: &'a str,
    image: Option<&'a str>,
    accel: String,
    cpus: Option<u32>,
    memory_mib: Option<u64>,
    inherits: Option<&'a str>,
    tree: &'static str,
    defined_at: &'a str,
}

pub(crate) fn run(command: &Command, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let Command::List { json } = command;
    let library = muster_config::library(&context.trees()).context("read the templates")?;
    let mut templates: Vec<&ResolvedTemplate> = library.iter().collect();
    templates.sort_by(|a, b| a.name.cmp(&b.name));
    if *json {
        let templates = templates.into_iter().map(described).collect();
        return super::print_json(out, &Templates { templates });
    }
    let text = render::table(
        &["NAME", "IMAGE", "CPUS", "MEMORY", "FROM", "DESCRIPTION"],
        templates.into_iter().map(row).collect(),
    );
    Ok(out.write_all(text.as_bytes())?)
}

fn tree(template: &ResolvedTemplate) -> &'static str {
    match template.tree {
        Tree::System => "system",
        Tree::User => "user",
    }
}

fn described(template: &ResolvedTemplate) -> Template<'_> {
    Template {
        name: &template.name,
        description: &template.description,
        image: template.image.as_deref(),
        accel: template.accel.to_string(),
        cpus: template.cpus,
        memory_mib: template.memory.map(|Mib(mib)| mib),
        inherits: template.inherits.as_deref(),
        tree: tree(template),
        defined_at: &template.defined_at,
    }
}

fn row(template: &ResolvedTemplate) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        template.name.clone(),
        or_dash(template.image.clone()),
        or_dash(template.cpus.map(|n| n.to_string())),
        or_dash(template.memory.map(|m| m.to_string())),
        tree(template).to_owned(),
        template.description.clone(),
    ]
}
