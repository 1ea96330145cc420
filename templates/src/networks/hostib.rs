//! `type: hostib`: an InfiniBand virtual function as it is, in the host's own partitions.

use muster_types::network::HostIb;

use super::infiniband::MAX_DEVICE;
use super::settings::{Settings, device};
use crate::key::{Key, Shape};
use crate::tree::Reader;

/// The keys of its settings.
pub(super) const KEYS: &[Key] = &[Key {
    name: "host-device",
    shape: Shape::Text,
    default: "",
    about: "the device of the nodes whose virtual functions VMs get, such as mlx5_0",
}];

/// Reads the settings. What is wrong holds by default in what comes out.
pub(super) fn read(reader: &mut Reader<'_>, settings: &Settings<'_>) -> HostIb {
    let mut net = HostIb {
        host_device: String::new(),
    };
    settings.set(&mut net.host_device, "host-device", |n, k| {
        device(reader, n, k, ("an InfiniBand device", MAX_DEVICE))
    });
    net
}
