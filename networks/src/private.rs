//! The plan of a private network on one node.

use std::net::{IpAddr, Ipv4Addr};

use muster_types::ids::{NodeName, shown};
use muster_types::mac::Mac;
use muster_types::network::{Datapath, Ethernet};

use crate::addresses::Addresses6;
use crate::addressing::{VmAddress, VmIp};
use crate::check::NetworkError;
use crate::cluster::{ClusterNetwork, HostPort, LocalFacts};
use crate::dnsmasq::{self, Service};
use crate::firewall::host::{Link, Rules};
use crate::firewall::inside::{self, Inside};
use crate::names::{self, Role, device};
use crate::plan::{NodePlan, tap, wanted_ports};
use crate::step::{
    Bridge, BridgePort, EVERYBODY, FdbEntry, INNER_UPLINK, PortKind, Step, Tap, Vxlan,
};
use crate::switch::{FIRST_VM, GATEWAY, Switch, TUNNEL};

/// A private network on a node with VMs.
#[derive(Debug)]
pub(crate) struct Private<'a> {
    pub(crate) net: &'a ClusterNetwork,
    pub(crate) spec: &'a Ethernet,
    pub(crate) facts: &'a LocalFacts,
    pub(crate) node: usize,
    pub(crate) vms: &'a [VmAddress],
    pub(crate) local: Vec<&'a VmAddress>,
}

