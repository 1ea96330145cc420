//! What is said where a network cannot be.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use muster_networks::{ClusterNetwork, HostPort, LocalFacts, addresses, plan};
use muster_types::ids::{NodeName, Rank};
use muster_types::network::{Bridged, Datapath, Ethernet, NetworkSpec, ReverseNat};
use support::{facts, network};

fn ethernet() -> Ethernet {
    Ethernet {
        dev_prefix: "nat".into(),
        ..Ethernet::default()
    }
}

/// The message for a network of six VMs on two nodes, with one thing changed.
fn of_network(change: impl FnOnce(&mut ClusterNetwork)) -> String {
    let mut net = network(7, 0, ethernet(), &[3, 3]);
    net.name = "nat".into();
    change(&mut net);
    addresses(&net).unwrap_err().to_string()
}

fn of_spec(change: impl FnOnce(&mut Ethernet)) -> String {
    let mut spec = ethernet();
    change(&mut spec);
    of_network(|net| net.spec = NetworkSpec::Ethernet(Box::new(spec)))
}

fn of_node(change: impl FnOnce(&mut Ethernet, &mut LocalFacts)) -> String {
    let (mut spec, mut facts) = (ethernet(), facts(7, 0, 0));
    change(&mut spec, &mut facts);
    let mut net = network(7, 0, spec, &[1, 1]);
    net.name = "nat".into();
    plan(&net, 1, &facts).unwrap_err().to_string()
}

#[test]
fn ranges_are_large_enough() {
    assert_eq!(
        of_spec(|s| s.int_network = "10.0.0.0/29".parse().unwrap()),
        "network 'nat': int-network 10.0.0.0/29 has addresses for 4 VMs, vm4 is number 5: widen int-network or ask for fewer VMs"
    );
    assert_eq!(
        of_spec(|s| s.ipv6_network = Some("fd00::/125".parse().unwrap())),
        "network 'nat': ipv6-network fd00::/125 has addresses for 4 VMs, vm4 is number 5: widen ipv6-network or ask for fewer VMs"
    );
    assert_eq!(
        of_spec(|s| s.ipv6_network = Some("fd00::/48".parse().unwrap())),
        "network 'nat': ipv6-network fd00::/48: the prefix has 48 bits, allowed are 64 to 126"
    );
    assert_eq!(
        of_spec(|s| s.mac_start_offset = 65_533),
        "network 'nat': mac-start-offset 65533 leaves MAC addresses for 3 VMs, vm3 is number 4: lower mac-start-offset"
    );
}

#[test]
fn names_are_names_and_each_is_one_vms() {
    assert_eq!(
        of_network(|net| {
            net.vms[1].aliases = vec!["www".into(), "Head".into()];
            net.vms[4].hostname = "head".into();
        }),
        "network 'nat': vm1 and vm4 are both named 'head': put %{vm_rank} into hostname or dns-aliases, or give their templates different ones"
    );
    // `vm<rank>` is always that VM's.
    assert_eq!(
        of_network(|net| net.vms[0].aliases = vec!["vm3".into()]),
        "network 'nat': vm0 and vm3 are both named 'vm3': put %{vm_rank} into hostname or dns-aliases, or give their templates different ones"
    );
    assert_eq!(
        of_network(|net| net.vms[2].aliases = vec!["a\nserver=6.6.6.6".into()]),
        "network 'nat': vm2: 'a\\nserver=6.6.6.6' is no host name: letters, digits and dashes, at most 63 between dots"
    );
    assert_eq!(
        of_spec(|s| s.domain_name = Some("a_b".into())),
        "network 'nat': domain-name: 'a_b' is no host name: letters, digits and dashes, at most 63 between dots"
    );
    assert_eq!(
        of_spec(|s| s.dns_search = vec!["ok".into(), "not ok".into()]),
        "network 'nat': dns-search: 'not ok' is no host name: letters, digits and dashes, at most 63 between dots"
    );
    assert_eq!(
        of_network(|net| net.node_domain = Some(String::new())),
        "network 'nat': node's domain: '' is no host name: letters, digits and dashes, at most 63 between dots"
    );
}

#[test]
fn devices_have_a_plain_prefix() {
    assert_eq!(
        of_spec(|s| s.dev_prefix = "9;reboot".into()),
        "network 'nat': dev-prefix '9;reboot': allowed are 1 to 8 of A-Z a-z 0-9 _ -, starting with a letter"
    );
    let bridged = Bridged {
        host_bridge: "br0".into(),
        tap_prefix: "far-too-long".into(),
        mtu: 1500,
        mac_prefix: ethernet().mac_prefix,
        vlans: Vec::new(),
    };
    assert_eq!(
        of_network(|net| net.spec = NetworkSpec::Bridged(bridged)),
        "network 'nat': tap-prefix 'far-too-long': allowed are 1 to 8 of A-Z a-z 0-9 _ -, starting with a letter"
    );
    assert_eq!(
        of_network(|net| net.index = 36),
        "network 'nat': it is number 37 of the job, allowed are 36"
    );
}

