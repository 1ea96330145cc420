//! The nodes of a job that is not there yet.

use muster_types::hostlist;
use muster_types::ids::{Mib, NodeName};

use crate::exit::Usage;

/// The memory that is assumed for each CPU where none is given.
const PER_CPU: Mib = Mib(1024);

/// The most CPUs that a node is taken to have.
const MAX_CPUS: u32 = 65_536;

/// What a job has on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) cpus: u32,
    pub(super) memory: Mib,
    /// The memory was not given.
    pub(super) is_assumed: bool,
}

/// This host, with a CPU for each VM.
pub(super) fn here(vms: u32) -> anyhow::Result<Vec<Node>> {
    let host = nix::unistd::gethostname()?;
    let host = host.to_string_lossy();
    let name = NodeName::new(host.split('.').next().unwrap_or_default())?;
    Ok(vec![node(name, vms, None)])
}

fn node(name: NodeName, cpus: u32, memory: Option<Mib>) -> Node {
    Node {
        name,
        cpus,
        memory: memory.unwrap_or(Mib(PER_CPU.0.saturating_mul(cpus.into()))),
        is_assumed: memory.is_none(),
    }
}

/// Reads `a:4,n[1-8]:16:64G`.
pub(super) fn parse(text: &str) -> Result<Vec<Node>, Usage> {
    let bad = |item: &str, why: &str| {
        Usage(format!(
            "--nodes: '{item}': {why}: write NODES:CPUS[:MEMORY], for example a:4 or n[1-8]:16:64G"
        ))
    };
    let mut nodes = Vec::new();
    for item in items(text) {
        let mut fields = item.split(':');
        let names = fields.next().unwrap_or_default();
        let names = hostlist::expand(names).map_err(|e| bad(item, &e.to_string()))?;
        let cpus = fields
            .next()
            .ok_or_else(|| bad(item, "the number of CPUs is missing"))?;
        let cpus = cpus.parse().ok().filter(|n| (1..=MAX_CPUS).contains(n));
        let cpus: u32 = cpus.ok_or_else(|| bad(item, "CPUs are a number from 1 on"))?;
        let memory = fields.next().map(str::parse).transpose();
        let memory: Option<Mib> =
            memory.map_err(|e: muster_types::ids::IdError| bad(item, &e.to_string()))?;
        if fields.next().is_some() {
            return Err(bad(item, "too many colons"));
        }
        for name in names {
            if nodes.iter().any(|n: &Node| n.name == name) {
                return Err(bad(item, &format!("node {name} is there twice")));
            }
            nodes.push(node(name, cpus, memory));
        }
    }
    Ok(nodes)
}

/// The items of a list whose brackets may hold commas.
fn items(text: &str) -> Vec<&str> {
    let (mut depth, mut from, mut all) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                all.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[from..]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_slurms_with_cpus() {
        let nodes = parse("a:4,n[1-2,4]:16:64G").unwrap();
        let told: Vec<_> = nodes
            .iter()
            .map(|n| format!("{} {} {} {}", n.name, n.cpus, n.memory, n.is_assumed))
            .collect();
        let n = |i| format!("n{i} 16 65536 MiB false");
        assert_eq!(told, ["a 4 4096 MiB true".to_owned(), n(1), n(2), n(4)]);
    }

    #[test]
    fn mistakes_say_what_to_write() {
        let say = |text: &str| parse(text).unwrap_err().to_string();
        let end = ": write NODES:CPUS[:MEMORY], for example a:4 or n[1-8]:16:64G";
        assert_eq!(
            say("a"),
            format!("--nodes: 'a': the number of CPUs is missing{end}")
        );
        assert_eq!(
            say("a:x"),
            format!("--nodes: 'a:x': CPUs are a number from 1 on{end}")
        );
        assert_eq!(
            say("a:1,a:2"),
            format!("--nodes: 'a:2': node a is there twice{end}")
        );
        assert!(say("a:0").contains("CPUs are a number"));
        assert!(say("a:1:4K").contains("'4K' is no amount of memory"));
        assert!(say("a:1:4G:2").contains("too many colons"));
        assert!(say("n[1-:4").starts_with("--nodes: 'n[1-:4': "));
        assert!(say("").starts_with("--nodes: '': "));
    }
}