impl Private<'_> {
    pub(crate) fn plan(&self) -> Result<NodePlan, NetworkError> {
        let mut plan = NodePlan::default();
        let ip = self.local.iter().find_map(|vm| vm.ip.as_ref());
        let link = match ip {
            Some(_) => self.link()?,
            None => None,
        };
        let rules = Rules {
            input: names::chain(self.net.key.job, self.net.index, "input"),
            forward: names::chain(self.net.key.job, self.net.index, "forward"),
            peers: self.peers(),
            link: link.as_ref().map(|(link, _)| link.clone()),
        };
        if !rules.is_empty() {
            let ports = self.tunnel().then_some(self.spec.tunnel_port);
            plan.shared
                .push(Step::HostTable(ports.into_iter().collect()));
        }
        if link.is_some() && self.spec.manage_ip_forward {
            plan.shared.push(Step::IpForward);
        }
        if !rules.is_empty() {
            plan.steps.push(Step::HostRules(rules));
        }
        if ip.is_some() {
            plan.steps.extend(self.namespace(link.is_some()));
        }
        plan.steps.extend(self.tunnels()?);
        let taps = self.local.iter().map(|vm| self.tap(vm));
        plan.steps.extend(taps.map(Step::Tap));
        plan.steps.push(Step::Bridge(self.bridge(ip.is_some())?));
        plan.steps.push(Step::Flows {
            bridge: self.device(Role::Bridge),
            flows: self.switch().flows(),
        });
        if let Some(ip) = ip {
            plan.steps.push(self.gateway(ip));
            plan.steps.extend(link.map(|(link, host)| Step::Uplink {
                device: link.device,
                netns: self.netns(),
                host,
                inner: link.address,
                mtu: self.mtu(),
            }));
            plan.steps.extend(self.service(ip)?);
        }
        Ok(plan)
    }

    fn device(&self, role: Role) -> String {
        device(
            &self.spec.dev_prefix,
            self.net.key.job,
            self.net.index,
            role,
        )
    }

    fn netns(&self) -> String {
        names::netns(self.net.key.job, self.net.index)
    }

    fn tap(&self, vm: &VmAddress) -> Tap {
        tap(self.net, &self.spec.dev_prefix, vm)
    }

    fn mtu(&self) -> u16 {
        self.local.first().map_or(0, |vm| vm.mtu)
    }

    /// Whether other nodes have VMs on the network.
    fn tunnel(&self) -> bool {
        self.vms.iter().any(|vm| vm.node != self.node)
    }

    fn tunnel_address(&self, node: usize) -> Option<Ipv4Addr> {
        self.net.nodes.get(node)?.tunnel_address
    }

    /// The other nodes with VMs on the network, by their ends of the tunnels.
    fn remotes(&self) -> Vec<Ipv4Addr> {
        let others = self.net.members().into_iter().filter(|n| *n != self.node);
        others.filter_map(|n| self.tunnel_address(n)).collect()
    }

    fn peers(&self) -> Vec<(Ipv4Addr, u16, u32)> {
        let (port, vni) = (self.spec.tunnel_port, self.net.vni);
        self.remotes()
            .into_iter()
            .map(|remote| (remote, port, vni))
            .collect()
    }

    /// Where the service asks for names that are not the network's.
    fn upstream(&self) -> Vec<Ipv4Addr> {
        let v4 = |address: &IpAddr| match address {
            IpAddr::V4(v4) if !v4.is_loopback() => Some(*v4),
            _ => None,
        };
        match self.spec.dns_server {
            Some(server) => v4(&server).into_iter().collect(),
            // Names from the outside would carry data out.
            None if !self.spec.allow_outbound => Vec::new(),
            None => self.facts.dns_servers.iter().filter_map(v4).collect(),
        }
    }

    /// The link between the namespace and the node with the node's address on it; none if nothing
    /// is to pass.
    fn link(&self) -> Result<Option<(Link, Ipv4Addr)>, NetworkError> {
        let spec = self.spec;
        let ports = self.host_ports()?;
        let dns = self.upstream();
        let ntp = spec.ntp_server.and_then(|server| match server {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        });
        let idle = !spec.allow_outbound
            && ports.is_empty()
            && spec.reach.is_empty()
            && dns.is_empty()
            && ntp.is_none();
        if idle {
            return Ok(None);
        }
        let most = spec.ext_network.size() / 2;
        if u64::from(self.facts.slot) >= most {
            return Err(NetworkError::Slot {
                network: self.net.name.clone(),
                node: self.name(),
                range: spec.ext_network.to_string(),
                most,
                number: u64::from(self.facts.slot) + 1,
            });
        }
        let base = spec.ext_network.base().to_bits();
        let host = base.wrapping_add(self.facts.slot.wrapping_mul(2));
        let link = Link {
            device: self.device(Role::Uplink),
            address: Ipv4Addr::from_bits(host.wrapping_add(1)),
            reach: spec.reach.clone(),
            dns,
            ntp,
            ports: ports.iter().map(|port| port.host_port).collect(),
        };
        Ok(Some((link, Ipv4Addr::from_bits(host))))
    }

    fn name(&self) -> NodeName {
        self.net.nodes[self.node].name.clone()
    }

    /// The port of each VM and rule, in their order.
    fn host_ports(&self) -> Result<Vec<HostPort>, NetworkError> {
        let mut found: Vec<HostPort> = Vec::new();
        for wanted in wanted_ports(self.net, self.node) {
            let fits = |port: &&HostPort| {
                port.rank == wanted.rank
                    && port.vm_port == wanted.vm_port
                    && (wanted.min..=wanted.max).contains(&port.host_port)
                    && found.iter().all(|f| f.host_port != port.host_port)
            };
            let port = self.facts.host_ports.iter().find(fits).copied();
            found.push(port.ok_or_else(|| NetworkError::HostPort {
                network: self.net.name.clone(),
                vm: wanted.rank,
                node: self.name(),
                vm_port: wanted.vm_port,
                min: wanted.min,
                max: wanted.max,
            })?);
        }
        Ok(found)
    }

    /// The namespace, closed before anything is in it.
    fn namespace(&self, linked: bool) -> Vec<Step> {
        let gateway = self.device(Role::Gateway);
        let address = |rank| {
            let vm = self.local.iter().find(|vm| vm.rank == rank)?;
            vm.ip.as_ref().map(|ip| ip.v4)
        };
        let ports = self.host_ports().unwrap_or_default();
        let rules = inside::rules(&Inside {
            spec: self.spec,
            gateway: &gateway,
            uplink: linked.then_some(INNER_UPLINK),
            ports: ports
                .iter()
                .filter_map(|p| Some((p.host_port, address(p.rank)?, p.vm_port)))
                .collect(),
        });
        let netns = self.netns();
        vec![
            Step::Netns(netns.clone()),
            Step::NetnsRules { netns, rules },
        ]
    }

    fn tunnels(&self) -> Result<Vec<Step>, NetworkError> {
        if !self.tunnel() {
            return Ok(Vec::new());
        }
        let missing = || NetworkError::Tunnel {
            network: self.net.name.clone(),
            node: self.name(),
            suffix: self.spec.host_if_suffix.clone(),
        };
        let device = self.device(Role::Tunnel);
        let link = Vxlan {
            device: device.clone(),
            vni: self.net.vni,
            local: self.tunnel_address(self.node).ok_or_else(missing)?,
            port: self.spec.tunnel_port,
            mtu: self.mtu(),
        };
        let everybody = self.remotes().into_iter().map(|remote| FdbEntry {
            mac: EVERYBODY,
            remote,
        });
        let vms = self.vms.iter().filter(|vm| vm.node != self.node);
        let known = vms.filter_map(|vm| {
            let remote = self.tunnel_address(vm.node)?;
            Some(FdbEntry {
                mac: vm.mac,
                remote,
            })
        });
        let entries = everybody.chain(known).collect();
        Ok(vec![Step::Vxlan(link), Step::Fdb { device, entries }])
    }

    /// The node's VMs with their ports in the bridge.
    fn ports(&self) -> impl Iterator<Item = (u16, &VmAddress)> {
        (FIRST_VM..).zip(self.local.iter().copied())
    }

    /// One MAC address for the gateways of all nodes: the last of the prefix, which no VM has.
    fn gateway_mac(&self) -> Mac {
        let last = self.spec.mac_prefix.address(0xff, 0xffff, 0);
        last.unwrap_or(EVERYBODY)
    }

    fn bridge(&self, with_gateway: bool) -> Result<Bridge, NetworkError> {
        let kernel_datapath = match self.spec.datapath {
            Datapath::Auto => self.facts.kernel_datapath,
            Datapath::Netdev => false,
            Datapath::System if self.facts.kernel_datapath => true,
            Datapath::System => {
                return Err(NetworkError::Datapath {
                    network: self.net.name.clone(),
                    node: self.name(),
                });
            }
        };
        let mut ports = Vec::new();
        if self.tunnel() {
            ports.push(BridgePort {
                device: self.device(Role::Tunnel),
                number: TUNNEL,
                kind: PortKind::Tunnel,
            });
        }
        if with_gateway {
            ports.push(BridgePort {
                device: self.device(Role::Gateway),
                number: GATEWAY,
                kind: PortKind::Internal(self.gateway_mac()),
            });
        }
        ports.extend(self.ports().map(|(number, vm)| BridgePort {
            device: self.tap(vm).device,
            number,
            kind: PortKind::Vm(vm.rank),
        }));
        Ok(Bridge {
            name: self.device(Role::Bridge),
            kernel_datapath,
            key: self.net.key,
            ports,
        })
    }

    fn switch(&self) -> Switch<'_> {
        Switch {
            spec: self.spec,
            vms: self.vms,
            local: self.ports().collect(),
            tunnel: self.tunnel(),
            gateway: self.gateway_mac(),
        }
    }

    fn gateway(&self, ip: &VmIp) -> Step {
        let mut addresses = vec![
            (IpAddr::V4(ip.gateway), ip.prefix_length),
            (IpAddr::V4(ip.service), ip.prefix_length),
        ];
        if let Some(v6) = self.spec.ipv6_network.map(Addresses6::new) {
            for address in [v6.gateway(), v6.service()] {
                addresses.push((IpAddr::V6(address), v6.prefix_length()));
            }
        }
        Step::Gateway {
            device: self.device(Role::Gateway),
            netns: self.netns(),
            addresses,
            mtu: self.mtu(),
        }
    }

    fn service(&self, ip: &VmIp) -> Result<Vec<Step>, NetworkError> {
        let directory = &self.facts.directory;
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-');
        if directory.len() < 2 || !directory.starts_with('/') || !directory.bytes().all(plain) {
            return Err(NetworkError::Directory {
                network: self.net.name.clone(),
                directory: shown(directory),
            });
        }
        let gateway_device = self.device(Role::Gateway);
        let service = Service {
            spec: self.spec,
            vms: self.vms,
            local: self.local.clone(),
            ip,
            mtu: self.mtu(),
            gateway_device: &gateway_device,
            directory,
            upstream: self.upstream(),
        };
        let file = |name, text| Step::File {
            directory: directory.clone(),
            name,
            text,
        };
        Ok(vec![
            Step::Directory(directory.clone()),
            file(dnsmasq::NAMES, service.names()),
            file(dnsmasq::LEASES, service.leases()),
            file(dnsmasq::CONFIG, service.config()),
            Step::Dnsmasq {
                netns: self.netns(),
                config: format!("{directory}/{}", dnsmasq::CONFIG),
                pid_file: format!("{directory}/{}", dnsmasq::PID),
            },
        ])
    }
}
