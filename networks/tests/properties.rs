//! What holds for every plan.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

#[path = "support/packets.rs"]
mod packets;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use muster_networks::flow::{Field, Flow, Port};
use muster_networks::step::{PortKind, Step, Undo};
use muster_networks::{
    ClusterNetwork, GATEWAY, HostPort, NodePlan, TUNNEL, VmAddress, addresses, names, plan,
    wanted_ports,
};
use muster_types::ids::{JobId, Rank};
use muster_types::mac::Mac;
use muster_types::network::{Ethernet, Layer, NetworkSpec, ReverseNat};
use packets::{BROADCAST, Outcome, Packet, Payload, carry};
use proptest::prelude::*;
use support::{facts, network};

fn ethernet() -> Ethernet {
    Ethernet {
        dev_prefix: "nat".into(),
        ..Ethernet::default()
    }
}

prop_compose! {
    /// A network with settings of all kinds, on one to four nodes.
    fn specs()(
        l2 in any::<bool>(),
        port_security in any::<bool>(),
        ipv6 in any::<bool>(),
        allow_outbound in any::<bool>(),
        offset in 0_u32..300,
        reach in any::<bool>(),
        rules in 0_u16..3,
    ) -> Ethernet {
        Ethernet {
            network_layer: if l2 { Layer::L2 } else { Layer::L3 },
            port_security,
            ipv6_network: ipv6.then(|| "fd00::/64".parse().unwrap()),
            allow_outbound,
            mac_start_offset: offset,
            reach: reach.then(|| "10.0.0.0/8".parse().unwrap()).into_iter().collect(),
            reverse_nat: (0..rules).map(|i| ReverseNat {
                vm_port: 22 + i,
                min_host_port: 60_000 + 1_000 * i,
                max_host_port: 60_999 + 1_000 * i,
            }).collect(),
            ..ethernet()
        }
    }
}

fn counts() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(0_u32..6, 1..5).prop_filter("a VM", |v| v.iter().sum::<u32>() > 0)
}

/// The plan of a node whose ports begin at `first_port` of each rule.
fn planned(net: &ClusterNetwork, node: usize, slot: u32, first_port: u16) -> NodePlan {
    let mut facts = facts(net.key.job.0, net.index, slot);
    let mut next: BTreeMap<u16, u16> = BTreeMap::new();
    for wanted in wanted_ports(net, node) {
        let port = next.entry(wanted.min).or_insert(wanted.min + first_port);
        facts.host_ports.push(HostPort {
            rank: wanted.rank,
            vm_port: wanted.vm_port,
            host_port: *port,
        });
        *port += 1;
    }
    plan(net, node, &facts).unwrap()
}

fn flows(plan: &NodePlan) -> &[Flow] {
    let flows = plan.steps.iter().find_map(|step| match step {
        Step::Flows { flows, .. } => Some(flows.as_slice()),
        _ => None,
    });
    flows.unwrap_or_default()
}

/// The ports of the node's VMs.
fn vm_ports(plan: &NodePlan) -> BTreeMap<Rank, Port> {
    let bridge = plan.steps.iter().find_map(|step| match step {
        Step::Bridge(bridge) => Some(bridge),
        _ => None,
    });
    let ports = bridge.iter().flat_map(|bridge| &bridge.ports);
    ports
        .filter_map(|port| match port.kind {
            PortKind::Vm(rank) => Some((rank, port.number)),
            _ => None,
        })
        .collect()
}

fn is_ip(vm: &VmAddress, ip: Ipv4Addr) -> bool {
    vm.ip.as_ref().is_some_and(|own| own.v4 == ip)
}

fn address(vm: &VmAddress) -> Ipv4Addr {
    vm.ip.as_ref().map_or(Ipv4Addr::new(1, 2, 3, 4), |ip| ip.v4)
}

fn data(port: Port, from: &VmAddress, to: Mac) -> Packet {
    Packet {
        port,
        from: from.mac,
        to,
        payload: Payload::Udp(address(from), 1000, 2000),
    }
}

