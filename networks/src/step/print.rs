//! Steps and their undoing as what an admin would type.

use std::fmt;

use muster_types::ids::JobKey;
use muster_types::network::{Vlan, VlanType};

use super::{Bridge, BridgePort, FdbEntry, INNER_UPLINK, PortKind, Step, Tap, Undo, Vxlan};
use crate::cluster::BridgeKind;
use crate::firewall::host;

/// A command that reads lines.
fn fed(f: &mut fmt::Formatter<'_>, command: &str, lines: &str) -> fmt::Result {
    write!(f, "{command} <<'EOF'\n{lines}EOF")
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostTable(ports) => fed(f, "nft -f -", &host::base(ports)),
            Self::IpForward => f.write_str("sysctl -w net.ipv4.ip_forward=1"),
            Self::HostRules(rules) => fed(f, "nft -f -", &rules.add()),
            Self::Netns(name) => write!(f, "ip netns add {name}\nip -n {name} link set lo up"),
            Self::NetnsRules { netns, rules } => {
                fed(f, &format!("ip netns exec {netns} nft -f -"), rules)
            }
            Self::Vxlan(link) => link.fmt(f),
            Self::Fdb { device, entries } => {
                writeln!(f, "bridge -batch - <<'EOF'")?;
                for FdbEntry { mac, remote } in entries {
                    writeln!(f, "fdb append {mac} dev {device} dst {remote}")?;
                }
                f.write_str("EOF")
            }
            Self::Tap(tap) => tap.fmt(f),
            Self::Bridge(bridge) => bridge.fmt(f),
            Self::Flows { bridge, flows } => {
                writeln!(f, "ovs-ofctl --bundle add-flows {bridge} - <<'EOF'")?;
                for flow in flows {
                    writeln!(f, "{flow}")?;
                }
                f.write_str("EOF")
            }
            Self::Gateway {
                device,
                netns,
                addresses,
                mtu,
            } => {
                writeln!(f, "ip link set {device} netns {netns}")?;
                for (address, length) in addresses {
                    let nodad = if address.is_ipv6() { " nodad" } else { "" };
                    writeln!(
                        f,
                        "ip -n {netns} addr add {address}/{length} dev {device}{nodad}"
                    )?;
                }
                write!(f, "ip -n {netns} link set {device} mtu {mtu} up")
            }
            Self::Uplink {
                device,
                netns,
                host,
                inner,
                mtu,
            } => write!(
                f,
                "ip link add {device} mtu {mtu} type veth peer name {INNER_UPLINK} mtu {mtu} netns {netns}\n\
                 ip addr add {host}/31 dev {device}\n\
                 ip link set {device} addrgenmode none up\n\
                 ip -n {netns} addr add {inner}/31 dev {INNER_UPLINK}\n\
                 ip -n {netns} link set {INNER_UPLINK} addrgenmode none up\n\
                 ip -n {netns} route add default via {host}\n\
                 ip netns exec {netns} sysctl -w net.ipv4.ip_forward=1"
            ),
            Self::Directory(path) => write!(f, "mkdir -p -m 0755 {path}"),
            Self::File {
                directory,
                name,
                text,
            } => fed(f, &format!("cat > {directory}/{name}"), text),
            Self::Dnsmasq { netns, config, .. } => {
                write!(f, "ip netns exec {netns} dnsmasq --conf-file={config}")
            }
            Self::Attach {
                bridge,
                kind: BridgeKind::Linux,
                device,
                vlans,
            } => attach_linux(f, bridge, device, vlans),
            Self::Attach {
                bridge,
                kind: BridgeKind::OpenVswitch,
                device,
                vlans,
            } => attach_ovs(f, bridge, device, vlans),
        }
    }
}

impl fmt::Display for Vxlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            vni,
            local,
            port,
            mtu,
        } = self;
        write!(
            f,
            "ip link add {device} type vxlan id {vni} local {local} dstport {port} nolearning\n\
             ip link set {device} mtu {mtu} addrgenmode none up"
        )
    }
}

impl fmt::Display for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            device,
            uid,
            queues,
            mtu,
            ..
        } = self;
        let multi = if *queues > 1 { " multi_queue" } else { "" };
        write!(
            f,
            "ip tuntap add dev {device} mode tap user {uid} vnet_hdr{multi}\n\
             ip link set {device} mtu {mtu} addrgenmode none up"
        )
    }
}

