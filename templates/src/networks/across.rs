//! What two networks must not have in common, since a node has both of them.

use std::collections::HashMap;

use muster_types::network::{Bridged, Ethernet, GenericPci, Layer, NetworkSpec, ReverseNat};
use muster_types::subnet::Subnet;

use super::Network;
use super::rules::overlap;
use super::settings::{Findings, Settings};

/// Name and place of a network, for messages.
#[derive(Debug, Clone)]
struct Owner {
    name: String,
    defined_at: String,
}

/// What the networks so far have taken.
#[derive(Debug, Default)]
pub(super) struct Across {
    dev_prefixes: HashMap<String, Owner>,
    tap_prefixes: HashMap<String, Owner>,
    int_networks: Vec<(Subnet, Owner)>,
    host_ports: Vec<(ReverseNat, Owner)>,
    pci: HashMap<String, Owner>,
}

impl Across {
    /// Holds a network that is right in itself against those before it.
    pub(super) fn check(
        &mut self,
        findings: &mut Findings<'_>,
        network: &Network,
        settings: &Settings<'_>,
    ) {
        let owner = Owner {
            name: network.name.clone(),
            defined_at: network.defined_at.clone(),
        };
        match &network.spec {
            NetworkSpec::Ethernet(net) => self.ethernet(findings, net, settings, &owner),
            NetworkSpec::Bridged(net) => self.bridged(findings, net, settings, owner),
            NetworkSpec::Genericpci(net) => self.genericpci(findings, net, settings, &owner),
            NetworkSpec::Infiniband(_) | NetworkSpec::Hostib(_) => {}
        }
    }

    fn ethernet(
        &mut self,
        findings: &mut Findings<'_>,
        net: &Ethernet,
        settings: &Settings<'_>,
        owner: &Owner,
    ) {
        let (at, key) = settings.place("dev-prefix");
        let prefix = &net.dev_prefix;
        if let Some(Owner { name, defined_at }) = self.dev_prefixes.get(prefix) {
            let message = format!(
                "network '{name}' ({defined_at}) has '{prefix}' already: the devices of both would have the same names"
            );
            findings.errors.error(at, &key, message);
        } else if let Some(Owner { name, defined_at }) = self.tap_prefixes.get(prefix) {
            let message = format!(
                "'{prefix}' is the tap-prefix of network '{name}' ({defined_at}): the devices of both look alike"
            );
            findings.warnings.error(at, &key, message);
        }
        let entry = self.dev_prefixes.entry(prefix.clone());
        entry.or_insert_with(|| owner.clone());
        if net.network_layer == Layer::L2 {
            return;
        }
        let int = net.int_network;
        if let Some((other, Owner { name, defined_at })) =
            self.int_networks.iter().find(|(o, _)| o.overlaps(int))
        {
            let (at, key) = settings.place("int-network");
            let message = format!(
                "int-network {int} overlaps {other} of network '{name}' ({defined_at}): no VM can be on both"
            );
            findings.warnings.error(at, &key, message);
        }
        self.int_networks.push((int, owner.clone()));
        let shared = net.reverse_nat.iter().find_map(|rule| {
            let mut others = self.host_ports.iter();
            Some((rule, others.find(|(other, _)| overlap(other, rule))?))
        });
        if let Some((rule, (other, Owner { name, defined_at }))) = shared {
            let (at, key) = settings.place("reverse-nat");
            let message = format!(
                "host ports {} to {} overlap {} to {} of network '{name}' ({defined_at}): VMs of both share these ports",
                rule.min_host_port, rule.max_host_port, other.min_host_port, other.max_host_port
            );
            findings.warnings.error(at, &key, message);
        }
        let rules = net.reverse_nat.iter().map(|rule| (*rule, owner.clone()));
        self.host_ports.extend(rules);
    }

    fn bridged(
        &mut self,
        findings: &mut Findings<'_>,
        net: &Bridged,
        settings: &Settings<'_>,
        owner: Owner,
    ) {
        let (at, key) = settings.place("tap-prefix");
        let prefix = &net.tap_prefix;
        let taken = self.tap_prefixes.get(prefix);
        if let Some(Owner { name, defined_at }) = taken.or(self.dev_prefixes.get(prefix)) {
            let message = format!(
                "network '{name}' ({defined_at}) has '{prefix}' already: the devices of both look alike"
            );
            findings.warnings.error(at, &key, message);
        }
        self.tap_prefixes.entry(prefix.clone()).or_insert(owner);
    }

    fn genericpci(
        &mut self,
        findings: &mut Findings<'_>,
        net: &GenericPci,
        settings: &Settings<'_>,
        owner: &Owner,
    ) {
        let (at, key) = settings.place("host-device-addrs");
        for (i, address) in net.host_device_addrs.iter().enumerate() {
            if let Some(Owner { name, defined_at }) = self.pci.get(address) {
                let message = if *name == owner.name {
                    format!("{address} is in the list already")
                } else {
                    format!(
                        "{address} is in network '{name}' ({defined_at}) already: a device has one place"
                    )
                };
                findings.errors.error(at, &format!("{key}[{i}]"), message);
            } else {
                self.pci.insert(address.clone(), owner.clone());
            }
        }
    }
}
