//! Muster: ids, units, the cluster request and the wire messages; no I/O.