impl fmt::Display for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobKey { job, restart } = self.key;
        let ids = format!(
            r#"'external_ids:"muster:job"={job}' 'external_ids:"muster:restart"={restart}'"#
        );
        let name = &self.name;
        let datapath = if self.kernel_datapath {
            "system"
        } else {
            "netdev"
        };
        write!(
            f,
            "ovs-vsctl --may-exist add-br {name} \\\n  -- set bridge {name} datapath_type={datapath} fail_mode=secure {ids}"
        )?;
        for port in &self.ports {
            let BridgePort { device, number, .. } = port;
            let (more, rank) = match port.kind {
                PortKind::Tunnel => (String::new(), String::new()),
                PortKind::Vm(rank) => (
                    String::new(),
                    format!(r#" 'external_ids:"muster:rank"={}'"#, rank.0),
                ),
                PortKind::Internal(mac) => {
                    (format!(r#" type=internal 'mac="{mac}"'"#), String::new())
                }
            };
            write!(
                f,
                " \\\n  -- --may-exist add-port {name} {device} -- set port {device} {ids}{rank} \
                 -- set interface {device} ofport_request={number}{more} {ids}{rank}"
            )?;
        }
        Ok(())
    }
}

/// VLANs of a port of Linux's bridge (bridge(8)): the bridge's own default goes.
fn attach_linux(
    f: &mut fmt::Formatter<'_>,
    bridge: &str,
    device: &str,
    vlans: &[Vlan],
) -> fmt::Result {
    write!(f, "ip link set {device} master {bridge}")?;
    if !vlans.is_empty() {
        write!(f, "\nbridge vlan del dev {device} vid 1")?;
    }
    for Vlan { vid, kind } in vlans {
        let how = match kind {
            VlanType::Native | VlanType::Untagged => " pvid untagged",
            VlanType::Tagged => "",
        };
        write!(f, "\nbridge vlan add dev {device} vid {vid}{how}")?;
    }
    Ok(())
}

/// VLANs of a port of Open vSwitch (ovs-vswitchd.conf.db(5), `vlan_mode`).
fn attach_ovs(
    f: &mut fmt::Formatter<'_>,
    bridge: &str,
    device: &str,
    vlans: &[Vlan],
) -> fmt::Result {
    write!(f, "ovs-vsctl --may-exist add-port {bridge} {device}")?;
    let plain = vlans.iter().find(|v| v.kind != VlanType::Tagged);
    let tagged: Vec<String> = vlans
        .iter()
        .filter(|v| v.kind == VlanType::Tagged)
        .map(|v| v.vid.to_string())
        .collect();
    let mode = match (plain, tagged.is_empty()) {
        (None, true) => return Ok(()),
        (None, false) => "trunk",
        (Some(_), true) => "access",
        (Some(_), false) => "native-untagged",
    };
    write!(f, " -- set port {device} vlan_mode={mode}")?;
    if let Some(vlan) = plain {
        write!(f, " tag={}", vlan.vid)?;
    }
    if !tagged.is_empty() {
        write!(f, " trunks={}", tagged.join(","))?;
    }
    Ok(())
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HostTable => f.write_str(
                "nft -f - <<'EOF'\nadd table inet muster\ndelete table inet muster\nEOF",
            ),
            Self::IpForward => f.write_str("sysctl -w net.ipv4.ip_forward=0 # if it was 0 before"),
            Self::HostRules(rules) => fed(
                f,
                "! nft list table inet muster >/dev/null 2>&1 || nft -f -",
                &rules.remove(),
            ),
            Self::Netns(name) => write!(f, "[ ! -e /run/netns/{name} ] || ip netns del {name}"),
            Self::Device(device) => write!(
                f,
                "[ ! -e /sys/class/net/{device} ] || ip link del {device}"
            ),
            Self::Bridge(bridge) => write!(f, "ovs-vsctl --if-exists del-br {bridge}"),
            Self::Port { bridge, device } => {
                write!(f, "ovs-vsctl --if-exists del-port {bridge} {device}")
            }
            Self::Directory(path) => write!(f, "rm -rf {path}"),
            Self::Dnsmasq(pid_file) => {
                write!(
                    f,
                    "[ ! -e {pid_file} ] || pkill -F {pid_file} dnsmasq || true"
                )
            }
        }
    }
}
