use std::net::Ipv4Addr;

use muster_types::network::{
    Bridged, Ethernet, GenericPci, HostIb, Infiniband, ReverseNat, Vlan, VlanType,
};
use proptest::prelude::*;

use super::*;
use crate::source::Tree;

fn source(text: &str) -> Source {
    Source {
        path: "networks.yaml".into(),
        text: text.into(),
        tree: Tree::System,
    }
}

fn parsed(text: &str) -> Result<Networks, String> {
    Networks::parse(&[source(text)]).map_err(|e| e.to_string())
}

/// Each key of each table is read by the parser of its type, and no other key is.
#[test]
fn tables_and_parsers_agree() {
    for (kind, words) in TYPES {
        for word in *words {
            for key in kind.keys() {
                let text = format!(
                    "net:\n  type: {word}\n  settings:\n    {}: {{a: {{}}}}\n",
                    key.name
                );
                let told = parsed(&text).unwrap_err();
                let path = format!(
                    "networks.yaml:4:{}: net.settings.{}",
                    key.name.len() + 7,
                    key.name
                );
                assert!(
                    told.contains(&path)
                        || told.contains(&format!("net.settings.{}.a: ", key.name)),
                    "{word} {}: {told}",
                    key.name
                );
                let unknown = format!("net.settings.{}: unknown key", key.name);
                assert!(!told.contains(&unknown), "{word} {}: {told}", key.name);
            }
        }
    }
}

#[test]
fn the_schema_has_all_types() {
    let schema = FILE.schema().to_string();
    for (kind, words) in TYPES {
        for word in words
            .iter()
            .copied()
            .chain(kind.keys().iter().map(|k| k.name))
        {
            assert!(schema.contains(&format!("\"{word}\"")), "{word}");
        }
    }
}

#[test]
fn room_is_what_addresses_allow() {
    let room_of = |settings: &str| {
        let text = format!("net: {{type: ethernet, settings: {{dev-prefix: net, {settings}}}}}\n");
        room(&parsed(&text).unwrap().get("net").unwrap().spec)
    };
    assert_eq!(room_of(""), 65_532);
    assert_eq!(room_of("int-network: 10.0.0.0/29"), 4);
    assert_eq!(room_of("int-network: 10.0.0.0/8"), 65_536);
    assert_eq!(room_of("mac-start-offset: 65535"), 1);
    assert_eq!(room_of("network-layer: L2"), 65_536);
    let hostib = NetworkSpec::Hostib(HostIb {
        host_device: "x".into(),
    });
    assert_eq!(room(&hostib), u64::MAX);
}

#[test]
fn a_network_is_shown_with_its_defaults() {
    let text = "nat:\n  type: eth\n  settings:\n    dev-prefix: nat\n    dns-search: a.example, b\n    reverse-nat: {vm-port: 22, min-host-port: 60222, max-host-port: 60322}\n";
    let networks = parsed(text).unwrap();
    let shown = "nat:
  type: ethernet
  settings:
    dev-prefix: nat
    network-layer: L3
    mtu: 1500
    mac-prefix: \"52:54:00\"
    mac-start-offset: 0
    host-if-suffix: \"\"
    datapath: auto
    port-security: true
    tunnel-port: 4789
    int-network: \"10.200.0.0/16\"
    ext-network: \"10.201.0.0/16\"
    # ipv6-network: none
    # domain-name: muster. and the node's domain
    dns-search:
      - a.example
      - b
    # dns-server: the node's own
    # ntp-server: none
    allow-outbound: all
    # reach: none
    reverse-nat:
      - vm-port: 22
        min-host-port: 60222
        max-host-port: 60322
    manage-ip-forward: true
";
    assert_eq!(to_yaml(networks.get("nat").unwrap()), shown);
}

fn word() -> impl Strategy<Value = String> {
    "[A-Za-z][A-Za-z0-9_-]{0,7}"
}

fn device() -> impl Strategy<Value = String> {
    "[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"
}

fn mac_prefix() -> impl Strategy<Value = muster_types::mac::MacPrefix> {
    any::<[u8; 4]>().prop_map(|[a, b, c, d]| {
        let text = format!("{:02x}:{b:02x}:{c:02x}:{d:02x}", a & 0xfe);
        text.parse().unwrap()
    })
}

