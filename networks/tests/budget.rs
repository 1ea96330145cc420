//! The largest job that the design promises: 1024 nodes with 4 VMs each.

mod support;

use muster_networks::plan;
use muster_networks::step::Step;
use muster_types::network::Ethernet;

#[test]
fn a_node_of_1024_has_few_flows_and_entries() {
    let spec = Ethernet {
        dev_prefix: "nat".into(),
        mac_start_offset: 1,
        ..Ethernet::default()
    };
    let net = support::network(1, 0, spec, &[4; 1024]);
    for node in [0, 511, 1023] {
        let plan = plan(&net, node, &support::facts(1, 0, 0)).unwrap();
        let count = |of: fn(&Step) -> Option<usize>| plan.steps.iter().find_map(of).unwrap();
        let flows = count(|step| match step {
            Step::Flows { flows, .. } => Some(flows.len()),
            _ => None,
        });
        let entries = count(|step| match step {
            Step::Fdb { entries, .. } => Some(entries.len()),
            _ => None,
        });
        assert!(flows <= 5_500, "{flows} flows");
        assert!(entries <= 5_200, "{entries} FDB entries");
        assert_eq!(entries, 4 * 1023 + 1023);
        let forks = plan.undo().len() + plan.steps.len();
        assert!(forks < 40, "steps do not grow with the job: {forks}");
    }
}