proptest! {
    #[test]
    fn undoing_goes_backwards_and_leaves_nothing_out(spec in specs(), vms in counts()) {
        let net = network(7, 0, spec, &vms);
        for (node, count) in vms.iter().enumerate() {
            let plan = planned(&net, node, 0, 0);
            prop_assert_eq!(plan.steps.is_empty(), *count == 0);
            let doing: Vec<Undo> = plan.steps.iter().filter_map(Step::undo).collect();
            let mut undoing = plan.undo();
            undoing.reverse();
            prop_assert_eq!(&undoing, &doing);
            let texts: BTreeSet<String> = doing.iter().map(ToString::to_string).collect();
            prop_assert_eq!(texts.len(), doing.len(), "one undo each");
            // What has no undo of its own is inside something made before it that has one.
            for (i, step) in plan.steps.iter().enumerate() {
                if step.undo().is_none() {
                    let within = step.within().unwrap();
                    let made = plan.steps[..i].iter().filter_map(Step::undo).any(|undo| match undo {
                        Undo::Netns(name) | Undo::Device(name) | Undo::Bridge(name) | Undo::Directory(name) => name == within,
                        _ => false,
                    });
                    prop_assert!(made, "{step}");
                }
            }
        }
    }

    #[test]
    fn two_networks_share_no_name(
        a in specs(), b in specs(), vms in counts(), job in 1_u32..1000, other in 0_u32..3, index in 0_u8..2,
    ) {
        prop_assume!(other != 0 || index != 0);
        let first = planned(&network(job, 0, a, &vms), 0, 0, 0);
        let second = planned(&network(job + other, index, b, &vms), 0, 1, 100);
        let shared: Vec<_> = owned(&first).intersection(&owned(&second)).cloned().collect();
        prop_assert!(shared.is_empty(), "{shared:?}");
    }

    #[test]
    fn each_vm_has_one_set_against_spoofing(spec in specs(), vms in counts()) {
        let secure = spec.port_security;
        let net = network(7, 0, spec, &vms);
        let all = addresses(&net).unwrap();
        let plan = planned(&net, 0, 0, 0);
        let flows = flows(&plan);
        let mut sets = BTreeSet::new();
        for (rank, port) in vm_ports(&plan) {
            let vm = all.iter().find(|vm| vm.rank == rank).unwrap();
            let own: Vec<&Flow> = flows.iter().filter(|f| f.table == 0 && f.fields.contains(&Field::InPort(port))).collect();
            // The same for each VM but for its port and addresses.
            let shape: Vec<_> = own.iter().map(|f| (f.priority, f.fields.iter().map(std::mem::discriminant).map(|d| format!("{d:?}")).collect::<Vec<_>>())).collect();
            sets.insert(shape);
            for flow in own {
                for field in &flow.fields {
                    match field {
                        Field::Source(block) => prop_assert_eq!((block.base, block.free_bits), (vm.mac, 0)),
                        Field::ArpSender(mac) => prop_assert_eq!(*mac, vm.mac),
                        Field::ArpSenderIp(ip) | Field::IpSource(ip) => prop_assert!(ip.is_unspecified() || is_ip(vm, *ip)),
                        _ => {}
                    }
                }
                let bound = flow.fields.iter().any(|f| matches!(f, Field::Source(_)));
                prop_assert_eq!(bound, secure);
            }
        }
        prop_assert!(sets.len() <= 1);
    }

    #[test]
    fn a_vm_sends_as_itself_only(spec in specs(), vms in counts(), foreign in 0_u32..400) {
        let secure = spec.port_security;
        let l3 = spec.network_layer == Layer::L3;
        let net = network(7, 0, spec, &vms);
        let all = addresses(&net).unwrap();
        let plan = planned(&net, 0, 0, 0);
        let flows = flows(&plan);
        let NetworkSpec::Ethernet(spec) = &net.spec else { unreachable!() };
        let foreign = spec.mac_prefix.address(0, foreign, 0).unwrap();
        for (rank, port) in vm_ports(&plan) {
            let vm = all.iter().find(|vm| vm.rank == rank).unwrap();
            for to in &all {
                let send = |packet: Packet| carry(flows, &packet);
                let honest = data(port, vm, to.mac);
                let own = if to.node == 0 { vm_ports(&plan)[&to.rank] } else { TUNNEL };
                let expected: Vec<Port> = [own].into_iter().filter(|p| *p != port).collect();
                prop_assert_eq!(send(honest).ports, expected.clone());
                if foreign != vm.mac {
                    let sent = send(Packet { from: foreign, ..honest }).ports;
                    prop_assert_eq!(sent, if secure { Vec::new() } else { expected.clone() });
                }
                let wrong_ip = Payload::Udp(Ipv4Addr::new(10, 200, 99, 99), 1000, 2000);
                let sent = send(Packet { payload: wrong_ip, ..honest }).ports;
                prop_assert_eq!(sent, if secure && l3 { Vec::new() } else { expected });
                if l3 && secure {
                    let lie = Payload::Arp(false, vm.mac, Ipv4Addr::new(10, 200, 255, 254), address(to));
                    prop_assert_eq!(send(Packet { payload: lie, ..honest }), Outcome::default());
                }
            }
        }
    }

    #[test]
    fn the_tunnel_brings_packets_of_remote_vms_only(spec in specs(), vms in counts()) {
        let spec = Ethernet { port_security: true, ..spec };
        let (prefix, offset) = (spec.mac_prefix, spec.mac_start_offset);
        let net = network(7, 0, spec, &vms);
        let all = addresses(&net).unwrap();
        for (node, count) in vms.iter().enumerate().filter(|(_, count)| **count > 0) {
            let plan = planned(&net, node, 0, 0);
            let ports = vm_ports(&plan);
            prop_assert_eq!(ports.len(), usize::try_from(*count).unwrap());
            let target = all.iter().find(|vm| vm.node == node).unwrap();
            let gateway = prefix.address(0xff, 0xffff, 0).unwrap();
            let near = (0..offset + 40).map(|n| prefix.address(0, n, 0).unwrap());
            for mac in near.chain([gateway, BROADCAST]) {
                let packet = Packet {
                    port: TUNNEL,
                    from: mac,
                    to: target.mac,
                    payload: Payload::Other,
                };
                let remote = all.iter().any(|vm| vm.mac == mac && vm.node != node);
                let expected = if remote { vec![ports[&target.rank]] } else { Vec::new() };
                prop_assert_eq!(carry(flows(&plan), &packet).ports, expected);
                // What comes from another node never goes on to a third, nor to the gateway.
                let broadcast = carry(flows(&plan), &Packet { to: BROADCAST, ..packet }).ports;
                let everybody: Vec<Port> = ports.values().copied().filter(|_| remote).collect();
                prop_assert_eq!(broadcast, everybody);
                let routed = carry(flows(&plan), &Packet { to: gateway, ..packet }).ports;
                prop_assert_eq!(routed, Vec::<Port>::new());
            }
        }
    }

    #[test]
    fn arp_is_answered_here_and_dhcp_stays(spec in specs(), vms in counts()) {
        let spec = Ethernet { network_layer: Layer::L3, ..spec };
        let secure = spec.port_security;
        let net = network(7, 0, spec, &vms);
        let all = addresses(&net).unwrap();
        let plan = planned(&net, 0, 0, 0);
        let flows = flows(&plan);
        let remote = all.iter().any(|vm| vm.node != 0);
        for (rank, port) in vm_ports(&plan) {
            let vm = all.iter().find(|vm| vm.rank == rank).unwrap();
            let ask = |target| Packet {
                port,
                from: vm.mac,
                to: BROADCAST,
                payload: Payload::Arp(true, vm.mac, address(vm), target),
            };
            for other in &all {
                let answer = (other.rank != rank).then_some(other.mac);
                prop_assert_eq!(carry(flows, &ask(address(other))), Outcome { ports: Vec::new(), answer });
            }
            let ip = vm.ip.as_ref().unwrap();
            for shared in [ip.gateway, ip.service] {
                let outcome = carry(flows, &ask(shared));
                prop_assert!(outcome.ports.is_empty());
                prop_assert_eq!(outcome.answer.map(|mac| mac.to_string()), Some("52:54:00:ff:ff:ff".to_owned()));
            }
            let unknown = carry(flows, &ask(Ipv4Addr::new(10, 200, 99, 99)));
            prop_assert_eq!(unknown.answer, None);
            prop_assert!(!secure || unknown.ports.is_empty());
            let dhcp = |source, from, to| carry(flows, &Packet {
                port,
                from: vm.mac,
                to: BROADCAST,
                payload: Payload::Udp(source, from, to),
            }).ports;
            prop_assert_eq!(dhcp(Ipv4Addr::UNSPECIFIED, 68, 67), vec![GATEWAY]);
            prop_assert_eq!(dhcp(address(vm), 68, 67), vec![GATEWAY]);
            prop_assert_eq!(dhcp(address(vm), 67, 68), Vec::<Port>::new());
            let mut everybody: Vec<Port> = vm_ports(&plan).into_values().filter(|p| *p != port).collect();
            if remote {
                everybody.insert(0, TUNNEL);
            }
            let NetworkSpec::Ethernet(spec) = &net.spec else { unreachable!() };
            if spec.ipv6_network.is_some() {
                everybody.push(GATEWAY);
                everybody.sort_unstable();
            }
            prop_assert_eq!(dhcp(address(vm), 1000, 2000), everybody);
        }
    }
}