prop_compose! {
    fn ethernet()(
        dev_prefix in word(),
        l2 in any::<bool>(),
        mtu in 1330..u16::MAX,
        mac_prefix in mac_prefix(),
        mac_start_offset in 0..65_536_u32,
        host_if_suffix in "(-[a-z0-9]{1,5})?",
        third in 0..255_u8,
        length in 8..30_u8,
        flags in any::<[bool; 3]>(),
        names in proptest::collection::vec("[a-z0-9_]{1,6}(\\.[a-z0-9]{1,4})?", 0..4),
        server in proptest::option::of(any::<u32>()),
        ports in proptest::collection::vec(any::<u16>(), 0..4),
        ipv6 in any::<bool>(),
    ) -> Ethernet {
        let l2_spec = Ethernet {
            dev_prefix,
            network_layer: Layer::L2,
            mtu,
            mac_prefix,
            mac_start_offset,
            host_if_suffix,
            port_security: flags[0],
            ..Ethernet::default()
        };
        if l2 {
            return l2_spec;
        }
        let rules = ports.iter().enumerate().map(|(i, port)| {
            let first = 2000 + u16::try_from(i).unwrap() * 100;
            ReverseNat {
                vm_port: (*port).max(1),
                min_host_port: first,
                max_host_port: first + 99,
            }
        });
        Ethernet {
            network_layer: Layer::L3,
            int_network: muster_types::subnet::Subnet::new(Ipv4Addr::new(10, 7, third, 0), length),
            ext_network: "172.16.0.0/16".parse().unwrap(),
            domain_name: names.first().cloned(),
            dns_search: names,
            dns_server: server.map(|n| Ipv4Addr::from(n).into()),
            allow_outbound: flags[1],
            manage_ip_forward: flags[2],
            reach: server.iter().map(|n| muster_types::subnet::Subnet::new((*n).into(), length)).collect(),
            reverse_nat: rules.collect(),
            ipv6_network: ipv6.then(|| "fd00:7::/64".parse().unwrap()),
            ..l2_spec
        }
    }
}

fn spec() -> impl Strategy<Value = NetworkSpec> {
    let bridged = (
        device(),
        word(),
        mac_prefix(),
        proptest::collection::btree_set(1..4095_u16, 0..3),
    );
    let bridged = bridged.prop_map(|(host_bridge, tap_prefix, mac_prefix, vids)| {
        let vlan = |vid| Vlan {
            vid,
            kind: VlanType::Tagged,
        };
        NetworkSpec::Bridged(Bridged {
            host_bridge,
            tap_prefix,
            mtu: 9000,
            mac_prefix,
            vlans: vids.into_iter().map(vlan).collect(),
        })
    });
    let ib = (
        device(),
        1..0x4000_u16,
        0x4000..0x7fff_u16,
        proptest::option::of("[a-z0-9:@]{1,9}"),
    );
    let ib = ib.prop_map(|(host_device, min_pkey, max_pkey, license)| {
        NetworkSpec::Infiniband(Infiniband {
            opensm_daemon: host_device.clone(),
            host_device,
            min_pkey,
            max_pkey,
            opensm_partition_cfg: "/etc/opensm/partitions.conf".into(),
            opensm_partition_tpl: "/etc/open sm/#x: y".into(),
            license,
        })
    });
    let pci = proptest::collection::btree_set((any::<u16>(), any::<u8>(), 0..32_u8, 0..8_u8), 1..4);
    let pci = (pci, device()).prop_map(|(addresses, host_driver)| {
        let address = |(d, b, s, f)| format!("{d:04x}:{b:02x}:{s:02x}.{f}");
        NetworkSpec::Genericpci(GenericPci {
            host_device_addrs: addresses.into_iter().map(address).collect(),
            host_driver,
        })
    });
    let hostib = device().prop_map(|host_device| NetworkSpec::Hostib(HostIb { host_device }));
    let ethernet = ethernet().prop_map(|net| NetworkSpec::Ethernet(Box::new(net)));
    prop_oneof![4 => ethernet, 1 => bridged, 1 => ib, 1 => pci, 1 => hostib]
}

proptest! {
    #[test]
    fn what_is_shown_is_read(name in "(y|no|[A-Za-z][A-Za-z0-9_-]{0,63})", spec in spec()) {
        let network = Network {
            name: name.clone(),
            spec,
            defined_at: "networks.yaml:1".into(),
        };
        let text = to_yaml(&network);
        let networks = parsed(&text);
        prop_assert!(networks.is_ok(), "{text}\n{networks:?}");
        let networks = networks.unwrap();
        prop_assert_eq!(networks.get(&name), Some(&network), "{}", text);
        prop_assert!(networks.warnings().iter().all(|w| w.message.contains("private")));
    }

    #[test]
    fn random_text_does_not_panic(text in "[ -~\n]{0,200}") {
        drop(parsed(&text));
    }

    #[test]
    fn random_settings_do_not_panic(
        kind in "(ethernet|bridged|infiniband|hostib|genericpci|nat|pv)",
        keys in proptest::collection::vec(("[a-z-]{1,12}", "[ -~]{0,20}"), 0..6),
        pick in any::<prop::sample::Index>(),
    ) {
        let all: Vec<_> = TYPES.iter().flat_map(|(k, _)| k.keys()).collect();
        let mut text = format!("net:\n  type: {kind}\n  settings:\n    dev-prefix: n\n    {}: 7\n", all[pick.index(all.len())].name);
        for (key, value) in keys {
            text.push_str(&format!("    {key}: {value}\n"));
        }
        drop(parsed(&text));
    }
}
