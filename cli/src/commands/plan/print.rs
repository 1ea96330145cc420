//! The plan for eyes: tables, then shell lines.

use std::io::{self, Write};

use super::view::{NodeView, View, Vm};
use crate::render;

/// Prints a plan; `brief` leaves out what the nodes do.
pub(super) fn print(view: &View, brief: bool, out: &mut dyn Write) -> io::Result<()> {
    for assumption in &view.assumptions {
        writeln!(out, "# assumed: {assumption}")?;
    }
    let titles = ["VM", "NODE", "VCPUS", "MEMORY", "TEMPLATE", "IMAGE"];
    let rows = view.vms.iter().map(row).collect();
    out.write_all(render::table(&titles, rows).as_bytes())?;
    let nics = view.vms.iter().flat_map(nics).collect::<Vec<_>>();
    if !nics.is_empty() {
        writeln!(out)?;
        let titles = ["VM", "NETWORK", "ADDRESS", "MAC", "MTU"];
        out.write_all(render::table(&titles, nics).as_bytes())?;
    }
    if brief {
        return Ok(());
    }
    view.nodes.iter().try_for_each(|node| print_node(node, out))
}

fn row(vm: &Vm) -> Vec<String> {
    vec![
        vm.name.clone(),
        vm.node.clone(),
        vm.vcpus.to_string(),
        format!("{} MiB", vm.memory_mib),
        vm.template.clone(),
        vm.image.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}

fn nics(vm: &Vm) -> Vec<Vec<String>> {
    let nic = |nic: &super::view::Nic| {
        vec![
            vm.name.clone(),
            nic.network.clone(),
            nic.address.clone().unwrap_or_else(|| "-".to_owned()),
            nic.mac.clone(),
            nic.mtu.to_string(),
        ]
    };
    vm.networks.iter().map(nic).collect()
}

fn print_node(node: &NodeView, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "\n# node {}: {} CPUs, {} MiB",
        node.name, node.cpus, node.memory_mib
    )?;
    for step in &node.steps {
        writeln!(out, "{step}")?;
    }
    for (network, steps) in &node.networks {
        if !steps.is_empty() {
            writeln!(
                out,
                "# network {network}; planned, not set up by this release"
            )?;
        }
        for step in steps {
            writeln!(out, "{step}")?;
        }
    }
    for vm in &node.commands {
        writeln!(out, "# {}, as the user in the job", vm.vm)?;
        if let Some(overlay) = &vm.overlay {
            writeln!(out, "{}", shell(overlay))?;
        }
        writeln!(out, "{}", shell(&vm.qemu))?;
    }
    Ok(())
}

/// A command line as it would be typed.
fn shell(words: &[String]) -> String {
    let quoted = |word: &String| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-+=./,:@%".contains(&b);
        if !word.is_empty() && word.bytes().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_a_shell() {
        let words = ["a", "", "b c", "it's", "k=v,x:/y@1"].map(str::to_owned);
        assert_eq!(shell(&words), "a '' 'b c' 'it'\\''s' k=v,x:/y@1");
    }
}
