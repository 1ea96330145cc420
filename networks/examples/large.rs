//! The plan of one node of a large job: how long it takes, and what is in it. Build it with `--release`.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints what it measures"
)]

use std::time::{Duration, Instant};

use muster_networks::plan;
use muster_networks::step::Step;
use muster_types::network::Ethernet;

#[path = "../tests/support/mod.rs"]
mod support;

fn main() {
    let spec = Ethernet {
        dev_prefix: "nat".into(),
        ..Ethernet::default()
    };
    let net = support::network(1, 0, spec, &[4; 1024]);
    let facts = support::facts(1, 0, 0);
    let mut times: Vec<(Duration, Duration)> = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        let plan = plan(&net, 512, &facts).unwrap();
        let computed = start.elapsed();
        let text = plan.to_string();
        times.push((computed, start.elapsed() - computed));
        if times.len() == 1 {
            for step in &plan.steps {
                match step {
                    Step::Flows { flows, .. } => println!("flows: {}", flows.len()),
                    Step::Fdb { entries, .. } => println!("FDB entries: {}", entries.len()),
                    _ => {}
                }
            }
            println!("text: {} KiB", text.len() / 1024);
        }
    }
    times.sort_unstable();
    let (computed, _) = times[times.len() / 2];
    times.sort_unstable_by_key(|(_, printed)| *printed);
    let (_, printed) = times[times.len() / 2];
    println!("computed in {computed:?}, printed in {printed:?} (medians of 21)");
}