/// All names on the host that are a plan's own.
fn owned(plan: &NodePlan) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for step in &plan.steps {
        match step {
            Step::HostRules(rules) => all.extend(rules.owned()),
            Step::Bridge(bridge) => {
                all.insert(bridge.name.clone());
                all.extend(bridge.ports.iter().map(|port| port.device.clone()));
            }
            _ => {}
        }
        match step.undo() {
            Some(Undo::Netns(n) | Undo::Device(n) | Undo::Directory(n) | Undo::Dnsmasq(n)) => {
                all.insert(n);
            }
            Some(
                Undo::Bridge(_)
                | Undo::HostRules(_)
                | Undo::Port { .. }
                | Undo::HostTable
                | Undo::IpForward,
            )
            | None => {}
        }
    }
    all
}

#[test]
fn devices_tell_their_job() {
    let plan = planned(&network(1234, 3, ethernet(), &[2, 1]), 0, 0, 0);
    let devices: Vec<_> = owned(&plan)
        .into_iter()
        .filter_map(|name| names::owner(&name))
        .collect();
    assert_eq!(
        devices.len(),
        6,
        "bridge, tunnel, gateway, uplink, two taps"
    );
    assert!(
        devices
            .iter()
            .all(|(job, index, _)| (*job, *index) == (JobId(1234), 3))
    );
}
