//! Networks in, plans out: a directory of `testdata` for each case, with what each node does and how it
//! is undone. `UPDATE=1` rewrites what is expected.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test reads its data and may fail"
)]

mod support;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use muster_networks::addresses;
use support::Case;

/// File name to text of all that comes of a case.
fn outcome(case: &Case) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut table = String::new();
    for net in &case.networks {
        writeln!(table, "{}:", net.name).unwrap();
        for vm in addresses(net).unwrap() {
            let names = vm.names.join(" ");
            write!(
                table,
                "  {} nic{} {} mtu {}",
                vm.rank, vm.nic, vm.mac, vm.mtu
            )
            .unwrap();
            if let Some(ip) = &vm.ip {
                write!(table, " {}/{}", ip.v4, ip.prefix_length).unwrap();
                if let Some((v6, length)) = ip.v6 {
                    write!(table, " {v6}/{length}").unwrap();
                }
                write!(
                    table,
                    " via {} dns {} search {}",
                    ip.gateway,
                    ip.service,
                    ip.search.join(",")
                )
                .unwrap();
            }
            writeln!(table, " names {names}").unwrap();
        }
    }
    files.insert("addresses".to_owned(), table);
    let nodes = &case.networks[0].nodes;
    for (node, facts) in nodes.iter().enumerate() {
        let plans = case.plans(node);
        let text: String = plans.iter().map(ToString::to_string).collect();
        files.insert(format!("plan.{}", facts.name), text);
        let undo: String = plans
            .iter()
            .rev()
            .flat_map(|plan| plan.undo())
            .map(|undo| format!("{undo}\n"))
            .collect();
        files.insert(format!("undo.{}", facts.name), undo);
    }
    files
}

#[test]
fn cases() {
    let update = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    let cases = support::cases();
    assert!(cases.len() >= 15, "only {} cases", cases.len());
    for (path, case) in &cases {
        let outcome = outcome(case);
        let expected = expected(path);
        if update {
            for old in expected.keys().filter(|name| !outcome.contains_key(*name)) {
                std::fs::remove_file(path.join(old)).unwrap();
            }
            for (name, text) in &outcome {
                std::fs::write(path.join(name), text).unwrap();
            }
            continue;
        }
        let names: std::collections::BTreeSet<_> = expected.keys().chain(outcome.keys()).collect();
        for name in names {
            if expected.get(name) != outcome.get(name) {
                let now = outcome.get(name).map_or("no file", String::as_str);
                wrong.push(format!("{}/{name}:\n{now}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "UPDATE=1 rewrites:\n{}", wrong.join("\n"));
}

fn expected(case: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(case).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name != "input.json" {
            files.insert(name, std::fs::read_to_string(&path).unwrap());
        }
    }
    files
}
