//! `muster network`.

use std::io::Write;

use anyhow::Context as _;
use muster_templates::nearest::hint;
use muster_templates::networks::{self, Network, Networks};
use muster_templates::sets::ResourceSets;
use muster_types::network::NetworkSpec;
use serde::Serialize;

use crate::context::Context;
use crate::exit::NoSuch;
use crate::render;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the networks of this site
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a network with all its settings, as networks.yaml would hold it
    Show {
        /// The network
        name: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Listed<'a> {
    networks: Vec<Shown<'a>>,
}

#[derive(Serialize)]
struct One<'a> {
    network: Shown<'a>,
}

/// A network as `--json` shows it.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    definition: &'a NetworkSpec,
    resource_sets: Vec<&'a str>,
    /// VMs of one virtual cluster that have an address; none: no limit.
    room: Option<u64>,
    defined_at: &'a str,
}

pub(crate) fn run(command: &Command, context: &Context, out: &mut dyn Write) -> anyhow::Result<()> {
    let trees = context.trees();
    let networks = muster_config::networks(&trees).context("read the networks")?;
    let sets = muster_config::resource_sets(&trees, &networks).context("read the resource sets")?;
    match command {
        Command::List { json } => list(*json, &networks, &sets, out),
        Command::Show { name, json } => show(name, *json, &networks, &sets, out),
    }
}

fn list(
    json: bool,
    networks: &Networks,
    sets: &ResourceSets,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let all = networks.iter().map(|n| shown(n, sets));
    if json {
        return super::print_json(
            out,
            &Listed {
                networks: all.collect(),
            },
        );
    }
    let rows = all.map(|network| {
        vec![
            network.name.to_owned(),
            network.definition.type_word().to_owned(),
            layer(network.definition).to_owned(),
            addresses(network.definition),
            network
                .room
                .map_or_else(|| "-".to_owned(), |n| n.to_string()),
            network.resource_sets.join(","),
        ]
    });
    let titles = ["NAME", "TYPE", "LAYER", "ADDRESSES", "VMS", "RESOURCE SETS"];
    Ok(out.write_all(render::table(&titles, rows.collect()).as_bytes())?)
}

fn show(
    name: &str,
    json: bool,
    networks: &Networks,
    sets: &ResourceSets,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(network) = networks.get(name) else {
        let near = hint(name, networks.names());
        let known: Vec<&str> = networks.names().collect();
        let known = match known.as_slice() {
            [] => "this site has none".to_owned(),
            all => format!("there are {}", all.join(", ")),
        };
        return Err(NoSuch(format!("no network '{name}'{near}; {known}")).into());
    };
    let shown = shown(network, sets);
    if json {
        return super::print_json(out, &One { network: shown });
    }
    writeln!(out, "# {}", shown.defined_at)?;
    match shown.resource_sets.as_slice() {
        [] => writeln!(out, "# in no resource set")?,
        all => writeln!(out, "# in resource sets: {}", all.join(", "))?,
    }
    if let Some(room) = shown.room {
        writeln!(out, "# addresses for {room} VMs of a virtual cluster")?;
    }
    Ok(out.write_all(networks::to_yaml(network).as_bytes())?)
}

fn shown<'a>(network: &'a Network, sets: &'a ResourceSets) -> Shown<'a> {
    let in_set = sets.iter().filter(|s| s.networks.contains(&network.name));
    Shown {
        name: &network.name,
        definition: &network.spec,
        resource_sets: in_set.map(|s| s.name.as_str()).collect(),
        room: Some(networks::room(&network.spec)).filter(|n| *n < u64::MAX),
        defined_at: &network.defined_at,
    }
}

fn layer(spec: &NetworkSpec) -> &'static str {
    match spec {
        NetworkSpec::Ethernet(net) => net.network_layer.word(),
        _ => "-",
    }
}

fn addresses(spec: &NetworkSpec) -> String {
    match spec {
        NetworkSpec::Ethernet(net) if net.network_layer == muster_types::network::Layer::L3 => {
            net.int_network.to_string()
        }
        NetworkSpec::Bridged(net) => format!("bridge {}", net.host_bridge),
        NetworkSpec::Infiniband(net) => net.host_device.clone(),
        NetworkSpec::Hostib(net) => net.host_device.clone(),
        NetworkSpec::Genericpci(net) => net.host_device_addrs.join(","),
        NetworkSpec::Ethernet(_) => "-".to_owned(),
    }
}
