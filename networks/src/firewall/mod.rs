//! Rules of nftables (nft(8), 1.0.6 and later) as text that `nft -f` applies in one transaction.
//!
//! The node has one table, `inet muster`, for all networks of all jobs. Its hooks and their rules
//! are made once ([`host::base`]) and look everything up in sets and maps; a network adds elements and
//! chains of its own ([`host::Rules`]) and takes away exactly those. A network's namespace has its
//! own table ([`inside::rules`]).

pub(crate) mod host;
pub(crate) mod inside;

/// The name of the table, on a node and in a namespace.
pub(crate) const TABLE: &str = "inet muster";

/// Values as a set's elements.
fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = values.into_iter().map(|v| v.to_string()).collect();
    texts.join(", ")
}
