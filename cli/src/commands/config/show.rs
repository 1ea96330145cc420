//! `muster config show`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use muster_templates::batch::{AuthType, BatchConfig, OnFailure, Protocol, State};
use serde::Serialize;

use crate::context::Context;
use crate::render;

/// Show which files are read and what holds: settings with their defaults, repositories, resource sets
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` shows.
#[derive(Serialize)]
struct Shown {
    system_dir: PathBuf,
    user_dir: Option<PathBuf>,
    files: Vec<PathBuf>,
    batch: Vec<Setting>,
    repos: Vec<Repo>,
    resource_sets: Vec<Set>,
    templates: usize,
}

#[derive(Serialize)]
struct Setting {
    key: &'static str,
    value: String,
    is_default: bool,
}

#[derive(Serialize)]
struct Repo {
    name: String,
    path: String,
    problem: Option<String>,
}

#[derive(Serialize)]
struct Set {
    name: String,
    networks: Vec<String>,
    is_default: bool,
}

pub(crate) fn run(args: &Args, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let trees = context.trees();
    let hint = "read the configuration ('muster config check' lists all mistakes)";
    let site = context.with_names(|names| muster_config::Site::read(&trees, names));
    let site = site.context(hint)?;
    let batch = muster_config::batch(&trees).context(hint)?;
    let report = context.with_names(|names| muster_config::check(&trees, names));
    let shown = Shown {
        system_dir: trees.system,
        user_dir: trees.user,
        files: report.files,
        batch: settings(&batch),
        repos: site
            .catalog
            .repos
            .into_iter()
            .map(|r| Repo {
                name: r.name,
                path: r.path,
                problem: r.problem,
            })
            .collect(),
        resource_sets: site
            .sets
            .iter()
            .map(|s| Set {
                name: s.name.clone(),
                networks: s.networks.clone(),
                is_default: s.is_default,
            })
            .collect(),
        templates: site.library.names().count(),
    };
    if args.json {
        return super::super::print_json(out, &shown);
    }
    print(&shown, out)
}

/// Each setting with whether it is the default.
fn settings(batch: &BatchConfig) -> Vec<Setting> {
    let usual = values(&BatchConfig::default());
    let set = |((key, value), (_, default))| Setting {
        key,
        is_default: value == default,
        value,
    };
    values(batch).into_iter().zip(usual).map(set).collect()
}

/// The settings as `batch.yaml` would hold them.
fn values(batch: &BatchConfig) -> Vec<(&'static str, String)> {
    let list = |all: &[String]| match all {
        [] => "none".to_owned(),
        all => all.join(", "),
    };
    let file = |path: &Option<String>| path.clone().unwrap_or_else(|| "none".to_owned());
    let seconds = |time: std::time::Duration| time.as_secs().to_string();
    vec![
        ("batch-args", list(&batch.batch_args)),
        (
            "etcd-auth-type",
            word(
                batch.etcd_auth_type == AuthType::Password,
                "password",
                "none",
            ),
        ),
        ("etcd-ca-cert", file(&batch.etcd_ca_cert)),
        ("etcd-client-cert", file(&batch.etcd_client_cert)),
        ("etcd-client-key", file(&batch.etcd_client_key)),
        ("etcd-client-port", batch.etcd_client_port.to_string()),
        ("etcd-password-file", batch.etcd_password_file.clone()),
        (
            "etcd-protocol",
            word(batch.etcd_protocol == Protocol::Https, "https", "http"),
        ),
        ("etcd-servers", list(&batch.etcd_servers)),
        (
            "on-failure",
            word(batch.on_failure == OnFailure::Keep, "keep", "cancel"),
        ),
        ("operators", list(&batch.operators)),
        ("prepare-timeout", seconds(batch.prepare_timeout)),
        ("scratch-dir", batch.scratch_dir.clone()),
        (
            "state",
            word(batch.state == State::Embedded, "embedded", "etcd"),
        ),
        ("stop-timeout", seconds(batch.stop_timeout)),
        (
            "vm-memory-overhead",
            batch.vm_memory_overhead.mib.to_string(),
        ),
    ]
}

fn word(first: bool, yes: &str, no: &str) -> String {
    if first { yes } else { no }.to_owned()
}

fn print(shown: &Shown, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "site's directory  {}", shown.system_dir.display())?;
    let user = shown.user_dir.as_ref();
    let user = user.map_or_else(|| "none".to_owned(), |d| d.display().to_string());
    writeln!(out, "your directory    {user}")?;
    for file in &shown.files {
        writeln!(out, "  read            {}", file.display())?;
    }
    writeln!(out, "templates         {}\n", shown.templates)?;
    let rows = shown.batch.iter().map(|s| {
        let from = if s.is_default {
            "default"
        } else {
            "batch.yaml"
        };
        vec![s.key.to_owned(), s.value.clone(), from.to_owned()]
    });
    out.write_all(render::table(&["SETTING", "VALUE", "FROM"], rows.collect()).as_bytes())?;
    let rows = shown.repos.iter().map(|r| {
        let problem = r.problem.clone().unwrap_or_default();
        vec![r.name.clone(), r.path.clone(), problem]
    });
    writeln!(out)?;
    out.write_all(render::table(&["REPO", "PATH", "PROBLEM"], rows.collect()).as_bytes())?;
    let rows = shown.resource_sets.iter().map(|s| {
        let default = if s.is_default { "yes" } else { "" };
        let networks = match s.networks.as_slice() {
            [] => "none".to_owned(),
            all => all.join(", "),
        };
        vec![s.name.clone(), default.to_owned(), networks]
    });
    writeln!(out)?;
    out.write_all(
        render::table(&["RESOURCE SET", "DEFAULT", "NETWORKS"], rows.collect()).as_bytes(),
    )?;
    Ok(())
}