#[test]
fn tunnels_have_two_ends() {
    assert_eq!(
        of_network(|net| {
            net.nodes[1].tunnel_address = None;
            let mut spec = ethernet();
            spec.host_if_suffix = "-ib".into();
            net.spec = NetworkSpec::Ethernet(Box::new(spec));
        }),
        "network 'nat': node 'n1' has no tunnel address: 'n1-ib' (its name and host-if-suffix) must resolve to an IPv4 address of its own"
    );
    assert_eq!(
        of_network(|net| net.nodes[1].tunnel_address = net.nodes[0].tunnel_address),
        "network 'nat': nodes 'n0' and 'n1' have the same tunnel address 10.1.0.1: each needs its own"
    );
    assert_eq!(
        of_network(|net| net.vni = 4095),
        "network 'nat': VNI 4095, allowed are 4096 to 16777215"
    );
    assert_eq!(
        of_network(|net| net.nodes[1].mtu = 620),
        "network 'nat': guests would have an MTU of 570 (mtu 1500, 620 on node 'n1', less 50 for the tunnel), allowed is 576 or more"
    );
    let ipv6 = |s: &mut Ethernet| {
        s.ipv6_network = Some("fd00::/64".parse().unwrap());
        s.mtu = 1300;
    };
    assert_eq!(
        of_spec(ipv6),
        "network 'nat': guests would have an MTU of 1250 (mtu 1300, 1500 on node 'n0', less 50 for the tunnel), allowed is 1280 or more"
    );
}

#[test]
fn one_node_needs_no_tunnel() {
    let mut net = network(7, 0, ethernet(), &[0, 2]);
    net.nodes[1].tunnel_address = None;
    net.nodes[0].name = NodeName::new("other").unwrap();
    let plan = plan(&net, 1, &facts(7, 0, 0)).unwrap();
    assert!(!plan.to_string().contains("vxlan"));
}

#[test]
fn servers_are_reached_over_ipv4() {
    assert_eq!(
        of_spec(|s| s.dns_server = Some("fd00::1".parse().unwrap())),
        "network 'nat': dns-server fd00::1: allowed is an IPv4 address other than 127.0.0.0/8"
    );
    assert_eq!(
        of_spec(|s| s.ntp_server = Some("127.0.0.1".parse().unwrap())),
        "network 'nat': ntp-server 127.0.0.1: allowed is an IPv4 address other than 127.0.0.0/8"
    );
}

#[test]
fn the_shape_is_right() {
    assert_eq!(
        of_network(|net| net.vms[5].node = 2),
        "network 'nat': vm5 is on node 2, the job has 2, counted from 0"
    );
    assert_eq!(
        of_network(|net| net.vms[3].number = 2),
        "network 'nat': vm3 has number 2, by its rank it is number 3 (from 0)"
    );
    assert_eq!(
        of_network(|net| net.vms[3].rank = Rank(2)),
        "network 'nat': vm2 comes after vm2: each VM is on it once, in rank order"
    );
    let net = network(7, 0, ethernet(), &[1]);
    assert_eq!(
        plan(&net, 1, &facts(7, 0, 0)).unwrap_err().to_string(),
        "network 'net0': there is no node 1, the job has 1, counted from 0"
    );
}

#[test]
fn the_node_has_what_the_plan_needs() {
    assert_eq!(
        of_node(|spec, facts| {
            spec.datapath = Datapath::System;
            facts.kernel_datapath = false;
        }),
        "network 'nat': datapath is 'system', but node 'n1' has no kernel module 'openvswitch': load it there, or set datapath to auto or netdev"
    );
    assert_eq!(
        of_node(|spec, facts| {
            spec.ext_network = "10.201.0.0/30".parse().unwrap();
            facts.slot = 2;
        }),
        "network 'nat': ext-network 10.201.0.0/30 has room for 2 networks of a node, this is number 3 on node 'n1': widen ext-network"
    );
    let rule = ReverseNat {
        vm_port: 22,
        min_host_port: 60_222,
        max_host_port: 60_322,
    };
    let no_port = "network 'nat': vm1: no port of node 'n1' for its port 22, allowed are 60222 to 60322, each once";
    assert_eq!(of_node(|spec, _| spec.reverse_nat = vec![rule]), no_port);
    for host_port in [60_221, 60_323] {
        let text = of_node(|spec, facts| {
            spec.reverse_nat = vec![rule];
            facts.host_ports.push(HostPort {
                rank: Rank(1),
                vm_port: 22,
                host_port,
            });
        });
        assert_eq!(text, no_port);
    }
    assert_eq!(
        of_node(|_, facts| facts.directory = "/run/a b".into()),
        "network 'nat': directory '/run/a b': allowed is an absolute path of A-Z a-z 0-9 / . _ -"
    );
}
