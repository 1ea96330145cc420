//! Networks of a virtual cluster: which addresses its VMs have.
//!
//! The numbering is the one that pcocc sites know, so that guests and scripts written for it go on
//! working: VM number *n* on a network (from 0, in rank order) has the MAC address `mac-prefix` and
//! *n* + `mac-start-offset` in hexadecimal, and the address `int-network` + *n* + 1; the gateway is
//! the last address of the range less one, the DHCP and DNS service the last less two.
//!
//! Everything is computed, nothing is done: the crate does no I/O.

#![forbid(unsafe_code)]

mod addresses;

pub use addresses::{AddressError, Addresses};
